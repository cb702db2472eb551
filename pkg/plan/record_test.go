package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file is about the answers of the API server: how the sync continues after each, and what the next ones do.

// Three conflicts in a row are normal work. The fourth counts as a refusal, and is reported.
func TestConflictsInARow(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
	patch := world{Foo: three, Deployment: newDeployment(three, scaled(5))}
	remove := world{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1"))}
	rows := func(first, again, report string) []string {
		return []string{
			first + "; retry in 5ms as expected", again + "; retry in 10ms as expected", again + "; retry in 20ms as expected",
			strings.Replace(again, "no report", report, 1) + "; retry in 1s",
		}
	}
	const first, again = "get Foo, patch spec.replicas; no report", "get Foo, get web-1, patch spec.replicas; no report"
	patches := rows(first, again, "Refused")
	for _, tc := range []struct {
		name  string
		state world
		verb  plan.Verb
		err   error
		want  []string
	}{
		{
			name: "create of what exists", state: world{Foo: three}, verb: plan.CreateDeployment, err: exists,
			want: rows("create web-1; no report", "get web-1, create web-1; no report", "Refused"),
		},
		{
			name: "create in no namespace", state: world{Foo: three}, verb: plan.CreateDeployment, err: notFound,
			want: rows("create web-1; no report", "get web-1, create web-1; no report", "Refused"),
		},
		{
			name: "patch", state: patch, verb: plan.PatchDeployment, err: conflict,
			want: rows(first, again, "RequestFailed"),
		},
		{name: "patch of what is gone", state: patch, verb: plan.PatchDeployment, err: notFound, want: patches},
		{
			name: "patch of another uid", state: patch, verb: plan.PatchDeployment, err: invalidError("metadata.uid"),
			want: patches,
		},
		{
			name: "delete", state: remove, verb: plan.DeleteDeployment, err: conflict,
			want: rows(deleteOld+"; no report", deleteOld+"; no report", "Available"),
		},
		{
			name: "status", state: world{Foo: three, Deployment: newDeployment(three)}, verb: plan.UpdateStatus,
			err: conflict, want: rows("nothing; Available", "get Foo; Available", ""),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLines(t, tc.want, rounds(t, len(tc.want), tc.state, fails(tc.verb, tc.err)))
		})
	}
}

// The fourth conflict is reported like any refusal.
func TestTheFourthConflictIsReported(t *testing.T) {
	foo := newFoo(withReplicas(3))
	memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{
		op(plan.PatchDeployment, "web-1"): {Count: 3, Until: now, Expected: true},
	}}
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Memory: memory},
		fails(plan.PatchDeployment, conflict))
	want := strings.Replace(cannotPatch, "Refused", "RequestFailed", 1) + "the API server reports a conflict: " +
		`Operation cannot be fulfilled on deployments.apps "web-1": the object has been modified` + passes
	if diff := cmp.Diff(want, c.report()); diff != "" {
		t.Errorf("wrong report (-want +got):\n%s", diff)
	}
}

