package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file is about the answers of the API server: how the sync continues after each, and what the next ones do.

// ending returns how the sync ended in a few words.
func (c conversation) ending() string {
	text := string(c.outcome.Kind)
	if c.outcome.Kind == plan.Retry || c.outcome.Kind == plan.Wait {
		text += fmt.Sprintf(" in %s", c.outcome.After)
	}
	if c.outcome.Expected {
		text += " as expected"
	}
	if c.outcome.Kind == plan.Done && c.outcome.Reason == plan.CacheStale {
		text += ", stale"
	}
	return text
}

// line returns the whole conversation in one line.
func (c conversation) line() string {
	report := "no report"
	if c.status() != nil {
		report = c.reason()
	}
	return fmt.Sprintf("%s; %s; %s", c.sent(), report, c.ending())
}

// rounds plays n syncs. Each begins when the delay of the one before has ended; the caches always have the same.
func rounds(t *testing.T, n int, state plan.State, replies ...reply) []string {
	t.Helper()
	var lines []string
	state.Now = now
	for range n {
		c := play(t, state, replies...)
		lines = append(lines, c.line())
		state.Now, state.Memory = c.endedAt.Add(c.outcome.After), c.end.Memory
	}
	return lines
}

func checkLines(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong syncs (-want +got):\n%s", diff)
	}
}

// Three conflicts in a row are normal work. After the second the next sync reads live, and the fourth counts as a
// refusal.
func TestConflictsInARow(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
	anotherUID := invalidError("metadata.uid")
	patch := plan.State{Foo: three, Deployment: newDeployment(three, scaled(5))}
	remove := plan.State{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1"))}
	patches := []string{
		"patch spec.replicas; no report; retry in 5ms as expected",
		"patch spec.replicas; no report; retry in 10ms as expected",
		"get Foo, get web-1, patch spec.replicas; no report; retry in 20ms as expected",
		"get Foo, get web-1, patch spec.replicas; Refused; retry in 40ms",
	}
	for _, tc := range []struct {
		name  string
		state plan.State
		reply reply
		want  []string
	}{
		{
			name: "create, and nothing has the name", state: plan.State{Foo: three},
			reply: fails(plan.CreateDeployment, exists),
			want: []string{
				"create web-1, get web-1; no report; retry in 5ms as expected",
				"create web-1, get web-1; no report; retry in 10ms as expected",
				"get Foo, get web-1, create web-1, get web-1; no report; retry in 20ms as expected",
				"get Foo, get web-1, create web-1, get web-1; Refused; retry in 40ms",
			},
		},
		{
			name: "create, and there is no namespace", state: plan.State{Foo: three},
			reply: fails(plan.CreateDeployment, notFound),
			want: []string{
				"create web-1; no report; retry in 5ms as expected",
				"create web-1; no report; retry in 10ms as expected",
				"get Foo, get web-1, create web-1; no report; retry in 20ms as expected",
				"get Foo, get web-1, create web-1; Refused; retry in 40ms",
			},
		},
		{name: "patch", state: patch, reply: fails(plan.PatchDeployment, conflict), want: patches},
		{name: "patch of what is gone", state: patch, reply: fails(plan.PatchDeployment, notFound), want: patches},
		{name: "patch of another uid", state: patch, reply: fails(plan.PatchDeployment, anotherUID), want: patches},
		{
			name: "delete", state: remove, reply: fails(plan.DeleteDeployment, conflict),
			want: []string{
				"get Foo, get web-3, delete web-1; no report; retry in 5ms as expected",
				"get Foo, get web-3, delete web-1; no report; retry in 10ms as expected",
				"get Foo, get web-3, delete web-1; no report; retry in 20ms as expected",
				"get Foo, get web-3, delete web-1; Available; retry in 8s",
				"get Foo, get web-3, delete web-1; Available; retry in 16s",
			},
		},
		{
			name: "status", state: plan.State{Foo: three, Deployment: newDeployment(three)},
			reply: fails(plan.UpdateStatus, conflict),
			want: []string{
				"nothing; Available; retry in 5ms as expected",
				"nothing; Available; retry in 10ms as expected",
				"get Foo, get web-1; Available; retry in 20ms as expected",
				"get Foo, get web-1; Available; retry in 40ms",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLines(t, tc.want, rounds(t, len(tc.want), tc.state, tc.reply))
		})
	}
}

// The fourth conflict is reported like any refusal.
func TestTheFourthConflictIsReported(t *testing.T) {
	foo := newFoo(withReplicas(3))
	memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{
		op(plan.PatchDeployment, "web-1"): {Count: 3, Until: now, Expected: true},
	}}
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Memory: memory},
		fails(plan.PatchDeployment, conflict))
	want := cannotPatch + "the API server reports a conflict: " +
		`Operation cannot be fulfilled on deployments.apps "web-1": the object has been modified` + passes
	if diff := cmp.Diff(want, c.report()); diff != "" {
		t.Errorf("wrong report (-want +got):\n%s", diff)
	}
}

