package plan

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
)

var (
	web       = &v1alpha1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid", Generation: 7}}
	configMap = ConfigMap(web)
)

// TestStatus has a rollout of 3 replicas, in the order in which it proceeds.
func TestStatus(t *testing.T) {
	for _, test := range []struct {
		name   string
		status appsv1.DeploymentStatus
		want   string
	}{
		{name: "new", status: rolledOut(0, 0, 0, 0), want: "Progressing: 0 of 3 replicas available"},
		{name: "a pod is missing", status: rolledOut(2, 3, 3, 2), want: "Progressing: 2 of 3 replicas available"},
		{name: "complete", status: rolledOut(2, 3, 3, 3), want: "Available: 3 of 3 replicas available"},
		{name: "changed, but not observed", status: rolledOut(1, 3, 3, 3), want: "Progressing: 3 of 3 replicas available"},
		{name: "with an old pod", status: rolledOut(2, 3, 2, 3), want: "Progressing: 3 of 3 replicas available"},
		{name: "with a pod too many", status: rolledOut(2, 4, 3, 3), want: "Progressing: 3 of 3 replicas available"},
		{
			name: "without quota", status: rolledOut(2, 2, 2, 2, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: "True", Reason: "FailedCreate", Message: "pod web-x7f4: no quota",
			}),
			want: "Failed: Deployment reports FailedCreate: see kubectl describe deployment web",
		},
		{
			name: "too slow", status: rolledOut(2, 3, 3, 2, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentProgressing, Status: "False", Reason: "ProgressDeadlineExceeded",
			}),
			want: "Failed: Deployment reports ProgressDeadlineExceeded: see kubectl describe deployment web",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dep := Deployment(web, configMap)
			dep.Generation, dep.Spec.Replicas, dep.Status = 2, new(int32(3)), test.status
			got := Status(web, configMap, dep, time.Time{})
			if ready := meta.FindStatusCondition(got.Conditions, "Ready"); ready.Reason+": "+ready.Message != test.want {
				t.Errorf("%s: %s, want %s", ready.Reason, ready.Message, test.want)
			}
			want := v1alpha1.WidgetStatus{
				ObservedGeneration: 7, Replicas: test.status.Replicas, AvailableReplicas: test.status.AvailableReplicas,
				Selector: "acme.example.com/widget=web", Conditions: got.Conditions,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func rolledOut(observed int64, replicas, updated, available int32,
	conditions ...appsv1.DeploymentCondition) appsv1.DeploymentStatus {
	return appsv1.DeploymentStatus{
		ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: available,
		Conditions: conditions,
	}
}

func TestOneFailureHidesNoOther(t *testing.T) {
	notOwned, lost := Taken(web, "ConfigMap", &corev1.ConfigMap{}), errors.New("connection reset")
	if err := Retriable(notOwned, lost, nil); !errors.Is(err, lost) || errors.Is(err, notOwned) {
		t.Errorf("retried because of %v, want %v", err, lost)
	}
	status := Status(web, configMap, nil, time.Time{}, lost, notOwned)
	if stalled := meta.FindStatusCondition(status.Conditions, "Stalled"); stalled == nil || stalled.Reason != "NotOwned" {
		t.Errorf("the status is %+v, want NotOwned", status)
	}
}

// Each of these failures is retried. Its text may differ each time: as each write of the status brings the key back at
// once, the message must not.
func TestTheMessageOfAFailureStaysTheSame(t *testing.T) {
	refusedWith := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New(text))
	}
	conflict := apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("modified"))
	for _, test := range []struct {
		reason        string
		first, second error
	}{
		{"Refused", refusedWith("port 40001"), refusedWith("port 40002")},
		{"RequestFailed", errors.New("create x: port 40001"), errors.New("create x: port 40002")},
		{
			"RequestFailed", errors.New("create x: port 40001"),
			fmt.Errorf("create x: %w", apierrors.NewInternalError(errors.New("a"))),
		},
		{"RequestFailed", apierrors.NewInternalError(errors.New("a")), apierrors.NewInternalError(errors.New("b"))},
		{"RequestFailed", errors.Join(errors.New("create x: port 40001")), conflict},
		{"Overridden", Overridden("Deployment", "web", []string{"a"}), Overridden("Deployment", "web", []string{"a"})},
	} {
		widget := web.DeepCopy()
		widget.Status = Status(widget, configMap, nil, time.Time{}, test.first)
		if ready := meta.FindStatusCondition(widget.Status.Conditions, "Ready"); ready.Reason != test.reason {
			t.Errorf("%v is reported as %s, want %s", test.first, ready.Reason, test.reason)
		}
		if !meta.IsStatusConditionTrue(widget.Status.Conditions, "Reconciling") {
			t.Errorf("%v is not reported as Reconciling", test.first)
		}
		if diff := cmp.Diff(widget.Status, Status(widget, configMap, nil, time.Time{}, test.second)); diff != "" {
			t.Errorf("the second status differs (-first +second):\n%s", diff)
		}
		widget.Generation++
		if Status(widget, configMap, nil, time.Time{}, test.first).ObservedGeneration != widget.Generation {
			t.Error("the status is not about the new generation")
		}
	}
}

func TestTheMessageIsAboutTheRequestThatFails(t *testing.T) {
	widget := web.DeepCopy()
	for _, test := range []struct {
		have          *corev1.ConfigMap
		request, want string
	}{
		{nil, "create ConfigMap web", "create ConfigMap web: forbidden: no. The Deployment waits for its ConfigMap"},
		{configMap, "create Deployment web", "create Deployment web: forbidden: no"},
	} {
		err := fmt.Errorf("%s: %w", test.request, apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no")))
		widget.Status = Status(widget, test.have, nil, time.Time{}, err)
		if ready := meta.FindStatusCondition(widget.Status.Conditions, "Ready"); ready.Message != test.want {
			t.Errorf("%s, want %s", ready.Message, test.want)
		}
	}
}

func TestTrimKeepsOnlyTheNameAndTheOwnerOfOthers(t *testing.T) {
	others := metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "uid", ResourceVersion: "7", DeletionTimestamp: new(metav1.Unix(1e9, 0)),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(web, WidgetKind)},
	}
	others.OwnerReferences[0].Kind = "Gadget"
	annotated := others
	annotated.Annotations = map[string]string{"a": "b"}
	for _, test := range []struct{ obj, want any }{
		{obj: ConfigMap(web), want: configMap},
		{obj: Deployment(web, configMap), want: Deployment(web, configMap)},
		{obj: &corev1.ConfigMap{ObjectMeta: annotated, Data: map[string]string{"a": "b"}},
			want: &corev1.ConfigMap{ObjectMeta: others}},
		{obj: &appsv1.Deployment{ObjectMeta: annotated, Spec: Deployment(web, configMap).Spec},
			want: &appsv1.Deployment{ObjectMeta: others}},
		{obj: web, want: web},
	} {
		if got, err := Trim(test.obj); err != nil || !cmp.Equal(test.want, got) {
			t.Errorf("%v, want %v", got, test.want)
		}
	}
}
