package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file is about what is remembered from one sync to the next.

// delays plays n syncs and returns what follows each, a zero for those that are not delayed.
func delays(t *testing.T, n int, state plan.State, reply reply) []time.Duration {
	t.Helper()
	var all []time.Duration
	state.Now = now
	for range n {
		c := play(t, state, reply)
		all = append(all, c.outcome.After)
		state.Now, state.Memory = c.endedAt.Add(c.outcome.After), c.end.Memory
		if step := c.step(plan.UpdateStatus); step != nil && reply.verb != plan.UpdateStatus {
			state.Foo = step.Foo
		}
	}
	return all
}

func milliseconds(ns ...int) []time.Duration {
	var all []time.Duration
	for _, n := range ns {
		all = append(all, time.Duration(n)*time.Millisecond)
	}
	return all
}

// The delay doubles from 5 ms to a minute; a deletion that is refused begins with a second.
func TestTheDelayAfterFailuresInARow(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
	short := milliseconds(5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 60000, 60000)
	long := milliseconds(1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000)
	for _, tc := range []struct {
		name  string
		state plan.State
		reply reply
		want  []time.Duration
	}{
		{name: "create", state: plan.State{Foo: three}, reply: fails(plan.CreateDeployment, forbidden), want: short},
		{
			name:  "patch",
			state: plan.State{Foo: three, Deployment: newDeployment(three, scaled(5))},
			reply: fails(plan.PatchDeployment, forbidden), want: short,
		},
		{
			name: "status", state: plan.State{Foo: three, Deployment: newDeployment(three)},
			reply: fails(plan.UpdateStatus, forbidden), want: short,
		},
		{
			name: "read before a create", state: plan.State{Foo: newFoo(observed)},
			reply: fails(plan.ReadFoo, forbidden), want: short,
		},
		{
			name: "read without an answer", state: plan.State{Foo: newFoo(observed)},
			reply: fails(plan.ReadFoo, noResponse), want: short,
		},
		{
			name: "delete",
			state: plan.State{
				Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")),
			},
			reply: fails(plan.DeleteDeployment, forbidden), want: long,
		},
		{
			name: "read before a delete",
			state: plan.State{
				Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")),
			},
			reply: fails(plan.ReadFoo, forbidden), want: long,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, delays(t, len(tc.want), tc.state, tc.reply)); diff != "" {
				t.Errorf("wrong delays (-want +got):\n%s", diff)
			}
		})
	}
}

// The random part of a delay is an input: the same input, the same delay.
func TestJitterShortensADelay(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{
		0: 5 * time.Millisecond, 0.25: 4750 * time.Microsecond, 0.5: 4500 * time.Microsecond,
	} {
		for range 2 {
			c := play(t, plan.State{Foo: newFoo(), Jitter: jitter}, fails(plan.CreateDeployment, forbidden))
			if c.outcome.After != want {
				t.Errorf("jitter %v: a delay of %s, want %s", jitter, c.outcome.After, want)
			}
		}
	}
}

// What something else keeps undoing is put right three times at once, and then after a delay that doubles.
func TestTheDelayOfRepetitions(t *testing.T) {
	three := newFoo(withReplicas(3))
	wrote := plan.Memory{UID: three.UID, Generation: three.Generation, Wrote: true}
	const creating, patching = "create web-1", "patch spec.replicas"
	overwritten := wrote
	overwritten.Reported = "what was reported"
	for _, tc := range []struct {
		name  string
		state plan.State
		// done is the write that is repeated.
		done string
		want []string
	}{
		{
			name: "creations of what is deleted again and again", state: plan.State{Foo: three, Memory: wrote},
			done: creating, want: []string{"0s", "0s", "0s", "0s", "8s", "16s", "32s", "1m0s", "1m0s"},
		},
		{
			name:  "patches of what is changed again and again",
			state: plan.State{Foo: three, Deployment: newDeployment(three, scaled(5)), Memory: wrote},
			done:  patching, want: []string{"0s", "0s", "0s", "0s", "8s", "16s", "32s", "1m0s", "1m0s"},
		},
		{
			name:  "statuses that are overwritten again and again",
			state: plan.State{Foo: three, Deployment: newDeployment(three), Memory: overwritten},
			done:  "report", want: []string{"0s", "0s", "0s", "0s", "8s", "16s", "32s", "1m0s", "1m0s"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var waited []string // Before each write.
			state, since := tc.state, now
			state.Now = now
			for i := 0; len(waited) < len(tc.want) && i < 100; i++ {
				c := play(t, state)
				for _, step := range c.steps {
					if wordsOf(step) == tc.done {
						waited = append(waited, state.Now.Sub(since).String())
						since = state.Now
					}
				}
				state.Now, state.Memory = state.Now.Add(c.outcome.After), c.end.Memory
			}
			if diff := cmp.Diff(tc.want, waited); diff != "" {
				t.Errorf("wrong delays (-want +got):\n%s", diff)
			}
		})
	}
}