// A conflict ends the sync, even when there is more that could be done.
func TestAConflictEndsTheSync(t *testing.T) {
	foo := renamed()
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, scaled(5)),
		Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2", available(0))),
	}
	for _, tc := range []struct {
		name    string
		replies []reply
		want    string
	}{
		{
			name: "of a deletion", replies: []reply{fails(plan.DeleteDeployment, conflict)},
			want: "get Foo, get web-3, delete web-2; no report; retry in 5ms as expected",
		},
		{
			name: "of a patch after a deletion", replies: []reply{fails(plan.PatchDeployment, conflict)},
			want: "get Foo, get web-3, delete web-2, patch spec.replicas; no report; retry in 5ms as expected",
		},
		{
			name: "of a patch after a deletion that was refused: that failure is logged",
			replies: []reply{
				fails(plan.DeleteDeployment, forbidden), fails(plan.PatchDeployment, conflict),
			},
			want: "get Foo, get web-3, delete web-2, patch spec.replicas; no report; retry in 5ms",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, play(t, state, tc.replies...).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// A success ends the row: the next conflict is the first one again.
func TestASuccessEndsARowOfConflicts(t *testing.T) {
	foo := newFoo(withReplicas(3))
	memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{
		op(plan.PatchDeployment, "web-1"): {Count: 3, Until: now, Expected: true},
	}}
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Memory: memory})
	if attempt, found := c.end.Memory.Ledger[op(plan.PatchDeployment, "web-1")]; found {
		t.Errorf("after a success the ledger has %+v", attempt)
	}

	moved := renamed() // Here a deletion ends the sync early.
	c = play(t, plan.State{
		Foo: moved, Deployment: newDeployment(moved, scaled(5)), Previous: all(earlier(moved, "web-1")),
		Memory: plan.Memory{UID: moved.UID, Generation: moved.Generation, Ledger: ledger{
			op(plan.PatchDeployment, "web-3"): {Count: 3, Until: now, Expected: true},
		}},
	}, fails(plan.DeleteDeployment, conflict))
	if attempt, found := c.end.Memory.Ledger[op(plan.PatchDeployment, "web-3")]; found {
		t.Errorf("after a success in a sync that ends early the ledger has %+v", attempt)
	}
}

