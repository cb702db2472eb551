package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
	dep := earlier(api, "web-1")
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
			name: "the made-for label there is gone", dep: earlier(api, "web-1", withoutLabels), owner: leaving,
			reason: "NameTaken", want: nameTaken,
		},
		{
			name: "each has what the other one names", owner: leaving, previous: wanted(),
			reason: "NameCycle", want: nameCycle + previously(1) + endCycle,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.dep == nil {
				tc.dep = dep
			}
			c := play(t, world{Foo: foo, Deployment: tc.dep, Owner: tc.owner, Others: tc.previous})
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
				again := play(t, world{Foo: foo, Deployment: tc.dep, Owner: owner, Others: tc.previous})
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

const (
	keepsChanging = `Another client keeps changing Deployment "web-1": `
	onItsWay      = `An admission webhook or policy changes Deployment "web-1" when the controller writes it: `
	corrects      = ". The controller corrects it at least once a minute"
	replicas5     = "spec.replicas was 5, must be 3"
	showManager   = ". To find it: kubectl -n default get deployment web-1 -o yaml --show-managed-fields"
	showPolicies  = ". See: kubectl get mutatingwebhookconfigurations -o yaml"
	keepsDeleting = `Another client keeps deleting Deployment "web-1". The controller creates it again at least once a ` +
		"minute. Stop that client. The audit log of the API server names the user who deletes deployments/web-1"

	overriddenMessage = overriddenReport + overriddenAdvice
	overriddenReport  = keepsChanging + replicas5 + corrects
	stopClient        = "Stop that client, for example an autoscaler or a GitOps tool"
	overriddenAdvice  = ". " + stopClient + ", or remove spec.replicas from this Foo" + showManager
)

// overriddenReplicas is what is remembered of a patch that came to nothing.
var overriddenReplicas = &reconcile.Problem{
	Reason: "FieldsOverridden", Message: overriddenReport, Advice: strings.TrimPrefix(overriddenAdvice, ". "),
}

// overriddenMemory is what is remembered of a Foo while something else decides about its Deployment's replicas.
func overriddenMemory(foo *v1alpha1.Foo) reconcile.Memory {
	return remembers(foo, ledger{
		op(patchDeployment, foo.Spec.DeploymentName): repeated(1, seconds(1), overriddenReplicas),
	})
}

// What something else decides about is seen in the answer to a write, or by the number of patches.
func TestOverridden(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	answer := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	const (
		image   = inImage + " was \"mirror/nginx:1.29\", must be \"nginx:1.29\""
		noLabel = inGeneration + " was missing, must be \"2\""

		noReplicas = ", or remove spec.replicas from this Foo"
		noImage    = ", or remove spec.image from this Foo"
		neither    = ", or remove spec.replicas and spec.image from this Foo"
	)
	unlabelled := func(dep *appsv1.Deployment) { delete(dep.Labels, v1alpha1.LabelFooGeneration) }
	differs := answer(scaled(5))

	for _, tc := range []struct {
		name    string
		have    *appsv1.Deployment // nil for a create.
		answer  *appsv1.Deployment
		patches int
		// changed is what differs, "" when all is well, and advice what may be removed from the Foo.
		changed, advice string
		repeated        bool // It is not the answer that differs.
	}{
		{name: "created as asked for", answer: answer()},
		{
			name: "created with several other values", answer: answer(scaled(5), running("mirror/nginx:1.29")),
			changed: replicas5 + "; " + image, advice: neither,
		},
		{name: "created without a label", answer: answer(unlabelled), changed: noLabel},
		{name: "patched for the third time", have: differs, answer: answer(), patches: 2},
		{
			name: "patched for the fourth time", have: differs, answer: answer(), patches: 3,
			changed: replicas5, advice: noReplicas, repeated: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory := reconcile.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{}}
			if tc.patches > 0 {
				memory.Ledger[op(patchDeployment, "web-1")] = repeated(tc.patches, 0, nil)
			}
			verb := patchDeployment
			if tc.have == nil {
				verb = createDeployment
			}
			c := play(t, world{Foo: foo, Deployment: tc.have, Memory: memory},
				slowly(returns(verb, tc.answer), time.Millisecond))
			attempt := c.end.Memory.Ledger[op(patchDeployment, "web-1")].Repeated
			if tc.changed == "" {
				if attempt.Report != nil || c.outcome.Kind != reconcile.Done || c.reason() != v1alpha1.ReasonAvailable {
					t.Errorf("overridden: %s, and the ledger has %+v", c.line(), attempt)
				}
				return
			}
			want := &reconcile.Problem{
				Reason:  v1alpha1.ReasonFieldsOverridden,
				Message: onItsWay + tc.changed + triesAgain, Advice: "Change that webhook or policy" + tc.advice + showPolicies,
			}
			if tc.repeated {
				want.Message, want.Advice = keepsChanging+tc.changed+corrects, stopClient+tc.advice+showManager
			}
			if diff := cmp.Diff(want, attempt.Report); diff != "" {
				t.Errorf("wrong report in the ledger (-want +got):\n%s", diff)
			}
			if c.reason() != want.Reason || c.message() != want.Message+". "+want.Advice || attempt.Count != tc.patches+1 {
				t.Errorf("reported %s after %d patches", c.report(), attempt.Count)
			}
			if c.outcome.Kind != reconcile.Wait || c.outcome.For != reconcile.Backoff || c.outcome.Err.Error() != want.Error() {
				t.Errorf("outcome %+v, want a wait because of that", c.outcome)
			}
		})
	}
}