// The first Deployment of a Foo is no repetition.
func TestTheFirstCreationIsNoRepetition(t *testing.T) {
	c := play(t, plan.State{Foo: newFoo()})
	if len(c.end.Memory.Ledger) > 0 {
		t.Errorf("the ledger has %v", c.end.Memory.Ledger)
	}
	c = play(t, plan.State{Foo: newFoo(observed)})
	if got := c.end.Memory.Ledger[again(plan.CreateDeployment, "web-1")].Count; got != 1 {
		t.Errorf("a creation for a Foo that had one counts %d, want 1", got)
	}
}

// Our own status is still there: nobody overwrites it, and a new one is not a repetition.
func TestAStatusThatNobodyOverwritesIsNoRepetition(t *testing.T) {
	foo := newFoo(withReplicas(3))
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, available(1))})
	for _, n := range []int32{2, 3, 2, 3, 2, 3} {
		next := c.nextSync(seconds(1))
		next.Deployment = newDeployment(foo, available(n))
		c = play(t, next)
		if c.status() == nil || c.outcome.Kind != plan.Done || len(c.end.Memory.Ledger) > 0 {
			t.Fatalf("%s, and the ledger %v", c.line(), c.end.Memory.Ledger)
		}
	}
}

// What counts is the status as it was stored: the API server may have completed what was sent.
func TestAStatusThatWasStoredOtherwiseIsNoRepetition(t *testing.T) {
	foo := newFoo(withReplicas(3))
	stored := func(foo *v1alpha1.Foo) *v1alpha1.Foo {
		foo = foo.DeepCopy()
		foo.Status.Replicas = 99
		return foo
	}
	state := plan.State{Foo: foo, Deployment: newDeployment(foo)}
	sent := play(t, state).step(plan.UpdateStatus).Foo
	c := play(t, state, reply{verb: plan.UpdateStatus, answer: &plan.Answer{Foo: stored(sent)}})
	next := c.nextSync(seconds(1))
	next.Foo = stored(sent)
	if c = play(t, next); c.status() == nil || len(c.end.Memory.Ledger) > 0 {
		t.Errorf("%s, and the ledger %v", c.line(), c.end.Memory.Ledger)
	}
}

// An overwritten status that backs off is written again as soon as the one that was reported last is back.
func TestAStatusBacksOffOnlyWhileItIsOverwritten(t *testing.T) {
	foo := newFoo(withReplicas(3))
	first := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, available(1))})
	state := first.nextSync(0)
	state.Deployment = newDeployment(foo, available(2))
	state.Memory.Ledger = ledger{again(plan.UpdateStatus, "web"): {Count: 4, Until: now.Add(seconds(8))}}
	if diff := cmp.Diff("nothing; Progressing; done", play(t, state).line()); diff != "" {
		t.Errorf("wrong sync when the status is the one that was reported (-want +got):\n%s", diff)
	}
	state.Foo = foo // Something else has removed the status.
	if diff := cmp.Diff("nothing; no report; wait in 8s", play(t, state).line()); diff != "" {
		t.Errorf("wrong sync when it is overwritten (-want +got):\n%s", diff)
	}
}