// After a write whose outcome is unknown the sync ends without a report. The next one reads what there is, and
// continues from there: the write is repeated only if it was not done.
func TestAnUnknownOutcome(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
	const soon = "; no report; retry in 5ms"
	for _, tc := range []struct {
		name  string
		state plan.State
		verb  plan.Verb
		first string
		// undone and done are the next sync when the write was not done, and when it was and the caches lag.
		undone, done string
		found        *appsv1.Deployment
	}{
		{
			name: "create", state: plan.State{Foo: three}, verb: plan.CreateDeployment, first: "create web-1" + soon,
			undone: "get Foo, get web-1, create web-1; Creating; done",
			done:   "get Foo, get web-1; Available; done", found: newDeployment(three),
		},
		{
			name: "patch", state: plan.State{Foo: three, Deployment: newDeployment(three, scaled(5))},
			verb: plan.PatchDeployment, first: "patch spec.replicas" + soon,
			undone: "get Foo, get web-1, patch spec.replicas; Available; done",
			done:   "get Foo, get web-1; Available; done", found: newDeployment(three),
		},
		{
			name: "delete",
			state: plan.State{
				Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")),
			},
			verb: plan.DeleteDeployment, first: "get Foo, get web-3, delete web-1" + soon,
			undone: "get Foo, get web-3, delete web-1; Available; retry in 1s",
			done:   "get Foo, get web-3, delete web-1; Available; retry in 1s", found: newDeployment(moved),
		},
	} {
		for _, err := range []error{noResponse, serverFails, apierrors.NewTimeoutError("etcd", 1)} {
			t.Run(fmt.Sprint(tc.name, ": ", err), func(t *testing.T) {
				c := play(t, tc.state, fails(tc.verb, err))
				if diff := cmp.Diff(tc.first, c.line()); diff != "" {
					t.Fatalf("wrong sync (-want +got):\n%s", diff)
				}
				// A deletion needs live reads in any case, and it does not concern the new Deployment.
				stale := tc.verb != plan.DeleteDeployment
				if c.outcome.Reason != plan.NextStep || c.end.Memory.StaleDeployment != stale || !c.end.Memory.Wrote {
					t.Errorf("it waits for %q, and remembers %+v", c.outcome.Reason, c.end.Memory)
				}
				if c.end.Memory.StaleFoo {
					t.Error("the Foo is not what was written to")
				}
				state := tc.state
				state.Memory, state.Now = c.end.Memory, now.Add(c.outcome.After)
				if tc.verb == plan.DeleteDeployment {
					state.Now = now.Add(seconds(1)) // A deletion that failed has time.
					if diff := cmp.Diff("get Foo, get web-3, delete web-1", play(t, state).sent()); diff != "" {
						t.Errorf("wrong next sync (-want +got):\n%s", diff)
					}
					return
				}
				if diff := cmp.Diff(tc.undone, play(t, state).line()); diff != "" {
					t.Errorf("wrong next sync when it was not done (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.done, play(t, state, findsDeployment(tc.found)).line()); diff != "" {
					t.Errorf("wrong next sync when it was done (-want +got):\n%s", diff)
				}
				state.Deployment = tc.found
				after := play(t, state)
				if diff := cmp.Diff("nothing; Available; done", after.line()); diff != "" {
					t.Errorf("wrong next sync when the cache has it (-want +got):\n%s", diff)
				}
				if after.end.Memory.StaleDeployment {
					t.Error("the cache has what was wanted, and is not acted on")
				}
			})
		}
	}
}

// A second write without an answer in a row is reported when it backs off.
func TestAnUnknownOutcomeIsReportedWhenItRepeats(t *testing.T) {
	foo := newFoo(withReplicas(3))
	state := plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5))}
	want := []string{
		"patch spec.replicas; no report; retry in 5ms",
		"get Foo, get web-1, patch spec.replicas; no report; retry in 5ms",
		"get Foo, get web-1; Refused; wait in 5ms",
		"patch spec.replicas; no report; retry in 5ms",
		"get Foo, get web-1; Refused; wait in 15ms",
	}
	checkLines(t, want, rounds(t, len(want), state, fails(plan.PatchDeployment, noResponse)))
}

// A status write whose outcome is unknown makes the next sync read the Foo and the Deployment before it writes another.
func TestAStatusOfUnknownOutcome(t *testing.T) {
	foo := newFoo()
	state := plan.State{Foo: foo, Deployment: newDeployment(foo)}
	first := play(t, state, fails(plan.UpdateStatus, noResponse))
	if diff := cmp.Diff("nothing; Available; retry in 5ms", first.line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	if !first.end.Memory.StaleFoo || first.end.Memory.StaleDeployment || !first.end.Memory.Wrote {
		t.Errorf("it remembers %+v", first.end.Memory)
	}
	state.Memory, state.Now = first.end.Memory, now.Add(first.outcome.After)
	undone := play(t, state)
	if diff := cmp.Diff("get Foo, get web-1; Available; done", undone.line()); diff != "" {
		t.Errorf("wrong next sync when it was not done (-want +got):\n%s", diff)
	}
	held := plan.Memory{UID: foo.UID, Generation: 2, Ledger: ledger{op(plan.PatchDeployment, "web-1"): until(seconds(1))}}
	beside := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, withFence("1")), Memory: held},
		fails(plan.UpdateStatus, noResponse))
	if !beside.end.Memory.StaleFoo || beside.end.Memory.StaleDeployment {
		t.Errorf("beside a patch that backs off it remembers %+v", beside.end.Memory)
	}
	stored := foo.DeepCopy()
	stored.Status, stored.ResourceVersion = *first.status(), "11"
	if diff := cmp.Diff("get Foo; no report; done", play(t, state, finds(stored)).line()); diff != "" {
		t.Errorf("wrong next sync when it was done (-want +got):\n%s", diff)
	}
}

