package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file is about a Foo whose deploymentName has changed. The Deployment of the new name is created first; the
// previous one is not touched any more and keeps serving, until nobody can miss it. Only what was made for the Foo
// under the name that it has is ever deleted: a copy has our owner reference and labels, but the made-for label is a
// hash of the name too.

// previous returns the Deployments of earlier names that were made for the Foo and are not being deleted, by name.
func (in *Input) previous() []*Observed {
	return slices.DeleteFunc(byName(in.Previous), func(dep *Observed) bool {
		return dep.DeletionTimestamp != nil || !isMadeFor(in.Foo, dep)
	})
}

// byName returns deps in the order of their names, so that messages do not depend on the order of a cache.
func byName(deps []*Observed) []*Observed {
	deps = slices.DeleteFunc(slices.Clone(deps), func(dep *Observed) bool { return dep == nil }) // It was deleted.
	slices.SortStableFunc(deps, func(a, b *Observed) int { return cmp.Compare(a.Name, b.Name) })
	return deps
}

// isMadeFor reports whether dep was made for foo under its present name, and is no copy.
func isMadeFor(foo *v1alpha1.Foo, dep *Observed) bool {
	return dep.MadeFor == madeFor(foo, dep.Name)
}

// newestWrittenGeneration returns the newest generation of the Foo that its Deployment, or a previous one, was written
// for.
func (in *Input) newestWrittenGeneration() int64 {
	newest := in.Deployment.WrittenFor
	for _, dep := range in.previous() {
		newest = max(newest, dep.WrittenFor)
	}
	return newest
}

// servingPrevious returns the previous Deployment with the most available replicas, which serves until the new one can.
// It is nil for a Foo without previous Deployments.
func (in *Input) servingPrevious() *Observed {
	return largestBy(in.previous(), func(dep *Observed) int32 { return dep.Status.AvailableReplicas })
}

// largestPrevious returns the previous Deployment that is set to the most replicas, or nil.
func (in *Input) largestPrevious() *Observed {
	return largestBy(in.previous(), func(dep *Observed) int32 { return dep.Replicas })
}

// largestBy returns the first of deps with the largest size, nil for none.
func largestBy(deps []*Observed, size func(*Observed) int32) *Observed {
	if len(deps) == 0 {
		return nil
	}
	return slices.MaxFunc(deps, func(a, b *Observed) int { return cmp.Compare(size(a), size(b)) })
}

// neededReplicas returns how many replicas of the Deployment must serve before the previous ones are deleted: as
// many as the Foo asks for, or as the largest previous one is set to if that is less, and at least one, unless none are
// asked for. What previous ones have available does not count: a pod that is not ready now may come back.
func (in *Input) neededReplicas() int32 {
	set := in.largestPrevious().Replicas
	asked := set
	if in.Foo.Spec.Replicas != nil {
		asked = *in.Foo.Spec.Replicas
	}
	if asked == 0 {
		return 0
	}
	return max(1, min(asked, set))
}

// canReplace reports whether nobody can miss the previous Deployments: the Deployment is written for the current
// generation, its status is up to date, and it has the needed replicas available. Pods of an earlier template are not
// counted: the Deployment controller is about to end them, all at once if the strategy permits it, and nobody knows
// whether those of the current template ever become available. Neither are pods above the number that the Deployment is
// set to now. Nothing is inferred from conditions about the past.
func (in *Input) canReplace() bool {
	dep := in.Deployment
	if dep == nil || !Owns(in.Foo, dep) || dep.DeletionTimestamp != nil || len(in.previous()) == 0 {
		return false
	}
	isCurrent := dep.WrittenFor == in.Foo.Generation && dep.Status.ObservedGeneration >= dep.Generation
	return isCurrent && min(availableOfCurrentTemplate(dep), dep.Replicas) >= in.neededReplicas()
}

// availableOfCurrentTemplate returns how many replicas of dep are surely available and of its current template: any
// pod of an earlier one may be among those that are available.
func availableOfCurrentTemplate(dep *Observed) int32 {
	earlier := max(0, dep.Status.Replicas-dep.Status.UpdatedReplicas)
	return max(0, dep.Status.AvailableReplicas-earlier)
}

// describePrevious returns what there is to report of the other Deployments of a Foo with this reason, to be appended
// to the message.
func (r *reporter) describePrevious(reason string) string {
	var text strings.Builder
	serving, replaced := r.servingPrevious(), r.canReplace()
	for _, dep := range byName(r.Previous) {
		if description := r.describeOther(dep, serving, replaced, reason); description != "" {
			text.WriteString(". " + description)
		}
	}
	return text.String()
}

// describeOther returns what there is to report of another Deployment of a Foo with this reason. serving is the
// previous Deployment that serves, or nil; replaced is what canReplace returns, which costs too much to ask for each.
func (r *reporter) describeOther(dep, serving *Observed, replaced bool, reason string) string {
	switch {
	case dep.DeletionTimestamp != nil:
		return fmt.Sprintf("Previous Deployment %q is being deleted", dep.Name)
	case !isMadeFor(r.Foo, dep):
		return fmt.Sprintf("Deployment %q has an owner reference to this Foo, but the controller did not create it under "+
			"this name (it may be a copy), so it is neither changed nor deleted", dep.Name)
	case r.Foo.Spec.Paused:
		return fmt.Sprintf("Previous Deployment %q (%d available) is kept while this Foo is paused",
			dep.Name, dep.Status.AvailableReplicas)
	case reason == v1alpha1.ReasonInvalid:
		return fmt.Sprintf("Deployment %q (%d available) is kept while this Foo is invalid",
			dep.Name, dep.Status.AvailableReplicas)
	case replaced:
		return r.describeRefusedDeletion(dep)
	case reason == v1alpha1.ReasonRenaming && dep == serving && dep.Status.AvailableReplicas > 0:
		return fmt.Sprintf("Previous Deployment %q keeps serving with %d until then", dep.Name, dep.Status.AvailableReplicas)
	case dep.Status.AvailableReplicas == 0 && serving.Status.AvailableReplicas > 0:
		return fmt.Sprintf("Previous Deployment %q has nothing available. If it takes up a quota, you may delete it: %s",
			dep.Name, r.kubectl("delete deployment %s", dep.Name))
	}
	return fmt.Sprintf("Previous Deployment %q (%d available) is kept until its replacement is available",
		dep.Name, dep.Status.AvailableReplicas)
}

// failedDeletion returns the reason for which a previous Deployment could not be deleted, or "". The event has the same
// reason as the condition of another request would have.
func (r *reporter) failedDeletion() string {
	for _, dep := range r.previous() {
		if problem := r.Problem(r.deploymentOp(reconcile.Delete, dep.Name)); problem != nil {
			return problem.Reason
		}
	}
	return ""
}

// describeRefusedDeletion returns "" for a previous Deployment that is about to be deleted.
func (r *reporter) describeRefusedDeletion(dep *Observed) string {
	refused := r.Problem(r.deploymentOp(reconcile.Delete, dep.Name))
	if refused == nil {
		return ""
	}
	advice := cmp.Or(refused.Advice, reconcile.TriesAgain)
	return fmt.Sprintf("Cannot delete previous Deployment %q: %s. %s", dep.Name, refused.Message, advice)
}