// A conflict ends the sync, even when there is more that could be done; after a refusal the rest is done.
func TestWhatFollowsAFailedWrite(t *testing.T) {
	foo := renamed()
	differs := newDeployment(foo, withLabel("app.kubernetes.io/managed-by", "x"))
	state := world{Foo: foo, Deployment: differs, Previous: all(earlier(foo, "web-1"))}
	const patch = "get Foo, patch " + inManagedBy
	for _, tc := range []struct {
		name    string
		replies []reply
		want    string
	}{
		{
			name: "a conflict of a patch", replies: []reply{fails(plan.PatchDeployment, conflict)},
			want: patch + "; no report; retry in 5ms as expected",
		},
		{
			name: "a conflict of a deletion after a patch", replies: []reply{fails(plan.DeleteDeployment, conflict)},
			want: patch + ", " + deleteOld + "; no report; retry in 5ms as expected",
		},
		{
			name: "a conflict of a deletion after a patch that was refused: that failure is logged",
			replies: []reply{
				fails(plan.PatchDeployment, forbidden), fails(plan.DeleteDeployment, conflict),
			},
			want: patch + ", " + deleteOld + "; no report; retry in 5ms",
		},
		{
			name: "a patch without an answer", replies: []reply{fails(plan.PatchDeployment, noResponse)},
			want: patch + "; no report; retry in 5ms",
		},
		{
			name: "a patch that is refused", replies: []reply{fails(plan.PatchDeployment, forbidden)},
			want: patch + ", " + deleteOld + "; Refused; retry in 1s",
		},
		{
			name: "a deletion that is refused", replies: []reply{fails(plan.DeleteDeployment, forbidden)},
			want: patch + ", " + deleteOld + "; Available; retry in 1s",
		},
		{
			name: "a status without an answer", replies: []reply{fails(plan.UpdateStatus, noResponse)},
			want: patch + ", " + deleteOld + "; Available; retry in 5ms",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, play(t, state, tc.replies...).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// After a write whose outcome is unknown the sync ends without a report, and it counts as written: a Foo that may have
// a Deployment is read before another create. When it fails again, the status reports it while it backs off.
func TestAnUnknownOutcome(t *testing.T) {
	foo := newFoo(withReplicas(3))
	state := world{Foo: foo}
	for _, err := range []error{noResponse, serverFails, apierrors.NewTimeoutError("etcd", 1)} {
		c := play(t, state, fails(plan.CreateDeployment, err))
		if c.outcome.Reason != plan.NextStep || !c.end.Memory.Wrote {
			t.Errorf("%v: it waits for %q, and remembers %+v", err, c.outcome.Reason, c.end.Memory)
		}
	}
	want := []string{
		"create web-1; no report; retry in 5ms",
		"get Foo, get web-1, create web-1; no report; retry in 5ms",
		"nothing; RequestFailed; wait in 5ms",
		"get Foo, get web-1, create web-1; no report; retry in 5ms",
		"nothing; RequestFailed; wait in 15ms",
	}
	checkLines(t, want, rounds(t, len(want), state, fails(plan.CreateDeployment, noResponse)))

	state.Deployment = newDeployment(foo) // A status is the last request anyway.
	want = []string{"nothing; Available; retry in 5ms", "get Foo; Available; retry in 10ms"}
	checkLines(t, want, rounds(t, len(want), state, fails(plan.UpdateStatus, noResponse)))
}

// A success ends the row: the next conflict is the first one again.
func TestASuccessEndsARowOfConflicts(t *testing.T) {
	foo := newFoo(withReplicas(3))
	memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{
		op(plan.PatchDeployment, "web-1"): {Count: 3, Until: now, Expected: true},
	}}
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Memory: memory})
	if attempt, found := c.end.Memory.Ledger[op(plan.PatchDeployment, "web-1")]; found {
		t.Errorf("after a success the ledger has %+v", attempt)
	}

	moved := renamed() // Here a deletion ends the sync early.
	c = play(t, world{
		Foo: moved, Deployment: newDeployment(moved, scaled(5)), Previous: all(earlier(moved, "web-1")),
		Memory: plan.Memory{UID: moved.UID, Generation: moved.Generation, Ledger: ledger{
			op(plan.PatchDeployment, "web-3"): {Count: 3, Until: now, Expected: true},
		}},
	}, fails(plan.DeleteDeployment, conflict))
	if attempt, found := c.end.Memory.Ledger[op(plan.PatchDeployment, "web-3")]; found {
		t.Errorf("after a success in a sync that ends early the ledger has %+v", attempt)
	}
}

// A write in a namespace that is being deleted is repeated after a minute, and not reported, whatever it is.
func TestANamespaceThatIsBeingDeleted(t *testing.T) {
	three, moved := newFoo(withReplicas(3)), renamed()
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
		{
			name: "delete",
			state: world{
				Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")),
			},
			verb: plan.DeleteDeployment,
		},
		{name: "status", state: world{Foo: three, Deployment: newDeployment(three)}, verb: plan.UpdateStatus},
	} {
		c := play(t, tc.state, fails(tc.verb, namespaceTerminating()))
		if want := plan.WaitFor(plan.Backoff, time.Minute); c.outcome != want {
			t.Errorf("%s: outcome %+v, want %+v", tc.name, c.outcome, want)
		}
		if last := c.last(); last.Verb != tc.verb || len(c.end.Memory.Ledger) > 0 {
			t.Errorf("%s: after it %s, and the ledger %v", tc.name, wordsOf(last), c.end.Memory.Ledger)
		}
	}
}

// A status write ends the sync, whatever else the answer shows: an admission policy may have changed the Foo.
func TestAStatusWriteEndsTheSync(t *testing.T) {
	foo := newFoo()
	stored := newFoo(withReplicas(9))
	state := world{Foo: foo, Deployment: newDeployment(foo), Now: now}.state()
	stored.Status = state.Next().Foo.Status
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo)},
		reply{verb: plan.UpdateStatus, answer: &answer{foo: stored}})
	if diff := cmp.Diff("nothing; Available; done", c.line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
	if step := c.state.Next(); step != nil {
		t.Errorf("after the status: %s", wordsOf(step))
	}
}