// A refused create leaves open whether the name is free. Nothing is concluded before the name was read.
func TestARefusedCreateIsFollowedByAReadOfTheName(t *testing.T) {
	foo := newFoo()
	api := named("api", "web-1")
	const expected, loudly = "; no report; retry in 5ms as expected", "; retry in 5ms"
	create, read := "create web-1", "create web-1, get web-1"
	for _, tc := range []struct {
		name    string
		err     error
		replies []reply
		want    string
		report  string
	}{
		{
			name: "exists, and nothing has the name", err: exists, want: read + expected,
		},
		{
			name: "forbidden, and nothing has the name", err: forbidden,
			want: read + "; Refused" + loudly, report: cannotCreate + overQuota + lasts,
		},
		{
			name: "invalid, and nothing has the name", err: invalidError("spec.selector"),
			want: read + "; Refused" + loudly,
			report: cannotCreate + refusedBy + `Deployment.apps "web-1" is invalid: spec.selector: Invalid value: "x": ` +
				"field is immutable" + lasts,
		},
		{
			name: "the server is too busy, which has nothing to do with the name", err: tooMany,
			want: create + "; Refused" + loudly, report: cannotCreate + refusedBy + "slow down" + passes,
		},
		{
			name: "exists, and it is ours: the cache does not have it yet", err: exists,
			replies: []reply{findsDeployment(newDeployment(foo))},
			want:    read + "; no report; wait in 5ms",
		},
		{
			name: "forbidden, and it is ours: the cache does not have it yet", err: forbidden,
			replies: []reply{findsDeployment(newDeployment(foo))},
			want:    read + "; no report; wait in 5ms",
		},
		{
			name: "exists, and it is ours and being deleted", err: exists,
			replies: []reply{findsDeployment(newDeployment(foo, deleted))},
			want:    read + "; no report; wait in 5ms",
		},
		{
			name: "exists, and it is foreign: it may be gone before the cache has it, so it is read again", err: exists,
			replies: []reply{findsDeployment(newDeployment(foo, ownedBy()))},
			want:    read + "; NotOwned" + loudly,
			report:  notOwnedWeb1 + notOwned("web-1", "it has no controller"),
		},
		{
			name: "forbidden, and it is foreign", err: forbidden,
			replies: []reply{findsDeployment(newDeployment(foo, ownedBy()))},
			want:    read + "; NotOwned" + loudly,
			report:  notOwnedWeb1 + notOwned("web-1", "it has no controller"),
		},
		{
			name: "exists, and it is another Foo's", err: exists,
			replies: []reply{findsDeployment(earlier(api, "web-1"), api)},
			want:    read + "; NameTaken" + loudly, report: stalled + "NameTaken: " + nameTaken,
		},
		{
			name: "exists, and it is of a Foo that is gone", err: exists,
			replies: []reply{findsDeployment(earlier(api, "web-1"))},
			want:    read + "; WaitingForName" + loudly, report: reconciling + "WaitingForName: " + ownerGone,
		},
		{
			name: "exists, and the read is refused", err: exists,
			replies: []reply{fails(plan.ReadDeployment, tooMany)},
			want:    read + "; Refused" + loudly, report: cannotCreate + refusedBy + "slow down" + passes,
		},
		{
			name: "forbidden, and the read is refused: that is what is reported", err: forbidden,
			replies: []reply{fails(plan.ReadDeployment, tooMany)},
			want:    read + "; Refused" + loudly, report: cannotCreate + refusedBy + "slow down" + passes,
		},
		{
			name: "forbidden, and the read fails", err: forbidden,
			replies: []reply{fails(plan.ReadDeployment, serverFails)},
			want:    read + "; Refused" + loudly,
			report:  cannotCreate + "the API server failed: Internal error occurred: etcdserver: request timed out" + passes,
		},
		{
			name: "forbidden, and the read has no answer", err: forbidden,
			replies: []reply{fails(plan.ReadDeployment, noResponse)},
			want:    read + "; no report; retry in 5ms",
		},
		{
			name: "the namespace is being deleted, and everything in it", err: namespaceTerminating(),
			want: create + "; no report; terminal",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, plan.State{Foo: foo}, append(tc.replies, fails(plan.CreateDeployment, tc.err))...)
			if diff := cmp.Diff(tc.want, c.line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
			if tc.report == "" {
				return
			}
			if diff := cmp.Diff(tc.report, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
		})
	}
}

