package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// stampGeneration is the patch of the foo-generation label alone.
const stampGeneration = "patch " + inGeneration

func TestNext(t *testing.T) {
	foo, before := newFoo(), newFoo(observed)
	wrote := plan.Memory{Wrote: true, UID: foo.UID, Generation: foo.Generation}
	newer := newDeployment(foo, withFence("3"))
	three := newFoo(withReplicas(3))
	twelve := newFoo(withGeneration(12))

	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{
			name:  "a new Foo gets its Deployment without a live read",
			state: world{Foo: foo}, want: "create web-1",
		},
		{
			name:  "a Foo reported on before may be gone by now, so it is read before its Deployment is created again",
			state: world{Foo: before}, want: "get Foo, create web-1",
		},
		{
			name:  "a Foo we wrote for is read even when the cache has no status yet",
			state: world{Foo: foo, Memory: wrote}, want: "get Foo, create web-1",
		},

		{
			name:  "a Deployment that is as it should be is left alone",
			state: world{Foo: foo, Deployment: newDeployment(foo)}, want: "nothing",
		},
		{
			name:  "a Deployment with foreign data is left alone",
			state: world{Foo: foo, Deployment: newDeployment(foo, foreignData)}, want: "nothing",
		},
		{
			name:  "a Deployment that differs is patched",
			state: world{Foo: three, Deployment: newDeployment(foo)}, want: "get Foo, patch spec.replicas",
		},
		{
			name:  "a Deployment that has no uid is not patched",
			state: world{Foo: three, Deployment: newDeployment(foo, withoutUID)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted is waited for",
			state: world{Foo: foo, Deployment: newDeployment(foo, deleted)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted is not corrected",
			state: world{Foo: three, Deployment: newDeployment(foo, deleted)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted needs no read of a newer Foo",
			state: world{Foo: foo, Deployment: newDeployment(foo, deleted, withFence("3"))}, want: "nothing",
		},

		{
			name:  "a Deployment written for a newer Foo than the cache has: the Foo is read, and the label is wrong",
			state: world{Foo: foo, Deployment: newer}, want: "get Foo, " + stampGeneration,
		},
		{
			name:  "so it is when we wrote it ourselves",
			state: world{Foo: foo, Deployment: newer, Memory: wrote}, want: "get Foo, " + stampGeneration,
		},
		{
			name:  "an older generation on the Deployment is brought up to date at once",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("1"))}, want: stampGeneration,
		},
		{
			name:  "a generation that is no number is corrected at once",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("9x"))},
			want:  "get Foo, " + stampGeneration,
		},
		{
			name:  "a generation too large for a number is corrected at once",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("99999999999999999999"))},
			want:  "get Foo, " + stampGeneration,
		},
		{
			name:  "a generation of several digits is read as a number",
			state: world{Foo: twelve, Deployment: newDeployment(twelve)}, want: "nothing",
		},
		{
			name:  "the largest generation is newer",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("9223372036854775807"))},
			want:  "get Foo, " + stampGeneration,
		},
		{
			name: "a generation with more digits is newer, not compared as text",
			state: world{
				Foo: newFoo(withGeneration(9)), Deployment: newDeployment(foo, withFence("10")),
			},
			want: "get Foo, " + stampGeneration,
		},

		{
			name:  "a foreign Deployment is left alone",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy())}, want: "NotOwned",
		},
		{
			name:  "a foreign Deployment is left alone even while it is being deleted",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy(), deleted)}, want: "NotOwned",
		},
		{
			name:  "a foreign Deployment is left alone whatever generation it has",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy(), withFence("3"))}, want: "NotOwned",
		},

		{
			name:  "an invalid Foo gets no Deployment",
			state: world{Foo: newFoo(withReplicas(-1))}, want: "Invalid",
		},
		{
			name:  "an invalid Foo corrects nothing",
			state: world{Foo: newFoo(withReplicas(-1)), Deployment: newDeployment(foo)}, want: "Invalid",
		},
		{
			name:  "an invalid Foo is not read",
			state: world{Foo: newFoo(withReplicas(-1), observed)}, want: "Invalid",
		},

		{
			name:  "a paused Foo gets no Deployment",
			state: world{Foo: newFoo(withPaused)}, want: "nothing",
		},
		{
			name:  "a paused Foo is not read",
			state: world{Foo: newFoo(withPaused, observed)}, want: "nothing",
		},
		{
			name:  "a paused Foo corrects nothing",
			state: world{Foo: newFoo(withPaused, withReplicas(3)), Deployment: newDeployment(foo)},
			want:  "nothing",
		},
		{
			name:  "a paused Foo needs no read for a newer generation",
			state: world{Foo: newFoo(withPaused), Deployment: newer}, want: "nothing",
		},
		{
			name:  "a paused Foo has no conflict with a foreign Deployment",
			state: world{Foo: newFoo(withPaused), Deployment: newDeployment(foo, ownedBy())}, want: "nothing",
		},
		{
			name:  "a paused Foo may be invalid",
			state: world{Foo: newFoo(withPaused, withReplicas(-1))}, want: "nothing",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state)
			checkSent(t, tc.want, c.result())
			if step := c.step(plan.CreateDeployment); step != nil {
				if diff := cmp.Diff(plan.Deployment(tc.state.Foo), step.Create); diff != "" {
					t.Errorf("not the Foo's Deployment (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// The rules are read from top to bottom, and those behind a final one do not count. The log has the name of the rule.
func TestTheOrderOfTheRules(t *testing.T) {
	foo := renamed()
	serving := earlier(foo, "web-1")
	deletedOwn := newDeployment(foo, deleted, scaled(9))
	differs := newDeployment(foo, scaled(9))
	for _, tc := range []struct {
		name    string
		state   world
		replies []reply
		want    []string
		kind    plan.Kind
	}{
		{
			name:  "paused is final, before invalid and all others",
			state: world{Foo: renamed(withPaused, withReplicas(-1)), Previous: all(serving)},
			want:  []string{"update status: report"}, kind: plan.Done,
		},
		{
			name:  "invalid is final and terminal, before all that writes",
			state: world{Foo: renamed(withReplicas(-1)), Previous: all(serving)},
			want:  []string{"update status: report"}, kind: plan.Terminal,
		},
		{
			name:  "a create is final: nothing is deleted in the same sync for what has just been created",
			state: world{Foo: renamed(withReplicas(0)), Previous: all(serving)},
			want:  []string{"create: get Foo", "create: create web-3", "update status: report"}, kind: plan.Done,
		},
		{
			name:  "a name conflict is final and terminal, before a deletion is waited for",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy(), deleted, scaled(9))},
			want:  []string{"update status: report"}, kind: plan.Terminal,
		},
		{
			name:  "a deletion is waited for before drift is patched, and is not terminal",
			state: world{Foo: foo, Deployment: deletedOwn, Previous: all(serving)},
			want:  []string{"update status: report"}, kind: plan.Done,
		},
		{
			name:  "drift is patched before what is replaced is deleted, in one sync",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("2")), Previous: all(serving)},
			want: []string{
				"patch drift: patch " + inGeneration, "delete replaced: get Foo", "delete replaced: get web-3",
				"delete replaced: delete web-1", "update status: report",
			},
			kind: plan.Done,
		},
		{
			name: "a step that backs off is skipped, and the next rule counts",
			state: world{Foo: foo, Deployment: differs, Previous: all(serving), Memory: plan.Memory{
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
			state: world{Foo: newFoo(), Memory: plan.Memory{
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
		"get Foo web":              op(plan.ReadFoo, "web"),
		"get Deployment web-1":     op(plan.ReadDeployment, "web-1"),
		"create Deployment web-1":  op(plan.CreateDeployment, "web-1"),
		"patch Deployment web-1":   op(plan.PatchDeployment, "web-1"),
		"delete Deployment web-1":  again(plan.DeleteDeployment, "web-1"),
		"update status of Foo web": op(plan.UpdateStatus, "web"),
	} {
		if got := op.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

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
			c := play(t, world{Foo: foo})
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

// Whatever is observed and remembered: one write at a time, each at most once, reads only before writes, and an end.
// Nothing that was given is changed. All of that is checked in play.
func TestAConversationEnds(t *testing.T) {
	steps := 0
	r := newRandom()
	someStates(t, func(t *testing.T, state world) {
		replies := [][]reply{nil, {finds(nil)}, {findsDeployment(nil)}, {finds(newFoo(withUID("new")))}}
		for _, verb := range verbs {
			for _, err := range []error{forbidden, conflict, notFound, serverFails, noResponse, namespaceTerminating()} {
				replies = append(replies, []reply{fails(verb, err)})
			}
		}
		for range 8 {
			replies := replies[r.Intn(len(replies))]
			state.Memory = someMemory(r, state)
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
	someStates(t, func(t *testing.T, state world) {
		c := play(t, state)
		if c.status() == nil || c.outcome.Kind != plan.Done && c.outcome.Kind != plan.Terminal ||
			c.step(plan.DeleteDeployment) != nil { // Its event brings the key back.
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
	someStates(t, func(t *testing.T, state world) {
		state.Memory = someMemory(r, state)
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

// What follows is about live reads: which steps need them, and what follows from the answers.

// The cached Foo may be one that has got its old name back, or is gone: nothing that would do harm is written on what a
// cache has of it.
func TestWritesThatNeedALiveFoo(t *testing.T) {
	foo := renamed()
	other := func(foo *v1alpha1.Foo) {
		foo.Status.ObservedGeneration, foo.ResourceVersion = 3, "99"
	}
	for _, write := range []struct {
		name  string
		state world
		// sent is what is sent for a Foo that is as the cache has it.
		sent string
	}{
		{
			name:  "create again",
			state: world{Foo: foo},
			sent:  "get Foo, create web-3",
		},
		{
			name:  "patch across a newer generation",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("4"))},
			sent:  "get Foo, " + stampGeneration,
		},
		{
			name:  "delete what is replaced",
			state: world{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))},
			sent:  "get Foo, get web-3, delete web-1",
		},
		{
			name:  "status that has failed",
			state: world{Foo: foo, Deployment: newDeployment(foo), Memory: failed(foo, plan.UpdateStatus, "web")},
			sent:  "get Foo",
		},
		{
			name: "delete while a field is overridden",
			state: world{
				Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1")),
				Memory: overriddenMemory(foo),
			},
			sent: "get Foo, get web-3, delete web-1",
		},
	} {
		t.Run(write.name, func(t *testing.T) {
			for _, tc := range []struct {
				name string
				live *v1alpha1.Foo
				want bool
			}{
				{name: "is the same", live: renamed(), want: true},
				{name: "is the same, with another status", live: renamed(other), want: true},
				{name: "is gone"},
				{name: "is another of the name", live: renamed(withUID("new"))},
				{name: "is being deleted", live: renamed(deletedFoo)},
				{name: "has a newer spec", live: renamed(withGeneration(4))},
				{name: "has an older spec, which cannot be", live: renamed(withGeneration(2))},
			} {
				c := play(t, write.state, finds(tc.live))
				if tc.want {
					checkSent(t, write.sent, c.result())
					continue
				}
				if diff := cmp.Diff("get Foo; no report; wait in 1m0s", c.line()); diff != "" {
					t.Errorf("the Foo %s (-want +got):\n%s", tc.name, diff)
				}
			}
		})
	}
}

// The Deployment that is to replace a previous one may have lost replicas since the cache saw it: what a live read
// finds is decided on again.
func TestADecisionRestsOnTheDeploymentThatWasRead(t *testing.T) {
	foo := renamed()
	old := earlier(foo, "web-1")
	ready := world{Foo: foo, Deployment: newDeployment(foo), Previous: all(old)}
	api := named("api", "web-3")
	for _, tc := range []struct {
		name  string
		state world
		found reply
		want  string
	}{
		{
			name: "it has lost a replica", state: ready, found: findsDeployment(newDeployment(foo, available(2))),
			want: "get Foo, get web-3; Renaming; done",
		},
		{
			name: "it does not differ any more, so the patch that backs off is not wanted",
			state: world{
				Foo: foo, Deployment: newDeployment(foo, withLabel("app.kubernetes.io/managed-by", "x")), Previous: all(old),
				Memory: plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{
					op(plan.PatchDeployment, "web-3"): until(seconds(1)),
				}},
			},
			found: findsDeployment(newDeployment(foo)), want: "get Foo, get web-3, delete web-1; Available; done",
		},
		{
			name: "it is being deleted", state: ready, found: findsDeployment(newDeployment(foo, deleted)),
			want: "get Foo, get web-3; WaitingForDeletion; done",
		},
		{
			name: "it is gone", state: ready, found: findsDeployment(nil),
			want: "get Foo, get web-3, create web-3; Renaming; done",
		},
		{
			name: "it is foreign", state: ready, found: findsDeployment(newDeployment(foo, ownedBy())),
			want: "get Foo, get web-3; NotOwned; terminal",
		},
		{
			name: "it is another Foo's", state: ready, found: found(earlier(api, "web-3"), api),
			want: "get Foo, get web-3; NameTaken; terminal",
		},
		{
			name: "it differs, and again after it was patched: that is for the next sync", state: ready,
			found: slowly(findsDeployment(newDeployment(foo, scaled(5), rollout(5, 5, 5))), time.Millisecond),
			want:  "get Foo, get web-3, patch spec.replicas, get Foo, get web-3; no report; wait in 5ms",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state, tc.found)
			if diff := cmp.Diff(tc.want, c.line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing is sent twice in one sync, also when no time passes between two answers, as in a simulation.
func TestNothingIsSentTwiceWhenTheClockStandsStill(t *testing.T) {
	foo := renamed()
	state := world{
		Foo: foo, Deployment: newDeployment(foo, scaled(5)), Previous: all(earlier(foo, "web-1")), Now: now,
	}.state()
	undone := plan.TrimDeployment(newDeployment(foo, scaled(5), rollout(5, 5, 5))) // Something else has set the number again.
	var patches int
	for step := state.Next(); step != nil && patches < 9; step = state.Next() {
		answer := plan.Answer{Foo: step.Foo}
		switch step.Verb {
		case plan.ReadDeployment:
			answer = plan.Answer{Deployment: undone}
		case plan.PatchDeployment:
			patches++
			answer = plan.Answer{Deployment: plan.TrimDeployment(newDeployment(foo))}
		}
		state.Record(step, answer, now)
	}
	if patches != 1 {
		t.Errorf("the patch is sent %d times in one sync, want once", patches)
	}
}

// failed is what is remembered of a Foo after an operation has failed whose delay has ended.
func failed(foo *v1alpha1.Foo, verb plan.Verb, name string) plan.Memory {
	return plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{op(verb, name): until(0)}}
}

// found is the answer to a live read of a Deployment that is another Foo's.
func found(dep *appsv1.Deployment, owner *v1alpha1.Foo) reply {
	return reply{verb: plan.ReadDeployment, answer: &answer{deployment: dep, owner: owner}}
}

// A write that has failed may have been done, or the cache lags, or admission has answered before the API server has
// checked the name. So it is repeated only after a live read of what it writes, whatever the failure was.
func TestAWriteThatHasFailedIsRepeatedAfterALiveRead(t *testing.T) {
	three, moved := newFoo(withReplicas(3), observed), renamed()
	differs := world{Foo: three, Deployment: newDeployment(three, scaled(5))}
	stored := three.DeepCopy()
	stored.Status = *play(t, world{Foo: three, Deployment: newDeployment(three)}).status()
	api := named("api", "web-1")
	for _, tc := range []struct {
		name  string
		state world
		verb  plan.Verb
		first string
		again string
		// done is the next sync when the live read finds what makes the write unnecessary.
		found reply
		done  string
	}{
		{
			name: "a create", state: world{Foo: three}, verb: plan.CreateDeployment,
			first: "get Foo, create web-1", again: "get Foo, get web-1, create web-1",
			found: findsDeployment(newDeployment(three)), done: "get Foo, get web-1; Available; done",
		},
		{
			name: "a create, and another Foo has the name", state: world{Foo: three}, verb: plan.CreateDeployment,
			first: "get Foo, create web-1", again: "get Foo, get web-1, create web-1",
			found: found(earlier(api, "web-1"), api), done: "get Foo, get web-1; NameTaken; terminal",
		},
		{
			name: "a patch", state: differs, verb: plan.PatchDeployment,
			first: "get Foo, patch spec.replicas", again: "get Foo, get web-1, patch spec.replicas",
			found: findsDeployment(newDeployment(three)), done: "get Foo, get web-1; Available; done",
		},
		{
			name: "a patch, and the Deployment is gone", state: differs, verb: plan.PatchDeployment,
			first: "get Foo, patch spec.replicas", again: "get Foo, get web-1, patch spec.replicas",
			found: findsDeployment(nil), done: "get Foo, get web-1, create web-1; Creating; done",
		},
		{
			name:  "a deletion, which needs both reads in any case",
			state: world{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1"))},
			verb:  plan.DeleteDeployment, first: deleteOld, again: deleteOld,
			found: findsDeployment(newDeployment(moved, available(2))), done: "get Foo, get web-3; Renaming; done",
		},
		{
			name: "a status", state: world{Foo: three, Deployment: newDeployment(three)}, verb: plan.UpdateStatus,
			first: "nothing", again: "get Foo", found: finds(stored), done: "get Foo; no report; done",
		},
	} {
		for _, err := range []error{forbidden, tooMany, conflict, noResponse, serverFails} {
			t.Run(fmt.Sprint(tc.name, ": ", err), func(t *testing.T) {
				c := play(t, tc.state, fails(tc.verb, err))
				checkSent(t, tc.first, c.sent())
				state := tc.state
				state.Memory, state.Now = c.end.Memory, c.endedAt.Add(time.Minute)
				again := play(t, state)
				checkSent(t, tc.again, again.sent())
				if _, found := again.end.Memory.Ledger[op(tc.verb, c.last().Name)]; found {
					t.Errorf("after a success the ledger has %v", again.end.Memory.Ledger)
				}
				if diff := cmp.Diff(tc.done, play(t, state, tc.found).line()); diff != "" {
					t.Errorf("wrong next sync when it is not needed any more (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A live read has the name of the write that it comes before: when the read fails, that write has failed. Nothing else
// is read in that sync, so what else needs a read fails with it, and what needs none is done.
func TestAReadThatFails(t *testing.T) {
	foo := renamed()
	old := all(earlier(foo, "web-1"))
	create, remove := op(plan.CreateDeployment, "web-3"), op(plan.DeleteDeployment, "web-1")
	patch, status := op(plan.PatchDeployment, "web-3"), op(plan.UpdateStatus, "web")
	both := failed(foo, plan.PatchDeployment, "web-3")
	both.Ledger[status] = until(0)
	for _, tc := range []struct {
		name  string
		state world
		verb  plan.Verb
		want  string
		fails []plan.Op
	}{
		{
			name: "of the Foo before a create", state: world{Foo: foo, Previous: old}, verb: plan.ReadFoo,
			want: "get Foo; Refused", fails: []plan.Op{create},
		},
		{
			name:  "of the Deployment before a create",
			state: world{Foo: foo, Memory: failed(foo, plan.CreateDeployment, "web-3")}, verb: plan.ReadDeployment,
			want: "get Foo, get web-3; Refused", fails: []plan.Op{create},
		},
		{
			name: "of the Foo before a patch", state: world{Foo: foo, Deployment: newDeployment(foo, withFence("9"))},
			verb: plan.ReadFoo, want: "get Foo; Refused", fails: []plan.Op{patch},
		},
		{
			name: "of the Deployment before a patch: the deletion fails with it, and the status needs no read",
			state: world{
				Foo: foo, Deployment: newDeployment(foo, withLabel("app.kubernetes.io/managed-by", "x")), Previous: old,
				Memory: failed(foo, plan.PatchDeployment, "web-3"),
			},
			verb: plan.ReadDeployment, want: "get Foo, get web-3; Refused", fails: []plan.Op{remove, patch},
		},
		{
			name: "of the Foo before a deletion: the patch before it was done",
			state: world{
				Foo: foo, Deployment: newDeployment(foo, withFence("2")), Previous: old,
			},
			verb: plan.ReadFoo, want: stampGeneration + ", get Foo; Available", fails: []plan.Op{remove},
		},
		{
			name:  "of the Deployment before a deletion",
			state: world{Foo: foo, Deployment: newDeployment(foo), Previous: old}, verb: plan.ReadDeployment,
			want: "get Foo, get web-3; Available", fails: []plan.Op{remove},
		},
		{
			name:  "of the Foo before the second of two deletions: only one is tried",
			state: world{Foo: foo, Deployment: newDeployment(foo), Previous: append(old, earlier(foo, "web-2"))},
			verb:  plan.ReadFoo, want: "get Foo; Available", fails: []plan.Op{remove},
		},
		{
			name: "of the Foo before a status", verb: plan.ReadFoo,
			state: world{Foo: foo, Deployment: newDeployment(foo), Memory: failed(foo, plan.UpdateStatus, "web")},
			want:  "get Foo; no report", fails: []plan.Op{status},
		},
		{
			name: "of the Deployment before a patch, and the status needs a read too", verb: plan.ReadDeployment,
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("2")), Memory: both},
			want:  "get web-3; no report", fails: []plan.Op{patch, status},
		},
	} {
		for err, first := range map[error]time.Duration{forbidden: time.Second, noResponse: 5 * time.Millisecond} {
			t.Run(fmt.Sprint(tc.name, ": ", err), func(t *testing.T) {
				c := play(t, tc.state, fails(tc.verb, err))
				want := tc.want
				if err == noResponse {
					want = strings.Replace(want, "Refused", "RequestFailed", 1)
				}
				if got := strings.Join(strings.Split(c.line(), "; ")[:2], "; "); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				if c.outcome.Kind != plan.Retry || c.outcome.Expected {
					t.Errorf("outcome %+v, want a retry that is logged", c.outcome)
				}
				if step := c.step(tc.verb); !slices.Contains(tc.fails, step.For) {
					t.Errorf("the read is for %s", step.For)
				}
				before := tc.state.Memory.Ledger
				for _, op := range tc.fails {
					attempt := c.end.Memory.Ledger[op]
					delay := first << before[op].Count
					if attempt.Count != before[op].Count+1 || attempt.Expected || !attempt.Until.Equal(now.Add(delay)) {
						t.Errorf("the ledger has %+v of %s, want a delay of %s", attempt, op, delay)
					}
				}
			})
		}
	}
}

// A write makes old what was read before it: after a patch both are read again, and may have changed.
func TestAWriteEndsTheFreshnessOfReads(t *testing.T) {
	foo := renamed()
	state := world{
		Foo: foo, Deployment: newDeployment(foo, withFence("9")), Previous: all(earlier(foo, "web-1")),
		Memory: failed(foo, plan.PatchDeployment, "web-3"),
	}
	const first = "get Foo, get web-3, " + stampGeneration
	drifted := findsDeployment(newDeployment(foo, withFence("9")))
	for _, tc := range []struct {
		name    string
		replies []reply
		want    string
	}{
		{
			name: "nothing has changed", replies: []reply{drifted, findsDeployment(newDeployment(foo))},
			want: first + ", get Foo, get web-3, delete web-1; Available; done",
		},
		{
			name:    "the Deployment has lost its replicas",
			replies: []reply{drifted, findsDeployment(newDeployment(foo, available(0)))},
			want:    first + ", get Foo, get web-3; Renaming; done",
		},
		{
			name: "the Foo is gone", replies: []reply{finds(foo), finds(nil)}, want: first + ", get Foo; no report; wait in 1m0s",
		},
		{
			name: "a refused patch is a write too", replies: []reply{fails(plan.PatchDeployment, forbidden)},
			want: first + "; Refused; retry in 2s",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, play(t, state, tc.replies...).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}
