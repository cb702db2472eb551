package plan_test

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file has answers and objects that a careless API server, webhook or client may produce.

// The Foo is read, the Deployment is not: the read without an answer backs off as any other.
func TestTheDelayAfterADeploymentThatIsNotAnsweredDoubles(t *testing.T) {
	moved := renamed()
	state := plan.State{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1"))}
	want := milliseconds(5, 10, 20, 40, 80, 160)
	if got := delays(t, 6, state, fails(plan.ReadDeployment, noResponse)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("delays %v, want %v", got, want)
	}
}

// Another controller keeps a condition of its own in the status. It undoes nothing, so what is reported is not delayed.
func TestAConditionOfAnotherControllerDoesNotDelayTheReport(t *testing.T) {
	foo := newFoo(withReplicas(9))
	state := plan.State{Foo: foo, Deployment: newDeployment(foo, rollout(9, 9, 0)), Now: now}
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

// A CustomResourceDefinition that lacks a field, or a policy, takes a part of the status away. The status will never be
// as wanted, so writing it again backs off.
func TestAStatusOfWhichAFieldIsNotStoredBacksOff(t *testing.T) {
	for name, drop := range map[string]func(*v1alpha1.Foo){
		"selector":  func(foo *v1alpha1.Foo) { foo.Status.Selector = "" },
		"replicas":  func(foo *v1alpha1.Foo) { foo.Status.Replicas = 0 },
		"available": func(foo *v1alpha1.Foo) { foo.Status.AvailableReplicas = 0 },
		"Reconciling": func(foo *v1alpha1.Foo) {
			foo.Status.Conditions = withoutCondition(foo.Status.Conditions, "Reconciling")
		},
	} {
		t.Run(name, func(t *testing.T) {
			foo := newFoo(withReplicas(3))
			state := plan.State{Foo: foo, Deployment: newDeployment(foo, rollout(3, 3, 1)), Now: now}
			written := 0
			for range 20 { // 20 events within 20 s.
				want := play(t, state).status()
				if want == nil {
					state.Now = state.Now.Add(time.Second)
					continue
				}
				written++
				stored := state.Foo.DeepCopy()
				stored.Status, stored.ResourceVersion = *want.DeepCopy(), "11"
				drop(stored)
				c := play(t, state, reply{verb: plan.UpdateStatus, answer: &plan.Answer{Foo: stored}})
				state.Foo, state.Memory, state.Now = stored, c.end.Memory, state.Now.Add(time.Second)
			}
			if written > 12 {
				t.Errorf("the status was written %d times in 20 syncs", written)
			}
		})
	}
}

// A webhook may deny with a 404. The Deployment is there, so the deletion was not done, and backs off.
func TestADeletionThatIsNotFoundAgainAndAgainBacksOff(t *testing.T) {
	denied := apierrors.NewGenericServerResponse(404, "delete", deployments, "", "admission webhook denied the request",
		0, true)
	moved := renamed()
	state := plan.State{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")), Now: now}
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
	if sent > 8 {
		t.Errorf("the deletion was sent %d times in 20 syncs", sent)
	}
}

// The message of a conflict has resourceVersions, which differ from try to try: the status does not repeat them.
func TestADeletionThatConflictsHasOneMessage(t *testing.T) {
	moved := renamed()
	state := plan.State{Foo: moved, Deployment: newDeployment(moved), Previous: all(earlier(moved, "web-1")), Now: now}
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

// A create without a clear answer, and live reads of the Deployment that are forbidden: that is in the status too, not
// only in the log.
func TestARefusedReadIsReported(t *testing.T) {
	state := plan.State{Foo: newFoo(withReplicas(3)), Now: now}
	for range 12 {
		c := play(t, state, fails(plan.CreateDeployment, serverFails), fails(plan.ReadDeployment, forbidden))
		if c.status() != nil {
			return
		}
		state.Now, state.Memory = c.endedAt.Add(c.outcome.After), c.end.Memory
	}
	t.Error("12 syncs, and no report")
}

// Another controller overwrites the status again and again. A patch that was refused backs off all the same.
func TestAFightOverTheStatusKeepsTheBackoffOfARefusedPatch(t *testing.T) {
	foo := newFoo(withReplicas(3))
	state := plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5)), Now: now}
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
		state := plan.State{Foo: foo, Deployment: newDeployment(foo, available(1)), Now: now}
		for i := range n {
			state.Previous = append(state.Previous, earlier(foo, fmt.Sprintf("web-1-%d", i)))
		}
		return testing.AllocsPerRun(3, func() { fresh := state; fresh.Next() })
	}
	if few, many := allocations(200), allocations(800); many > 6*few {
		t.Errorf("%.0f allocations for 200 previous Deployments, %.0f for 800", few, many)
	}
}
