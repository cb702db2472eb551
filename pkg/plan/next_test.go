package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// stampGeneration is the patch of the foo-generation label alone.
const stampGeneration = "patch " + inGeneration

func TestNext(t *testing.T) {
	foo, before := newFoo(), newFoo(observed)
	wrote := plan.Memory{Wrote: true, UID: foo.UID, Generation: foo.Generation}
	gone := finds(nil)
	live := func(with ...fooOption) reply { return finds(newFoo(with...)) }
	replies := func(replies ...reply) []reply { return replies }
	newer := newDeployment(foo, withFence("3"))
	three := newFoo(withReplicas(3))
	twelve := newFoo(withGeneration(12))

	for _, tc := range []struct {
		name    string
		state   plan.State
		replies []reply
		want    string
	}{
		{
			name:  "a new Foo gets its Deployment without a live read",
			state: plan.State{Foo: foo}, want: "create web-1",
		},
		{
			name:  "a Foo reported on before may be gone by now, so it is read before its Deployment is created again",
			state: plan.State{Foo: before}, want: "get Foo, create web-1",
		},
		{
			name:  "a Foo we wrote for is read even when the cache has no status yet",
			state: plan.State{Foo: foo, Memory: wrote}, want: "get Foo, create web-1",
		},
		{
			name:  "a Foo that is still the same gets its Deployment again",
			state: plan.State{Foo: before}, replies: replies(live()), want: "get Foo, create web-1",
		},
		{
			name:  "a Foo that is gone gets no Deployment",
			state: plan.State{Foo: before}, replies: replies(gone), want: "get Foo, no report",
		},
		{
			name:  "a Foo that we wrote for and that is gone gets no Deployment",
			state: plan.State{Foo: foo, Memory: wrote}, replies: replies(gone), want: "get Foo, no report",
		},
		{
			name:  "a Foo that another of the name replaced gets no Deployment",
			state: plan.State{Foo: before}, replies: replies(live(withUID("new"))), want: "get Foo, no report",
		},
		{
			name:  "a Foo that is being deleted gets no Deployment",
			state: plan.State{Foo: before}, replies: replies(live(deletedFoo)), want: "get Foo, no report",
		},
		{
			name:  "a Foo with a newer spec than the cache has waits for the cache",
			state: plan.State{Foo: before}, replies: replies(live(withGeneration(3))), want: "get Foo, no report",
		},

		{
			name:  "a Deployment that is as it should be is left alone",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo)}, want: "nothing",
		},
		{
			name:  "a Deployment with foreign data is left alone",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, foreignData)}, want: "nothing",
		},
		{
			name:  "a Deployment that differs is patched",
			state: plan.State{Foo: three, Deployment: newDeployment(foo)}, want: "patch spec.replicas",
		},
		{
			name:  "a Deployment that has no uid is not patched",
			state: plan.State{Foo: three, Deployment: newDeployment(foo, withoutUID)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted is waited for",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, deleted)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted is not corrected",
			state: plan.State{Foo: three, Deployment: newDeployment(foo, deleted)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted needs no read of a newer Foo",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, deleted, withFence("3"))}, want: "nothing",
		},

		{
			name:  "a Deployment written for a newer Foo than the cache has: the Foo is read, and the label is wrong",
			state: plan.State{Foo: foo, Deployment: newer}, want: "get Foo, " + stampGeneration,
		},
		{
			name:  "so it is when we wrote it ourselves",
			state: plan.State{Foo: foo, Deployment: newer, Memory: wrote}, want: "get Foo, " + stampGeneration,
		},
		{
			name:  "a newer Foo waits for the cache",
			state: plan.State{Foo: foo, Deployment: newer}, replies: replies(live(withGeneration(3))),
			want: "get Foo, no report",
		},
		{
			name:  "a Foo that is gone corrects nothing",
			state: plan.State{Foo: foo, Deployment: newer}, replies: replies(gone), want: "get Foo, no report",
		},
		{
			name:  "a Foo that was replaced corrects nothing",
			state: plan.State{Foo: foo, Deployment: newer}, replies: replies(live(withUID("new"))),
			want: "get Foo, no report",
		},
		{
			name:  "a Foo that is being deleted corrects nothing",
			state: plan.State{Foo: foo, Deployment: newer}, replies: replies(live(deletedFoo)),
			want: "get Foo, no report",
		},
		{
			name:  "an older generation on the Deployment is brought up to date at once",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("1"))}, want: stampGeneration,
		},
		{
			name:  "a generation that is no number is corrected at once",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("9x"))}, want: stampGeneration,
		},
		{
			name:  "a generation too large for a number is corrected at once",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("99999999999999999999"))},
			want:  stampGeneration,
		},
		{
			name:  "a generation of several digits is read as a number",
			state: plan.State{Foo: twelve, Deployment: newDeployment(twelve)}, want: "nothing",
		},
		{
			name:  "the largest generation is newer",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("9223372036854775807"))},
			want:  "get Foo, " + stampGeneration,
		},
		{
			name: "a generation with more digits is newer, not compared as text",
			state: plan.State{
				Foo: newFoo(withGeneration(9)), Deployment: newDeployment(foo, withFence("10")),
			},
			want: "get Foo, " + stampGeneration,
		},

		{
			name:  "a foreign Deployment is left alone",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, ownedBy())}, want: "NotOwned",
		},
		{
			name:  "a foreign Deployment is left alone even while it is being deleted",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, ownedBy(), deleted)}, want: "NotOwned",
		},
		{
			name:  "a foreign Deployment is left alone whatever generation it has",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, ownedBy(), withFence("3"))}, want: "NotOwned",
		},

		{
			name:  "an invalid Foo gets no Deployment",
			state: plan.State{Foo: newFoo(withReplicas(-1))}, want: "Invalid",
		},
		{
			name:  "an invalid Foo corrects nothing",
			state: plan.State{Foo: newFoo(withReplicas(-1)), Deployment: newDeployment(foo)}, want: "Invalid",
		},
		{
			name:  "an invalid Foo is not read",
			state: plan.State{Foo: newFoo(withReplicas(-1), observed)}, want: "Invalid",
		},

		{
			name:  "a paused Foo gets no Deployment",
			state: plan.State{Foo: newFoo(withPaused)}, want: "nothing",
		},
		{
			name:  "a paused Foo is not read",
			state: plan.State{Foo: newFoo(withPaused, observed)}, want: "nothing",
		},
		{
			name:  "a paused Foo corrects nothing",
			state: plan.State{Foo: newFoo(withPaused, withReplicas(3)), Deployment: newDeployment(foo)},
			want:  "nothing",
		},
		{
			name:  "a paused Foo needs no read for a newer generation",
			state: plan.State{Foo: newFoo(withPaused), Deployment: newer}, want: "nothing",
		},
		{
			name:  "a paused Foo has no conflict with a foreign Deployment",
			state: plan.State{Foo: newFoo(withPaused), Deployment: newDeployment(foo, ownedBy())}, want: "nothing",
		},
		{
			name:  "a paused Foo may be invalid",
			state: plan.State{Foo: newFoo(withPaused, withReplicas(-1))}, want: "nothing",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state, tc.replies...)
			checkSent(t, tc.want, c.result())
			if step := c.step(plan.CreateDeployment); step != nil {
				if diff := cmp.Diff(plan.Deployment(tc.state.Foo), step.Deployment); diff != "" {
					t.Errorf("not the Foo's Deployment (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// The rules are read from top to bottom, and those behind a final one do not count. The log has the name of the rule.
func TestTheOrderOfTheRules(t *testing.T) {
	foo := renamed()
	serving, never := earlier(foo, "web-1"), earlier(foo, "web-2", available(0))
	foreign, deletedOwn := newDeployment(foo, ownedBy()), newDeployment(foo, deleted, scaled(9))
	rival := named("api", "web-3")
	differs := newDeployment(foo, scaled(9))
	for _, tc := range []struct {
		name    string
		state   plan.State
		replies []reply
		want    []string
		kind    plan.Kind
	}{
		{
			name:  "paused is final, before invalid and all others",
			state: plan.State{Foo: renamed(withPaused, withReplicas(-1)), Previous: all(serving, never)},
			want:  []string{"update status: report"}, kind: plan.Done,
		},
		{
			name:  "invalid is final and terminal, before all that writes",
			state: plan.State{Foo: renamed(withReplicas(-1)), Previous: all(serving, never)},
			want:  []string{"update status: report"}, kind: plan.Terminal,
		},
		{
			name:    "a refused name is read before anything else is done",
			state:   plan.State{Foo: newFoo()},
			replies: []reply{fails(plan.CreateDeployment, forbidden)},
			want:    []string{"create: create web-1", "read refused name: get web-1", "update status: report"},
			kind:    plan.Retry,
		},
		{
			name:  "what never served is deleted before a reserved name ends the rules",
			state: plan.State{Foo: foo, Previous: all(serving, never), FirstClaimant: rival},
			want:  []string{"delete not serving: get Foo", "delete not serving: delete web-2", "update status: report"},
			kind:  plan.Terminal,
		},
		{
			name:  "what never served is deleted before a create",
			state: plan.State{Foo: foo, Previous: all(serving, never)},
			want: []string{
				"delete not serving: get Foo", "delete not serving: delete web-2", "create: get Foo",
				"create: create web-3", "update status: report",
			},
			kind: plan.Done,
		},
		{
			name:  "a reserved name is final and terminal, before a create",
			state: plan.State{Foo: foo, Previous: all(serving), FirstClaimant: rival},
			want:  []string{"update status: report"}, kind: plan.Terminal,
		},
		{
			name:  "a create is final: nothing is deleted in the same sync for what has just been created",
			state: plan.State{Foo: renamed(withReplicas(0)), Previous: all(serving)},
			want:  []string{"create: get Foo", "create: create web-3", "update status: report"}, kind: plan.Done,
		},
		{
			name:  "a name conflict is final and terminal, before a deletion is waited for",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, ownedBy(), deleted, scaled(9))},
			want:  []string{"update status: report"}, kind: plan.Terminal,
		},
		{
			name:  "what never served is deleted before a name conflict ends the rules",
			state: plan.State{Foo: foo, Deployment: foreign, Previous: all(serving, never)},
			want: []string{
				"delete not serving: get Foo", "delete not serving: get web-3", "delete not serving: delete web-2",
				"update status: report",
			},
			kind: plan.Terminal,
		},
		{
			name:  "a deletion is waited for before drift is patched, and is not terminal",
			state: plan.State{Foo: foo, Deployment: deletedOwn, Previous: all(serving)},
			want:  []string{"update status: report"}, kind: plan.Done,
		},
		{
			name:  "drift is patched before what is replaced is deleted, in one sync",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("2")), Previous: all(serving)},
			want: []string{
				"patch drift: patch " + inGeneration, "delete replaced: get Foo", "delete replaced: get web-3",
				"delete replaced: delete web-1", "update status: report",
			},
			kind: plan.Done,
		},
		{
			name:  "what never served is deleted before drift is patched",
			state: plan.State{Foo: foo, Deployment: differs, Previous: all(serving, never)},
			want: []string{
				"delete not serving: get Foo", "delete not serving: get web-3", "delete not serving: delete web-2",
				"patch drift: patch spec.replicas", "delete replaced: get Foo", "delete replaced: get web-3",
				"delete replaced: delete web-1", "update status: report",
			},
			kind: plan.Done,
		},
		{
			name: "a step that backs off is skipped, and the next rule counts",
			state: plan.State{Foo: foo, Deployment: differs, Previous: all(serving), Memory: plan.Memory{
				UID: foo.UID, Generation: foo.Generation, Ledger: ledger{op(plan.PatchDeployment, "web-3"): until(1)},
			}},
			want: []string{
				"delete replaced: get Foo", "delete replaced: get web-3", "delete replaced: delete web-1",
				"update status: report",
			},
			kind: plan.Wait,
		},
		{
			name: "a step of a final rule that backs off is skipped, and the rule is still final",
			state: plan.State{Foo: newFoo(), Memory: plan.Memory{
				UID: "foo-uid", Generation: 2, Ledger: ledger{op(plan.CreateDeployment, "web-1"): until(1)},
			}},
			want: []string{"update status: report"}, kind: plan.Wait,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state, tc.replies...)
			var got []string
			for _, step := range c.steps {
				got = append(got, step.Rule+": "+wordsOf(step))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong steps (-want +got):\n%s", diff)
			}
			if c.outcome.Kind != tc.kind {
				t.Errorf("outcome %s, want %s", c.outcome.Kind, tc.kind)
			}
		})
	}
}

