package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/conditions"
)

// ownConditions are the types of the conditions that the controller writes.
var ownConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled}

// messageLimit is how many bytes a condition's message has at most; its field would take eight times as many.
const messageLimit = 4096

// status returns what the status of the Foo should be, given what is known now.
func (s *State) status() v1alpha1.FooStatus {
	foo, dep := s.Foo, s.Deployment
	status := *foo.Status.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool {
		return c.LastTransitionTime.IsZero() // It could not be read, and the API server takes no condition without it.
	})
	status.ObservedGeneration = foo.Generation
	status.Replicas, status.AvailableReplicas, status.Selector = 0, 0, ""
	if dep != nil && Owns(foo, dep) {
		status.Replicas = dep.Status.Replicas
		status.AvailableReplicas = dep.Status.AvailableReplicas
		status.Selector = dep.Selector
	}

	r := firstReady(s, readyRules)
	report := conditions.Report{True: r.condition(), Reason: r.Reason, Message: s.fullMessage(r)}
	if r.Cause != "" {
		report.Brief = r.Message + ". The condition Ready has the cause"
	}
	status.Conditions = conditions.Set(status.Conditions, report, foo.Generation, s.latest())
	return status
}

// fullMessage returns the message of the conditions: what is, what there is to report of previous Deployments, and what
// to do. The server's message and names may be of any length.
func (s *State) fullMessage(r *readiness) string {
	message := r.Message + r.Cause + s.describePrevious(r)
	if r.Advice == "" {
		return clip(message, messageLimit)
	}
	advice := ". " + r.Advice
	return clip(message, max(messageLimit-len(advice), messageLimit/2)) + clip(advice, messageLimit/2)
}

// ReadyReason returns the reason and the message of foo's Ready condition; both are empty when it has none.
func ReadyReason(foo *v1alpha1.Foo) (reason, message string) {
	if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason, ready.Message
	}
	return "", ""
}