func TestMemoryFor(t *testing.T) {
	foo := newFoo()
	memory := func(left time.Duration) plan.Memory {
		return plan.Memory{
			UID: foo.UID, Generation: foo.Generation, Wrote: true, StaleFoo: true, StaleDeployment: true, Reported: "x",
			Ledger: ledger{
				op(plan.PatchDeployment, "web-1"): {Count: 1, Until: now.Add(left)}, wholeSync: {Count: 2, Until: now},
			},
		}
	}
	const day = 24 * time.Hour
	kept, noLedger, faded := memory(0), memory(0), memory(0)
	noLedger.Ledger, noLedger.Generation = nil, 3
	delete(faded.Ledger, op(plan.PatchDeployment, "web-1"))
	for _, tc := range []struct {
		name string
		have plan.Memory
		foo  *v1alpha1.Foo
		want plan.Memory
	}{
		{name: "nothing is remembered", foo: foo, want: plan.Memory{UID: foo.UID, Generation: 2}},
		{name: "the same Foo", have: kept, foo: foo, want: kept},
		{name: "another status of it", have: kept, foo: newFoo(observed, withConditions()), want: kept},
		{name: "another generation empties the ledger", have: kept, foo: newFoo(withGeneration(3)), want: noLedger},
		{
			name: "another uid is another Foo", have: kept, foo: newFoo(withUID("new")),
			want: plan.Memory{UID: "new", Generation: 2},
		},
		{
			name: "another uid of another generation", have: kept, foo: newFoo(withUID("new"), withGeneration(1)),
			want: plan.Memory{UID: "new", Generation: 1},
		},
		{
			name: "an attempt whose delay has not ended", have: memory(time.Minute), foo: foo, want: memory(time.Minute),
		},
		{
			name: "an attempt whose delay ended ten minutes ago", have: memory(-10 * time.Minute), foo: foo,
			want: memory(-10 * time.Minute),
		},
		{name: "an attempt whose delay ended earlier", have: memory(-10*time.Minute - 1), foo: foo, want: faded},
		{name: "an attempt whose delay ended long ago", have: memory(-day), foo: foo, want: faded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := maps.Clone(tc.have.Ledger)
			got := tc.have.For(tc.foo, now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong memory (-want +got):\n%s", diff)
			}
			if got.Ledger != nil {
				got.Ledger[op(plan.CreateDeployment, "x")] = plan.Attempt{}
			}
			if diff := cmp.Diff(before, tc.have.Ledger); diff != "" {
				t.Errorf("the memory that it was made of has changed:\n%s", diff)
			}
		})
	}
}

// A sync that panics backs off as a whole: nothing is sent until then, and any answer ends it.
func TestPanicked(t *testing.T) {
	foo := newFoo()
	var memory plan.Memory
	var got []time.Duration
	for range 15 {
		before := memory
		count := before.Ledger[wholeSync].Count
		var delay time.Duration
		memory, delay = memory.Panicked(now, 0)
		got = append(got, delay)
		attempt := memory.Ledger[wholeSync]
		if !attempt.Until.Equal(now.Add(delay)) || !attempt.Expected || attempt.Count != count+1 {
			t.Errorf("the ledger has %+v", attempt)
		}
		if before.Ledger[wholeSync].Count != count {
			t.Error("the memory that it was made of has changed")
		}
	}
	want := milliseconds(5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 60000)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong delays (-want +got):\n%s", diff)
	}
	if _, delay := (plan.Memory{}).Panicked(now, 0.5); delay != 4500*time.Microsecond {
		t.Errorf("with a random part of a half %s", delay)
	}

	kept := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{op(plan.CreateDeployment, "a"): until(1)}}
	kept, delay := kept.Panicked(now, 0)
	if _, found := kept.Ledger[op(plan.CreateDeployment, "a")]; !found {
		t.Error("a panic drops what else failed")
	}
	state := plan.State{Foo: foo, Memory: kept, Now: now.Add(delay - 1)}
	if diff := cmp.Diff("nothing; no report; wait in 1ns", play(t, state).line()); diff != "" {
		t.Errorf("wrong sync before the delay ended (-want +got):\n%s", diff)
	}
	state.Now = now.Add(delay)
	c := play(t, state)
	if diff := cmp.Diff("create web-1; Creating; done", c.line()); diff != "" {
		t.Errorf("wrong sync after it (-want +got):\n%s", diff)
	}
	if _, found := c.end.Memory.Ledger[wholeSync]; found {
		t.Error("an answer does not end the backoff")
	}
}