// One sync counts a create once, though the read after it fails too.
func TestARefusedCreateIsCountedOnce(t *testing.T) {
	for name, replies := range map[string][]reply{
		"the name is free":    {fails(plan.CreateDeployment, forbidden)},
		"the read is refused": {fails(plan.CreateDeployment, forbidden), fails(plan.ReadDeployment, tooMany)},
		"the name is taken": {
			fails(plan.CreateDeployment, exists), findsDeployment(newDeployment(newFoo(), ownedBy())),
		},
	} {
		c := play(t, plan.State{Foo: newFoo()}, replies...)
		if attempt := c.end.Memory.Ledger[op(plan.CreateDeployment, "web-1")]; attempt.Count != 1 || attempt.Expected {
			t.Errorf("%s: %+v, want one failure that is reported", name, attempt)
		}
	}
}

// When a refused read follows a refused create, what decides is the read.
func TestTheErrorOfARefusedReadOfTheName(t *testing.T) {
	c := play(t, plan.State{Foo: newFoo()}, fails(plan.CreateDeployment, forbidden), fails(plan.ReadDeployment, tooMany))
	if got, want := c.outcome.Err.Error(), "get Deployment web-1: slow down"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A Deployment that a live read found and that belongs to another owner is read again after a backoff that doubles: no
// event may come when it is deleted before the cache has it.
func TestWhatARefusedCreateFoundIsReadAgain(t *testing.T) {
	foo := newFoo()
	state := plan.State{Foo: foo}
	found := findsDeployment(newDeployment(foo, ownedBy()))
	want := []string{
		"create web-1, get web-1; NotOwned; retry in 5ms",
		"get Foo, create web-1, get web-1; NotOwned; retry in 10ms",
		"get Foo, create web-1, get web-1; NotOwned; retry in 20ms",
	}
	checkLines(t, want, rounds(t, len(want), state, found, fails(plan.CreateDeployment, exists)))

	// When an event brings the key back before, the status stays.
	c := play(t, state, found, fails(plan.CreateDeployment, exists))
	state.Foo, state.Memory = c.step(plan.UpdateStatus).Foo, c.end.Memory
	early := play(t, state)
	if diff := cmp.Diff("nothing; no report; wait in 5ms", early.line()); diff != "" {
		t.Errorf("wrong sync before the backoff ended (-want +got):\n%s", diff)
	}
}

// A write in a namespace that is being deleted is not repeated, whatever it is.
func TestANamespaceThatIsBeingDeleted(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
	for _, tc := range []struct {
		name  string
		state plan.State
		verb  plan.Verb
	}{
		{name: "create", state: plan.State{Foo: three}, verb: plan.CreateDeployment},
		{
			name:  "patch",
			state: plan.State{Foo: three, Deployment: newDeployment(three, scaled(5))}, verb: plan.PatchDeployment,
		},
		{
			name: "delete",
			state: plan.State{
				Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")),
			},
			verb: plan.DeleteDeployment,
		},
		{name: "status", state: plan.State{Foo: three, Deployment: newDeployment(three)}, verb: plan.UpdateStatus},
	} {
		c := play(t, tc.state, fails(tc.verb, namespaceTerminating()))
		if want := (plan.Outcome{Kind: plan.Terminal}); c.outcome != want {
			t.Errorf("%s: outcome %+v, want %+v", tc.name, c.outcome, want)
		}
		if last := c.last(); last.Verb != tc.verb || len(c.end.Memory.Ledger) > 0 {
			t.Errorf("%s: after it %s, and the ledger %v", tc.name, wordsOf(last), c.end.Memory.Ledger)
		}
	}
}

// After a refusal the sync continues with what else can be done, and reports.
func TestARefusedWriteDoesNotEndTheSync(t *testing.T) {
	foo := renamed()
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, scaled(5), rollout(5, 5, 5)),
		Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2", available(0))),
	}
	for _, tc := range []struct {
		name   string
		reply  reply
		want   string
		report string
	}{
		{
			name: "a refused patch", reply: fails(plan.PatchDeployment, forbidden),
			want: "get Foo, get web-3, delete web-2, patch spec.replicas, get Foo, get web-3, delete web-1; " +
				"Refused; retry in 5ms",
			report: reconciling + `Refused: Cannot patch Deployment "web-3" (5 of 5 replicas available): ` + overQuota + lasts,
		},
		{
			name: "refused deletions", reply: fails(plan.DeleteDeployment, forbidden),
			want: "get Foo, get web-3, delete web-2, patch spec.replicas, get Foo, get web-3, delete web-1; " +
				"Progressing; retry in 1s",
			report: reconciling + "Progressing: Waiting for 2 old replicas to terminate" +
				undeleted + overQuota + triesAgain + undeleted2 + overQuota + triesAgain,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, state, tc.reply)
			if diff := cmp.Diff([]string{tc.want, tc.report}, []string{c.line(), c.report()}); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// A status write ends the sync, whatever else the answer shows: an admission policy may have changed the Foo.
func TestAStatusWriteEndsTheSync(t *testing.T) {
	foo := newFoo()
	stored := newFoo(withReplicas(9))
	state := plan.State{Foo: foo, Deployment: newDeployment(foo), Now: now}
	stored.Status = state.Next().Foo.Status
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo)},
		reply{verb: plan.UpdateStatus, answer: &plan.Answer{Foo: stored}})
	if diff := cmp.Diff("nothing; Available; done", c.line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	if step := c.end.Next(); step != nil {
		t.Errorf("after the status: %s", wordsOf(step))
	}
}

