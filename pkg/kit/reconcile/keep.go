package reconcile

import (
	"cmp"
	"fmt"
	"slices"
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

// actionLimit is how many bytes of the action of an event the API server takes.
const actionLimit = 128

// Keep is the answer of a rule about a child: it is created if the field of the Input is nil, patched if it lacks a
// field of want, and deleted if want is nil. Other fields belong to others. want has a controller reference to the
// object. A child of somebody else is never touched, and is a problem if it is wanted.
//
// At an owned path, what want lacks is removed: so what a new spec leaves out is. See [state.Drift] for paths.
//
//	Keep(DeploymentKind, &in.Deployment, Deployment(in.Widget), "spec.template.spec.containers[widget].args")
//
// The cache must keep what is there, and want must have what the API server or a webhook sets there: what comes back is
// reported as Overridden. A path that the type does not have is a problem even before the child exists. Nothing is
// remembered for all that, so it holds after a restart. Custom resources take no such patch: its refusal is reported.
//
// A patch is an update while the status of the object is not about its spec yet. Otherwise it corrects what somebody
// has changed, and sends an event. Before a patch or a deletion the object is read live: it may have changed, and its
// event may be late. The answer may be incomplete until the sync adds the object: return it unchanged, and do not read
// its Steps.
func Keep[T Object](kind Kind[T], field *T, want T, owned ...string) Answer {
	var none T
	switch {
	case want != none:
		return keep(kind, field, nil, want, owned)
	case *field == none:
		return Answer{Why: "no " + kind.Kind + " is wanted, and there is none"}
	}
	return Answer{withObject: func(a *Answer, object Ref) { a.join(remove(kind, field, nil, object)) }}
}

// KeepAll is Keep for many children, in the order of their names: each of wants is kept, and what else the object
// controls is deleted. The list of the Input has all children of this kind that the object controls, and all objects
// that have a wanted name: those of others are a problem. A sync replaces it and never changes it: it needs no Clone.
func KeepAll[T Object](kind Kind[T], list *[]T, wants []T, owned ...string) Answer {
	return Answer{withObject: func(a *Answer, object Ref) {
		nameOf := func(obj T) string { return cmp.Or(obj.GetNamespace(), object.read.Namespace) + "/" + obj.GetName() }
		byName := func(x, y T) int { return cmp.Compare(nameOf(x), nameOf(y)) }
		have, seen, answers := map[string]T{}, map[string]bool{}, []Answer(nil)
		for _, child := range *list {
			have[nameOf(child)] = child
		}
		for _, want := range slices.SortedFunc(slices.Values(wants), byName) {
			name := nameOf(want)
			child := keep(kind, new(have[name]), list, want, owned)
			if seen[name] {
				child = mistake(fmt.Errorf("%s %q is wanted twice", kind.Kind, want.GetName()))
			}
			if seen[name] = true; child.Steps != nil || child.Problem != nil {
				answers = append(answers, child)
			}
		}
		for _, child := range slices.SortedFunc(slices.Values(*list), byName) {
			if !seen[nameOf(child)] {
				answers = append(answers, remove(kind, new(child), list, object))
			}
		}
		a.join(answers...)
		a.Why = cmp.Or(a.Why, fmt.Sprintf("each %s is as it must be, number: %d", kind.Kind, len(wants)))
	}}
}

// join adds the answers about the children.
func (a *Answer) join(children ...Answer) {
	var whys []string
	for _, child := range children {
		for _, step := range child.Steps {
			step.Why = child.Why
			a.Steps = append(a.Steps, step)
		}
		if p := child.Problem; p != nil && (a.Problem == nil || p.Stalled && !a.Problem.Stalled) {
			a.Problem = p
		}
		whys = append(whys, child.Why)
	}
	a.Why = Clip(strings.Join(whys, "; "), NoteLimit)
}

// mistake is the answer to what no request can be made of.
func mistake(err error) Answer {
	return Answer{Problem: &Problem{Reason: Refused, Message: err.Error(), Stalled: true}, Why: err.Error()}
}

// remove is the answer about a child that exists and is not wanted. If list is not nil, it is an element of that.
func remove[T Object](kind Kind[T], field *T, list *[]T, object Ref) Answer {
	have := *field
	name := kind.Kind + ` "` + have.GetName() + `"`
	switch {
	case !Owns(object.slot.get(), have):
		return Answer{Why: fmt.Sprintf("%s is not wanted, is not of this %s, and is left alone", name, object.read.Kind)}
	case have.GetDeletionTimestamp() != nil:
		return Answer{Why: name + " is not wanted, and is being deleted"}
	}
	step := in(list, field, DeleteStep(kind, field))
	step.Event = &Event{
		Type: corev1.EventTypeNormal, Reason: "Deleted", Action: Clip("Delete "+name, actionLimit),
		Note: "Deleted " + name + ", which is not wanted any more",
	}
	return Answer{Steps: []*Step{step}, Why: name + " is not wanted"}
}

// in returns a step about the object in field, which is an element of list if that is not nil.
func in[T Object](list *[]T, field *T, step *Step) *Step {
	if list != nil {
		step.slot = elementOf[T]{fieldOf[T]{field}, list}
	}
	return step
}

// keep is the answer about a child that is wanted. If list is not nil, it is or will be an element of that.
func keep[T Object](kind Kind[T], field *T, list *[]T, want T, owned []string) Answer {
	var none T
	name := kind.Kind + ` "` + want.GetName() + `"`
	have := *field
	if have == none {
		if err := state.CheckPaths[T](owned...); err != nil {
			return mistake(err)
		}
		step := in(list, field, CreateStep(kind, field, want))
		step.Differs = func() *Problem { return overridden(name, *field, want, owned) }
		step.Undone = func() *Problem {
			return &Problem{Reason: Overridden, Message: "Another client keeps deleting " + name +
				". The controller creates it again at least once a minute", Advice: "Stop that client"}
		}
		return Answer{Steps: []*Step{step}, Why: name + " does not exist"}
	}
	if problem := taken(name, have, want); problem != nil {
		return Answer{Problem: problem, Why: problem.Message}
	}
	patch, err := state.Drift(have, want, owned...)
	switch {
	case err != nil:
		return mistake(err)
	case patch == nil:
		return Answer{Why: name + " is as it must be"}
	}
	fields := Clip(patch.Paths(), NoteLimit)
	step := in(list, field, PatchStep(kind, field, patch.Body, patch.Fields))
	step.want = want
	step.Event = &Event{
		Type: corev1.EventTypeNormal, Reason: "Corrected", Action: Clip("Correct "+name, actionLimit),
		Note: Clip("Corrected "+name+": "+fields, NoteLimit),
	}
	step.Differs = func() *Problem { return overridden(name, *field, want, owned) }
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

// overridden returns that a child still differs after it was written.
func overridden[T Object](name string, have, want T, owned []string) *Problem {
	patch, err := state.Drift(have, want, owned...)
	if err != nil || patch == nil {
		return nil
	}
	return &Problem{
		Reason:  Overridden,
		Message: fmt.Sprintf("%s: a webhook or a policy of this cluster changes %s", name, Clip(patch.Paths(), NoteLimit)),
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

// Owns reports whether owner is the controller of obj. An owner with a namespace owns nothing in another one, whatever
// somebody has written there into a reference.
func Owns(owner, obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref != nil && ref.UID == owner.GetUID() &&
		(owner.GetNamespace() == "" || owner.GetNamespace() == obj.GetNamespace())
}