// A complete sync drops the failures of what is no longer wanted.
func TestWhatACompleteSyncDrops(t *testing.T) {
	foo := renamed()
	create, patch := op(plan.CreateDeployment, "web-3"), op(plan.PatchDeployment, "web-3")
	status, remove := op(plan.UpdateStatus, "web"), op(plan.DeleteDeployment, "web-1")
	ready := newDeployment(foo)
	inSync := renamed()
	inSync.Status = *play(t, plan.State{Foo: foo, Deployment: ready}).status()
	for _, tc := range []struct {
		name   string
		state  plan.State
		ledger ledger
		want   []plan.Op
	}{
		{
			name: "what is wanted and backs off stays", state: plan.State{Foo: foo},
			ledger: ledger{create: until(1)}, want: []plan.Op{create},
		},
		{name: "a create of what is there", state: plan.State{Foo: foo, Deployment: ready}, ledger: ledger{create: until(1)}},
		{
			name:  "a patch of what does not differ",
			state: plan.State{Foo: foo, Deployment: ready}, ledger: ledger{patch: until(1)},
		},
		{
			name: "a patch of what is gone", state: plan.State{Foo: foo}, ledger: ledger{patch: until(1)},
			want: []plan.Op{again(plan.CreateDeployment, "web-3")},
		},
		{
			name: "a create and a patch of a Foo that is paused", state: plan.State{Foo: renamed(withPaused)},
			ledger: ledger{create: until(1), patch: until(1)},
		},
		{
			name: "a status that does not differ", state: plan.State{Foo: inSync, Deployment: ready},
			ledger: ledger{status: until(1)},
		},
		{
			name: "a status that differs and backs off stays", state: plan.State{Foo: foo, Deployment: ready},
			ledger: ledger{status: until(1)}, want: []plan.Op{status},
		},
		{
			name:   "a deletion of what is still owned stays, also while it is not wanted",
			state:  plan.State{Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: all(earlier(foo, "web-1"))},
			ledger: ledger{remove: until(1), op(plan.DeleteDeployment, "web-2"): until(1)},
			want:   []plan.Op{remove},
		},
		{
			name: "a deletion of the second of two",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, available(1)),
				Previous: all(earlier(foo, "web-0"), earlier(foo, "web-1")),
			},
			ledger: ledger{remove: until(1)}, want: []plan.Op{remove},
		},
		{
			name:   "a patch of what has an earlier name",
			state:  plan.State{Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: all(earlier(foo, "web-1"))},
			ledger: ledger{op(plan.PatchDeployment, "web-1"): until(1)},
		},
		{
			name:   "a deletion of what is not owned any more",
			state:  plan.State{Foo: foo, Deployment: ready},
			ledger: ledger{remove: until(1)},
		},
		{
			name:  "repetitions fade with time only",
			state: plan.State{Foo: foo, Deployment: ready},
			ledger: ledger{
				again(plan.CreateDeployment, "web-3"): until(0), again(plan.PatchDeployment, "web-3"): until(0),
				again(plan.UpdateStatus, "web"): until(0),
			},
			want: []plan.Op{
				again(plan.CreateDeployment, "web-3"), again(plan.PatchDeployment, "web-3"), again(plan.UpdateStatus, "web"),
			},
		},
		{
			name:  "the backoff of the whole sync stays until it ends",
			state: plan.State{Foo: inSync, Deployment: ready}, ledger: ledger{wholeSync: expectedUntil(1)},
			want: []plan.Op{wholeSync},
		},
		{
			name:  "the backoff of the whole sync that has ended",
			state: plan.State{Foo: inSync, Deployment: ready}, ledger: ledger{wholeSync: expectedUntil(0)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := tc.state
			state.Memory = plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: tc.ledger}
			c := play(t, state)
			got := slices.SortedFunc(maps.Keys(c.end.Memory.Ledger), func(a, b plan.Op) int {
				return strings.Compare(a.String(), b.String())
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong rest of the ledger (-want +got):\n%s", diff)
			}
		})
	}
}

// A sync that ends before everything was considered drops nothing: what is wanted is not known.
func TestASyncThatEndsEarlyDropsNothing(t *testing.T) {
	foo := newFoo(withReplicas(3), observed)
	unwanted := op(plan.PatchDeployment, "web-1")
	for name, reply := range map[string]reply{
		"a conflict":               fails(plan.CreateDeployment, notFound),
		"an unknown outcome":       fails(plan.CreateDeployment, noResponse),
		"a read without an answer": fails(plan.ReadFoo, noResponse),
		"a Foo that is gone":       finds(nil),
		"a newer Foo":              finds(newFoo(withGeneration(3))),
	} {
		memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{unwanted: until(0)}}
		c := play(t, plan.State{Foo: foo, Memory: memory}, reply)
		if _, found := c.end.Memory.Ledger[unwanted]; !found || c.status() != nil {
			t.Errorf("after %s the ledger has %v", name, c.end.Memory.Ledger)
		}
	}
}