// After the end there is no further step.
func TestNothingFollowsTheEnd(t *testing.T) {
	foo := newFoo(withReplicas(3))
	for name, c := range map[string]conversation{
		"a conflict": play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5))},
			fails(plan.PatchDeployment, conflict)),
		"a read without an answer": play(t, plan.State{Foo: newFoo(observed)}, fails(plan.ReadFoo, noResponse)),
		"a Foo that is gone":       play(t, plan.State{Foo: newFoo(observed)}, finds(nil)),
		"nothing that is left":     play(t, plan.State{Foo: newFoo(withPaused)}),
	} {
		if step := c.end.Next(); step != nil {
			t.Errorf("after %s: %s", name, wordsOf(step))
		}
	}
}

// A status that is not found may be one of a Foo that is gone, and a conflict may be about its uid. The API server
// answers the same when the status subresource is missing, or somebody else wrote first. So the next sync reads the
// Foo live.
func TestAStatusThatIsNotFound(t *testing.T) {
	foos := v1alpha1.Resource("foos")
	noSubresource := apierrors.NewGenericServerResponse(404, "put", foos, "", "404 page not found", 0, true)
	for _, tc := range []struct {
		name string
		err  error
	}{
		{name: "a 404 that names the Foo", err: apierrors.NewNotFound(foos, "web")},
		{name: "another 404", err: noSubresource},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foo := newFoo()
			c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo)}, fails(plan.UpdateStatus, tc.err))
			if c.outcome.Kind != plan.Retry || !c.outcome.Expected || !c.end.Memory.StaleFoo {
				t.Errorf("outcome %+v, stale Foo %t, want a quiet retry that reads the Foo", c.outcome, c.end.Memory.StaleFoo)
			}
		})
	}
}

