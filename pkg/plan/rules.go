package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// paused: nothing is written but the status.
func (in *Input) paused() reconcile.Answer {
	return reconcile.Answer{Final: in.Foo.Spec.Paused, Why: fmt.Sprintf("spec.paused is %t", in.Foo.Spec.Paused)}
}

// invalid: an object that was stored before the API server checked the rules cannot be acted on.
func (in *Input) invalid() reconcile.Answer {
	message := invalidMessage(in.Foo)
	return reconcile.Answer{Final: message != "", Why: cmp.Or(message, "the spec is valid")}
}

// create: no Deployment has the name. When several Foos name it, the API server decides: the first create gets it.
func (in *Input) create() reconcile.Answer {
	name := in.Foo.Spec.DeploymentName
	if in.Deployment != nil {
		return reconcile.Answer{Why: "Deployment " + name + " exists"}
	}
	want := in.desired()
	step := reconcile.CreateStep(DeploymentKind, &in.Deployment, want)
	step.Fields = createdFields(want)
	step.Differs = in.changedByAdmission
	step.Undone = func() *reconcile.Problem { return recreatedProblem(name) }
	return reconcile.Answer{Steps: []*reconcile.Step{step}, Final: true, Why: "no Deployment has the name " + name}
}

// nameConflict: the Deployment belongs to somebody else and is left alone.
func (in *Input) nameConflict() reconcile.Answer {
	if Owns(in.Foo, in.Deployment) {
		return reconcile.Answer{Why: "Deployment " + in.Deployment.Name + " is the Foo's"}
	}
	return reconcile.Answer{Final: true, Why: in.nameConflictProblem().Message}
}

// waitForDeletion: the name is not free before the Deployment is deleted. A watch event reports that.
func (in *Input) waitForDeletion() reconcile.Answer {
	if in.Deployment.DeletionTimestamp != nil {
		return reconcile.Answer{Final: true, Why: "Deployment " + in.Deployment.Name + " is being deleted"}
	}
	return reconcile.Answer{Why: "Deployment " + in.Deployment.Name + " is not being deleted"}
}

// patchDrift: fields that the Foo sets have other values.
func (in *Input) patchDrift() reconcile.Answer {
	patch := Drift(in.Deployment, in.Foo)
	if patch == nil {
		return reconcile.Answer{Why: "all fields that the Foo sets have its values"}
	}
	step := reconcile.PatchStep(DeploymentKind, &in.Deployment, patch.Body, patch.Fields)
	step.Spec = in.isUpdate()
	if !step.Spec {
		step.Event = in.correctedEvent(patch)
	}
	if !step.Spec || in.newestWrittenGeneration() > in.Foo.Generation {
		// Read the Foo live first. A correction undoes what somebody has done by hand, perhaps just after pausing or editing
		// the Foo. And if a Deployment was written for a newer spec than the cached one, the patch would undo that
		// spec; if the live Foo has no newer one, the label with the generation is wrong, and is patched.
		step.Confirm = []reconcile.Ref{reconcile.RefTo(FooKind, &in.Foo)}
	}
	step.Differs = in.changedByAdmission
	step.Undone = func() *reconcile.Problem { return in.changedByOthers(patch.Fields) }
	return reconcile.Answer{Steps: []*reconcile.Step{step}, Why: describeFields(patch.Fields)}
}

// isUpdate reports whether a new generation of the Foo asks for the patch of the Deployment.
func (in *Input) isUpdate() bool {
	written := in.Deployment.WrittenFor
	unlabelled := written == 0 && isMadeFor(in.Foo, in.Deployment) // Somebody has removed the label with the generation.
	return written < in.Foo.Generation && !unlabelled
}