// An operation that backs off blocks only itself; until then the status has its failure. One that backs off because of
// a conflict ends the sync: what there is to report is not known before the retry.
func TestWhileAnOperationBacksOff(t *testing.T) {
	foo, before := newFoo(withReplicas(3)), newFoo(withReplicas(3), observed)
	old := func(with ...deploymentOption) []*appsv1.Deployment { return all(earlier(foo, "web-0", with...)) }
	invalid := newFoo(withReplicas(-1))
	overridden := overriddenMemory(foo)
	type held = map[plan.Verb]string
	const web1, web0 = "web-1", "web-0"

	for _, tc := range []struct {
		name    string
		state   plan.State
		replies []reply
		free    string // Without a backoff.
		held    held   // While an operation of this verb backs off that is wanted.
	}{
		{
			name: "a create", state: plan.State{Foo: foo}, free: "create web-1",
			held: held{plan.CreateDeployment: "nothing"},
		},
		{
			name: "a read before a create", state: plan.State{Foo: before}, free: "get Foo, create web-1",
			held: held{plan.CreateDeployment: "nothing"},
		},
		{
			name: "a patch", state: plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5))},
			free: "patch spec.replicas", held: held{plan.PatchDeployment: "nothing"},
		},
		{
			name: "a read before a patch", state: plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("3"))},
			free: "get Foo, " + stampGeneration, held: held{plan.PatchDeployment: "nothing"},
		},
		{
			name:  "reads before a delete",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: old()},
			free:  "get Foo, get web-1, delete web-0", held: held{plan.DeleteDeployment: "nothing"},
		},
		{
			name:  "a patch and a delete",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(2), rollout(3, 3, 3)), Previous: old()},
			free:  "patch spec.replicas, get Foo, get web-1, delete web-0", held: held{
				plan.PatchDeployment: "get Foo, get web-1, delete web-0", plan.DeleteDeployment: "patch spec.replicas",
			},
		},
		{
			name:  "a delete while a field is overridden",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: old(), Memory: overridden},
			free:  "get Foo, get web-1, delete web-0", held: held{plan.DeleteDeployment: "nothing"},
		},
		{
			name:  "a delete of what never served, and a create",
			state: plan.State{Foo: foo, Previous: append(old(available(0)), earlier(foo, "web-00"))},
			free:  "get Foo, delete web-0, get Foo, create web-1", held: held{
				plan.DeleteDeployment: "get Foo, create web-1", plan.CreateDeployment: "get Foo, delete web-0",
			},
		},

		{name: "nothing", state: plan.State{Foo: foo, Deployment: newDeployment(foo)}, free: "nothing"},
		{
			name:  "a Deployment that comes up",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: old()}, free: "nothing",
		},
		{
			name:  "a Deployment that is being deleted",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, deleted)}, free: "nothing",
		},
		{
			name:  "an overridden field",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo), Memory: overridden}, free: "nothing",
		},
		{
			name:  "a foreign Deployment",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, ownedBy())}, free: "NotOwned",
		},
		{
			name:  "a name that is another Foo's",
			state: plan.State{Foo: foo, FirstClaimant: newFoo(withName("a"))}, free: "NameTaken",
		},
		{name: "an invalid Foo", state: plan.State{Foo: invalid}, free: "Invalid"},
		{name: "a paused Foo", state: plan.State{Foo: newFoo(withPaused)}, free: "nothing"},
		{
			name:  "a Foo that has moved on",
			state: plan.State{Foo: before, Deployment: newDeployment(foo, withFence("3"))},
			free:  "get Foo, no report", held: held{plan.PatchDeployment: "nothing"},
			replies: []reply{finds(newFoo(withGeneration(3)))},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkSent(t, tc.free, play(t, tc.state, tc.replies...).result())
			for _, verb := range []plan.Verb{plan.CreateDeployment, plan.PatchDeployment, plan.DeleteDeployment} {
				name := web1
				if verb == plan.DeleteDeployment {
					name = web0
				}
				for _, attempt := range []plan.Attempt{until(seconds(1)), expectedUntil(seconds(1))} {
					state, want := tc.state, tc.free
					state.Memory = plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: maps.Clone(state.Memory.Ledger)}
					if state.Memory.Ledger == nil {
						state.Memory.Ledger = ledger{}
					}
					state.Memory.Ledger[op(verb, name)] = attempt
					held, wanted := tc.held[verb]
					if wanted {
						want = held
					}
					c := play(t, state, tc.replies...)
					if wanted && attempt.Expected {
						checkQuiet(t, c)
						continue
					}
					if diff := cmp.Diff(want, c.result()); diff != "" {
						t.Errorf("while %s %s backs off (-want +got):\n%s", verb, name, diff)
					}
					if wanted && (c.outcome.Kind != plan.Wait || c.outcome.After != seconds(1)) {
						t.Errorf("while %s %s backs off: outcome %+v, want a wait of 1 s", verb, name, c.outcome)
					}
				}
			}
			checkWholeSync(t, tc.state, tc.replies)
		})
	}
}

