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
// previous one is not touched any more and keeps serving, until nobody can miss it. Only a Deployment that was made for
// the Foo under the Deployment's present name is ever deleted: a copy has our owner reference and labels, but the
// made-for label is a hash of the name, too.

// previous returns those of Others that the controller made for the Foo and that are not being deleted, by name.
func (in *Input) previous() []*TrimmedDeployment {
	return slices.DeleteFunc(existingByName(in.Others), func(dep *TrimmedDeployment) bool {
		return dep.DeletionTimestamp != nil || !isMadeFor(in.Foo, dep)
	})
}

// existingByName returns those of deps that exist, in the order of their names, so that messages do not depend on the
// order of a cache.
func existingByName(deps []*TrimmedDeployment) []*TrimmedDeployment {
	deps = slices.DeleteFunc(slices.Clone(deps), func(dep *TrimmedDeployment) bool {
		return dep == nil // It was deleted.
	})
	slices.SortStableFunc(deps, func(a, b *TrimmedDeployment) int { return cmp.Compare(a.Name, b.Name) })
	return deps
}

// isMadeFor reports whether dep was made for foo under the name that dep has, and is no copy.
func isMadeFor(foo *v1alpha1.Foo, dep *TrimmedDeployment) bool {
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

// mostAvailablePrevious returns the previous Deployment with the most available replicas, which may be none, or nil.
func (in *Input) mostAvailablePrevious() *TrimmedDeployment {
	return largestBy(in.previous(), func(dep *TrimmedDeployment) int32 { return dep.Status.AvailableReplicas })
}

// largestPrevious returns the previous Deployment that is set to the most replicas, or nil.
func (in *Input) largestPrevious() *TrimmedDeployment {
	return largestBy(in.previous(), func(dep *TrimmedDeployment) int32 { return dep.Replicas })
}

// largestBy returns the first of deps with the largest size, nil for none.
func largestBy(deps []*TrimmedDeployment, size func(*TrimmedDeployment) int32) *TrimmedDeployment {
	if len(deps) == 0 {
		return nil
	}
	return slices.MaxFunc(deps, func(a, b *TrimmedDeployment) int { return cmp.Compare(size(a), size(b)) })
}

// neededReplicas returns how many replicas of the Deployment must serve before the previous ones are deleted: none if
// the Foo asks for none, else the smaller one of what the Foo asks for and what the largest previous one is set to, but
// at least one. What previous ones have available does not count: a pod that is not ready now may come back. Call it
// only if there are previous ones.
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
// generation, its status is up to date, and it has the needed replicas available.
func (in *Input) canReplace() bool {
	dep := in.Deployment
	if dep == nil || !Owns(in.Foo, dep) || dep.DeletionTimestamp != nil || len(in.previous()) == 0 {
		return false
	}
	isUpToDate := dep.WrittenFor == in.Foo.Generation && dep.Status.ObservedGeneration >= dep.Generation
	// Pods of an earlier template do not count: the Deployment controller is about to end them, all at once if the
	// strategy permits it, and those of the current template may never become available. Nor do pods above the number that
	// the Deployment is set to now.
	return isUpToDate && min(availableOfCurrentTemplate(dep), dep.Replicas) >= in.neededReplicas()
}

// availableOfCurrentTemplate returns a lower bound for the available replicas of dep's current template: all pods of
// earlier templates may be available.
func availableOfCurrentTemplate(dep *TrimmedDeployment) int32 {
	earlier := max(0, dep.Status.Replicas-dep.Status.UpdatedReplicas)
	return max(0, dep.Status.AvailableReplicas-earlier)
}

// describeOthers returns what there is to say of the other Deployments of a Foo with this reason, to be appended to the
// message.
func (r *reporter) describeOthers(reason string) string {
	var text strings.Builder
	mostAvailable, replaceable := r.mostAvailablePrevious(), r.canReplace()
	for _, dep := range existingByName(r.Others) {
		if description := r.describeOther(dep, mostAvailable, replaceable, reason); description != "" {
			text.WriteString(". " + description)
		}
	}
	return text.String()
}

// describeOther returns what there is to say of another Deployment of a Foo with this reason. mostAvailable and
// replaceable are what mostAvailablePrevious and canReplace return, which cost too much to ask for each.
func (r *reporter) describeOther(dep, mostAvailable *TrimmedDeployment, replaceable bool, reason string) string {
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
	case replaceable:
		return r.describeRefusedDeletion(dep)
	case reason == v1alpha1.ReasonRenaming && dep == mostAvailable && dep.Status.AvailableReplicas > 0:
		return fmt.Sprintf("Previous Deployment %q keeps serving with %d until then", dep.Name, dep.Status.AvailableReplicas)
	case dep.Status.AvailableReplicas == 0 && mostAvailable.Status.AvailableReplicas > 0:
		return fmt.Sprintf("Previous Deployment %q has nothing available. If it takes up a quota, you may delete it: %s",
			dep.Name, r.kubectl("delete deployment %s", dep.Name))
	}
	return fmt.Sprintf("Previous Deployment %q (%d available) is kept until its replacement is available",
		dep.Name, dep.Status.AvailableReplicas)
}

// failedDeletion returns why a previous Deployment could not be deleted, or nil.
func (r *reporter) failedDeletion() *reconcile.Problem {
	for _, dep := range r.previous() {
		if problem := r.sync.Problem(r.deploymentOp(reconcile.Delete, dep.Name)); problem != nil {
			return problem
		}
	}
	return nil
}

// describeRefusedDeletion describes the failed deletion of a previous Deployment. It returns "" if none has failed.
func (r *reporter) describeRefusedDeletion(dep *TrimmedDeployment) string {
	refused := r.sync.Problem(r.deploymentOp(reconcile.Delete, dep.Name))
	if refused == nil {
		return ""
	}
	advice := cmp.Or(refused.Advice, reconcile.TriesAgain)
	return fmt.Sprintf("Cannot delete previous Deployment %q: %s. %s", dep.Name, refused.Message, advice)
}
