package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// noteLimit is how many bytes of a note the API server takes.
const noteLimit = 1024

// An Event is something that happened to a Foo and that a person cares about.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason is a v1alpha1.Event... constant, Action what the controller was doing.
	Reason, Action string
	// Note is for people, at most 1 kB.
	Note string
}

// statusNotStored is the event of a Foo whose status cannot be stored.
var statusNotStored = &Event{
	Type: corev1.EventTypeWarning, Reason: v1alpha1.EventStatusNotStored, Action: "Report",
	Note: "The API server does not store the status: the CustomResourceDefinition lacks the status subresource or its " +
		"conditions. Install the one that belongs to this controller",
}

// eventOf returns the event that the change from one status to the next is worth, or nil. A change is
// told once: the same status again, also after a restart of the controller, gives nil.
func eventOf(before, after *v1alpha1.FooStatus) *Event {
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration {
		return nil
	}
	note := clip(is.Message, noteLimit)
	switch is.Reason {
	case v1alpha1.ReasonAvailable:
		return &Event{Type: corev1.EventTypeNormal, Reason: v1alpha1.EventSynced, Action: "Sync", Note: note}
	case v1alpha1.ReasonFieldsOverridden:
		return &Event{Type: corev1.EventTypeWarning, Reason: v1alpha1.EventFieldsOverridden, Action: "Patch", Note: note}
	case v1alpha1.ReasonNotOwned, v1alpha1.ReasonNameTaken, v1alpha1.ReasonNameCycle:
		return &Event{Type: corev1.EventTypeWarning, Reason: v1alpha1.EventResourceExists, Action: "Create", Note: note}
	}
	return nil
}

// clip shortens text to at most limit bytes of valid UTF-8. Other bytes, such as those of a proxy, would be stored as
// something else, and so differ for ever.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const dots = "..."
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots // The cut may be inside a character.
}
