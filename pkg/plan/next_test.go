package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// stepOf says in a few words what step is.
func stepOf(step plan.Step) string {
	var parts []string
	if step.Create != nil {
		parts = append(parts, "create "+step.Create.Name)
	}
	if step.Patch != nil {
		parts = append(parts, "patch "+strings.Join(paths(step.Patch.Fields), " "))
	}
	if step.Delete != nil {
		parts = append(parts, "delete "+step.Delete.Name)
	}
	if step.LookAtFoo {
		parts = append(parts, "look at Foo")
	}
	if step.Leave {
		parts = append(parts, "leave")
	}
	var terminal *plan.TerminalError
	switch {
	case errors.As(step.Err, &terminal):
		parts = append(parts, terminal.Reason)
	case step.Err != nil:
		parts = append(parts, step.Err.Error())
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, " and ") // More than one is a mistake, and no case wants it.
}

func TestNext(t *testing.T) {
	foo, before := newFoo(), newFoo(observed)
	gone := &plan.Live{}
	live := func(with ...fooOption) *plan.Live { return &plan.Live{Foo: newFoo(with...)} }
	const repairFence = "patch metadata.labels[samplecontroller.k8s.io/foo-generation]"

	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"a new Foo gets its Deployment without a second look", plan.Seen{Foo: foo}, "create web-1"},
		{"a Foo reported on before may be dead by now, so its Deployment waits for a live look", plan.Seen{Foo: before}, "look at Foo"},
		{"a Foo we wrote for is looked at even when the cache has no status yet", plan.Seen{Foo: foo, Wrote: true}, "look at Foo"},
		{"a Foo that is still the same gets its Deployment again", plan.Seen{Foo: before, Live: live()}, "create web-1"},
		{"a Foo we wrote for that is still the same gets its Deployment again", plan.Seen{Foo: foo, Wrote: true, Live: live()}, "create web-1"},
		{"a Foo that is gone gets no Deployment", plan.Seen{Foo: before, Live: gone}, "leave"},
		{"a Foo that another of the name replaced gets no Deployment", plan.Seen{Foo: before, Live: live(withUID("new"))}, "leave"},
		{"a Foo that is being deleted gets no Deployment", plan.Seen{Foo: before, Live: live(deletedFoo)}, "leave"},
		{"a Foo with a newer spec than the cache's waits for the cache", plan.Seen{Foo: before, Live: live(withGeneration(3))}, "leave"},

		{"a Deployment that is as it should be is left alone", plan.Seen{Foo: foo, Named: newDeployment(foo)}, "nothing"},
		{"a Deployment with foreign data is left alone", plan.Seen{Foo: foo, Named: newDeployment(foo, foreignData)}, "nothing"},
		{"a Deployment that differs is patched", plan.Seen{Foo: newFoo(withReplicas(3)), Named: newDeployment(foo)}, "patch spec.replicas"},
		{"a Deployment that has no uid is not patched", plan.Seen{Foo: newFoo(withReplicas(3)), Named: newDeployment(foo, withoutUID)}, "Refused"},
		{"a Deployment that is being deleted is waited for", plan.Seen{Foo: foo, Named: newDeployment(foo, deleted)}, "nothing"},
		{"a Deployment that is being deleted is not repaired", plan.Seen{Foo: newFoo(withReplicas(3)), Named: newDeployment(foo, deleted)}, "nothing"},
		{"a Deployment that is being deleted needs no look at a newer Foo", plan.Seen{Foo: foo, Named: newDeployment(foo, deleted, withFence("3"))}, "nothing"},

		{"a Deployment written for a newer Foo than the cache's asks for a look", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3"))}, "look at Foo"},
		{"so it does when we wrote it ourselves", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3")), Wrote: true}, "look at Foo"},
		{"a newer Foo waits for the cache", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3")), Live: live(withGeneration(3))}, "leave"},
		{"a Foo that is gone repairs nothing", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3")), Live: gone}, "leave"},
		{"a Foo that was replaced repairs nothing", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3")), Live: live(withUID("new"))}, "leave"},
		{"a Foo that is being deleted repairs nothing", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3")), Live: live(deletedFoo)}, "leave"},
		{"a wrong generation on the Deployment is put right", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3")), Live: live()}, repairFence},
		{"an older generation on the Deployment is brought up to date at once", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("1"))}, repairFence},
		{"a generation that is no number is put right at once", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("9x"))}, repairFence},
		{"a generation too large for a number is put right at once", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("99999999999999999999"))}, repairFence},
		{"a generation of several digits is what it says", plan.Seen{Foo: newFoo(withGeneration(12)), Named: newDeployment(newFoo(withGeneration(12)))}, "nothing"},
		{"the largest generation is newer", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("9223372036854775807"))}, "look at Foo"},
		{"a generation with more digits is newer, not compared as text", plan.Seen{Foo: newFoo(withGeneration(9)), Named: newDeployment(foo, withFence("10"))}, "look at Foo"},

		{"a foreign Deployment is refused", plan.Seen{Foo: foo, Named: newDeployment(foo, ownedBy())}, "NotOwned"},
		{"a foreign Deployment is refused even while it is being deleted", plan.Seen{Foo: foo, Named: newDeployment(foo, ownedBy(), deleted)}, "NotOwned"},
		{"a foreign Deployment is refused whatever generation it claims", plan.Seen{Foo: foo, Named: newDeployment(foo, ownedBy(), withFence("3"))}, "NotOwned"},

		{"an invalid Foo gets no Deployment", plan.Seen{Foo: newFoo(withReplicas(-1))}, "Invalid"},
		{"an invalid Foo repairs nothing", plan.Seen{Foo: newFoo(withReplicas(-1)), Named: newDeployment(foo)}, "Invalid"},
		{"an invalid Foo is not looked at", plan.Seen{Foo: newFoo(withReplicas(-1), observed)}, "Invalid"},

		{"a paused Foo gets no Deployment", plan.Seen{Foo: newFoo(withPaused)}, "nothing"},
		{"a paused Foo is not looked at", plan.Seen{Foo: newFoo(withPaused, observed)}, "nothing"},
		{"a paused Foo repairs nothing", plan.Seen{Foo: newFoo(withPaused, withReplicas(3)), Named: newDeployment(foo)}, "nothing"},
		{"a paused Foo minds no newer generation", plan.Seen{Foo: newFoo(withPaused), Named: newDeployment(foo, withFence("3"))}, "nothing"},
		{"a paused Foo minds no foreign Deployment", plan.Seen{Foo: newFoo(withPaused), Named: newDeployment(foo, ownedBy())}, "nothing"},
		{"a paused Foo may be invalid", plan.Seen{Foo: newFoo(withPaused, withReplicas(-1))}, "nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unchanged(t, tc.seen.Foo, tc.seen.Named)
			step := plan.Next(tc.seen)
			if diff := cmp.Diff(tc.want, stepOf(step)); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
			if step.Create != nil {
				if diff := cmp.Diff(plan.Deployment(tc.seen.Foo), step.Create); diff != "" {
					t.Errorf("not the Foo's Deployment (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestStepAsks(t *testing.T) {
	dep := newDeployment(newFoo())
	for _, tc := range []struct {
		step plan.Step
		want bool
	}{
		{plan.Step{}, false},
		{plan.Step{Leave: true}, false},
		{plan.Step{Err: errors.New("x")}, false},
		{plan.Step{LookAtFoo: true}, true},
		{plan.Step{Create: dep}, true},
		{plan.Step{Patch: &plan.Patch{}}, true},
		{plan.Step{Delete: dep}, true},
		{plan.Step{Delete: dep, Err: errors.New("x")}, true},
	} {
		if got := tc.step.Asks(); got != tc.want {
			t.Errorf("%s: Asks = %t, want %t", stepOf(tc.step), got, tc.want)
		}
	}
}

// Group, kind, uid and the flag decide who owns a Deployment; everything else may look right.
func TestNextRefusesWhatOnlyLooksLikeItsOwn(t *testing.T) {
	foo := newFoo()
	ours := *metav1.NewControllerRef(foo, plan.FooKind)
	ref := func(change func(*metav1.OwnerReference)) metav1.OwnerReference {
		changed := *ours.DeepCopy()
		change(&changed)
		return changed
	}
	noController := ref(func(ref *metav1.OwnerReference) { ref.Controller = nil })
	replicaSet := *metav1.NewControllerRef(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", UID: "rs-uid"}}, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	const tail = ". Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true"

	for _, tc := range []struct {
		name   string
		refs   []metav1.OwnerReference
		holder string // "" when the Deployment is the Foo's.
	}{
		{"the Foo's own", []metav1.OwnerReference{ours}, ""},
		{"the Foo's own of another version", []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.APIVersion = v1alpha1.GroupName + "/v1" })}, ""},
		{"the Foo's own beside an owner that is not the controller", []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}, ours}, ""},
		{"no owner", nil, "it has no controller"},
		{"controller not set", []metav1.OwnerReference{noController}, "it has no controller"},
		{"controller false", []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.Controller = new(false) })}, "it has no controller"},
		{"another controller beside the Foo", []metav1.OwnerReference{noController, replicaSet}, `it belongs to apps/v1 ReplicaSet "rs"`},
		{"another group", []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1alpha1" })}, `it belongs to example.com/v1alpha1 Foo "web"`},
		{"no group", []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.APIVersion = "v1alpha1" })}, `it belongs to v1alpha1 Foo "web"`},
		{"a group that cannot be read", []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.APIVersion = "a/b/c" })}, `it belongs to a/b/c Foo "web"`},
		{"another kind", []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" })}, `it belongs to samplecontroller.k8s.io/v1alpha1 Bar "web"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dep := newDeployment(foo, ownedBy(tc.refs...))
			unchanged(t, foo, dep)
			if own := plan.Owns(foo, dep); own != (tc.holder == "") {
				t.Errorf("Owns = %t", own)
			}
			elsewhere := newDeployment(foo, ownedBy(tc.refs...))
			elsewhere.Namespace = "elsewhere"
			if plan.Owns(foo, elsewhere) {
				t.Error("it owns a Deployment of another namespace")
			}
			step := plan.Next(plan.Seen{Foo: foo, Named: dep})
			if tc.holder == "" {
				if step.Err != nil {
					t.Errorf("refused: %v", step.Err)
				}
				return
			}
			want := &plan.TerminalError{Reason: v1alpha1.ReasonNotOwned, Message: `Deployment "web-1" is not this Foo's and is left alone: ` + tc.holder + tail}
			if diff := cmp.Diff(want, terminalError(t, step.Err)); diff != "" {
				t.Errorf("wrong refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// The API server checks these rules too; here they are for what was stored before it did.
func TestNextRefusesAnInvalidFoo(t *testing.T) {
	const badName = "spec.deploymentName is not a name that a Deployment can have: use up to 253 lowercase letters, digits, '-' and '.', beginning and ending with a letter or digit"
	for _, tc := range []struct {
		name string
		with fooOption
		want string // "" when the Foo is valid.
	}{
		{"no deploymentName", withDeploymentName(""), "spec.deploymentName is missing: set the name of the Deployment to create"},
		{"deploymentName of one character", withDeploymentName("a"), ""},
		{"deploymentName with dots and dashes", withDeploymentName("a-1.b-2"), ""},
		{"deploymentName with an upper-case letter", withDeploymentName("Web"), badName},
		{"deploymentName ending in a dash", withDeploymentName("web-"), badName},
		{"deploymentName of 253 characters", withDeploymentName(strings.Repeat("a", 253)), ""},
		{"deploymentName of 254 characters", withDeploymentName(strings.Repeat("a", 254)), badName},
		{"no replicas", withReplicas(0), ""},
		{"negative replicas", withReplicas(-1), "spec.replicas is negative: set 0 or more, or remove it"},
		{"image of 1024 characters", withImage(strings.Repeat("a", 1024)), ""},
		{"image of 1024 characters of two bytes", withImage(strings.Repeat("é", 1024)), ""},
		{"image of 1025 characters", withImage(strings.Repeat("a", 1025)), "spec.image is longer than 1024 characters: set a shorter one, or remove it"},
		{"image with a space", withImage("nginx: 1"), "spec.image contains spaces: remove them"},
		{"image with a line break", withImage("nginx:1\n"), "spec.image contains spaces: remove them"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foo := newFoo(tc.with)
			step := plan.Next(plan.Seen{Foo: foo})
			if tc.want == "" {
				if got, want := stepOf(step), "create "+foo.Spec.DeploymentName; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				return
			}
			want := &plan.TerminalError{Reason: v1alpha1.ReasonInvalid, Message: tc.want}
			if diff := cmp.Diff(want, terminalError(t, step.Err)); diff != "" {
				t.Errorf("wrong refusal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnEarlierFooOfTheNameIsWaitedForWithoutAlarm(t *testing.T) {
	foo := newFoo()
	dep := newDeployment(newFoo(withUID("earlier")))
	err := plan.Next(plan.Seen{Foo: foo, Named: dep}).Err
	status := plan.Status(plan.Seen{Foo: foo, Named: dep}, err, now)
	want := conditionsOf(foo, metav1.ConditionFalse, v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForName,
		`Deployment "web-1" belongs to a Foo "web" that is gone, and its name is free when the garbage collector has removed it`)
	if diff := cmp.Diff(want, status.Conditions); diff != "" {
		t.Errorf("wrong conditions (-want +got):\n%s", diff)
	}
	if event := plan.EventOf(&foo.Status, &status); event != nil {
		t.Errorf("an event for what goes away by itself: %+v", event)
	}
	if got, want := plan.OutcomeOf(err), (plan.Outcome{Kind: plan.Terminal}); got != want {
		t.Errorf("outcome %+v, want %+v: its deletion is an event", got, want)
	}
}

// While it is too early for another try no request is made, be it a look, and what was wrong is said again. What
// needs no request is decided as ever.
func TestNextWhileItIsTooEarlyForAnotherTry(t *testing.T) {
	foo, before, bad := newFoo(withReplicas(3)), newFoo(withReplicas(3), observed), newFoo(withReplicas(-1))
	old := func(with ...deploymentOption) []*appsv1.Deployment { return all(earlier(foo, "web-0", with...)) }
	live := &plan.Live{Foo: foo}
	hold := func(err error) error { return &plan.WaitError{After: time.Second, For: plan.Backoff, Err: err} }
	refused := func(verb string) error {
		return hold(&plan.WriteError{Verb: verb, Deployment: "web-1", Err: errors.New("refused")})
	}

	for _, tc := range []struct {
		name      string
		seen      plan.Seen
		free      string // Without the pause.
		verb      string // What must not have failed just before; "" when the pause is no matter.
		overrides error
	}{
		{"a create", plan.Seen{Foo: foo}, "create web-1", "create", nil},
		{"a look before a create", plan.Seen{Foo: before}, "look at Foo", "create", nil},
		{"a create after a look", plan.Seen{Foo: before, Live: live}, "create web-1", "create", nil},
		{"a patch", plan.Seen{Foo: foo, Named: newDeployment(foo, scaled(5))}, "patch spec.replicas", "patch", nil},
		{"a look before a patch", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("3"))}, "look at Foo", "patch", nil},
		{"a look before a delete", plan.Seen{Foo: foo, Named: newDeployment(foo), Owned: old()}, "look at Foo", "delete", nil},
		{"a delete", plan.Seen{Foo: foo, Named: newDeployment(foo), Owned: old(), Live: live}, "delete web-0", "delete", nil},
		{"a delete while a field is overridden", plan.Seen{Foo: foo, Named: newDeployment(foo), Owned: old(), Live: live}, "delete web-0 and overridden", "delete", errors.New("overridden")},

		{"nothing", plan.Seen{Foo: foo, Named: newDeployment(foo)}, "nothing", "", nil},
		{"a Deployment that comes up", plan.Seen{Foo: foo, Named: newDeployment(foo, available(1)), Owned: old()}, "nothing", "", nil},
		{"a Deployment that is going", plan.Seen{Foo: foo, Named: newDeployment(foo, deleted)}, "nothing", "", nil},
		{"an overridden field", plan.Seen{Foo: foo, Named: newDeployment(foo)}, "overridden", "", errors.New("overridden")},
		{"a foreign Deployment", plan.Seen{Foo: foo, Named: newDeployment(foo, ownedBy())}, "NotOwned", "", nil},
		{"a name that is another Foo's", plan.Seen{Foo: foo, Claimants: foos(newFoo(withName("a")))}, "NameTaken", "", nil},
		{"an invalid Foo", plan.Seen{Foo: bad}, "Invalid", "", nil},
		{"a paused Foo", plan.Seen{Foo: newFoo(withPaused)}, "nothing", "", nil},
		{"a Foo that has moved on", plan.Seen{Foo: before, Live: &plan.Live{}}, "leave", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			allUnchanged(t, tc.seen)
			tc.seen.Overridden = tc.overrides
			if diff := cmp.Diff(tc.free, stepOf(plan.Next(tc.seen))); diff != "" {
				t.Errorf("wrong step without a pause (-want +got):\n%s", diff)
			}
			for _, verb := range []string{"create", "patch", "delete", "another"} {
				held := refused(verb)
				if verb == "another" { // Not a refused write: what was found by a look, which may concern any write.
					held = hold(&plan.TerminalError{Reason: "NotOwned", Unseen: true})
				}
				tc.seen.Held = held
				step := plan.Next(tc.seen)
				if heldBack := tc.verb != "" && (verb == tc.verb || verb == "another"); heldBack {
					if step.Asks() || step.Err != held {
						t.Errorf("in a pause after a failed %s: %s, want what is remembered", verb, stepOf(step))
					}
					continue
				}
				if diff := cmp.Diff(tc.free, stepOf(step)); diff != "" {
					t.Errorf("wrong step in a pause after a failed %s (-want +got):\n%s", verb, diff)
				}
			}
		})
	}
}

// The words of the last failure are said again, and stay the same until another try.
func TestStatusWhileItIsTooEarlyForAnotherTry(t *testing.T) {
	foo := newFoo(withReplicas(3))
	hold := func(why error) error { return &plan.WaitError{After: time.Second, For: plan.Backoff, Err: why} }
	foreign := newDeployment(foo, ownedBy())
	for _, tc := range []struct {
		name    string
		err     error
		more    string
		reason  string
		message string
	}{
		{"a write was refused", hold(&plan.WriteError{Verb: "create", Deployment: "web-1", Err: forbidden}), "Reconciling", "Refused",
			`Cannot create Deployment "web-1", trying again: deployments.apps "web-1" is forbidden: exceeded quota: small`},
		{"a write had no answer", hold(&plan.WriteError{Verb: "patch", Deployment: "web-1", Err: errors.New("connection reset by 10.0.0.1:40123")}), "Reconciling", "Refused",
			`Cannot patch Deployment "web-1", trying again: the API server gave no answer`},
		{"a foreign Deployment was found", hold(plan.Found(plan.Seen{Foo: foo, Named: foreign})), "Stalled", "NotOwned",
			`Deployment "web-1" is not this Foo's and is left alone: it has no controller. Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true`},
		{"the Deployment of a Foo that is gone was found", hold(plan.Found(plan.Seen{Foo: foo, Named: newDeployment(newFoo(withUID("earlier")))})), "Reconciling", "WaitingForName",
			`Deployment "web-1" belongs to a Foo "web" that is gone, and its name is free when the garbage collector has removed it`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 {
				status := plan.Status(plan.Seen{Foo: foo}, tc.err, now)
				if diff := cmp.Diff(conditionsOf(foo, metav1.ConditionFalse, tc.more, tc.reason, tc.message), status.Conditions); diff != "" {
					t.Errorf("wrong conditions (-want +got):\n%s", diff)
				}
				foo = foo.DeepCopy()
				foo.Status = status
			}
			if diff := cmp.Diff(plan.Outcome{Kind: plan.Wait, After: time.Second}, plan.OutcomeOf(tc.err)); diff != "" {
				t.Errorf("wrong outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// Who is told that a look has failed is told of which Deployment.
func TestTargetIsTheDeploymentOfTheVerb(t *testing.T) {
	foo := renamed()
	live := &plan.Live{Foo: foo}
	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"a create", plan.Seen{Foo: foo, Live: live}, "create web-3"},
		{"a look before it", plan.Seen{Foo: newFoo(observed)}, "create web-1"},
		{"a patch", plan.Seen{Foo: foo, Named: newDeployment(foo, scaled(9))}, "patch web-3"},
		{"a look before it", plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("9"))}, "patch web-3"},
		{"a delete", plan.Seen{Foo: foo, Named: newDeployment(foo), Owned: all(earlier(foo, "web-1")), Live: live}, "delete web-1"},
		{"a look before it", plan.Seen{Foo: foo, Named: newDeployment(foo), Owned: all(earlier(foo, "web-1"))}, "delete web-1"},
	} {
		step := plan.Next(tc.seen)
		if got := step.Verb() + " " + step.Target(foo); got != tc.want {
			t.Errorf("%s is to %s, want %s", tc.name, got, tc.want)
		}
	}
}
