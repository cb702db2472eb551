package plan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

var web = &v1alpha1.Widget{ObjectMeta: metav1.ObjectMeta{
	Namespace: "default", Name: "web", UID: "uid", ResourceVersion: "7", Generation: 7,
}}

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
			name: "without a ReplicaSet", status: rolledOut(1, 3, 3, 3, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentProgressing, Status: "False", Reason: "ReplicaSetCreateError", Message: "no quota",
			}),
			want: "Failed: Deployment reports ReplicaSetCreateError: see kubectl describe deployment web",
		},
		{
			name: "too slow", status: rolledOut(2, 3, 3, 2, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentProgressing, Status: "False", Reason: "ProgressDeadlineExceeded",
			}),
			want: "Failed: Deployment reports ProgressDeadlineExceeded: see kubectl describe deployment web",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dep := Deployment(web)
			dep.Generation, dep.Spec.Replicas, dep.Status = 2, new(int32(3)), test.status
			got := statusOf(t, &Input{Widget: web, ConfigMap: stored(ConfigMap(web)), Deployment: stored(dep)})
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

// statusOf returns the status that the first request of a sync writes.
func statusOf(t *testing.T, in *Input) v1alpha1.WidgetStatus {
	sync := Widgets.Sync(in)
	sync.Begin(reconcile.Memory{}, time.Time{}, 0)
	step := sync.Next()
	if step == nil || step.Verb != reconcile.UpdateStatus {
		t.Fatalf("the first request is %v, want one that writes the status", step)
	}
	return step.Body.(*v1alpha1.Widget).Status
}

func stored[T metav1.Object](obj T) T {
	obj.SetUID("uid")
	obj.SetResourceVersion("7")
	return obj
}

func TestWhatNobodyReadsCostsNoMemory(t *testing.T) {
	long := strings.Repeat("x", 250_000)
	child := ConfigMap(web)
	child.Annotations, child.Finalizers = map[string]string{"a": long}, []string{long}
	child.OwnerReferences = append(child.OwnerReferences, metav1.OwnerReference{Name: long})
	noChild := &corev1.ConfigMap{Data: map[string]string{"a": long}, BinaryData: map[string][]byte{"a": []byte(long)}}
	noChild.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: long, Kind: long, Name: long, UID: types.UID(long), Controller: new(true),
	}}
	widget := web.DeepCopy()
	widget.Annotations, widget.Labels, widget.Finalizers = child.Annotations, child.Annotations, child.Finalizers
	for _, obj := range []any{child, noChild, &appsv1.Deployment{ObjectMeta: child.ObjectMeta}, widget} {
		got, err := Trim(obj)
		text, encodeErr := json.Marshal(got)
		if err := errors.Join(err, encodeErr); err != nil || len(text) > 10_000 {
			t.Errorf("the cache keeps %d bytes of a %T: %v", len(text), obj, err)
		}
	}
}

func TestTrimKeepsOnlyTheNameAndTheOwnerOfOthers(t *testing.T) {
	others := metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "uid", ResourceVersion: "7", DeletionTimestamp: new(metav1.Unix(1e9, 0)),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(web, WidgetKind.GroupVersionKind)},
	}
	others.OwnerReferences[0].Kind = "Not" + WidgetKind.Kind
	annotated := others
	annotated.Annotations = map[string]string{"a": "b"}
	for _, test := range []struct{ obj, want any }{
		{obj: ConfigMap(web), want: ConfigMap(web)},
		{obj: Deployment(web), want: Deployment(web)},
		{obj: &corev1.ConfigMap{ObjectMeta: annotated, Data: map[string]string{"a": "b"}},
			want: &corev1.ConfigMap{ObjectMeta: others}},
		{obj: &appsv1.Deployment{ObjectMeta: annotated, Spec: Deployment(web).Spec},
			want: &appsv1.Deployment{ObjectMeta: others}},
		{obj: web, want: web},
	} {
		if got, err := Trim(test.obj); err != nil || !cmp.Equal(test.want, got) {
			t.Errorf("%v, want %v", got, test.want)
		}
	}
}
