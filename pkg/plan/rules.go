package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// paused: nothing is written but the status.
func (s *State) paused() (steps []*Step, final bool) { return nil, s.Foo.Spec.Paused }

func (s *State) whyPaused([]*Step) string { return fmt.Sprintf("spec.paused is %t", s.Foo.Spec.Paused) }

// invalid: an object that was stored before the API server checked the rules cannot be acted on.
func (s *State) invalid() (steps []*Step, final bool) { return nil, invalidReason(s.Foo) != "" }

func (s *State) whyInvalid([]*Step) string { return cmp.Or(invalidReason(s.Foo), "the spec is valid") }

// create: no Deployment has the name. When several Foos name it, the API server decides: the first create gets it.
func (s *State) create() (steps []*Step, final bool) {
	if s.Deployment != nil {
		return nil, false
	}
	want := s.desired()
	return []*Step{{Op: Op{Verb: CreateDeployment, Name: want.Name}, Foo: s.Foo, Create: want}}, true
}

func (s *State) whyCreate([]*Step) string {
	switch name := s.Foo.Spec.DeploymentName; {
	case s.Deployment == nil:
		return "no Deployment has the name " + name
	case Owns(s.Foo, s.Deployment):
		return "Deployment " + name + " exists and is the Foo's"
	default:
		return "Deployment " + name + " exists"
	}
}

// nameConflict: the Deployment belongs to somebody else and is left alone.
func (s *State) nameConflict() (steps []*Step, final bool) {
	return nil, !Owns(s.Foo, s.Deployment)
}

func (s *State) whyNameConflict([]*Step) string {
	if Owns(s.Foo, s.Deployment) {
		return "Deployment " + s.Deployment.Name + " is the Foo's"
	}
	return s.nameConflictReport().Message
}

// waitForDeletion: the name is not free before the Deployment is deleted. A watch event reports that.
func (s *State) waitForDeletion() (steps []*Step, final bool) {
	return nil, s.Deployment.DeletionTimestamp != nil
}

func (s *State) whyWaitForDeletion([]*Step) string {
	if s.Deployment.DeletionTimestamp != nil {
		return "Deployment " + s.Deployment.Name + " is being deleted"
	}
	return "Deployment " + s.Deployment.Name + " is not being deleted"
}

// patchDrift: fields that the Foo sets have other values.
func (s *State) patchDrift() (steps []*Step, final bool) {
	patch := Drift(s.Deployment, s.Foo)
	if patch == nil {
		return nil, false
	}
	op := Op{Verb: PatchDeployment, Name: s.Deployment.Name}
	step := &Step{Op: op, Foo: s.Foo, Deployment: s.Deployment, Patch: patch, Update: s.isUpdate()}
	if !step.Update {
		step.Event = s.corrected(patch)
	}
	return []*Step{step}, false
}

func (s *State) whyPatchDrift(steps []*Step) string {
	if len(steps) > 0 {
		return describeFields(steps[0].Patch.Fields)
	}
	return "all fields that the Foo sets have its values"
}

// deleteReplaced: the Deployment can take over from the previous ones. A sync deletes at most one of them. The event of
// its deletion brings the key back for the next one.
func (s *State) deleteReplaced() (steps []*Step, final bool) {
	if !s.canReplace() || s.tried(DeleteDeployment) {
		return nil, false
	}
	for _, dep := range s.previous() {
		op := Op{Verb: DeleteDeployment, Name: dep.Name}
		steps = append(steps, &Step{Op: op, Foo: s.Foo, Deployment: dep, Event: s.moved(dep)})
	}
	slices.SortStableFunc(steps, func(a, b *Step) int { // Those that were refused come last.
		return cmp.Compare(s.attempt(a.Op).Count, s.attempt(b.Op).Count)
	})
	return steps, false
}

func (s *State) whyDeleteReplaced([]*Step) string {
	switch previous := s.previous(); {
	case len(previous) == 0:
		return "no other Deployment was made for the Foo"
	case !s.canReplace():
		return fmt.Sprintf("Deployment %s must be up to date, with %d replicas of its current template available, before a "+
			"previous one is deleted", s.Deployment.Name, s.neededReplicas())
	default:
		return fmt.Sprintf("Deployment %s can take over, each sync deletes one previous Deployment, number left: %d",
			s.Deployment.Name, len(previous))
	}
}

