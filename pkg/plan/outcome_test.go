package plan_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/pkg/plan"
)

// Logs, metrics and documents use these words.
func TestKindsOfOutcome(t *testing.T) {
	want := []plan.Kind{"done", "retry", "wait", "terminal"}
	if diff := cmp.Diff(want, []plan.Kind{plan.Done, plan.Retry, plan.Wait, plan.Terminal}); diff != "" {
		t.Errorf("wrong words (-want +got):\n%s", diff)
	}
}

func TestWaitFor(t *testing.T) {
	want := plan.Outcome{Kind: plan.Wait, After: time.Second, Reason: plan.CacheStale}
	if got := plan.WaitFor(plan.CacheStale, time.Second); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What the queue does with the key, and what the log has of it, after the answer to a request.
func TestOutcome(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
	create, again := world{Foo: three}, world{Foo: newFoo(withReplicas(3), observed)}
	patch := world{Foo: three, Deployment: newDeployment(three, scaled(5))}
	status := world{Foo: three, Deployment: newDeployment(three)}
	remove := world{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1"))}
	type outcome struct {
		kind     plan.Kind
		after    time.Duration
		expected bool
		err      string
	}
	const (
		ms       = time.Millisecond
		modified = `Operation cannot be fulfilled on deployments.apps "web-1": the object has been modified`
		timeout  = "context deadline exceeded"
	)
	refused := func(err string) outcome { return outcome{plan.Retry, time.Second, false, err} }
	unknown := func(err string) outcome { return outcome{plan.Retry, 5 * ms, false, err} }
	expected := func(err string) outcome { return outcome{plan.Retry, 5 * ms, true, err} }

	for _, tc := range []struct {
		name  string
		state world
		verb  plan.Verb
		err   error
		want  outcome
	}{
		{name: "a create succeeds", state: create, verb: plan.CreateDeployment, want: outcome{kind: plan.Done}},
		{
			name: "a create that quota refuses", state: create, verb: plan.CreateDeployment, err: forbidden,
			want: refused("create Deployment web-1: " + quota),
		},

		{name: "a patch succeeds", state: patch, verb: plan.PatchDeployment, want: outcome{kind: plan.Done}},
		{
			name: "a patch of another version", state: patch, verb: plan.PatchDeployment, err: conflict,
			want: expected("patch Deployment web-1: " + modified),
		},

		{name: "a delete succeeds", state: remove, verb: plan.DeleteDeployment, want: outcome{kind: plan.Done}},
		{
			name: "a delete of what is gone", state: remove, verb: plan.DeleteDeployment, err: notFound,
			want: outcome{kind: plan.Done},
		},
		{
			name: "a delete that a policy refuses", state: remove, verb: plan.DeleteDeployment, err: forbidden,
			want: refused("delete Deployment web-1: " + quota),
		},

		{name: "a status succeeds", state: status, verb: plan.UpdateStatus, want: outcome{kind: plan.Done}},
		{
			name: "a status without an answer", state: status, verb: plan.UpdateStatus, err: noResponse,
			want: unknown("update status of Foo web: " + timeout),
		},

		{
			name: "a read of the Foo is refused", state: again, verb: plan.ReadFoo, err: forbidden,
			want: refused("get Foo web: " + quota),
		},
		{
			name: "a read of the Deployment without an answer", state: remove, verb: plan.ReadDeployment, err: noResponse,
			want: unknown("get Deployment web-3: " + timeout),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reply := succeeds(tc.verb)
			if tc.err != nil {
				reply = fails(tc.verb, tc.err)
			}
			c := play(t, tc.state, reply)
			if c.step(tc.verb) == nil {
				t.Fatalf("no %s: %s", tc.verb, c.sent())
			}
			got := outcome{kind: c.outcome.Kind, after: c.outcome.After, expected: c.outcome.Expected}
			if c.outcome.Err != nil {
				got.err = c.outcome.Err.Error()
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("wrong outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// Without a failure in this sync: done, terminal, or a wait for what backs off.
func TestOutcomeWithoutAFailure(t *testing.T) {
	foo := newFoo(withReplicas(3))
	remembers := func(ledger ledger) plan.Memory {
		return plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger}
	}
	held := func(err error) plan.Outcome {
		return plan.Outcome{Kind: plan.Wait, After: seconds(1), Reason: plan.Backoff, Err: err}
	}
	refused := &plan.ConditionError{Reason: "Refused", Message: "exceeded quota: small"}
	foreign := newDeployment(foo, ownedBy())
	for _, tc := range []struct {
		name  string
		state world
		want  plan.Outcome
	}{
		{
			name:  "nothing is left to do",
			state: world{Foo: foo, Deployment: newDeployment(foo)}, want: plan.Outcome{Kind: plan.Done},
		},
		{
			name:  "a rollout is waited for: an event will come",
			state: world{Foo: foo, Deployment: newDeployment(foo, available(1))}, want: plan.Outcome{Kind: plan.Done},
		},
		{
			name:  "a deletion is waited for: an event will come",
			state: world{Foo: foo, Deployment: newDeployment(foo, deleted)}, want: plan.Outcome{Kind: plan.Done},
		},
		{
			name:  "a paused Foo",
			state: world{Foo: newFoo(withPaused)}, want: plan.Outcome{Kind: plan.Done},
		},
		{
			name:  "an invalid Foo",
			state: world{Foo: newFoo(withReplicas(-1))}, want: plan.Outcome{Kind: plan.Terminal},
		},
		{
			name:  "a name conflict",
			state: world{Foo: foo, Deployment: foreign}, want: plan.Outcome{Kind: plan.Terminal},
		},
		{
			name:  "a name that ends by itself: its deletion is an event",
			state: world{Foo: foo, Deployment: earlier(named("api", "web-1"), "web-1")},
			want:  plan.Outcome{Kind: plan.Terminal},
		},
		{
			name: "a create backs off",
			state: world{
				Foo: foo, Memory: remembers(ledger{op(plan.CreateDeployment, "web-1"): until(seconds(1))}),
			},
			want: held(refused),
		},
		{
			name: "a create backs off because of a conflict",
			state: world{
				Foo: foo, Memory: remembers(ledger{op(plan.CreateDeployment, "web-1"): expectedUntil(seconds(1))}),
			},
			want: held(nil),
		},
		{
			name:  "a field is overridden, and the status has it: the next patch may be the last",
			state: world{Foo: foo, Deployment: newDeployment(foo), Memory: overriddenMemory(foo)},
			want:  held(&overriddenReplicas),
		},
		{
			name: "a status backs off",
			state: world{
				Foo: foo, Deployment: newDeployment(foo),
				Memory: remembers(ledger{op(plan.UpdateStatus, "web"): until(seconds(1))}),
			},
			want: held(refused),
		},
		{
			name: "a status backs off because of a conflict",
			state: world{
				Foo: foo, Deployment: newDeployment(foo),
				Memory: remembers(ledger{op(plan.UpdateStatus, "web"): expectedUntil(seconds(1))}),
			},
			want: held(nil),
		},
		{
			name: "the backoff has ended to the nanosecond",
			state: world{
				Foo: foo, Memory: remembers(ledger{op(plan.CreateDeployment, "web-1"): until(0)}),
			},
			want: plan.Outcome{Kind: plan.Done},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, play(t, tc.state).outcome, sameError); diff != "" {
				t.Errorf("wrong outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// The log has what a key waits for.
func TestWhatAKeyWaitsFor(t *testing.T) {
	foo := renamed()
	differs := newDeployment(foo, scaled(5), rollout(5, 5, 5))
	backsOff := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{
		op(plan.PatchDeployment, "web-3"): expectedUntil(seconds(1)),
	}}
	for _, tc := range []struct {
		name  string
		state world
		reply reply
		want  plan.WaitReason
	}{
		{
			name:  "a write has an unknown outcome",
			state: world{Foo: foo, Deployment: differs}, reply: fails(plan.PatchDeployment, noResponse),
			want: plan.NextStep,
		},
		{
			name:  "something is wanted that this sync has done",
			state: world{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Previous: all(earlier(foo, "web-1"))},
			reply: slowly(findsDeployment(differs), time.Millisecond), want: plan.NextStep,
		},
		{
			name:  "a conflict backs off",
			state: world{Foo: foo, Deployment: differs, Memory: backsOff}, want: plan.Backoff,
		},
		{
			name:  "a refusal",
			state: world{Foo: foo, Deployment: differs}, reply: fails(plan.PatchDeployment, forbidden), want: plan.Backoff,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := play(t, tc.state, tc.reply).outcome; got.Reason != tc.want {
				t.Errorf("outcome %+v, want one for %q", got, tc.want)
			}
		})
	}
}

// Every failure of a sync is logged, and the key comes back for the first retry.
func TestOutcomeOfSeveralFailures(t *testing.T) {
	foo := renamed()
	c := play(t, world{
		Foo: foo, Deployment: newDeployment(foo, scaled(5), rollout(5, 5, 5)), Previous: all(earlier(foo, "web-1")),
	}, fails(plan.PatchDeployment, forbidden), fails(plan.DeleteDeployment, tooMany), fails(plan.UpdateStatus,
		serverFails))
	if c.outcome.Kind != plan.Retry || c.outcome.After != 5*time.Millisecond || c.outcome.Expected {
		t.Errorf("outcome %+v, want a retry in 5 ms that is logged", c.outcome)
	}
	want := "patch Deployment web-3: " + quota + "\ndelete Deployment web-1: slow down\n" +
		"update status of Foo web: Internal error occurred: etcdserver: request timed out"
	if diff := cmp.Diff(want, c.outcome.Err.Error()); diff != "" {
		t.Errorf("wrong error (-want +got):\n%s", diff)
	}
}

// What failed in a sync is not lost when the sync ends early: it is a retry, and it is logged.
func TestAFailureIsNotLostWhenTheSyncEndsEarly(t *testing.T) {
	foo := renamed()
	c := play(t, world{
		Foo: foo, Deployment: newDeployment(foo, scaled(5)), Previous: all(earlier(foo, "web-1")),
		Memory: plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
			op(plan.DeleteDeployment, "web-1"): expectedUntil(5 * time.Millisecond),
		}},
	}, fails(plan.PatchDeployment, forbidden))
	if diff := cmp.Diff("get Foo, patch spec.replicas; no report; retry in 5ms", c.line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	if c.outcome.Expected || !errors.Is(c.outcome.Err, forbidden) {
		t.Errorf("the refused patch is not in the outcome %+v", c.outcome)
	}
}
