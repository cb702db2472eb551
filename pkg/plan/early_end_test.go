package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file is about syncs that end before everything was considered, and what they remember.

// The Foo has changed after a patch of this sync was refused. The refusal is no success: it is logged and retried.
func TestARefusalBeforeTheFooHasChangedIsRetried(t *testing.T) {
	foo := renamed()
	state := plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Previous: all(earlier(foo, "web-1"))}
	for name, live := range map[string]*v1alpha1.Foo{
		"it is gone":                nil,
		"it has a newer generation": renamed(withGeneration(4)),
	} {
		c := play(t, state, fails(plan.PatchDeployment, forbidden), finds(live))
		if diff := cmp.Diff("patch spec.replicas, get Foo, no report", c.result()); diff != "" {
			t.Errorf("%s: wrong requests (-want +got):\n%s", name, diff)
		}
		got := c.outcome
		if got.Kind != plan.Retry || got.After != 5*time.Millisecond || got.Reason != plan.NextStep {
			t.Errorf("%s: outcome %+v, want a retry in the next step", name, got)
		}
		if got.Err == nil || got.Expected {
			t.Errorf("%s: outcome %+v, want a retry with the error of the patch", name, got)
		}
	}
}

// A read without an answer is logged once. A sync before the end of its delay has nothing to log.
func TestAReadWithoutAnAnswerIsLoggedOnce(t *testing.T) {
	state := plan.State{Foo: newFoo(withReplicas(3), observed)}
	failed := play(t, state, fails(plan.ReadFoo, noResponse))
	if got := failed.outcome; got.Kind != plan.Retry || got.Reason != plan.Backoff || got.Err == nil || got.Expected {
		t.Errorf("outcome %+v, want a retry for the backoff, with the error", got)
	}
	early := play(t, failed.nextSync(time.Millisecond))
	if want := plan.WaitFor(plan.Backoff, 4*time.Millisecond); early.outcome != want {
		t.Errorf("before the end of the delay: outcome %+v, want %+v", early.outcome, want)
	}
}

// The create was done, whatever came after it. If the Deployment is gone before a status was stored, the Foo is read
// before it is created again.
func TestAFailureAfterAWriteDoesNotForgetTheWrite(t *testing.T) {
	c := play(t, plan.State{Foo: newFoo(withReplicas(3))}, fails(plan.UpdateStatus, forbidden))
	if !c.end.Memory.Wrote {
		t.Error("the create is forgotten")
	}
}

// After a conflict of the status nothing is known of the rest: the ledger keeps what was not considered.
func TestAConflictOfTheStatusDropsNothing(t *testing.T) {
	foo := newFoo(withReplicas(3))
	unwanted := op(plan.PatchDeployment, "web-1")
	memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{unwanted: until(0)}}
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo), Memory: memory}, fails(plan.UpdateStatus, conflict))
	if _, found := c.end.Memory.Ledger[unwanted]; !found {
		t.Errorf("the ledger has %v", c.end.Memory.Ledger)
	}
}

// Only a lagging cache is a reason for live reads. A status that is refused is not a reason, however often.
func TestAStatusThatIsRefusedAgainIsNoReasonToReadTheFoo(t *testing.T) {
	foo := newFoo(withReplicas(3))
	state := plan.State{Foo: foo, Deployment: newDeployment(foo), Now: now}
	for attempt := range 4 {
		c := play(t, state, fails(plan.UpdateStatus, forbidden))
		if c.end.Memory.StaleFoo {
			t.Errorf("after attempt %d the Foo counts as stale", attempt+1)
		}
		state.Memory, state.Now = c.end.Memory, c.endedAt.Add(c.outcome.After)
	}
}

// A policy may change the condition of another controller. The controller's own part is stored as it was sent.
func TestAStatusOfWhichAnotherConditionIsChangedIsStored(t *testing.T) {
	audited := metav1.Condition{
		Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.NewTime(now),
	}
	foo := newFoo(withReplicas(3), withConditions(audited))
	state := plan.State{Foo: foo, Deployment: newDeployment(foo)}
	stored := play(t, state).step(plan.UpdateStatus).Foo.DeepCopy()
	stored.Status.Conditions[0].Message = "changed on its way in"
	c := play(t, state, reply{verb: plan.UpdateStatus, answer: &plan.Answer{Foo: stored}})
	if c.outcome.Kind != plan.Done {
		t.Errorf("outcome %+v, want done", c.outcome)
	}
}
