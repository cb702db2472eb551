package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestEventOf(t *testing.T) {
	status := func(reason string, generation int64) *v1alpha1.FooStatus {
		return &v1alpha1.FooStatus{Conditions: []metav1.Condition{
			{Type: "Ready", Reason: reason, Message: "2 of 2", ObservedGeneration: generation},
		}}
	}
	nothing := &v1alpha1.FooStatus{}
	const synced, exists, overridden = "Normal Synced", "Warning ErrResourceExists", "Warning FieldsOverridden"
	for _, tc := range []struct {
		name          string
		before, after *v1alpha1.FooStatus
		want          string // "" for none.
	}{
		{
			name:   "a Foo becomes ready",
			before: status("Progressing", 1), after: status("Available", 1), want: synced,
		},
		{name: "a Foo is ready in the first sync", before: nothing, after: status("Available", 1), want: synced},
		{
			name:   "a Foo is ready again for a new generation",
			before: status("Available", 1), after: status("Available", 2), want: synced,
		},
		{name: "a Foo is still ready", before: status("Available", 1), after: status("Available", 1)},
		{name: "a Foo is paused while ready", before: status("Available", 1), after: status("Paused", 2)},
		{
			name:   "a name turns out to be taken",
			before: status("Creating", 1), after: status("NotOwned", 1), want: exists,
		},
		{name: "a name is taken in the first sync", before: nothing, after: status("NotOwned", 1), want: exists},
		{
			name:   "another name is taken too",
			before: status("NotOwned", 1), after: status("NotOwned", 2), want: exists,
		},
		{name: "a name is still taken", before: status("NotOwned", 1), after: status("NotOwned", 1)},
		{
			name:   "a name turns out to be another Foo's",
			before: status("Creating", 1), after: status("NameTaken", 1), want: exists,
		},
		{name: "a name is still another Foo's", before: status("NameTaken", 1), after: status("NameTaken", 1)},
		{
			name:   "Foos turn out to block each other",
			before: status("WaitingForName", 1), after: status("NameCycle", 1), want: exists,
		},
		{name: "Foos still block each other", before: status("NameCycle", 1), after: status("NameCycle", 1)},
		{
			name:   "a Foo with the name turns out to stay",
			before: status("WaitingForName", 1), after: status("NameTaken", 1), want: exists,
		},
		{name: "a name is about to be free", before: status("NameTaken", 1), after: status("WaitingForName", 1)},
		{name: "a name is about to be free in the first sync", before: nothing, after: status("WaitingForName", 1)},
		{name: "a Deployment is about to be gone", before: status("Available", 1), after: status("WaitingForDeletion", 1)},
		{
			name:   "a field turns out to be overridden",
			before: status("Available", 1), after: status("FieldsOverridden", 1), want: overridden,
		},
		{
			name:   "a field is overridden in the first sync",
			before: nothing, after: status("FieldsOverridden", 1), want: overridden,
		},
		{
			name:   "a field of the next generation is overridden too",
			before: status("FieldsOverridden", 1), after: status("FieldsOverridden", 2), want: overridden,
		},
		{
			name:   "a field is still overridden",
			before: status("FieldsOverridden", 1), after: status("FieldsOverridden", 1),
		},
		{
			name:   "no field is overridden any more",
			before: status("FieldsOverridden", 1), after: status("Available", 1), want: synced,
		},
		{name: "a Foo is no longer ready", before: status("Available", 1), after: status("Progressing", 1)},
		{
			name:   "a write is refused",
			before: status("Creating", 1), after: status("Refused", 1), want: "Warning Refused",
		},
		{name: "a write is still refused", before: status("Refused", 1), after: status("Refused", 1)},
		{
			name:   "pods cannot be created",
			before: status("Progressing", 1), after: status("ReplicaFailure", 1), want: "Warning ReplicaFailure",
		},
		{
			name:   "a rollout takes too long",
			before: status("Progressing", 1), after: status("ProgressDeadlineExceeded", 1),
			want: "Warning ProgressDeadlineExceeded",
		},
		{
			name:   "somebody pauses the Deployment",
			before: status("Progressing", 1), after: status("DeploymentPaused", 1), want: "Warning DeploymentPaused",
		},
		{name: "a Deployment is created", before: nothing, after: status("Creating", 1)},
		{name: "a Foo is renamed", before: status("Available", 1), after: status("Renaming", 2)},
		{name: "there is nothing to report", before: status("Available", 1), after: nothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := eventOf(tc.before, tc.after)
			if tc.want == "" {
				if got != nil {
					t.Errorf("got %+v, want none", got)
				}
				return
			}
			is := tc.after.Conditions[0]
			kind, reason, _ := strings.Cut(tc.want, " ")
			want := &Event{
				Type: kind, Reason: reason, Note: "2 of 2",
				Action: fmt.Sprintf("Report %s of generation %d", is.Reason, is.ObservedGeneration),
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong event (-want +got):\n%s", diff)
			}
		})
	}
}

// The API server takes notes of at most 1 kB.
func TestEventOfShortensItsNote(t *testing.T) {
	for _, tc := range []struct{ name, message, want string }{
		{name: "1024 characters are kept", message: strings.Repeat("a", 1024), want: strings.Repeat("a", 1024)},
		{name: "1025 characters are cut", message: strings.Repeat("a", 1025), want: strings.Repeat("a", 1021) + "..."},
	} {
		for _, reason := range []string{
			v1alpha1.ReasonAvailable, v1alpha1.ReasonNotOwned, v1alpha1.ReasonNameTaken, v1alpha1.ReasonNameCycle,
			v1alpha1.ReasonFieldsOverridden,
		} {
			t.Run(tc.name+" of "+reason, func(t *testing.T) {
				after := &v1alpha1.FooStatus{Conditions: []metav1.Condition{
					{Type: "Ready", Reason: reason, Message: tc.message},
				}}
				if diff := cmp.Diff(tc.want, eventOf(&v1alpha1.FooStatus{}, after).Note); diff != "" {
					t.Errorf("wrong note (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// An autoscaler changes replicas, and nothing else.
func TestOnlyReplicasSuggestAnAutoscaler(t *testing.T) {
	replicas, image := Field{Path: pathReplicas}, Field{Path: pathImage}
	for _, tc := range []struct {
		name   string
		fields []Field
		want   string
	}{
		{"replicas", []Field{replicas}, "Stop that client, for example an autoscaler"},
		{"the image", []Field{image}, "Stop that client"},
		{"both", []Field{replicas, image}, "Stop that client"},
	} {
		if got := stopClient(tc.fields); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
