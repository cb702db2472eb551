package plan_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// Trim is what informers take.
var _ cache.TransformFunc = plan.Trim

// Nobody reads what users write into the metadata of a Foo. A status that is written without it keeps it: the API
// server takes only the status of such a request.
func TestTrimOfAFoo(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"), withPaused, deletedFoo, withUnread("spec.replicas"),
		reports(metav1.Condition{Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", Message: "by a person"}))
	foo.CreationTimestamp = metav1.Unix(7, 0)
	want := foo.DeepCopy()
	foo.Labels, foo.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "long"}
	foo.Finalizers, foo.GenerateName = []string{"example.com/keep"}, "web-"
	foo.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "bill", UID: "bill-uid"}}
	foo.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit"}}
	unchanged(t, foo, nil)
	got, err := plan.Trim(foo)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong rest (-want +got):\n%s", diff)
	}
	if plan.TrimFoo(nil) != nil || plan.TrimDeployment(nil) != nil {
		t.Error("of nothing something is left")
	}
}

func TestTrimOfADeployment(t *testing.T) {
	foo := newFoo(withReplicas(3))
	ours := plan.Deployment(foo).OwnerReferences[0]
	bill := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "bill", UID: "bill-uid"}
	dep := newDeployment(foo, foreignData, deleted, pausedByUser, rollout(4, 3, 2), observedAt(5, 6),
		ownedBy(bill, ours, bill), deadlineExceeded, withCondition("Available", corev1.ConditionTrue, "Minimum"))
	dep.CreationTimestamp = metav1.Unix(7, 0)
	stub := plan.TrimmedDeployment{ObjectMeta: metav1.ObjectMeta{
		Name: "web-1", Namespace: "default", UID: "dep-uid", ResourceVersion: "20",
	}}
	foreign := newDeployment(foo, foreignData, deleted, deadlineExceeded, func(dep *appsv1.Deployment) {
		bill.Controller = new(true)
		dep.OwnerReferences = []metav1.OwnerReference{{Kind: "Foo", Name: "x"}, bill}
	})
	foreignStub := stub
	foreignStub.OwnerReferences = []metav1.OwnerReference{bill}

	labels := plan.Deployment(foo).Labels
	kept := stub
	kept.OwnerReferences = []metav1.OwnerReference{ours}
	kept.CreationTimestamp, kept.DeletionTimestamp = dep.CreationTimestamp, dep.DeletionTimestamp
	kept.Generation = 6
	kept.ManagedBy, kept.MadeFor = "foo-controller", labels[v1alpha1.LabelMadeFor]
	kept.FooGeneration, kept.WrittenFor = "2", 2
	kept.Image = "nginx:latest"
	kept.Replicas, kept.Paused, kept.DeadlineExceeded = 3, true, true
	kept.Status.ObservedGeneration, kept.Status.Replicas = 5, 4
	kept.Status.UpdatedReplicas, kept.Status.AvailableReplicas = 3, 2

	another := newDeployment(newFoo(withUID("other")), withoutContainers, withoutLabels, withoutReplicas)
	anotherKept := stub
	anotherKept.OwnerReferences = another.OwnerReferences
	anotherKept.Generation, anotherKept.Replicas = 1, 1
	anotherKept.Status.ObservedGeneration, anotherKept.Status.Replicas = 1, 1
	anotherKept.Status.UpdatedReplicas, anotherKept.Status.AvailableReplicas = 1, 1

	for _, tc := range []struct {
		name string
		dep  *appsv1.Deployment
		want plan.TrimmedDeployment
	}{
		{name: "of a Foo's Deployment all that decisions read is kept", dep: dep, want: kept},
		{name: "so is it of another Foo's, which may be an earlier Foo of the name", dep: another, want: anotherKept},
		{
			name: "of a Deployment without controller the names are kept",
			dep:  newDeployment(foo, foreignData, ownedBy(metav1.OwnerReference{Kind: "Foo", Name: "x"})), want: stub,
		},
		{name: "of a foreign Deployment its controller is kept too", dep: foreign, want: foreignStub},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unchanged(t, foo, tc.dep)
			got := plan.TrimDeployment(tc.dep)
			transformed, err := plan.Trim(tc.dep)
			if diff := cmp.Diff([]any{&tc.want, &tc.want, nil}, []any{got, transformed, err}); diff != "" {
				t.Errorf("wrong rest (-want +got):\n%s", diff)
			}
		})
	}
}

