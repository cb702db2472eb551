package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

const (
	nameTaken = `Deployment "web-1" is controlled by Foo "api"` + yields
	yields    = ". Set another spec.deploymentName on this Foo: kubectl -n default edit foo web"
	ownerGone = `Waiting for the garbage collector to delete Deployment "web-1": its Foo "api" no longer exists` +
		stillExists1
	// stillExists1 is what to do when Deployment web-1 is not deleted.
	stillExists1 = `. If Deployment "web-1" still exists after some minutes, check its finalizers: kubectl -n default ` +
		"get deployment web-1 -o yaml"
	movingAway  = `Waiting for Foo "api" to move from Deployment "web-1" to "api-2"`
	describeAPI = ". If it does not move, this shows why: kubectl -n default describe foo api"
	nameCycle   = `This Foo waits for Deployment "web-1" of Foo "api", which waits for Deployment "api-2" of this ` +
		"Foo, so neither can move"
	endCycle = ". Set spec.deploymentName of one of them to a name that no Deployment has, and the other follows: " +
		"kubectl -n default edit foo web"
)

// The Foo that has the Deployment keeps it; what the others report depends on that Foo's spec and on whether it exists.
func TestANameThatAnotherFooHas(t *testing.T) {
	const deleting = `Waiting until Foo "api", which is being deleted, and its Deployment "web-1" no longer exist. ` +
		`If Foo "api" still exists after some minutes, check its finalizers: kubectl -n default get foo api -o yaml`
	foo, api, leaving := newFoo(), named("api", "web-1"), named("api", "api-2")
	dep, ofCopy := earlier(api, "web-1"), copied(earlier(api, "api-1"), "web-1")
	previously := func(n int) string {
		return fmt.Sprintf(`. Previous Deployment "api-2" (%d available) is kept until its replacement is available`, n)
	}
	wanted := func(with ...deploymentOption) []*appsv1.Deployment { return all(earlier(foo, "api-2", with...)) }

	for _, tc := range []struct {
		name     string
		dep      *appsv1.Deployment
		owner    *v1alpha1.Foo
		previous []*appsv1.Deployment
		reason   string
		want     string
	}{
		{name: "the owner names it too", owner: api, reason: "NameTaken", want: nameTaken},
		{
			name: "the owner is being deleted", owner: named("api", "web-1", deletedFoo),
			reason: "WaitingForName", want: deleting,
		},
		{name: "the owner was renamed", owner: leaving, reason: "WaitingForName", want: movingAway + describeAPI},
		{name: "the owner is gone", reason: "WaitingForName", want: ownerGone},
		{
			name: "the owner has a copy there, and it is what it names", dep: ofCopy, owner: api,
			reason: "NameTaken", want: nameTaken,
		},
		{
			name: "the owner has a copy there, which is deleted with it", dep: ofCopy,
			owner: named("api", "api-2", deletedFoo), reason: "WaitingForName", want: deleting,
		},
		{
			name: "the made-for label there is gone", dep: earlier(api, "web-1", withoutLabels), owner: leaving,
			reason: "NameTaken", want: nameTaken,
		},

		{
			name: "each has what the other one names", owner: leaving, previous: wanted(),
			reason: "NameCycle", want: nameCycle + previously(1) + endCycle,
		},
		{
			name: "what the other one names is not what this Foo has", owner: leaving, previous: all(earlier(foo, "web-0")),
			reason: "WaitingForName",
			want: movingAway + strings.ReplaceAll(previously(1), "api-2", "web-0") +
				describeAPI,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.dep == nil {
				tc.dep = dep
			}
			c := play(t, world{Foo: foo, Deployment: tc.dep, Owner: tc.owner, Previous: tc.previous})
			second, event := "Stalled", &reconcile.Event{
				Type: "Warning", Reason: "ErrResourceExists",
			}
			if tc.reason == "WaitingForName" {
				second, event = "Reconciling", nil
			}
			if event != nil {
				event.Note = c.message()
			}
			checkConditions(t, conditionsOf(foo, metav1.ConditionFalse, second, tc.reason, tc.want), c.conditions())
			if want := (reconcile.Outcome{Kind: reconcile.Terminal}); c.outcome != want || len(c.steps) != 1 {
				t.Errorf("%s, want no request and %+v, since every change is an event", c.line(), want)
			}
			status := c.status()
			if status.Replicas != 0 || status.AvailableReplicas != 0 || status.Selector != "" {
				t.Errorf("the numbers are another Foo's: %+v", status)
			}
			if diff := cmp.Diff(event, c.event(), cmpopts.IgnoreFields(reconcile.Event{}, "Action")); diff != "" {
				t.Errorf("wrong event (-want +got):\n%s", diff)
			}
			if tc.owner == nil {
				return
			}
			// What the owner reports makes no difference, so its status need not wake anybody.
			ready, stalled := tc.owner.DeepCopy(), tc.owner.DeepCopy()
			reports(metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Available"})(ready)
			reports(metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NameTaken"},
				metav1.Condition{Type: "Stalled", Status: metav1.ConditionTrue})(stalled)
			for _, owner := range []*v1alpha1.Foo{ready, stalled} {
				again := play(t, world{Foo: foo, Deployment: tc.dep, Owner: owner, Previous: tc.previous})
				checkConditions(t, c.conditions(), again.conditions())
			}
		})
	}
}