// A person must know of a CustomResourceDefinition that does not store the status: there is one event, when it is
// certain. The status is tried again after a backoff.
func TestAStatusThatIsNotStoredHasOneEvent(t *testing.T) {
	foo := newFoo(withReplicas(3))
	dropped := newFoo(withReplicas(3))
	for _, tc := range []struct {
		name  string
		reply reply
		// quiet is how many attempts are taken for normal work, event which attempt has the event, 0 for none.
		quiet, event int
		wrote        bool
	}{
		{name: "it is not found", reply: fails(plan.UpdateStatus, notFound), quiet: 3, event: 4},
		{
			name: "its conditions are dropped", reply: reply{verb: plan.UpdateStatus, answer: &plan.Answer{Foo: dropped}},
			event: 1, wrote: true,
		},
		{name: "it is refused", reply: fails(plan.UpdateStatus, forbidden)},
		{name: "it is a conflict", reply: fails(plan.UpdateStatus, conflict), quiet: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := plan.State{Foo: foo, Deployment: newDeployment(foo), Now: now}
			for attempt := range 7 {
				c := play(t, state, tc.reply)
				got := c.outcome
				if got.Kind != plan.Retry || got.After != 5*time.Millisecond<<attempt || got.Expected != (attempt < tc.quiet) {
					t.Errorf("attempt %d: outcome %+v, want a retry, quiet for %d attempts", attempt+1, got, tc.quiet)
				}
				if has := got.Event != nil; has != (attempt+1 == tc.event) {
					t.Errorf("attempt %d has event %v", attempt+1, got.Event)
				}
				if c.end.Memory.Wrote != tc.wrote {
					t.Errorf("attempt %d: it is remembered as written: %t", attempt+1, c.end.Memory.Wrote)
				}
				state.Now, state.Memory = c.endedAt.Add(got.After), c.end.Memory
			}
		})
	}
}

// A deletion that finds nothing has succeeded.
func TestADeletionOfWhatIsGoneIsDone(t *testing.T) {
	foo := renamed()
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))},
		fails(plan.DeleteDeployment, notFound))
	if diff := cmp.Diff("get Foo, get web-3, delete web-1; Available; done", c.line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(available3, c.report()); diff != "" {
		t.Errorf("wrong report (-want +got):\n%s", diff)
	}
}

// The delays of the ledger begin when the answer comes, and what is left of them is counted from the last answer.
func TestADelayBeginsAtTheAnswer(t *testing.T) {
	foo := newFoo(withReplicas(3))
	state := plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5))}
	c := play(t, state, slowly(fails(plan.PatchDeployment, forbidden), seconds(7)),
		slowly(succeeds(plan.UpdateStatus), 2*time.Millisecond))
	attempt := c.end.Memory.Ledger[op(plan.PatchDeployment, "web-1")]
	if want := now.Add(seconds(7) + 5*time.Millisecond); !attempt.Until.Equal(want) {
		t.Errorf("the delay ends at %s, want %s", attempt.Until, want)
	}
	if want := 3 * time.Millisecond; c.outcome.After != want {
		t.Errorf("%s are left, want %s", c.outcome.After, want)
	}
	slow := play(t, state, fails(plan.PatchDeployment, forbidden), slowly(succeeds(plan.UpdateStatus), seconds(1)))
	if slow.outcome.After != 0 {
		t.Errorf("%s are left after a slow status, want none", slow.outcome.After)
	}
}

// The status is written with the resourceVersion that was read last, and its event is that of the change.
func TestTheStatusIsWrittenForTheFooThatWasRead(t *testing.T) {
	live := newFoo(observed, func(foo *v1alpha1.Foo) { foo.ResourceVersion = "99" },
		withConditions(metav1.Condition{
			Type: "Ready", Status: "False", Reason: "Refused", LastTransitionTime: metav1.Unix(1, 0),
		}))
	c := play(t, plan.State{Foo: newFoo(observed)}, finds(live))
	sent := c.step(plan.UpdateStatus).Foo
	if sent.ResourceVersion != "99" {
		t.Errorf("resourceVersion %s, want that of the live Foo", sent.ResourceVersion)
	}
	if got := c.ready().LastTransitionTime; !got.Equal(&metav1.Time{Time: time.Unix(1, 0)}) {
		t.Errorf("the status rests on the cached one: the condition has flipped at %s", got)
	}
}
