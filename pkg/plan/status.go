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
	want := r.wantedStatus()
	if equality.Semantic.DeepEqual(in.Foo.Status, want) && !hasUnreadStatus(in.Foo) {
		return nil
	}
	foo := in.Foo.DeepCopy()
	foo.Status, foo.Unread = want, slices.DeleteFunc(foo.Unread, isStatus)
	step := reconcile.StatusStep(FooKind, &in.Foo, foo, in.Foo.Status.Conditions, want.Conditions)
	step.Event = eventOf(&in.Foo.Status, &want)
	if step.Event != nil && step.Event.Reason == v1alpha1.EventSynced {
		// The Foo is available, but a previous Deployment cannot be deleted: a warning is worth more.
		if problem := r.failedDeletion(); problem != nil {
			event := statusEvents[problem.Reason] // The reason is that of a request: Refused or RequestFailed.
			step.Event.Type, step.Event.Reason = event.eventType, event.reason
		}
	}
	reason := meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionReady).Reason
	step.Why = "the status differs, and its reason must be " + reason
	step.Log = []any{"availableReplicas", want.AvailableReplicas, "reason", reason}
	return step
}

// wantedStatus returns what the status of the Foo should be, given what is known now.
func (r *reporter) wantedStatus() v1alpha1.FooStatus {
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

	first := firstReport(r, reportRules)
	report := state.Report{True: first.condition, Reason: first.reason, Message: r.fullMessage(first)}
	if first.cause != "" {
		report.Brief = first.message + ". The condition Ready has the cause"
	}
	status.Conditions = state.Conditions(status.Conditions, report, foo.Generation, r.sync.Now())
	return status
}

// fullMessage returns the message of the conditions: what is, what there is to say of other Deployments, and what to
// do. The messages of a server and names may be long: the advice gets at most a half, and the message the rest.
func (r *reporter) fullMessage(report *report) string {
	const limit = reconcile.MessageLimit
	message := report.message + report.cause + r.describeOthers(report.reason)
	if report.advice == "" {
		return reconcile.Clip(message, limit)
	}
	advice := ". " + report.advice
	return reconcile.Clip(message, max(limit-len(advice), limit/2)) + reconcile.Clip(advice, limit/2)
}