// checkQuiet checks a sync in which something is wanted that backs off because of a conflict.
func checkQuiet(t *testing.T, c conversation) {
	t.Helper()
	want := plan.Outcome{Kind: plan.Wait, After: seconds(1), Reason: plan.Backoff}
	if c.outcome != want || c.status() != nil {
		t.Errorf("outcome %+v and report %q, want %+v and none", c.outcome, c.report(), want)
	}
}

// checkWholeSync checks that nothing is sent while the whole sync backs off.
func checkWholeSync(t *testing.T, state plan.State, replies []reply) {
	t.Helper()
	state.Memory = plan.Memory{
		UID: state.Foo.UID, Generation: state.Foo.Generation, Ledger: ledger{wholeSync: expectedUntil(seconds(1))},
	}
	if c := play(t, state, replies...); len(c.steps) > 0 || c.outcome.Kind != plan.Wait || c.outcome.After != seconds(1) {
		t.Errorf("while the whole sync backs off: %s", c.line())
	}
}

// What is reported while an operation backs off stays the same until the retry, byte for byte.
func TestTheStatusWhileAnOperationBacksOff(t *testing.T) {
	foo := newFoo(withReplicas(3))
	for _, tc := range []struct {
		name    string
		state   plan.State
		replies []reply
		want    string
	}{
		{
			name: "a create was refused", state: plan.State{Foo: foo},
			replies: []reply{fails(plan.CreateDeployment, forbidden)}, want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a patch was refused", state: plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5))},
			replies: []reply{fails(plan.PatchDeployment, forbidden)}, want: cannotPatch + overQuota + lasts,
		},
		{
			name: "a foreign Deployment was found", state: plan.State{Foo: foo},
			replies: []reply{
				fails(plan.CreateDeployment, exists), findsDeployment(newDeployment(foo, ownedBy())),
			},
			want: notOwnedWeb1 + notOwned("web-1", "it has no controller"),
		},
		{
			name: "the Deployment of a Foo that is gone was found", state: plan.State{Foo: foo},
			replies: []reply{
				fails(plan.CreateDeployment, exists),
				findsDeployment(earlier(named("api", "web-1"), "web-1")),
			},
			want: reconciling + "WaitingForName: " + ownerGone,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := play(t, tc.state, tc.replies...)
			if diff := cmp.Diff(tc.want, first.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			early := tc.state // An event brings the key back at once.
			early.Foo, early.Memory, early.Now = first.step(plan.UpdateStatus).Foo, first.end.Memory, now.Add(1)
			c := play(t, early)
			if len(c.steps) > 0 {
				t.Errorf("before the retry: %s: %s", c.sent(), c.report())
			}
			if want := 5*time.Millisecond - 1; c.outcome.Kind != plan.Wait || c.outcome.After != want {
				t.Errorf("outcome %+v, want a wait of %s", c.outcome, want)
			}
		})
	}
}

