package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/pkg/plan"
)

// Who installed an old CustomResourceDefinition reads this event. It counts for the limit of events.
func TestTheEventOfAStatusThatIsNotStored(t *testing.T) {
	foo := newFoo(withReplicas(3))
	dropped := reply{verb: plan.UpdateStatus, answer: &plan.Answer{Foo: foo}}
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo)}, dropped)
	want := &plan.Event{
		Type: "Warning", Reason: "StatusNotStored", Action: "Report",
		Note: "The API server does not store the status: the CustomResourceDefinition lacks the status subresource " +
			"or its conditions. Install the one that belongs to this controller",
	}
	if len(c.events) > 0 {
		t.Errorf("there is an event about a report that nobody can read: %+v", c.events[0])
	}
	if diff := cmp.Diff(want, c.outcome.Event); diff != "" {
		t.Errorf("wrong event (-want +got):\n%s", diff)
	}
	if until := c.end.Memory.EventsUntil; !until.Equal(now.Add(seconds(6))) {
		t.Errorf("the events are forgotten after %s, want 6s", until.Sub(now))
	}
}
