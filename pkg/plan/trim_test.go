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
	dep := newDeployment(foo, foreignData, deleted, pausedByUser, deadlineExceeded, rollout(4, 3, 2), observedAt(5, 6), madeAt(7))
	stub := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "default", UID: "dep-uid", ResourceVersion: "20"}}
	foreign := newDeployment(foo, foreignData, deleted, deadlineExceeded, madeAt(7), ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "bill", UID: "bill-uid"}))
	foreignStub := stub.DeepCopy()
	foreignStub.OwnerReferences = foreign.OwnerReferences

	kept := stub.DeepCopy()
	kept.Labels = plan.Deployment(foo).Labels // And not team=a.
	kept.OwnerReferences = dep.OwnerReferences
	kept.CreationTimestamp, kept.DeletionTimestamp = dep.CreationTimestamp, dep.DeletionTimestamp
	kept.Generation = 6
	kept.Spec = appsv1.DeploymentSpec{Replicas: new(int32(3)), Paused: true, Selector: dep.Spec.Selector}
	kept.Spec.Template.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}
	kept.Status = appsv1.DeploymentStatus{ObservedGeneration: 5, Replicas: 4, UpdatedReplicas: 3, AvailableReplicas: 2,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}}

	another := newDeployment(newFoo(withUID("other")), withoutContainers, withoutLabels)
	anotherKept := another.DeepCopy()
	anotherKept.Labels = map[string]string{}
	anotherKept.Spec.Template = corev1.PodTemplateSpec{}

	for _, tc := range []struct {
		name string
		dep  *appsv1.Deployment
		want *appsv1.Deployment
	}{
		{"of a Foo's Deployment all that decisions read is kept", dep, kept},
		{"so is it of another Foo's, which a former self may be", another, anotherKept},
		{"of a Deployment without owner the names are kept", newDeployment(foo, foreignData, madeAt(7), ownedBy()), stub},
		{"of a foreign Deployment its owner is kept too", foreign, foreignStub},
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
	for _, obj := range []any{&appsv1.ReplicaSet{}, cache.DeletedFinalStateUnknown{Key: "default/web-1", Obj: dep}, "text", nil} {
		got, err := plan.Trim(obj)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
		}
		if diff := cmp.Diff(obj, got); diff != "" {
			t.Errorf("%T was changed:\n%s", obj, diff)
		}
	}
}

// Whatever a decision reads must survive, or the controller would see drift that is not there. And caches list
// in any order.
func TestTrimChangesNoDecision(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	someSeen(t, func(t *testing.T, seen plan.Seen) {
		type decisions struct {
			Did    string
			Create *appsv1.Deployment
			Patch  *plan.Patch
			Status *v1alpha1.FooStatus
		}
		decide := func(seen plan.Seen) decisions {
			did, status := perform(t, seen, seen.Foo, nil)
			seen.Live = &plan.Live{Foo: seen.Foo}
			step := plan.Next(seen)
			return decisions{did, step.Create, step.Patch, status}
		}
		want := decide(seen)
		if diff := cmp.Diff(want, decide(shuffled(seen, r))); diff != "" {
			t.Errorf("in another order it is decided differently (-first +other):\n%s", diff)
		}
		trimmed := seen
		if trimmed.Named != nil {
			trimmed.Named = trim(t, seen.Named)
		}
		trimmed.Owned = nil
		for _, dep := range seen.Owned {
			trimmed.Owned = append(trimmed.Owned, trim(t, dep))
		}
		if diff := cmp.Diff(want, decide(trimmed)); diff != "" {
			t.Errorf("trimmed, it is decided differently (-whole +trimmed):\n%s", diff)
		}
	})
}
