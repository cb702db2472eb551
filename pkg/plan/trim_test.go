package plan_test

import (
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// Trim is what informers take.
var _ cache.TransformFunc = plan.Trim

func trim(t *testing.T, dep *appsv1.Deployment) *appsv1.Deployment {
	t.Helper()
	trimmed, err := plan.Trim(dep)
	if err != nil {
		t.Fatal(err)
	}
	return trimmed.(*appsv1.Deployment)
}

func TestTrim(t *testing.T) {
	foo := newFoo(withReplicas(3))
	dep := newDeployment(foo, foreignData, deleted, pausedByUser, deadlineExceeded, rollout(4, 3, 2), observedAt(5, 6),
		madeAt(7))
	stub := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: "web-1", Namespace: "default", UID: "dep-uid", ResourceVersion: "20",
	}}
	foreign := newDeployment(foo, foreignData, deleted, deadlineExceeded, madeAt(7),
		ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "bill", UID: "bill-uid"}))
	foreignStub := stub.DeepCopy()
	foreignStub.OwnerReferences = foreign.OwnerReferences

	kept := stub.DeepCopy()
	kept.Labels = plan.Deployment(foo).Labels // And not team=a.
	kept.OwnerReferences = dep.OwnerReferences
	kept.CreationTimestamp, kept.DeletionTimestamp = dep.CreationTimestamp, dep.DeletionTimestamp
	kept.Generation = 6
	kept.Spec = appsv1.DeploymentSpec{Replicas: new(int32(3)), Paused: true, Selector: dep.Spec.Selector}
	kept.Spec.Template.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}
	kept.Status = appsv1.DeploymentStatus{
		ObservedGeneration: 5, Replicas: 4, UpdatedReplicas: 3, AvailableReplicas: 2,
		Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
		}},
	}

	another := newDeployment(newFoo(withUID("other")), withoutContainers, withoutLabels)
	anotherKept := another.DeepCopy()
	anotherKept.Labels = map[string]string{}
	anotherKept.Spec.Template = corev1.PodTemplateSpec{}

	for _, tc := range []struct {
		name string
		dep  *appsv1.Deployment
		want *appsv1.Deployment
	}{
		{name: "of a Foo's Deployment all that decisions read is kept", dep: dep, want: kept},
		{name: "so is it of another Foo's, which may be an earlier Foo of the name", dep: another, want: anotherKept},
		{
			name: "of a Deployment without owner the names are kept",
			dep:  newDeployment(foo, foreignData, madeAt(7), ownedBy()), want: stub,
		},
		{name: "of a foreign Deployment its owner is kept too", dep: foreign, want: foreignStub},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unchanged(t, foo, tc.dep)
			got := trim(t, tc.dep)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong rest (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, trim(t, got)); diff != "" {
				t.Errorf("a second time changes more:\n%s", diff)
			}
		})
	}
}

func TestTrimPassesOtherObjectsThrough(t *testing.T) {
	dep := newDeployment(newFoo(), foreignData)
	tombstone := cache.DeletedFinalStateUnknown{Key: "default/web-1", Obj: dep}
	for _, obj := range []any{&appsv1.ReplicaSet{}, tombstone, "text", nil} {
		got, err := plan.Trim(obj)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
		}
		if diff := cmp.Diff(obj, got); diff != "" {
			t.Errorf("%T was changed:\n%s", obj, diff)
		}
	}
}

// Whatever a decision reads must survive, or the controller would see drift that is not there. And caches list in any
// order.
func TestTrimChangesNoDecision(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	someStates(t, func(t *testing.T, state plan.State) {
		type decisions struct {
			Sent    string
			Create  *appsv1.Deployment
			Patch   *plan.Patch
			Status  *v1alpha1.FooStatus
			Outcome plan.Outcome
		}
		decide := func(state plan.State) decisions {
			c := play(t, state)
			d := decisions{Sent: c.result(), Status: c.status(), Outcome: c.outcome}
			if step := c.step(plan.CreateDeployment); step != nil {
				d.Create = step.Deployment
			}
			if step := c.step(plan.PatchDeployment); step != nil {
				d.Patch = step.Patch
			}
			return d
		}
		want := decide(state)
		if diff := cmp.Diff(want, decide(shuffled(state, r)), sameError); diff != "" {
			t.Errorf("in another order it is decided differently (-first +other):\n%s", diff)
		}
		trimmed := state
		if trimmed.Deployment != nil {
			trimmed.Deployment = trim(t, state.Deployment)
		}
		trimmed.Previous = nil
		for _, dep := range state.Previous {
			trimmed.Previous = append(trimmed.Previous, trim(t, dep))
		}
		if diff := cmp.Diff(want, decide(trimmed), sameError); diff != "" {
			t.Errorf("trimmed, it is decided differently (-whole +trimmed):\n%s", diff)
		}
	})
}
