package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
)

// status returns the step that writes the status, nil if it is as it must be.
func (in *Input) status(s *reconcile.Sync) *reconcile.Step {
	r := &reporter{in, s}
	want := r.status()
	if equality.Semantic.DeepEqual(in.Foo.Status, want) && !hasUnreadStatus(in.Foo) {
		return nil
	}
	foo := in.Foo.DeepCopy()
	foo.Status, foo.Unread = want, slices.DeleteFunc(foo.Unread, isStatus)
	step := reconcile.StatusStep(FooKind, &in.Foo, foo, in.Foo.Status.Conditions, want.Conditions)
	step.Event = eventOf(&in.Foo.Status, &want)
	if step.Event != nil && step.Event.Reason == v1alpha1.EventSynced {
		if failed, found := statusEvents[r.failedDeletion()]; found {
			step.Event.Type, step.Event.Reason = failed.kind, failed.reason
		}
	}
	reason, _ := ReadyReason(foo)
	step.Why = "the status differs, and its reason must be " + reason
	step.Log = []any{"availableReplicas", want.AvailableReplicas, "reason", reason}
	return step
}

// status returns what the status of the Foo should be, given what is known now.
func (r *reporter) status() v1alpha1.FooStatus {
	foo, dep := r.Foo, r.Deployment
	status := *foo.Status.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool {
		return c.LastTransitionTime.IsZero() // It could not be read, and the API server takes no condition without it.
	})
	status.ObservedGeneration = foo.Generation
	status.Replicas, status.AvailableReplicas, status.Selector = 0, 0, ""
	if dep != nil && Owns(foo, dep) {
		status.Replicas = dep.Status.Replicas
		status.AvailableReplicas = dep.Status.AvailableReplicas
		status.Selector = dep.selector()
	}

	ready := firstReady(r, readyRules)
	report := state.Report{True: ready.condition(), Reason: ready.Reason, Message: r.fullMessage(ready)}
	if ready.Cause != "" {
		report.Brief = ready.Message + ". The condition Ready has the cause"
	}
	status.Conditions = state.Conditions(status.Conditions, report, foo.Generation, r.Now())
	return status
}

// fullMessage returns the message of the conditions: what is, what there is to report of previous Deployments, and what
// to do. The server's message and names may be of any length.
func (r *reporter) fullMessage(ready *readiness) string {
	message := ready.Message + ready.Cause + r.describePrevious(ready.Reason)
	if ready.Advice == "" {
		return reconcile.Clip(message, reconcile.MessageLimit)
	}
	const limit = reconcile.MessageLimit
	advice := ". " + ready.Advice
	return reconcile.Clip(message, max(limit-len(advice), limit/2)) + reconcile.Clip(advice, limit/2)
}

// ReadyReason returns the reason and the message of foo's Ready condition; both are empty when it has none.
func ReadyReason(foo *v1alpha1.Foo) (reason, message string) {
	if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason, ready.Message
	}
	return "", ""
}