// Of several operations that back off, the retry is that of the first.
func TestTheFirstRetryCounts(t *testing.T) {
	foo := renamed()
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, scaled(5), rollout(5, 5, 5)),
		Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2", available(0))),
		Memory: plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
			op(plan.DeleteDeployment, "web-1"): until(seconds(30)),
			op(plan.DeleteDeployment, "web-2"): until(seconds(20)),
			op(plan.PatchDeployment, "web-3"):  until(seconds(40)),
			op(plan.DeleteDeployment, "web-9"): until(seconds(1)), // It is not there, and not wanted.
		}},
	}
	if diff := cmp.Diff("nothing; Refused; wait in 20s", play(t, state).line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	// Of two entries for one operation the one that ends last, and an overridden field comes before a refusal.
	state.Memory.Ledger = ledger{
		op(plan.PatchDeployment, "web-3"):    until(seconds(40)),
		again(plan.PatchDeployment, "web-3"): {Until: now.Add(seconds(50)), Report: overriddenReplicas},
		op(plan.DeleteDeployment, "web-1"):   until(seconds(60)), op(plan.DeleteDeployment, "web-2"): until(seconds(60)),
	}
	if diff := cmp.Diff("nothing; FieldsOverridden; wait in 50s", play(t, state).line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	create := plan.State{Foo: foo, Memory: plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
		op(plan.CreateDeployment, "web-3"):    until(seconds(55)),
		again(plan.CreateDeployment, "web-3"): {Until: now.Add(seconds(50))},
	}}}
	if diff := cmp.Diff("nothing; Refused; wait in 55s", play(t, create).line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	// A status that backs off because of a conflict ends nothing: it is the last step anyway.
	state.Memory.Ledger = ledger{
		op(plan.PatchDeployment, "web-3"): until(seconds(40)), op(plan.UpdateStatus, "web"): expectedUntil(seconds(45)),
		op(plan.DeleteDeployment, "web-1"): until(seconds(60)), op(plan.DeleteDeployment, "web-2"): until(seconds(60)),
	}
	if diff := cmp.Diff("nothing; no report; wait in 40s", play(t, state).line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
}

// A success ends the backoff of its operation, also when the sync ends early after it.
func TestASuccessEndsABackoff(t *testing.T) {
	foo := renamed()
	remove := op(plan.DeleteDeployment, "web-2")
	c := play(t, plan.State{
		Foo: foo, Deployment: newDeployment(foo, scaled(5)),
		Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2", available(0))),
		Memory:   plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{remove: until(0)}},
	}, fails(plan.PatchDeployment, conflict))
	checkSent(t, "get Foo, get web-3, delete web-2, patch spec.replicas", c.sent())
	if attempt, found := c.end.Memory.Ledger[remove]; found {
		t.Errorf("after a success the ledger has %+v", attempt)
	}
}

// Only a sync that comes to its end ends the backoff of the whole sync. One answer does not: the next may be missing
// again.
func TestACompleteSyncEndsTheBackoffOfTheWholeSync(t *testing.T) {
	foo := newFoo()
	memory := plan.Memory{UID: foo.UID, Generation: 2, Ledger: ledger{wholeSync: expectedUntil(0)}}
	complete := play(t, plan.State{Foo: foo, Memory: memory})
	if _, found := complete.end.Memory.Ledger[wholeSync]; found {
		t.Errorf("after a complete sync the ledger has %v", complete.end.Memory.Ledger)
	}
	broken := play(t, plan.State{Foo: foo, Memory: memory}, fails(plan.CreateDeployment, noResponse))
	if _, found := broken.end.Memory.Ledger[wholeSync]; !found {
		t.Errorf("after a sync that ended early the ledger has %v", broken.end.Memory.Ledger)
	}
}

// A deletion that backs off because of a conflict ends the sync: another one is not sent either.
func TestAConflictThatBacksOffEndsTheSync(t *testing.T) {
	foo := renamed()
	c := play(t, plan.State{
		Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2")),
		Memory: plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{
			op(plan.DeleteDeployment, "web-1"): expectedUntil(seconds(1)),
		}},
	})
	if diff := cmp.Diff("nothing; no report; wait in 1s", c.line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
}

// All that failed in a sync is remembered, also a status that was not stored after a patch that was refused.
func TestAllThatFailedInASyncIsRemembered(t *testing.T) {
	foo := newFoo(withReplicas(3))
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5))},
		fails(plan.PatchDeployment, forbidden), reply{verb: plan.UpdateStatus, answer: &plan.Answer{Foo: foo}})
	for _, failed := range []plan.Op{op(plan.PatchDeployment, "web-1"), op(plan.UpdateStatus, "web")} {
		if got := c.end.Memory.Ledger[failed].Count; got != 1 {
			t.Errorf("%s failed %d times, want once", failed, got)
		}
	}
}
