package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

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
		{
			name: "patched for the fourth time, and now with another value: the answer counts", have: differs,
			answer: answer(running("mirror/nginx:1.29")), patches: 3, changed: image, advice: noImage,
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

// Between two patches the Foo reports the same, and is otherwise reconciled.
func TestWhileAFieldIsOverridden(t *testing.T) {
	foo := newFoo(withReplicas(3))
	const same = "nothing; FieldsOverridden; wait in 1s"
	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{name: "what differs is not patched", state: world{Deployment: newDeployment(foo, scaled(5))}, want: same},
		{
			name: "a Deployment that is gone is created again, and the report stays",
			want: "create web-1; FieldsOverridden; wait in 1s",
		},
		{
			name:  "a Deployment that is being deleted is waited for",
			state: world{Deployment: newDeployment(foo, deleted)}, want: "nothing; WaitingForDeletion; wait in 1s",
		},
		{
			name:  "a paused Foo patches nothing anyway",
			state: world{Foo: newFoo(withPaused), Deployment: newDeployment(foo)}, want: "nothing; Paused; wait in 1s",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.state.Foo == nil {
				tc.state.Foo = foo
			}
			tc.state.Memory = overriddenMemory(foo)
			if diff := cmp.Diff(tc.want, play(t, tc.state).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
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