// What is read has a limit. What is longer is absent, or cannot be equal to what a Foo sets.
func TestTrimLimitsWhatIsRead(t *testing.T) {
	foo := newFoo()
	long := strings.Repeat("x", 100_000)
	selector := func(size int) *metav1.LabelSelector {
		s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for i := 0; s.Size() < size-70; i++ {
			s.MatchLabels[fmt.Sprintf("k%03d", i)] = strings.Repeat("x", 40)
		}
		for s.MatchLabels["last"] = ""; s.Size() < size; { // A value has at most 63 characters.
			s.MatchLabels["last"] += "x"
		}
		return s
	}
	for size, kept := range map[int]bool{4096: true, 4097: false} {
		dep := newDeployment(foo)
		dep.Spec.Selector = selector(size)
		if got := *plan.TrimDeployment(dep).OtherSelector != ""; got != kept {
			t.Errorf("a selector of %d bytes is kept: %t", size, got)
		}
	}
	for label, want := range map[string]int64{
		"9223372036854775807": math.MaxInt64, "9223372036854775808": 0, "3x": 0, "": 0,
	} {
		if got := plan.TrimDeployment(newDeployment(foo, withFence(label))).WrittenFor; got != want {
			t.Errorf("with the label %q, it was written for generation %d, want %d", label, got, want)
		}
	}
	own, missing := newDeployment(foo), newDeployment(foo)
	own.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Exists"}}
	if got := plan.TrimDeployment(own).OtherSelector; got == nil || !strings.Contains(*got, ",x") {
		t.Error("a selector with an expression more is ours")
	}
	missing.Spec.Selector = nil
	if got := plan.TrimDeployment(missing).OtherSelector; got == nil || *got != labels.Nothing().String() {
		t.Errorf("without a selector it is %v", got)
	}
	for image, want := range map[string]string{
		strings.Repeat("é", 1024): strings.Repeat("é", 1024), strings.Repeat("é", 1025): "an image of 1025 characters",
	} {
		got := plan.TrimDeployment(newDeployment(foo, running(image))).Image
		if got != want {
			t.Errorf("an image of %d bytes becomes %q", len(image), got)
		}
	}
	patch := driftOf(newDeployment(foo, running(long)), newFoo(withImage("nginx:1.29")))
	if diff := cmp.Diff([]string{inImage}, paths(patch.Fields)); diff != "" {
		t.Errorf("an image that is too long is not corrected (-want +got):\n%s", diff)
	}
	for _, kind := range []string{"Foo", long} {
		ref := metav1.OwnerReference{
			APIVersion: plan.FooKind.GroupVersion().String(), Kind: kind, Name: long, UID: types.UID(long),
			Controller: new(true),
		}
		if kind == long {
			ref.APIVersion = long
		}
		got := plan.TrimDeployment(newDeployment(foo, ownedBy(ref))).OwnerReferences[0]
		for text, want := range map[string]string{
			got.APIVersion: ref.APIVersion, got.Kind: kind, got.Name: long, string(got.UID): long,
		} {
			if len(text) != min(len(want), 256) {
				t.Errorf("of %d bytes of an owner %d are kept", len(want), len(text))
			}
		}
	}
}

// The messages of other conditions name a ReplicaSet. No decision reads them, and the cache has one of each Deployment.
func TestTrimKeepsTheFailuresAmongTheConditions(t *testing.T) {
	cause := new("the cause")
	type failures struct {
		ReplicaSetRefused, PodsRefused *string
		DeadlineExceeded               bool
	}
	for _, tc := range []struct {
		name   string
		kind   appsv1.DeploymentConditionType
		status corev1.ConditionStatus
		reason string
		want   failures
	}{
		{
			name: "pods are refused", kind: appsv1.DeploymentReplicaFailure, status: corev1.ConditionTrue,
			reason: "FailedCreate", want: failures{PodsRefused: cause},
		},
		{
			name: "pods were refused", kind: appsv1.DeploymentReplicaFailure, status: corev1.ConditionFalse,
			reason: "FailedCreate",
		},
		{
			name: "a rollout is complete", kind: appsv1.DeploymentProgressing, status: corev1.ConditionTrue,
			reason: "NewReplicaSetAvailable",
		},
		{
			name: "a ReplicaSet is refused", kind: appsv1.DeploymentProgressing, status: corev1.ConditionFalse,
			reason: "ReplicaSetCreateError", want: failures{ReplicaSetRefused: cause},
		},
		{
			name: "a rollout takes too long", kind: appsv1.DeploymentProgressing, status: corev1.ConditionFalse,
			reason: "ProgressDeadlineExceeded", want: failures{DeadlineExceeded: true},
		},
		{
			name: "a rollout took too long", kind: appsv1.DeploymentProgressing, status: corev1.ConditionTrue,
			reason: "ProgressDeadlineExceeded",
		},
		{
			name: "a condition of somebody else", kind: "Theirs", status: corev1.ConditionFalse,
			reason: "ReplicaSetCreateError",
		},
	} {
		dep := newDeployment(newFoo())
		dep.Status.Conditions = []appsv1.DeploymentCondition{
			{Type: tc.kind, Status: tc.status, Reason: tc.reason, Message: "the cause"},
		}
		o := plan.TrimDeployment(dep)
		got := failures{o.ReplicaSetRefused, o.PodsRefused, o.DeadlineExceeded}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestTrimPassesOtherObjectsThrough(t *testing.T) {
	dep := newDeployment(newFoo(), foreignData)
	tombstone := cache.DeletedFinalStateUnknown{Key: "default/web-1", Obj: dep}
	for _, obj := range []any{&appsv1.ReplicaSet{}, plan.TrimDeployment(dep), tombstone, "text", nil} {
		got, err := plan.Trim(obj)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
		}
		if diff := cmp.Diff(obj, got); diff != "" {
			t.Errorf("%T was changed:\n%s", obj, diff)
		}
	}
}