// Something that deletes what is created each time is not answered each time: the first few are created at once.
func TestADeploymentThatKeepsBeingDeletedIsNotCreatedAtOnce(t *testing.T) {
	foo := newFoo(withReplicas(3), observed)
	state := world{Foo: foo, Now: now}
	var memories []reconcile.Memory
	for i := range 4 {
		c := play(t, state)
		checkSent(t, "get Foo, create web-1", c.sent())
		memories = append(memories, c.end.Memory)
		attempt := c.end.Memory.Ledger[op(createDeployment, "web-1")].Repeated
		if limited := i == 3; attempt.Count != i+1 || (attempt.Report != nil) != limited {
			t.Errorf("after creation %d the ledger has %+v", i+1, attempt)
		}
		state.Memory = c.end.Memory
	}
	memory := memories[3]
	const gone = "nothing; Creating; wait in 1s"

	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{name: "it is gone", want: gone},
		{
			name:  "it is there",
			state: world{Deployment: newDeployment(foo)}, want: "nothing; Available; wait in 1s",
		},
		{
			name:  "it is there, and differs",
			state: world{Deployment: newDeployment(foo, scaled(9))}, want: "get Foo, patch spec.replicas; Available; wait in 1s",
		},
		{
			name:  "the Foo is paused",
			state: world{Foo: newFoo(withReplicas(3), observed, withPaused)}, want: "nothing; Paused; wait in 1s",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.Memory = memory
			if tc.state.Foo == nil {
				tc.state.Foo = foo
			}
			if diff := cmp.Diff(tc.want, play(t, tc.state).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}

	// The report stays until the Deployment controller has seen the next one.
	for _, tc := range []struct {
		name  string
		dep   *appsv1.Deployment
		after time.Duration
		want  string
	}{
		{name: "gone", want: reconciling + "Creating: " + keepsDeleting},
		{name: "created again", dep: newDeployment(foo, unobserved), want: reconciling + "Creating: " + keepsDeleting},
		{
			name: "seen", dep: newDeployment(foo, available(1)),
			want: reconciling + "Progressing: 1 of 3 replicas available" + ifItLasts,
		},
		{
			name: "created again, and the delay has ended", dep: newDeployment(foo, unobserved), after: seconds(8),
			want: reconciling + `Creating: Created Deployment "web-1". Waiting for the Deployment controller to create ` +
				"its pods",
		},
	} {
		c := play(t, world{Foo: foo, Deployment: tc.dep, Memory: memory, Now: now.Add(tc.after)})
		if diff := cmp.Diff(tc.want, c.report()); diff != "" {
			t.Errorf("%s: wrong report (-want +got):\n%s", tc.name, diff)
		}
	}
}
