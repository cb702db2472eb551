package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file is about live reads: which steps need them, and what follows from the answers.

// The cached Foo may be one that has got its old name back, or is gone: nothing that would do harm is written on what a
// cache has of it.
func TestWritesThatNeedALiveFoo(t *testing.T) {
	foo := renamed()
	other := func(foo *v1alpha1.Foo) {
		foo.Status.ObservedGeneration, foo.ResourceVersion = 3, "99"
	}
	for _, write := range []struct {
		name  string
		state plan.State
		// sent is what is sent for a Foo that is as the cache has it.
		sent string
	}{
		{
			name:  "create again",
			state: plan.State{Foo: foo},
			sent:  "get Foo, create web-3",
		},
		{
			name:  "patch across a newer generation",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("4"))},
			sent:  "get Foo, " + stampGeneration,
		},
		{
			name:  "delete what is replaced",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))},
			sent:  "get Foo, get web-3, delete web-1",
		},
		{
			name: "delete what never served",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, available(1)),
				Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2", available(0))),
			},
			sent: "get Foo, get web-3, delete web-2",
		},
		{
			name: "delete while a field is overridden",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1")),
				Memory: overriddenMemory(foo),
			},
			sent: "get Foo, get web-3, delete web-1",
		},
		{
			name: "anything while the cache of Deployments is stale",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, scaled(5)),
				Memory: plan.Memory{UID: foo.UID, Generation: 3, StaleDeployment: true},
			},
			sent: "get Foo, get web-3, patch spec.replicas",
		},
		{
			name: "a status while the cache of Foos is stale",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo),
				Memory: plan.Memory{UID: foo.UID, Generation: 3, StaleFoo: true},
			},
			sent: "get Foo, get web-3",
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
				if diff := cmp.Diff("get Foo; no report; done, stale", c.line()); diff != "" {
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
	ready := plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: all(old)}
	stale := func(dep *appsv1.Deployment) plan.State {
		return plan.State{Foo: foo, Deployment: dep, Previous: all(old), Memory: plan.Memory{
			UID: foo.UID, Generation: foo.Generation, StaleDeployment: true,
		}}
	}
	api := named("api", "web-3")
	for _, tc := range []struct {
		name  string
		state plan.State
		found reply
		want  string
	}{
		{
			name: "it has lost a replica", state: ready, found: findsDeployment(newDeployment(foo, available(2))),
			want: "get Foo, get web-3; Renaming; done",
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
			name: "it is another Foo's", state: ready, found: findsDeployment(earlier(api, "web-3"), api),
			want: "get Foo, get web-3; NameTaken; terminal",
		},
		{
			name: "it differs, and again after it was patched: that is for the next sync", state: ready,
			found: slowly(findsDeployment(newDeployment(foo, scaled(5), rollout(5, 5, 5))), time.Millisecond),
			want:  "get Foo, get web-3, patch spec.replicas, get Foo, get web-3; no report; wait in 5ms",
		},
		{
			name: "the cache had none, and there is one", state: stale(nil), found: findsDeployment(newDeployment(foo,
				available(2))),
			want: "get Foo, get web-3; Renaming; done",
		},
		{
			name: "the cache had one that no longer exists", state: stale(newDeployment(foo, scaled(5))),
			found: findsDeployment(nil), want: "get Foo, get web-3, create web-3; Renaming; done",
		},
		{
			name: "the cache had one that differs, and it does not", state: stale(newDeployment(foo, scaled(5))),
			found: findsDeployment(newDeployment(foo, available(2))), want: "get Foo, get web-3; Renaming; done",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state, tc.found)
			if diff := cmp.Diff(tc.want, c.line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
			if c.end.Memory.StaleDeployment || c.end.Memory.StaleFoo {
				t.Error("both were read, and the caches are still not acted on")
			}
		})
	}
}

// Nothing is sent twice in one sync, also when no time passes between two answers, as in a simulation.
func TestNothingIsSentTwiceWhenTheClockStandsStill(t *testing.T) {
	foo := renamed()
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, scaled(5)), Previous: all(earlier(foo, "web-1")), Now: now,
	}
	undone := newDeployment(foo, scaled(5), rollout(5, 5, 5)) // Something else has set the number again.
	var patches int
	for step := state.Next(); step != nil && patches < 9; step = state.Next() {
		answer := plan.Answer{Foo: step.Foo}
		switch step.Verb {
		case plan.ReadDeployment:
			answer = plan.Answer{Deployment: undone}
		case plan.PatchDeployment:
			patches++
			answer = plan.Answer{Deployment: newDeployment(foo)}
		}
		state.Record(step, answer, now)
	}
	if patches != 1 {
		t.Errorf("the patch is sent %d times in one sync, want once", patches)
	}
}