// The log and the messages of errors have these texts.
func TestOpString(t *testing.T) {
	for want, op := range map[string]plan.Op{
		"get Foo web":               op(plan.ReadFoo, "web"),
		"get Deployment web-1":      op(plan.ReadDeployment, "web-1"),
		"create Deployment web-1":   op(plan.CreateDeployment, "web-1"),
		"patch Deployment web-1":    op(plan.PatchDeployment, "web-1"),
		"delete Deployment web-1":   again(plan.DeleteDeployment, "web-1"),
		"update status of Foo web":  op(plan.UpdateStatus, "web"),
		"sync " /* of the whole */ : wholeSync,
	} {
		if got := op.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Group, kind, uid and the flag decide who owns a Deployment; everything else may be equal.
func TestADeploymentThatOnlyResemblesTheFoosIsNotOwned(t *testing.T) {
	foo := newFoo()
	ours := *metav1.NewControllerRef(foo, plan.FooKind)
	ref := func(change func(*metav1.OwnerReference)) metav1.OwnerReference {
		changed := *ours.DeepCopy()
		change(&changed)
		return changed
	}
	version := func(version string) []metav1.OwnerReference {
		return []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.APIVersion = version })}
	}
	noController := ref(func(ref *metav1.OwnerReference) { ref.Controller = nil })
	replicaSet := *metav1.NewControllerRef(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", UID: "rs-uid"}},
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))

	for _, tc := range []struct {
		name  string
		refs  []metav1.OwnerReference
		owner string // "" when the Deployment is the Foo's.
	}{
		{name: "the Foo's own", refs: []metav1.OwnerReference{ours}},
		{name: "the Foo's own of another version", refs: version(v1alpha1.GroupName + "/v1")},
		{
			name: "the Foo's own beside an owner that is not the controller",
			refs: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}, ours},
		},
		{name: "no owner", owner: "it has no controller"},
		{name: "controller not set", refs: []metav1.OwnerReference{noController}, owner: "it has no controller"},
		{
			name:  "controller false",
			refs:  []metav1.OwnerReference{ref(func(ref *metav1.OwnerReference) { ref.Controller = new(false) })},
			owner: "it has no controller",
		},
		{
			name: "another controller beside the Foo", refs: []metav1.OwnerReference{noController, replicaSet},
			owner: `its controller is apps/v1 ReplicaSet "rs"`,
		},
		{
			name: "another group", refs: version("example.com/v1alpha1"),
			owner: `its controller is example.com/v1alpha1 Foo "web"`,
		},
		{name: "no group", refs: version("v1alpha1"), owner: `its controller is v1alpha1 Foo "web"`},
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
			c := play(t, plan.State{Foo: foo, Deployment: dep})
			if tc.owner == "" {
				if c.reason() == v1alpha1.ReasonNotOwned || c.outcome.Kind == plan.Terminal {
					t.Errorf("not owned: %s", c.report())
				}
				return
			}
			want := "False Stalled NotOwned: " + notOwned("web-1", tc.owner)
			if diff := cmp.Diff([]any{want, plan.Terminal}, []any{c.report(), c.outcome.Kind}); diff != "" {
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

// The API server checks these rules too; here they are for what was stored before it did.
func TestAnInvalidFoo(t *testing.T) {
	const (
		noName  = "spec.deploymentName is missing. Set the name of the Deployment to create"
		badName = "spec.deploymentName is %q, which is not a name that a Deployment can have. Use up to 253 lowercase " +
			"letters, digits, '-' and '.', beginning and ending with a letter or digit"
		tooLong = "spec.image is longer than 1024 characters. Set a shorter one, or remove it"
		spaces  = "spec.image contains spaces. Set an image without spaces, or remove it"
	)
	for _, tc := range []struct {
		name string
		with fooOption
		want string // "" when the Foo is valid.
	}{
		{name: "no deploymentName", with: withDeploymentName(""), want: noName},
		{name: "deploymentName of one character", with: withDeploymentName("a")},
		{name: "deploymentName with dots and dashes", with: withDeploymentName("a-1.b-2")},
		{name: "deploymentName in upper case", with: withDeploymentName("Web"), want: fmt.Sprintf(badName, "Web")},
		{name: "deploymentName ending in a dash", with: withDeploymentName("web-"), want: fmt.Sprintf(badName, "web-")},
		{name: "deploymentName of 253 characters", with: withDeploymentName(strings.Repeat("a", 253))},
		{
			name: "deploymentName of 254 characters", with: withDeploymentName(strings.Repeat("a", 254)),
			want: fmt.Sprintf(badName, strings.Repeat("a", 67)+"..."),
		},
		{name: "no replicas", with: withReplicas(0)},
		{name: "negative replicas", with: withReplicas(-1), want: negativeReplicas[:len(negativeReplicas)-len(editWeb)]},
		{name: "image of 1024 characters", with: withImage(strings.Repeat("a", 1024))},
		{name: "image of 1024 characters of two bytes", with: withImage(strings.Repeat("é", 1024))},
		{name: "image of 1025 characters", with: withImage(strings.Repeat("a", 1025)), want: tooLong},
		{name: "image with a space", with: withImage("nginx: 1"), want: spaces},
		{name: "image with a line break", with: withImage("nginx:1\n"), want: spaces},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foo := newFoo(tc.with)
			c := play(t, plan.State{Foo: foo})
			if tc.want == "" {
				checkSent(t, "create "+foo.Spec.DeploymentName, c.result())
				return
			}
			checkSent(t, "Invalid", c.result())
			if diff := cmp.Diff("False Stalled Invalid: "+tc.want+editWeb, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnEarlierFooOfTheNameIsWaitedForWithoutAnEvent(t *testing.T) {
	foo := newFoo()
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(newFoo(withUID("earlier")))})
	checkConditions(t, conditionsOf(foo, metav1.ConditionFalse, "Reconciling", "WaitingForName",
		strings.ReplaceAll(ownerGone, `"api"`, `"web"`)), c.conditions())
	if event := c.event(); event != nil {
		t.Errorf("an event for what ends by itself: %+v", event)
	}
	if want := (plan.Outcome{Kind: plan.Terminal}); c.outcome != want {
		t.Errorf("outcome %+v, want %+v: its deletion is an event", c.outcome, want)
	}
}

// Whatever is observed and remembered: one write at a time, each at most once, reads only before writes, and an end.
// Nothing that was given is changed. All of that is checked in play.
func TestAConversationEnds(t *testing.T) {
	steps := 0
	r := newRandom()
	someStates(t, func(t *testing.T, state plan.State) {
		replies := [][]reply{nil, {finds(nil)}, {findsDeployment(nil)}, {finds(newFoo(withUID("new")))}}
		for _, verb := range verbs {
			for _, err := range []error{forbidden, conflict, notFound, serverFails, noResponse, namespaceTerminating()} {
				replies = append(replies, []reply{fails(verb, err)})
			}
		}
		for range 8 {
			replies := replies[r.Intn(len(replies))]
			state.Memory = someMemory(r, state)
			state.Memory.UID, state.Memory.Generation = state.Foo.UID, state.Foo.Generation
			steps += len(play(t, state, replies...).steps)
		}
	})
	if steps < 1000 {
		t.Errorf("only %d steps: the states are too good to show anything", steps)
	}
}

// After "done" nothing is left to do: when the caches have caught up and every delay has ended, the next sync sends
// nothing. "terminal" is the same, with a reason.
func TestDoneMeansThatNothingIsLeft(t *testing.T) {
	done := 0
	someStates(t, func(t *testing.T, state plan.State) {
		c := play(t, state)
		if c.status() == nil || c.outcome.Kind != plan.Done && c.outcome.Kind != plan.Terminal {
			return
		}
		done++
		for _, after := range []int{0, 1, 3600} {
			again := play(t, c.nextSync(seconds(after)))
			if len(again.steps) > 0 || again.outcome.Kind != c.outcome.Kind {
				t.Errorf("after %s: %d s later %s %s: %s", c.outcome.Kind, after, again.sent(), again.report(),
					again.outcome.Kind)
			}
		}
	})
	if done < 100 {
		t.Errorf("only %d syncs end as done: nothing is shown", done)
	}
}

// Whatever failed once, a Foo settles: each sync begins when the delay of the one before has ended, and soon one is
// done and sends nothing. The caches have caught up by then.
func TestEveryFooSettles(t *testing.T) {
	r := newRandom()
	someStates(t, func(t *testing.T, state plan.State) {
		state.Memory = someMemory(r, state)
		state.Memory.UID, state.Memory.Generation = state.Foo.UID, state.Foo.Generation
		errs := []error{forbidden, exists, conflict, notFound, tooMany, serverFails, noResponse}
		var lines []string
		for i := range 20 {
			var replies []reply
			if i < 3 {
				replies = append(replies, fails(verbs[r.Intn(len(verbs))], errs[r.Intn(len(errs))]))
			}
			c := play(t, state, replies...)
			lines = append(lines, c.line())
			ended := c.outcome.Kind == plan.Done || c.outcome.Kind == plan.Terminal
			if i >= 3 && len(c.steps) == 0 && ended {
				return
			}
			state = c.nextSync(c.outcome.After)
		}
		t.Errorf("it does not settle:\n%s", strings.Join(lines, "\n"))
	})
}
