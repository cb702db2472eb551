package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// noteLimit is how many bytes of a note the API server takes.
const noteLimit = 1024

// An Event is a change of a Foo that a person acts on. A creation has no event, since EventSynced follows it, and
// neither has a sync that changes nothing.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason is a v1alpha1.Event... constant.
	Reason string
	// Action is what the controller did. client-go counts events with the same reason and action in one object, whose
	// note is that of the first: events have the same action if their notes are the same for a reader.
	Action string
	// Note is for people, at most 1 kB.
	Note string
}

// statusEvents has the type and the reason of the event that a new reason of the Ready condition is worth.
var statusEvents = map[string]struct{ kind, reason string }{
	v1alpha1.ReasonAvailable:                {corev1.EventTypeNormal, v1alpha1.EventSynced},
	v1alpha1.ReasonNotOwned:                 {corev1.EventTypeWarning, v1alpha1.EventResourceExists},
	v1alpha1.ReasonNameTaken:                {corev1.EventTypeWarning, v1alpha1.EventResourceExists},
	v1alpha1.ReasonNameCycle:                {corev1.EventTypeWarning, v1alpha1.EventResourceExists},
	v1alpha1.ReasonRefused:                  {corev1.EventTypeWarning, v1alpha1.EventRefused},
	v1alpha1.ReasonRequestFailed:            {corev1.EventTypeWarning, v1alpha1.EventRequestFailed},
	v1alpha1.ReasonReplicaFailure:           {corev1.EventTypeWarning, v1alpha1.EventReplicaFailure},
	v1alpha1.ReasonProgressDeadlineExceeded: {corev1.EventTypeWarning, v1alpha1.EventProgressDeadlineExceeded},
	v1alpha1.ReasonDeploymentPaused:         {corev1.EventTypeWarning, v1alpha1.EventDeploymentPaused},
	v1alpha1.ReasonFieldsOverridden:         {corev1.EventTypeWarning, v1alpha1.EventFieldsOverridden},
}

// eventOf returns the event that the change from one status to the next is worth, or nil. The same reason
// twice in a row, also after a restart of the controller, gives nil.
func eventOf(before, after *v1alpha1.FooStatus) *Event {
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration {
		return nil
	}
	event, found := statusEvents[is.Reason]
	if !found {
		return nil
	}
	note := clip(is.Message, noteLimit)
	return &Event{Type: event.kind, Reason: event.reason, Action: "Report " + hash(10, is.Reason, note), Note: note}
}

// isUpdate reports whether a new generation of the Foo asks for the patch of the Deployment.
func (s *State) isUpdate() bool {
	written := s.Deployment.WrittenFor
	unlabelled := written == 0 && isMadeFor(s.Foo, s.Deployment) // Somebody has removed the label with the generation.
	return written < s.Foo.Generation && !unlabelled
}

// corrected returns the event of a patch that undoes what somebody has changed, or nil when somebody changes the
// Deployment again and again: the status reports that.
func (s *State) corrected(patch *Patch) *Event {
	op := Op{Verb: PatchDeployment, Name: s.Deployment.Name}
	if s.repeats(op) >= freeRepeats || s.attempt(op.again()).Report.Reason != "" {
		return nil
	}
	return &Event{
		Type: corev1.EventTypeNormal, Reason: v1alpha1.EventCorrected,
		Action: "Correct " + strings.Join(shortNames(patch.Fields), ","),
		Note:   clip(fmt.Sprintf("Corrected Deployment %q: %s", op.Name, describeFields(patch.Fields)), noteLimit),
	}
}

// shortNames returns what fields are, each once.
func shortNames(fields []Field) []string {
	var names []string
	for _, field := range fields {
		name := ""
		switch {
		case field.Path == pathReplicas:
			name = "replicas"
		case field.Path == pathImage:
			name = "image"
		case field.Path == pathOwner:
			name = "ownerReferences"
		default:
			name = "labels"
		}
		names = append(names, name)
	}
	return slices.Compact(names)
}

// moved returns the event of the deletion of a previous Deployment.
func (s *State) moved(previous *Observed) *Event {
	return &Event{
		Type: corev1.EventTypeNormal, Reason: v1alpha1.EventMoved, Action: "Delete " + labelValue(previous.Name),
		Note: fmt.Sprintf("Moved to Deployment %q (%s) and deleted previous Deployment %q",
			s.Deployment.Name, available(s.Deployment), previous.Name),
	}
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