// A write makes old what was read before it: before a second deletion everything is read again, and may have changed.
func TestAWriteEndsTheFreshnessOfReads(t *testing.T) {
	foo := renamed()
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2")),
	}
	for _, tc := range []struct {
		name    string
		replies []reply
		want    string
	}{
		{
			name: "nothing has changed",
			want: "get Foo, get web-3, delete web-1, get Foo, get web-3, delete web-2; Available; done",
		},
		{
			name: "the Deployment has lost its replicas", want: "get Foo, get web-3, delete web-1, get Foo, get " +
				"web-3; Renaming; done",
			replies: []reply{
				findsDeployment(newDeployment(foo)), findsDeployment(newDeployment(foo, available(0))),
			},
		},
		{
			name: "the Foo is gone", want: "get Foo, get web-3, delete web-1, get Foo; no report; done, stale",
			replies: []reply{finds(foo), finds(nil)},
		},
		{
			name: "a refused deletion is a write too",
			want: "get Foo, get web-3, delete web-1, get Foo, get web-3, delete web-2; Available; retry in 1s",
			replies: []reply{
				fails(plan.DeleteDeployment, forbidden), succeeds(plan.DeleteDeployment),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, play(t, state, tc.replies...).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// A cache that lags for long is not acted on. Reading live once is enough for a sync.
func TestStaleCaches(t *testing.T) {
	foo := newFoo(withReplicas(3))
	invalid := newFoo(withReplicas(3), withDeploymentName("Web"))
	paused := newFoo(withReplicas(3), withPaused)
	inSync := newFoo(withReplicas(3))
	inSync.Status = *play(t, plan.State{Foo: foo, Deployment: newDeployment(foo)}).status()
	for _, tc := range []struct {
		name      string
		foo       *v1alpha1.Foo
		dep       *appsv1.Deployment
		staleFoo  bool
		staleDep  bool
		want      string
		stillFoo  bool
		stillDep  bool
		remembers ledger
	}{
		{
			name: "of Deployments: a first create", foo: foo, staleDep: true,
			want: "get Foo, get web-1, create web-1; Creating; done",
		},
		{
			name: "of Deployments: a patch", foo: foo, dep: newDeployment(foo, scaled(5)), staleDep: true,
			want: "get Foo, get web-1, patch spec.replicas; Available; done",
		},
		{
			name: "of Deployments: a status alone is written, and the write without an answer was done", foo: foo,
			dep: newDeployment(foo), staleDep: true, want: "nothing; Available; done",
		},
		{
			name: "of Deployments: nothing to write", foo: inSync, dep: newDeployment(foo), staleDep: true,
			want: "nothing; no report; done",
		},
		{
			name: "of Deployments: what backs off is still wanted", foo: foo, dep: newDeployment(foo, scaled(5)),
			staleDep: true, remembers: ledger{op(plan.PatchDeployment, "web-1"): until(1)},
			want: "get Foo, get web-1; Refused; wait in 1ns",
		},
		{
			name: "of Deployments: the status of a paused Foo", foo: paused, dep: newDeployment(foo), staleDep: true,
			want: "get Foo, get web-1; Paused; done",
		},
		{
			name: "of Foos: a first create", foo: foo, staleFoo: true,
			want: "get Foo, get web-1, create web-1; Creating; done",
		},
		{
			name: "of Foos: a patch", foo: foo, dep: newDeployment(foo, scaled(5)), staleFoo: true,
			want: "get Foo, get web-1, patch spec.replicas; Available; done",
		},
		{
			name: "of Foos: a status", foo: foo, dep: newDeployment(foo), staleFoo: true,
			want: "get Foo, get web-1; Available; done",
		},
		{
			name: "of Foos: nothing to write", foo: inSync, dep: newDeployment(foo), staleFoo: true,
			want: "nothing; no report; done", stillFoo: true,
		},
		{
			name: "of both", foo: foo, dep: newDeployment(foo, scaled(5)), staleFoo: true, staleDep: true,
			want: "get Foo, get web-1, patch spec.replicas; Available; done",
		},
		{
			name: "of Foos: no Deployment can have an invalid name, so only the Foo is read", foo: invalid, staleFoo: true,
			want: "get Foo; Invalid; terminal",
		},
		{
			name: "of Foos: the status of a paused Foo", foo: paused, dep: newDeployment(foo), staleFoo: true,
			want: "get Foo, get web-1; Paused; done",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, plan.State{Foo: tc.foo, Deployment: tc.dep, Memory: plan.Memory{
				UID: foo.UID, Generation: foo.Generation, StaleFoo: tc.staleFoo, StaleDeployment: tc.staleDep,
				Ledger: tc.remembers,
			}})
			if diff := cmp.Diff(tc.want, c.line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
			memory := c.end.Memory
			if memory.StaleFoo != tc.stillFoo || memory.StaleDeployment != tc.stillDep {
				t.Errorf("stale after it: Foo %t, Deployment %t", memory.StaleFoo, memory.StaleDeployment)
			}
		})
	}
}

// While a cache lags for longer than a minute, live reads come before every write, that of the status included. With
// nothing to write nothing is read.
func TestACacheThatLags(t *testing.T) {
	foo, paused, moved := newFoo(withReplicas(3)), newFoo(withReplicas(3), withPaused), renamed()
	inSync := newFoo(withReplicas(3))
	inSync.Status = *play(t, plan.State{Foo: foo, Deployment: newDeployment(foo)}).status()
	for _, tc := range []struct {
		name  string
		state plan.State
		reply reply
		want  string
	}{
		{
			name: "nothing to write", state: plan.State{Foo: inSync, Deployment: newDeployment(foo)},
			want: "nothing; no report; done",
		},
		{
			name: "a status", state: plan.State{Foo: foo, Deployment: newDeployment(foo)},
			want: "get Foo, get web-1; Available; done",
		},
		{
			name: "the status of a paused Foo", state: plan.State{Foo: paused, Deployment: newDeployment(foo)},
			want: "get Foo, get web-1; Paused; done",
		},
		{
			name: "the status of a Foo with an invalid name, which is not read", want: "get Foo; Invalid; terminal",
			state: plan.State{Foo: newFoo(withDeploymentName("Web"))},
		},
		{
			name: "a Foo that is gone", state: plan.State{Foo: foo}, reply: finds(nil),
			want: "get Foo; no report; done, stale",
		},
		{
			name: "a create that is not wanted any more", state: plan.State{Foo: foo},
			reply: findsDeployment(newDeployment(foo)), want: "get Foo, get web-1; Available; done",
		},
		{
			name:  "a deletion, and the status after it",
			state: plan.State{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1"))},
			want:  "get Foo, get web-3, delete web-1; Available; done",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.CacheStale = true
			if diff := cmp.Diff(tc.want, play(t, tc.state, tc.reply).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// The reads before the status may change everything: what the cache alone asked for is forgotten.
func TestTheReadsBeforeTheStatusDecide(t *testing.T) {
	foo := newFoo(withReplicas(3))
	create := op(plan.CreateDeployment, "web-1")
	for _, tc := range []struct {
		name      string
		dep       *appsv1.Deployment
		remembers ledger
	}{
		{name: "a create backs off, and is not wanted", remembers: ledger{create: until(1)}},
		{name: "the name was another owner's, and is the Foo's", dep: newDeployment(foo, ownedBy())},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, plan.State{Foo: foo, Deployment: tc.dep, Memory: plan.Memory{
				UID: foo.UID, Generation: foo.Generation, StaleFoo: true, Ledger: tc.remembers,
			}}, findsDeployment(newDeployment(foo)))
			if diff := cmp.Diff("get Foo, get web-1; Available; done", c.line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
			if len(c.end.Memory.Ledger) > 0 {
				t.Errorf("the ledger has %v", c.end.Memory.Ledger)
			}
		})
	}
}

// A live read has the name of the write that it prepares: when it is refused, that write has failed.
func TestAReadIsForAWrite(t *testing.T) {
	foo := renamed()
	replaced := plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))}
	for _, tc := range []struct {
		name  string
		state plan.State
		verb  plan.Verb
		want  plan.Op
	}{
		{
			name: "the Foo before a create", state: plan.State{Foo: newFoo(observed)}, verb: plan.ReadFoo,
			want: op(plan.CreateDeployment, "web-1"),
		},
		{
			name:  "the Foo before a patch",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("9"))}, verb: plan.ReadFoo,
			want: op(plan.PatchDeployment, "web-3"),
		},
		{name: "the Foo before a delete", state: replaced, verb: plan.ReadFoo, want: op(plan.DeleteDeployment, "web-1")},
		{
			name: "the Deployment before a delete", state: replaced, verb: plan.ReadDeployment,
			want: op(plan.DeleteDeployment, "web-1"),
		},
		{
			name: "the Foo before a status",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo), Memory: plan.Memory{UID: foo.UID, Generation: 3, StaleFoo: true},
			},
			verb: plan.ReadFoo, want: op(plan.UpdateStatus, "web"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			step := play(t, tc.state).step(tc.verb)
			if step == nil || step.Prepares != tc.want {
				t.Fatalf("got %+v, want a read for %s", step, tc.want)
			}
			c := play(t, tc.state, fails(tc.verb, forbidden))
			attempt := c.end.Memory.Ledger[tc.want]
			if attempt.Count != 1 || attempt.Expected || attempt.Report.Message != overQuota {
				t.Errorf("the ledger has %+v of %s", attempt, tc.want)
			}
		})
	}
}

