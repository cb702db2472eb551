package reconcile

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/kit/state"
)

// The reasons of the problems of Keep.
const (
	NotOwned   = "NotOwned"   // An object of that name belongs to somebody else.
	Waiting    = "Waiting"    // An object of that name is being deleted. Then it is created again.
	Overridden = "Overridden" // Something changes a field on its way into the API server, or undoes each write.
)

// Keep is the answer of a rule about a child: it is created if the field of the Input is nil, and patched if it lacks a
// field of want. Other fields belong to others. want has a controller reference to the object. A child of somebody else
// is never touched, and is a problem.
//
// The patch is an update while the status of the object is not about its spec yet. Otherwise it corrects what somebody
// has changed, perhaps after a change of the object whose event is late: so the object is read live before.
func Keep[T Object](kind Kind[T], field *T, want T) Answer {
	var none T
	name := kind.Kind + ` "` + want.GetName() + `"`
	if *field == none {
		step := CreateStep(kind, field, want)
		step.Differs = func() *Problem { return overridden(name, *field, want) }
		step.Undone = func() *Problem {
			return &Problem{Reason: Overridden, Message: "Another client keeps deleting " + name +
				". The controller creates it again at least once a minute", Advice: "Stop that client"}
		}
		return Answer{Steps: []*Step{step}, Why: name + " does not exist"}
	}
	have := *field
	if problem := taken(name, have, want); problem != nil {
		return Answer{Problem: problem, Why: problem.Message}
	}
	patch, err := state.Drift(have, want)
	switch {
	case err != nil:
		return Answer{Problem: &Problem{Reason: Refused, Message: err.Error(), Stalled: true}, Why: err.Error()}
	case patch == nil:
		return Answer{Why: name + " is as it must be"}
	}
	fields := strings.Join(patch.Fields, ", ")
	step := PatchStep(kind, field, patch.Body, fieldsOf(patch))
	step.keeps = true
	step.Event = &Event{
		Type: corev1.EventTypeNormal, Reason: "Corrected", Action: "Correct " + kind.Kind,
		Note: Clip("Corrected "+name+": "+fields, NoteLimit),
	}
	step.Differs = func() *Problem { return overridden(name, *field, want) }
	step.Undone = func() *Problem {
		return &Problem{
			Reason: Overridden,
			Message: fmt.Sprintf("Another client keeps changing %s: %s. The controller corrects it at least once a minute",
				name, fields),
			Advice: "Stop that client, for example an autoscaler or a GitOps tool",
		}
	}
	return Answer{Steps: []*Step{step}, Why: name + " differs: " + fields}
}

func fieldsOf(patch *state.Patch) (fields []Field) {
	for _, path := range patch.Fields {
		fields = append(fields, Field{Path: path})
	}
	return fields
}

// overridden returns that a child still differs after it was written.
func overridden[T Object](name string, have, want T) *Problem {
	patch, err := state.Drift(have, want)
	if err != nil || patch == nil {
		return nil
	}
	return &Problem{
		Reason:  Overridden,
		Message: fmt.Sprintf("%s: a webhook or a policy of this cluster changes %s", name, strings.Join(patch.Fields, ", ")),
		Advice:  "Set what it accepts",
	}
}

// taken returns why have, which has the name of a child, cannot be that child; nil if it is.
func taken(name string, have, want metav1.Object) *Problem {
	owner, ref := metav1.GetControllerOfNoCopy(want), metav1.GetControllerOfNoCopy(have)
	holder := "nobody"
	if ref != nil {
		holder = fmt.Sprintf("%s %q", ref.Kind, ref.Name)
	}
	isOurs := ref != nil && ref.UID == owner.UID
	isOrphan := !isOurs && ref != nil && ref.Name == owner.Name && groupKind(ref) == groupKind(owner) // Of a deleted one.
	switch {
	case have.GetDeletionTimestamp() != nil, isOrphan:
		return &Problem{Reason: Waiting, Message: name + " is being deleted, and is created again after that"}
	case !isOurs:
		return &Problem{
			Reason: NotOwned, Stalled: true, Message: name + " exists and is controlled by " + holder,
			Advice: fmt.Sprintf("Delete it, or give the %s another name", owner.Kind),
		}
	}
	return nil
}

func groupKind(ref *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
}

// Owns reports whether owner is the controller of obj.
func Owns(owner, obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref != nil && ref.UID == owner.GetUID()
}