// After the end there is no further step.
func TestNothingFollowsTheEnd(t *testing.T) {
	foo := newFoo(withReplicas(3))
	for name, c := range map[string]conversation{
		"a conflict": play(t, world{Foo: foo, Deployment: newDeployment(foo, scaled(5))},
			fails(plan.PatchDeployment, conflict)),
		"a read without an answer": play(t, world{Foo: newFoo(observed)}, fails(plan.ReadFoo, noResponse)),
		"a Foo that is gone":       play(t, world{Foo: newFoo(observed)}, finds(nil)),
		"nothing that is left":     play(t, world{Foo: newFoo(withPaused)}),
	} {
		if step := c.state.Next(); step != nil {
			t.Errorf("after %s: %s", name, wordsOf(step))
		}
	}
}

// A deletion that finds nothing has succeeded.
func TestADeletionOfWhatIsGoneIsDone(t *testing.T) {
	foo := renamed()
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))},
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
	state := world{Foo: foo, Deployment: newDeployment(foo, scaled(5))}
	c := play(t, state, slowly(fails(plan.PatchDeployment, forbidden), seconds(7)),
		slowly(succeeds(plan.UpdateStatus), 2*time.Millisecond))
	attempt := c.end.Memory.Ledger[op(plan.PatchDeployment, "web-1")]
	if want := now.Add(seconds(8)); !attempt.Until.Equal(want) {
		t.Errorf("the delay ends at %s, want %s", attempt.Until, want)
	}
	if want := 998 * time.Millisecond; c.outcome.After != want {
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
	c := play(t, world{Foo: newFoo(observed)}, finds(live))
	sent := c.step(plan.UpdateStatus).Foo
	if sent.ResourceVersion != "99" {
		t.Errorf("resourceVersion %s, want that of the live Foo", sent.ResourceVersion)
	}
	if got := c.ready().LastTransitionTime; !got.Equal(&metav1.Time{Time: time.Unix(1, 0)}) {
		t.Errorf("the status rests on the cached one: the condition has flipped at %s", got)
	}
}

// The Foo has changed after a patch of this sync was refused. The refusal is no success: it is logged and retried.
func TestARefusalBeforeTheFooHasChangedIsRetried(t *testing.T) {
	foo := renamed()
	state := world{
		Foo: foo, Deployment: newDeployment(foo, withFence("2")), Memory: failed(foo, plan.UpdateStatus, "web"),
	}
	for name, live := range map[string]*v1alpha1.Foo{
		"it is gone":                nil,
		"it has a newer generation": renamed(withGeneration(4)),
	} {
		c := play(t, state, fails(plan.PatchDeployment, forbidden), finds(live))
		if diff := cmp.Diff(stampGeneration+", get Foo, no report", c.result()); diff != "" {
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

// The create was done, whatever came after it. If the Deployment is gone before a status was stored, the Foo is read
// before it is created again.
func TestAFailureAfterAWriteDoesNotForgetTheWrite(t *testing.T) {
	c := play(t, world{Foo: newFoo(withReplicas(3))}, fails(plan.UpdateStatus, forbidden))
	if !c.end.Memory.Wrote {
		t.Error("the create is forgotten")
	}
}

// After a conflict of the status nothing is known of the rest: the ledger keeps what was not considered.
func TestAConflictOfTheStatusDropsNothing(t *testing.T) {
	foo := newFoo(withReplicas(3))
	unwanted := op(plan.PatchDeployment, "web-1")
	memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: ledger{unwanted: until(0)}}
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo), Memory: memory}, fails(plan.UpdateStatus, conflict))
	if _, found := c.end.Memory.Ledger[unwanted]; !found {
		t.Errorf("the ledger has %v", c.end.Memory.Ledger)
	}
}

// A policy may change the condition of another controller. The controller's own part is stored as it was sent.
func TestAStatusOfWhichAnotherConditionIsChangedIsStored(t *testing.T) {
	audited := metav1.Condition{
		Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.NewTime(now),
	}
	foo := newFoo(withReplicas(3), withConditions(audited))
	state := world{Foo: foo, Deployment: newDeployment(foo)}
	stored := play(t, state).step(plan.UpdateStatus).Foo.DeepCopy()
	stored.Status.Conditions[0].Message = "changed on its way in"
	c := play(t, state, reply{verb: plan.UpdateStatus, answer: &answer{foo: stored}})
	if c.outcome.Kind != plan.Done {
		t.Errorf("outcome %+v, want done", c.outcome)
	}
}

