package plan_test

import (
	"fmt"
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

// The delay doubles up to a minute. After a refusal it begins with a second, and after what passes soon with 5 ms.
func TestTheDelayAfterFailuresInARow(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
	short := milliseconds(5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 60000, 60000)
	long := milliseconds(1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000)
	remove := world{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1"))}
	for _, tc := range []struct {
		name  string
		state world
		verb  plan.Verb
	}{
		{name: "create", state: world{Foo: three}, verb: plan.CreateDeployment},
		{
			name:  "patch",
			state: world{Foo: three, Deployment: newDeployment(three, scaled(5))}, verb: plan.PatchDeployment,
		},
		{name: "delete", state: remove, verb: plan.DeleteDeployment},
		{name: "status", state: world{Foo: three, Deployment: newDeployment(three)}, verb: plan.UpdateStatus},
		{name: "read before a create", state: world{Foo: newFoo(observed)}, verb: plan.ReadFoo},
		{name: "read before a delete", state: remove, verb: plan.ReadDeployment},
	} {
		for err, want := range map[error][]time.Duration{
			forbidden: long, tooMany: long, invalidBare: long, noResponse: short, serverFails: short,
		} {
			t.Run(fmt.Sprint(tc.name, ": ", err), func(t *testing.T) {
				waits := delays(t, len(want), tc.state, tc.verb, fails(tc.verb, err))
				if diff := cmp.Diff(want, waits); diff != "" {
					t.Errorf("wrong delays (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The random part of a delay is an input: the same input, the same delay.
func TestJitterShortensADelay(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{
		0: time.Second, 0.25: 950 * time.Millisecond, 0.5: 900 * time.Millisecond,
	} {
		for range 2 {
			c := play(t, world{Foo: newFoo(), Jitter: jitter}, fails(plan.CreateDeployment, forbidden))
			if c.outcome.After != want {
				t.Errorf("jitter %v: a delay of %s, want %s", jitter, c.outcome.After, want)
			}
		}
	}
}

// What something else keeps undoing is put right three times at once, and then after a delay that doubles. So is a
// status that somebody replaces, or that the API server stores differently.
func TestTheDelayOfRepetitions(t *testing.T) {
	three := newFoo(withReplicas(3))
	wrote := plan.Memory{UID: three.UID, Generation: three.Generation, Wrote: true}
	reported := wrote
	reported.Reported = "what was reported"
	for _, tc := range []struct {
		name  string
		state world
		verb  plan.Verb
	}{
		{
			name: "creations of what is deleted again and again", state: world{Foo: three, Memory: wrote},
			verb: plan.CreateDeployment,
		},
		{
			name:  "patches of what is changed again and again",
			state: world{Foo: three, Deployment: newDeployment(three, scaled(5)), Memory: wrote},
			verb:  plan.PatchDeployment,
		},
		{
			name:  "statuses that are replaced again and again",
			state: world{Foo: three, Deployment: newDeployment(three), Memory: reported}, verb: plan.UpdateStatus,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := milliseconds(0, 0, 0, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000)
			if diff := cmp.Diff(want, delays(t, len(want), tc.state, tc.verb)); diff != "" {
				t.Errorf("wrong delays (-want +got):\n%s", diff)
			}
		})
	}
}

// A CustomResourceDefinition that lacks a field, or a policy, takes a part of the status away. The status will never be
// as wanted: what counts is that the stored one is not the one that was sent. So events do not make a hot loop of it.
func TestAStatusThatIsStoredDifferentlyIsWrittenAgainWithADelay(t *testing.T) {
	foo := newFoo(withReplicas(3))
	type status = v1alpha1.FooStatus
	for _, tc := range []struct {
		name string
		dep  *appsv1.Deployment
		drop func(*status)
	}{
		{name: "all conditions", drop: func(status *status) { status.Conditions = nil }},
		{name: "Ready", drop: func(status *status) { status.Conditions = status.Conditions[1:] }},
		{name: "Reconciling", drop: func(status *status) { status.Conditions = status.Conditions[:1] }},
		{
			name: "Stalled", dep: newDeployment(foo, deadlineExceeded),
			drop: func(status *status) { status.Conditions = status.Conditions[:1] },
		},
		{name: "the selector", drop: func(status *status) { status.Selector = "" }},
		{name: "the whole status", drop: func(s *status) { *s = status{} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := world{Foo: foo, Deployment: tc.dep, Now: now}
			if tc.dep == nil {
				state.Deployment = newDeployment(foo, available(1))
			}
			var written []time.Duration
			for range 300 { // Events within half a minute.
				c := play(t, state)
				if step := c.step(plan.UpdateStatus); step != nil {
					written = append(written, state.Now.Sub(now))
					stored := step.Foo.DeepCopy()
					tc.drop(&stored.Status)
					c = play(t, state, reply{verb: plan.UpdateStatus, answer: &answer{foo: stored}})
					state.Foo = stored
				} else if c.outcome.Kind != plan.Wait {
					t.Fatalf("after %s the key does not come back: %+v", state.Now.Sub(now), c.outcome)
				}
				state.Memory, state.Now = c.end.Memory, state.Now.Add(100*time.Millisecond)
			}
			if diff := cmp.Diff(milliseconds(0, 100, 200, 300, 400, 1400, 3400, 7400, 15400), written); diff != "" {
				t.Errorf("wrong times of writes (-want +got):\n%s", diff)
			}
		})
	}
}

// The first Deployment of a Foo is no repetition.
func TestTheFirstCreationIsNoRepetition(t *testing.T) {
	c := play(t, world{Foo: newFoo()})
	if len(c.end.Memory.Ledger) > 0 {
		t.Errorf("the ledger has %v", c.end.Memory.Ledger)
	}
	c = play(t, world{Foo: newFoo(observed)})
	if got := c.end.Memory.Ledger[again(plan.CreateDeployment, "web-1")].Count; got != 1 {
		t.Errorf("a creation for a Foo that had one counts %d, want 1", got)
	}
}

// Our own status is still there: nobody overwrites it, and a new one is not a repetition.
func TestAStatusThatNobodyOverwritesIsNoRepetition(t *testing.T) {
	foo := newFoo(withReplicas(3))
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo, available(1))})
	for _, n := range []int32{2, 3, 2, 3, 2, 3} {
		next := c.nextSync(seconds(1))
		next.Deployment = newDeployment(foo, available(n))
		c = play(t, next)
		if c.status() == nil || c.outcome.Kind != plan.Done || len(c.end.Memory.Ledger) > 0 {
			t.Fatalf("%s, and the ledger %v", c.line(), c.end.Memory.Ledger)
		}
	}
}

// An overwritten status that backs off is written again as soon as the one that was reported last is back.
func TestAStatusBacksOffOnlyWhileItIsOverwritten(t *testing.T) {
	foo := newFoo(withReplicas(3))
	first := play(t, world{Foo: foo, Deployment: newDeployment(foo, available(1))})
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
			UID: foo.UID, Generation: foo.Generation, Wrote: true, Reported: "x",
			Ledger: ledger{
				op(plan.PatchDeployment, "web-1"): {Count: 1, Until: now.Add(left)},
				op(plan.UpdateStatus, "web"):      {Count: 2, Until: now},
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

// A complete sync drops the failures of what is no longer wanted.
func TestWhatACompleteSyncDrops(t *testing.T) {
	foo := renamed()
	create, patch := op(plan.CreateDeployment, "web-3"), op(plan.PatchDeployment, "web-3")
	status, remove := op(plan.UpdateStatus, "web"), op(plan.DeleteDeployment, "web-1")
	ready := newDeployment(foo)
	inSync := renamed()
	inSync.Status = *play(t, world{Foo: foo, Deployment: ready}).status()
	for _, tc := range []struct {
		name   string
		state  world
		ledger ledger
		want   []plan.Op
	}{
		{
			name: "what is wanted and backs off stays", state: world{Foo: foo},
			ledger: ledger{create: until(1)}, want: []plan.Op{create},
		},
		{name: "a create of what is there", state: world{Foo: foo, Deployment: ready}, ledger: ledger{create: until(1)}},
		{
			name:  "a patch of what does not differ",
			state: world{Foo: foo, Deployment: ready}, ledger: ledger{patch: until(1)},
		},
		{
			name: "a patch of what is gone", state: world{Foo: foo}, ledger: ledger{patch: until(1)},
			want: []plan.Op{again(plan.CreateDeployment, "web-3")},
		},
		{
			name: "a create and a patch of a Foo that is paused", state: world{Foo: renamed(withPaused)},
			ledger: ledger{create: until(1), patch: until(1)},
		},
		{
			name: "a status that does not differ", state: world{Foo: inSync, Deployment: ready},
			ledger: ledger{status: until(1)},
		},
		{
			name: "a status that differs and backs off stays", state: world{Foo: foo, Deployment: ready},
			ledger: ledger{status: until(1)}, want: []plan.Op{status},
		},
		{
			name:   "a deletion of what is still owned stays, also while it is not wanted",
			state:  world{Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: all(earlier(foo, "web-1"))},
			ledger: ledger{remove: until(1), op(plan.DeleteDeployment, "web-2"): until(1)},
			want:   []plan.Op{remove, op(plan.DeleteDeployment, "web-2")},
		},
		{
			name: "a deletion of the second of two",
			state: world{
				Foo: foo, Deployment: newDeployment(foo, available(1)),
				Previous: all(earlier(foo, "web-0"), earlier(foo, "web-1")),
			},
			ledger: ledger{remove: until(1)}, want: []plan.Op{remove},
		},
		{
			name:   "a patch of what has an earlier name",
			state:  world{Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: all(earlier(foo, "web-1"))},
			ledger: ledger{op(plan.PatchDeployment, "web-1"): until(1)},
		},
		{
			name:   "a deletion of what is not owned any more fades with time",
			state:  world{Foo: foo, Deployment: ready},
			ledger: ledger{remove: until(1)}, want: []plan.Op{remove},
		},
		{
			name:  "repetitions fade with time only",
			state: world{Foo: foo, Deployment: ready},
			ledger: ledger{
				again(plan.CreateDeployment, "web-3"): until(0), again(plan.PatchDeployment, "web-3"): until(0),
				again(plan.UpdateStatus, "web"): until(0),
			},
			want: []plan.Op{
				again(plan.CreateDeployment, "web-3"), again(plan.PatchDeployment, "web-3"), again(plan.UpdateStatus, "web"),
			},
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
		"a conflict":         fails(plan.CreateDeployment, notFound),
		"an unknown outcome": fails(plan.CreateDeployment, noResponse),
		"a Foo that is gone": finds(nil),
		"a newer Foo":        finds(newFoo(withGeneration(3))),
	} {
		memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{unwanted: until(0)}}
		c := play(t, world{Foo: foo, Memory: memory}, reply)
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
		state   world
		replies []reply
		free    string // Without a backoff.
		held    held   // While an operation of this verb backs off that is wanted.
	}{
		{
			name: "a create", state: world{Foo: foo}, free: "create web-1",
			held: held{plan.CreateDeployment: "nothing"},
		},
		{
			name: "a read before a create", state: world{Foo: before}, free: "get Foo, create web-1",
			held: held{plan.CreateDeployment: "nothing"},
		},
		{
			name: "a patch", state: world{Foo: foo, Deployment: newDeployment(foo, scaled(5))},
			free: "get Foo, patch spec.replicas", held: held{plan.PatchDeployment: "nothing"},
		},
		{
			name: "a read before a patch", state: world{Foo: foo, Deployment: newDeployment(foo, withFence("3"))},
			free: "get Foo, " + stampGeneration, held: held{plan.PatchDeployment: "nothing"},
		},
		{
			name:  "reads before a delete",
			state: world{Foo: foo, Deployment: newDeployment(foo), Previous: old()},
			free:  "get Foo, get web-1, delete web-0", held: held{plan.DeleteDeployment: "nothing"},
		},
		{
			name:  "a patch and a delete",
			state: world{Foo: foo, Deployment: newDeployment(foo, scaled(5), rollout(3, 3, 3)), Previous: old()},
			free:  "get Foo, patch spec.replicas, get Foo, get web-1, delete web-0", held: held{
				plan.PatchDeployment: "get Foo, get web-1, delete web-0", plan.DeleteDeployment: "get Foo, patch spec.replicas",
			},
		},
		{
			name:  "a delete while a field is overridden",
			state: world{Foo: foo, Deployment: newDeployment(foo), Previous: old(), Memory: overridden},
			free:  "get Foo, get web-1, delete web-0", held: held{plan.DeleteDeployment: "nothing"},
		},
		{
			name: "a create beside a previous one", state: world{Foo: foo, Previous: old()},
			free: "get Foo, create web-1", held: held{plan.CreateDeployment: "nothing"},
		},

		{name: "nothing", state: world{Foo: foo, Deployment: newDeployment(foo)}, free: "nothing"},
		{
			name:  "a Deployment that comes up",
			state: world{Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: old()}, free: "nothing",
		},
		{
			name:  "a Deployment that is being deleted",
			state: world{Foo: foo, Deployment: newDeployment(foo, deleted)}, free: "nothing",
		},
		{
			name:  "an overridden field",
			state: world{Foo: foo, Deployment: newDeployment(foo), Memory: overridden}, free: "nothing",
		},
		{
			name:  "a foreign Deployment",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy())}, free: "NotOwned",
		},
		{name: "an invalid Foo", state: world{Foo: invalid}, free: "Invalid"},
		{name: "a paused Foo", state: world{Foo: newFoo(withPaused)}, free: "nothing"},
		{
			name:  "a Foo that has moved on",
			state: world{Foo: before, Deployment: newDeployment(foo, withFence("3"))},
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

// What is reported while an operation backs off stays the same until the retry, byte for byte.
func TestTheStatusWhileAnOperationBacksOff(t *testing.T) {
	foo := newFoo(withReplicas(3))
	for _, tc := range []struct {
		name    string
		state   world
		replies []reply
		want    string
	}{
		{
			name: "a create was refused", state: world{Foo: foo},
			replies: []reply{fails(plan.CreateDeployment, forbidden)}, want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a patch was refused", state: world{Foo: foo, Deployment: newDeployment(foo, scaled(5))},
			replies: []reply{fails(plan.PatchDeployment, forbidden)}, want: cannotPatch + overQuota + lasts,
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
			if want := time.Second - 1; c.outcome.Kind != plan.Wait || c.outcome.After != want {
				t.Errorf("outcome %+v, want a wait of %s", c.outcome, want)
			}
		})
	}
}

// Of several operations that back off, the retry is that of the first.
func TestTheFirstRetryCounts(t *testing.T) {
	foo := renamed()
	state := world{
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
	create := world{Foo: foo, Memory: plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
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
