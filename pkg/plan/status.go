package plan

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// maxConditions is how many conditions the CustomResourceDefinition allows.
const maxConditions = 32

// ownConditions are the types of the conditions that the controller writes.
var ownConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled}

// messageLimit is how many bytes a condition's message has at most; its field would take eight times as many.
const messageLimit = 4096

// status returns what the status of the Foo should be, given what is known now.
func (s *State) status() v1alpha1.FooStatus {
	foo, dep := s.Foo, s.Deployment
	status := *foo.Status.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, malformed(map[string]bool{}))
	status.ObservedGeneration = foo.Generation
	status.Replicas, status.AvailableReplicas, status.Selector = 0, 0, ""
	if dep != nil && Owns(foo, dep) {
		status.Replicas = dep.Status.Replicas
		status.AvailableReplicas = dep.Status.AvailableReplicas
		status.Selector = selectorOf(dep)
	}

	r := firstReady(s, readyRules)
	message := s.fullMessage(r)
	set := func(conditionType string, value metav1.ConditionStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: value, Reason: r.reason, Message: message,
			ObservedGeneration: foo.Generation, LastTransitionTime: metav1.NewTime(s.latest().Truncate(time.Second)),
		})
	}
	value := metav1.ConditionFalse
	if r.ready {
		value = metav1.ConditionTrue
	}
	set(v1alpha1.ConditionReady, value)
	for _, secondary := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if secondary == r.secondary {
			set(secondary, metav1.ConditionTrue)
			continue
		}
		meta.RemoveStatusCondition(&status.Conditions, secondary)
	}
	status.Conditions = withinLimit(status.Conditions)
	return status
}

// fullMessage returns the message of the conditions: what is, what there is to report of previous Deployments, and what
// to do. The server's message and names may be of any length.
func (s *State) fullMessage(r *readiness) string {
	message := r.message + s.describePrevious(r)
	if r.advice == "" {
		return clip(message, messageLimit)
	}
	advice := ". " + r.advice
	return clip(message, max(messageLimit-len(advice), messageLimit/2)) + clip(advice, messageLimit/2)
}

// withinLimit drops the last conditions of others as long as there are more than the API server takes: ours come first.
func withinLimit(conditions []metav1.Condition) []metav1.Condition {
	for i := len(conditions) - 1; i >= 0 && len(conditions) > maxConditions; i-- {
		if !slices.Contains(ownConditions, conditions[i].Type) {
			conditions = slices.Delete(conditions, i, i+1)
		}
	}
	return conditions
}

// malformed reports of each condition in turn whether the API server would refuse a status that has it. There may be
// some that were stored before there were rules, and with one of them no status could ever be written.
func malformed(seen map[string]bool) func(metav1.Condition) bool {
	return func(c metav1.Condition) bool {
		known := c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown
		bad := seen[c.Type] || !known || c.Reason == "" || !canBeSent(c.LastTransitionTime)
		seen[c.Type] = true
		return bad
	}
}

// canBeSent reports whether the API server can take t as the time of a condition. Times are sent in UTC: one with an
// offset may then be in a year that has no four digits. The zero time is sent as null.
func canBeSent(t metav1.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && year >= 0 && year <= 9999
}

// selectorOf returns dep's selector in the form of a label query.
func selectorOf(dep *appsv1.Deployment) string {
	selector, err := metav1.LabelSelectorAsSelector(dep.Spec.Selector)
	if err != nil {
		return "" // The API server stores no such selector.
	}
	return selector.String()
}

// SameToOthers reports whether two versions of a Foo are the same for the Foos that wait for one of its previous
// Deployments: their reports are about where it moves, whether it can, and what it waits for itself.
func SameToOthers(a, b *v1alpha1.Foo) bool {
	switch {
	case a.Spec.DeploymentName != b.Spec.DeploymentName || a.Spec.Paused != b.Spec.Paused:
		return false
	case !isObserved(b): // The status that follows is compared.
		return true
	}
	return isObserved(a) && isReady(a) == isReady(b) && isStalled(a) == isStalled(b) && waitsFor(a) == waitsFor(b)
}

// isObserved reports whether the status of foo is about its present spec.
func isObserved(foo *v1alpha1.Foo) bool { return foo.Status.ObservedGeneration == foo.Generation }

// waitsFor returns which Foos and Deployments foo waits for, according to its status; "" if it waits for none.
func waitsFor(foo *v1alpha1.Foo) string {
	switch reason, message := ReadyReason(foo); reason {
	case v1alpha1.ReasonWaitingForName, v1alpha1.ReasonNameCycle:
		return message
	}
	return ""
}

// isReady reports whether foo is Ready, according to a status of its present spec.
func isReady(foo *v1alpha1.Foo) bool { return isTrue(foo, v1alpha1.ConditionReady) }

// isStalled reports whether foo is Stalled, according to a status of its present spec.
func isStalled(foo *v1alpha1.Foo) bool { return isTrue(foo, v1alpha1.ConditionStalled) }

func isTrue(foo *v1alpha1.Foo, condition string) bool {
	return isObserved(foo) && meta.IsStatusConditionTrue(foo.Status.Conditions, condition)
}

// ReadyReason returns the reason and the message of foo's Ready condition; both are empty when it has none.
func ReadyReason(foo *v1alpha1.Foo) (reason, message string) {
	if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason, ready.Message
	}
	return "", ""
}