// reports is a Foo whose status has these conditions and is of its generation.
func reports(conditions ...metav1.Condition) fooOption {
	return func(foo *v1alpha1.Foo) {
		foo.Status.ObservedGeneration, foo.Status.Conditions = foo.Generation, conditions
		foo.Status.Replicas, foo.Status.AvailableReplicas = 7, 7
	}
}

// Group, kind, uid and the flag decide who owns a Deployment; everything else may be equal.
func TestADeploymentThatOnlyResemblesTheFoosIsNotOwned(t *testing.T) {
	foo := newFoo()
	ours := *metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)
	ref := func(change func(*metav1.OwnerReference)) metav1.OwnerReference {
		changed := *ours.DeepCopy()
		change(&changed)
		return changed
	}
	version := func(version string) []metav1.OwnerReference {
		return []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.APIVersion = version })}
	}

	for _, tc := range []struct {
		name  string
		refs  []metav1.OwnerReference
		owner string // "" when the Deployment is the Foo's.
	}{
		{name: "the Foo's own of another version", refs: version(v1alpha1.GroupName + "/v1")},
		{name: "no owner", owner: "it has no controller"},
		{
			name:  "controller false",
			refs:  []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.Controller = new(false) })},
			owner: "it has no controller",
		},
		{
			name: "another group", refs: version("example.com/v1alpha1"),
			owner: `its controller is example.com/v1alpha1 Foo "web"`,
		},
		{name: "a group that cannot be read", refs: version("a/b/c"), owner: `its controller is a/b/c Foo "web"`},
		{
			name:  "another kind",
			refs:  []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" })},
			owner: `its controller is samplecontroller.k8s.io/v1alpha1 Bar "web"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dep := newDeployment(foo, ownedBy(tc.refs...))
			if own := plan.Owns(foo, dep); own != (tc.owner == "") {
				t.Errorf("Owns = %t", own)
			}
			elsewhere := newDeployment(foo, ownedBy(tc.refs...))
			elsewhere.Namespace = "elsewhere"
			if plan.Owns(foo, elsewhere) {
				t.Error("it owns a Deployment of another namespace")
			}
			c := play(t, world{Foo: foo, Deployment: dep})
			if tc.owner == "" {
				if c.reason() == v1alpha1.ReasonNotOwned || c.outcome.Kind == reconcile.Terminal {
					t.Errorf("not owned: %s", c.report())
				}
				return
			}
			want := "False Stalled NotOwned: " + notOwned("web-1", tc.owner)
			if diff := cmp.Diff([]any{want, reconcile.Terminal}, []any{c.report(), c.outcome.Kind}); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
		})
	}
}

// notOwned returns the message about a Deployment that is not the Foo's.
func notOwned(deployment, owner string) string {
	return notOwnedReport(deployment, owner) + handOver
}

// notOwnedReport is the part of it before what to do.
func notOwnedReport(deployment, owner string) string {
	return `Deployment "` + deployment + `" exists, but this Foo does not control it (` + owner + "), so it is not changed"
}

// handOver is what to do about it.
const handOver = yields + ". To make this Foo the controller of that Deployment, see NotOwned in docs/operations.md"