// A read that was refused fails the write that it was for. Nothing else is read in this sync, so what else needs a read
// fails with it; what needs none is done.
func TestARefusedRead(t *testing.T) {
	foo := renamed()
	serving, never := earlier(foo, "web-1"), earlier(foo, "web-2", available(0))
	for _, tc := range []struct {
		name  string
		state plan.State
		reply reply
		want  string
	}{
		{
			name: "of the Foo before a create", state: plan.State{Foo: foo}, reply: fails(plan.ReadFoo, forbidden),
			want: "get Foo; Refused; retry in 5ms",
		},
		{
			name: "of the Foo before a deletion: the create needs one too, and fails with it",
			state: plan.State{
				Foo: foo, Previous: all(serving, never),
			},
			reply: fails(plan.ReadFoo, forbidden), want: "get Foo; Refused; retry in 5ms",
		},
		{
			name: "of the Foo before a deletion: the patch needs none",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, scaled(5)), Previous: all(serving, never),
			},
			reply: fails(plan.ReadFoo, forbidden), want: "get Foo, patch spec.replicas; Available; retry in 1s",
		},
		{
			name: "of the Foo before several deletions: one read, and all have failed",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo), Previous: all(serving, earlier(foo, "web-2")),
			},
			reply: fails(plan.ReadFoo, serverFails), want: "get Foo; Available; retry in 1s",
		},
		{
			name: "of the Deployment before a deletion",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo), Previous: all(serving),
			},
			reply: fails(plan.ReadDeployment, tooMany), want: "get Foo, get web-3; Available; retry in 1s",
		},
		{
			name: "of the Foo while the cache of Foos is stale: the status is not written either",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, scaled(5)),
				Memory: plan.Memory{UID: foo.UID, Generation: 3, StaleFoo: true},
			},
			reply: fails(plan.ReadFoo, forbidden), want: "get Foo; no report; retry in 5ms",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state, tc.reply)
			if diff := cmp.Diff(tc.want, c.line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// Without an answer to a read nothing else can be done either: the whole key backs off, without a report.
func TestAReadWithoutAnAnswer(t *testing.T) {
	foo := newFoo(observed)
	state := plan.State{Foo: foo}
	want := []string{
		"get Foo; no report; retry in 5ms",
		"get Foo; no report; retry in 10ms",
		"get Foo; no report; retry in 20ms",
		"get Foo; no report; retry in 40ms",
	}
	checkLines(t, want, rounds(t, len(want), state, fails(plan.ReadFoo, noResponse)))

	c := play(t, state, fails(plan.ReadFoo, noResponse))
	if got, want := c.outcome.Err.Error(), "get Foo web: context deadline exceeded"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	state.Memory = c.end.Memory
	if diff := cmp.Diff("nothing; no report; wait in 5ms", play(t, state).line()); diff != "" {
		t.Errorf("wrong sync when an event brings the key back before (-want +got):\n%s", diff)
	}
	state.Now = now.Add(c.outcome.After)
	after := play(t, state, fails(plan.CreateDeployment, forbidden))
	if _, found := after.end.Memory.Ledger[wholeSync]; found {
		t.Error("the complete sync did not end the backoff of the key")
	}
}

// The delay doubles also when the read of the Foo is answered each time, and that of the Deployment is not.
func TestAReadOfTheDeploymentWithoutAnAnswer(t *testing.T) {
	foo := renamed()
	state := plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))}
	want := []string{
		"get Foo, get web-3; no report; retry in 5ms", "get Foo, get web-3; no report; retry in 10ms",
		"get Foo, get web-3; no report; retry in 20ms",
	}
	checkLines(t, want, rounds(t, len(want), state, fails(plan.ReadDeployment, noResponse)))
}
