package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/pkg/plan"
)

// The new Deployment has taken over, but the previous one must not be deleted. That is no rename any more.
func TestAfterTheNewDeploymentTookOverTheRenameIsOver(t *testing.T) {
	foo := renamed()
	c := play(t, plan.State{
		Foo: foo, Deployment: newDeployment(foo, available(2)), Previous: all(earlier(foo, "web-1", available(2))),
	}, fails(plan.DeleteDeployment, forbidden))
	want := reconciling + "Progressing: 2 of 3 replicas available" + undeleted + overQuota + triesAgain
	if diff := cmp.Diff(want, c.report()); diff != "" {
		t.Errorf("wrong report (-want +got):\n%s", diff)
	}
}

// Of two previous Deployments without available replicas, the one that was complete stays, whatever their names and
// ages are.
func TestWhatWasCompleteStays(t *testing.T) {
	foo := renamed()
	for complete, other := range map[string]string{"web-1": "web-2", "web-2": "web-1"} {
		c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, available(0)), Previous: all(
			earlier(foo, complete, available(0), wasComplete, madeAt(2)), earlier(foo, other, available(0), madeAt(1)))})
		if diff := cmp.Diff(readBoth+"delete "+other, c.sent()); diff != "" {
			t.Errorf("%s was complete (-want +got):\n%s", complete, diff)
		}
	}
}

// An invalid Foo deletes nothing, so no deletion has failed. What is left of earlier names stays.
func TestAnInvalidFooDoesNotReportADeletionThatWasNotTried(t *testing.T) {
	foo := renamed(withReplicas(-1))
	valid := renamed()
	c := play(t, plan.State{Foo: foo, Previous: all(earlier(valid, "web-1"), earlier(valid, "web-2", available(0)))})
	checkSent(t, "nothing", c.sent())
	want := stalled + "Invalid: spec.replicas is -1. Set 0 or more, or remove it" +
		`. Deployment "web-1" (3 available) is kept while this Foo is invalid` +
		`. Deployment "web-2" (0 available) is kept while this Foo is invalid` + editWeb
	if diff := cmp.Diff(want, c.report()); diff != "" {
		t.Errorf("wrong report (-want +got):\n%s", diff)
	}
}
