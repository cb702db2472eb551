package state

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of the conditions.
const (
	// Ready is True when the object is as its spec asks for.
	Ready = "Ready"
	// Reconciling is True while the controller works, or waits for something.
	Reconciling = "Reconciling"
	// Stalled is True while nothing moves until somebody changes something.
	Stalled = "Stalled"
)

// A Report is the state of an object.
type Report struct {
	// True is the condition that is True: Ready, Reconciling or Stalled. If it is something else, such as empty, Ready is
	// False and the others are absent, as for an object that is paused.
	True string
	// Reason is for programs, in CamelCase, Message for people. Both should stay the same, byte for byte, until
	// something changes: each difference is a write.
	Reason, Message string
	// Brief, unless empty, is what Reconciling or Stalled have in place of a long Message.
	Brief string
}

// Conditions returns the conditions with a report about a generation. Those of other types stay. The time of a
// condition becomes now, in whole seconds as the API server stores it, if its status changes. Conditions changes no
// element of the argument, which may come from a cache.
func Conditions(conditions []metav1.Condition, report Report, generation int64, now time.Time) []metav1.Condition {
	conditions = slices.Clone(conditions)
	message := report.Message
	for _, kind := range []string{Ready, Reconciling, Stalled} {
		status := metav1.ConditionTrue
		switch {
		case kind == report.True:
		case kind == Ready:
			status = metav1.ConditionFalse
		default:
			meta.RemoveStatusCondition(&conditions, kind)
			continue
		}
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: kind, Status: status, Reason: report.Reason, Message: message, ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
		message = cmp.Or(report.Brief, report.Message) // Ready is the first.
	}
	return conditions
}
