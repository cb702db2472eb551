package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
)

// statusEvents has the type and the reason of the event that a new reason of the Ready condition is worth.
var statusEvents = map[string]struct{ eventType, reason string }{
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

// eventOf returns the event that the change from one status to the next is worth, or nil. It is nil if the reason and
// the generation are as before, also after a restart of the controller.
func eventOf(before, after *v1alpha1.FooStatus) *reconcile.Event {
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration {
		return nil
	}
	event, found := statusEvents[is.Reason]
	if !found {
		return nil
	}
	note := reconcile.Clip(is.Message, reconcile.NoteLimit)
	// Events of one type, reason and action become a series with the note of the first. The hash keeps notes apart.
	return &reconcile.Event{
		Type: event.eventType, Reason: event.reason, Action: "Report " + hash(10, is.Reason, note), Note: note,
	}
}

// correctedEvent returns the event of a patch that undoes what somebody has changed.
func (in *Input) correctedEvent(patch *state.Patch) *reconcile.Event {
	return &reconcile.Event{
		Type: corev1.EventTypeNormal, Reason: v1alpha1.EventCorrected,
		Action: "Correct " + strings.Join(shortNames(patch.Fields), ","),
		Note: reconcile.Clip(
			fmt.Sprintf("Corrected Deployment %q: %s", in.Deployment.Name, describeFields(patch.Fields)), reconcile.NoteLimit),
	}
}

// shortNames returns what fields are, each once. The fields are in the order of their paths.
func shortNames(fields []reconcile.Field) []string {
	var names []string
	for _, field := range fields {
		switch field.Path {
		case pathReplicas:
			names = append(names, "replicas")
		case pathImage:
			names = append(names, "image")
		case pathOwner:
			names = append(names, "ownerReferences")
		default:
			names = append(names, "labels")
		}
	}
	return slices.Compact(names)
}

// movedEvent returns the event of the deletion of a previous Deployment.
func (in *Input) movedEvent(previous *TrimmedDeployment) *reconcile.Event {
	return &reconcile.Event{
		Type: corev1.EventTypeNormal, Reason: v1alpha1.EventMoved, Action: "Delete " + labelValue(previous.Name),
		Note: fmt.Sprintf("Moved to Deployment %q (%s) and deleted previous Deployment %q",
			in.Deployment.Name, availableText(in.Deployment), previous.Name),
	}
}