// tried reports whether an operation with this verb was done in this sync, or has failed in it.
func (s *State) tried(verb Verb) bool {
	return slices.ContainsFunc(s.done, func(op Op) bool { return op.Verb == verb }) ||
		slices.ContainsFunc(s.failures, func(f failure) bool { return f.op.Verb == verb })
}

// updateStatus comes after all rules: the status is written when it differs.
func (s *State) updateStatus() (steps []*Step, final bool) {
	want := s.status()
	if equality.Semantic.DeepEqual(s.Foo.Status, want) && !hasUnreadStatus(s.Foo) {
		return nil, true
	}
	foo := s.Foo.DeepCopy()
	foo.Status, foo.Unread = want, slices.DeleteFunc(foo.Unread, isStatus)
	event := eventOf(&s.Foo.Status, &want)
	if event != nil && event.Reason == v1alpha1.EventSynced {
		if failed, found := statusEvents[s.failedDeletion()]; found {
			event.Type, event.Reason = failed.kind, failed.reason
		}
	}
	return []*Step{{Op: Op{Verb: UpdateStatus, Name: foo.Name}, Foo: foo, Event: event}}, true
}

func (s *State) whyUpdateStatus(steps []*Step) string {
	if len(steps) == 0 {
		return "the status is as it must be"
	}
	reason, _ := ReadyReason(steps[0].Foo)
	return "the status differs, and its reason must be " + reason
}

// hadDeployment reports whether a Deployment may have been created for the Foo before.
func (s *State) hadDeployment() bool {
	return s.Memory.Wrote || s.Foo.Status.ObservedGeneration != 0 || hasUnreadStatus(s.Foo) || len(s.Previous) > 0
}

// desired returns the Deployment to create: after a rename with as many replicas as the previous one, when the Foo does
// not set a number.
func (s *State) desired() *appsv1.Deployment {
	want := Deployment(s.Foo)
	if previous := s.largestPrevious(); previous != nil && s.Foo.Spec.Replicas == nil {
		want.Spec.Replicas = new(previous.Replicas)
	}
	return want
}

// unreadInput returns the first field outside of the status that could not be decoded, or nil. A Foo with such a field
// is not acted on. A status that could not be decoded costs at most a live read, and is written again.
func unreadInput(foo *v1alpha1.Foo) *v1alpha1.UnreadField {
	for i := range foo.Unread {
		if !isStatus(foo.Unread[i]) {
			return &foo.Unread[i]
		}
	}
	return nil
}

// hasUnreadStatus reports whether a part of the stored status could not be decoded. The status that foo has may then be
// equal to what it should be, and the stored one is not.
func hasUnreadStatus(foo *v1alpha1.Foo) bool { return slices.ContainsFunc(foo.Unread, isStatus) }

func isStatus(unread v1alpha1.UnreadField) bool {
	return unread.Path == "status" || strings.HasPrefix(unread.Path, "status.")
}

// invalidReason returns what is wrong with the spec of foo, or "". The API server checks the same rules; this is for
// objects that were stored before it did.
func invalidReason(foo *v1alpha1.Foo) string {
	switch spec, unread := &foo.Spec, unreadInput(foo); {
	case unread != nil:
		return fmt.Sprintf("%s cannot be read: it is %s, and not %s. Correct it",
			unread.Path, unread.Value, unread.Want)
	case spec.DeploymentName == "":
		return "spec.deploymentName is missing. Set the name of the Deployment to create"
	case len(validation.IsDNS1123Subdomain(spec.DeploymentName)) > 0:
		return fmt.Sprintf("spec.deploymentName is %q, which is not a name that a Deployment can have. Use up to 253 "+
			"lowercase letters, digits, '-' and '.', beginning and ending with a letter or digit", clip(spec.DeploymentName, 70))
	case spec.Replicas != nil && *spec.Replicas < 0:
		return fmt.Sprintf("spec.replicas is %d. Set 0 or more, or remove it", *spec.Replicas)
	case utf8.RuneCountInString(spec.Image) > 1024:
		return "spec.image is longer than 1024 characters. Set a shorter one, or remove it"
	case strings.ContainsFunc(spec.Image, unicode.IsSpace):
		return "spec.image contains spaces. Set an image without spaces, or remove it"
	}
	return ""
}