// Another controller keeps a condition of its own in the status. It undoes nothing, so what is reported is not delayed.
func TestAConditionOfAnotherControllerDoesNotDelayTheReport(t *testing.T) {
	foo := newFoo(withReplicas(9))
	state := world{Foo: foo, Deployment: newDeployment(foo, rollout(9, 9, 0)), Now: now}
	for n := int32(0); n <= 9; n++ {
		state.Deployment = newDeployment(foo, rollout(9, 9, n))
		c := play(t, state)
		if c.status() == nil {
			t.Errorf("%d of 9 available: no report, %s", n, c.ending())
		}
		state = c.nextSync(5 * time.Second)
		other := state.Foo.DeepCopy()
		other.Status.Conditions = append([]metav1.Condition{{
			Type: "Scanned", Status: metav1.ConditionTrue, Reason: "Scan", Message: fmt.Sprint("scan ", n),
			LastTransitionTime: metav1.NewTime(now),
		}}, withoutCondition(other.Status.Conditions, "Scanned")...)
		state.Foo = other
	}
}

func withoutCondition(conditions []metav1.Condition, kind string) (rest []metav1.Condition) {
	for _, condition := range conditions {
		if condition.Type != kind {
			rest = append(rest, condition)
		}
	}
	return rest
}

// A webhook may deny with a 404. The Deployment is there, so the deletion was not done, and backs off.
func TestADeletionThatIsNotFoundAgainAndAgainBacksOff(t *testing.T) {
	denied := apierrors.NewGenericServerResponse(404, "delete", deployments, "", "admission webhook denied the request",
		0, false)
	moved := renamed()
	state := world{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")), Now: now}
	sent := 0
	for range 20 { // 20 events within 20 s.
		c := play(t, state, fails(plan.DeleteDeployment, denied))
		if c.step(plan.DeleteDeployment) != nil {
			sent++
		}
		if step := c.step(plan.UpdateStatus); step != nil {
			state.Foo = step.Foo
		}
		state.Memory, state.Now = c.end.Memory, state.Now.Add(time.Second)
	}
	if sent > 14 {
		t.Errorf("the deletion was sent %d times in 20 syncs", sent)
	}
}

// The message of a conflict has resourceVersions, which differ from try to try: the status does not repeat them.
func TestADeletionThatConflictsHasOneMessage(t *testing.T) {
	moved := renamed()
	state := world{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")), Now: now}
	messages := map[string]bool{}
	for n := range 10 {
		c := play(t, state, fails(plan.DeleteDeployment, apierrors.NewConflict(deployments, "web-1",
			fmt.Errorf("Precondition failed: ResourceVersion in precondition: %d, ResourceVersion in object meta: %d", n, n+1))))
		if step := c.step(plan.UpdateStatus); step != nil {
			state.Foo = step.Foo
			messages[c.message()] = true
		}
		state.Memory, state.Now = c.end.Memory, c.endedAt.Add(c.outcome.After)
	}
	if len(messages) > 1 {
		t.Errorf("%d messages: %v", len(messages), messages)
	}
}

// Another controller overwrites the status again and again. A patch that was refused backs off all the same.
func TestAFightOverTheStatusKeepsTheBackoffOfARefusedPatch(t *testing.T) {
	foo := newFoo(withReplicas(3))
	state := world{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Now: now}
	patches := 0
	for second := range 600 {
		state.Now = now.Add(seconds(second))
		c := play(t, state, fails(plan.PatchDeployment, forbidden))
		for _, step := range c.steps {
			if step.Verb == plan.PatchDeployment {
				patches++
			}
		}
		state.Memory = c.end.Memory // The Foo has the status of the other controller again.
	}
	if patches > 25 {
		t.Errorf("the refused patch was sent %d times in ten minutes", patches)
	}
}

// The work for many previous Deployments that cannot be deleted grows with their number, not with its square.
func TestTheWorkForPreviousDeploymentsIsLinear(t *testing.T) {
	foo := renamed()
	allocations := func(n int) float64 {
		state := world{Foo: foo, Deployment: newDeployment(foo, available(1)), Now: now}
		for i := range n {
			state.Previous = append(state.Previous, earlier(foo, fmt.Sprintf("web-1-%d", i)))
		}
		observed := state.state()
		return testing.AllocsPerRun(3, func() { fresh := observed; fresh.Next() })
	}
	if few, many := allocations(100), allocations(400); many > 6*few {
		t.Errorf("%.0f allocations for 100 previous Deployments, %.0f for 400", few, many)
	}
}
