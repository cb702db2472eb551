package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// A new reason, or the same one for a new generation, is worth an event when a person acts on it.
func TestEventOf(t *testing.T) {
	status := func(reason string, generation int64) *v1alpha1.FooStatus {
		return &v1alpha1.FooStatus{Conditions: []metav1.Condition{
			{Type: "Ready", Reason: reason, Message: "2 of 2", ObservedGeneration: generation},
		}}
	}
	const exists = "Warning ErrResourceExists"
	want := map[string]string{ // "" for none.
		"Available": "Normal Synced", "NotOwned": exists, "NameTaken": exists, "NameCycle": exists,
		"FieldsOverridden": "Warning FieldsOverridden", "Refused": "Warning Refused", "RequestFailed": "Warning " +
			"RequestFailed",
		"ReplicaFailure": "Warning ReplicaFailure", "DeploymentPaused": "Warning DeploymentPaused",
		"ProgressDeadlineExceeded": "Warning ProgressDeadlineExceeded",
		"Paused":                   "", "Invalid": "", "Creating": "", "Progressing": "", "Renaming": "",
		"WaitingForName": "", "WaitingForDeletion": "", "Pending": "",
	}
	for _, reason := range v1alpha1.ReadyReasons {
		if _, found := want[reason]; !found {
			t.Errorf("the table lacks %s", reason)
		}
	}
	for reason, want := range want {
		after := status(reason, 2)
		var event *reconcile.Event
		if kind, name, found := strings.Cut(want, " "); found {
			event = &reconcile.Event{Type: kind, Reason: name, Note: "2 of 2", Action: "Report " + hash(10, reason, "2 of 2")}
		}
		for name, before := range map[string]*v1alpha1.FooStatus{
			"the first report": {}, "another reason before": status("Other", 2), "another generation": status(reason, 1),
		} {
			if diff := cmp.Diff(event, eventOf(before, after)); diff != "" {
				t.Errorf("%s, %s: wrong event (-want +got):\n%s", reason, name, diff)
			}
		}
		if event := eventOf(status(reason, 2), after); event != nil {
			t.Errorf("%s as before: %+v", reason, event)
		}
	}
	if event := eventOf(status("Available", 1), &v1alpha1.FooStatus{}); event != nil {
		t.Errorf("nothing to report: %+v", event)
	}
}