// deleteReplaced: the Deployment can take over from the previous ones. A sync deletes at most one of them. The event of
// its deletion brings the key back for the next one.
func (in *Input) deleteReplaced() reconcile.Answer {
	previous := in.previous()
	if len(previous) == 0 {
		return reconcile.Answer{Why: "no other Deployment was made for the Foo"}
	}
	if !in.canReplace() {
		return reconcile.Answer{Why: fmt.Sprintf("Deployment %s must be up to date, with %d replicas of its current "+
			"template available, before a previous one is deleted", in.Deployment.Name, in.neededReplicas())}
	}
	answer := reconcile.Answer{OnlyOne: true, Why: fmt.Sprintf("Deployment %s can take over, each sync deletes one "+
		"previous Deployment, number left: %d", in.Deployment.Name, len(previous))}
	for _, dep := range previous { // While the deletion of the first backs off, the next one is tried.
		// The step sets the element of Others to nil, and previous is a copy.
		step := reconcile.DeleteStep(DeploymentKind, &in.Others[slices.Index(in.Others, dep)])
		step.Event = in.movedEvent(dep)
		// The new Deployment may have lost replicas since it was cached.
		step.Confirm = []reconcile.Ref{reconcile.RefTo(DeploymentKind, &in.Deployment)}
		answer.Steps = append(answer.Steps, step)
	}
	return answer
}

// desired returns the Deployment to create: after a rename with as many replicas as the largest previous one, when the
// Foo does not set a number.
func (in *Input) desired() *appsv1.Deployment {
	want := Deployment(in.Foo)
	if previous := in.largestPrevious(); previous != nil && in.Foo.Spec.Replicas == nil {
		want.Spec.Replicas = new(previous.Replicas)
	}
	return want
}

// firstUnreadOfSpec returns the first field outside of the status that could not be decoded, or nil. A Foo with such a
// field is not acted on. A status that could not be decoded is written again.
func firstUnreadOfSpec(foo *v1alpha1.Foo) *v1alpha1.UnreadField {
	for i := range foo.Unread {
		if !isStatus(foo.Unread[i]) {
			return &foo.Unread[i]
		}
	}
	return nil
}

// hasUnreadStatus reports whether a part of the stored status could not be decoded. What could be decoded may be as it
// should be, and the stored status must be written all the same.
func hasUnreadStatus(foo *v1alpha1.Foo) bool { return slices.ContainsFunc(foo.Unread, isStatus) }

func isStatus(unread v1alpha1.UnreadField) bool {
	return unread.Path == "status" || strings.HasPrefix(unread.Path, "status.")
}

// invalidMessage returns what is wrong with the spec of foo, or "". The API server checks the same rules; this is for
// objects that were stored before it did.
func invalidMessage(foo *v1alpha1.Foo) string {
	switch spec, unread := &foo.Spec, firstUnreadOfSpec(foo); {
	case unread != nil:
		return fmt.Sprintf("%s cannot be read: it is %s, and not %s. Correct it",
			unread.Path, unread.Value, unread.Want)
	case spec.DeploymentName == "":
		return "spec.deploymentName is missing. Set the name of the Deployment to create"
	case len(validation.IsDNS1123Subdomain(spec.DeploymentName)) > 0:
		return fmt.Sprintf("spec.deploymentName is %q, which is not a name that a Deployment can have. Use up to 253 "+
			"lowercase letters, digits, '-' and '.', beginning and ending with a letter or digit",
			reconcile.Clip(spec.DeploymentName, 70))
	case spec.Replicas != nil && *spec.Replicas < 0:
		return fmt.Sprintf("spec.replicas is %d. Set 0 or more, or remove it", *spec.Replicas)
	case utf8.RuneCountInString(spec.Image) > maxImage:
		return fmt.Sprintf("spec.image is longer than %d characters. Set a shorter one, or remove it", maxImage)
	case strings.ContainsFunc(spec.Image, unicode.IsSpace):
		return "spec.image contains spaces. Set an image without spaces, or remove it"
	}
	return ""
}

// createdFields returns the fields of a new Deployment to show beside its request.
func createdFields(dep *appsv1.Deployment) []reconcile.Field {
	return []reconcile.Field{
		{Path: pathReplicas, Have: noValue, Want: strconv.Itoa(int(*dep.Spec.Replicas))},
		{Path: "image", Have: noValue, Want: dep.Spec.Template.Spec.Containers[0].Image},
	}
}
