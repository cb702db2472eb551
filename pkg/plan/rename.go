package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about a Foo whose deploymentName has changed. The Deployment of the new name is created first; the
// previous one is not touched any more and keeps serving, until the new one can take over. Only what was made for the
// Foo under the name that it has is ever deleted: a copy has our owner reference and labels, but the made-for label
// is a hash of the name too.

// considered returns what this sync considers of Previous. It is chosen once: each Deployment costs a hash.
func (s *State) considered() choice {
	if s.choice.all == nil {
		s.choice = choose(s.Foo, s.Previous)
	}
	return s.choice
}

// previous returns the Deployments of earlier names that this sync considers, that were made for the Foo and are not
// being deleted, by name.
func (s *State) previous() []*appsv1.Deployment { return s.considered().made }

// removePrevious takes a Deployment that was deleted from Previous.
func (s *State) removePrevious(deleted *appsv1.Deployment) {
	s.Previous = withoutUID(s.Previous, deleted)
	s.choice = s.considered().without(deleted)
}

// IsMadeFor reports whether dep was made for foo under its present name, and is no copy.
func IsMadeFor(foo *v1alpha1.Foo, dep *appsv1.Deployment) bool {
	return dep.Labels[v1alpha1.LabelMadeFor] == madeFor(foo, dep.Name)
}

// newestWrittenGeneration returns the newest generation of the Foo that a previous Deployment was written for.
func (s *State) newestWrittenGeneration() int64 {
	return max(newestGeneration(s.previous()), s.considered().newestLeftOut)
}

// servingPrevious returns the previous Deployment that serves until the new one can: the first by compareServing. It is
// nil for a Foo without previous Deployments.
func (s *State) servingPrevious() *appsv1.Deployment {
	previous := s.previous()
	if len(previous) == 0 {
		return nil
	}
	return slices.MinFunc(previous, compareServing)
}

// compareServing orders previous Deployments: the one with most available replicas first; of several one that was
// complete, since its pods may come back; of several the oldest.
func compareServing(a, b *appsv1.Deployment) int {
	return cmp.Or(
		cmp.Compare(b.Status.AvailableReplicas, a.Status.AvailableReplicas),
		compareTrueFirst(wasComplete(a), wasComplete(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		compareNames(a, b),
	)
}

func compareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// notServing returns the previous Deployments that have nothing available and never were complete, while another one
// is there to serve: the name was changed again before they were. Deleting them frees quota and interrupts nobody.
// One that was complete once stays until the new one can take over: its pods may come back, and those of the other
// one may be lost.
func (s *State) notServing() []*appsv1.Deployment {
	serving := s.servingPrevious()
	var obsolete []*appsv1.Deployment
	for _, dep := range s.previous() {
		if isObsolete(dep, serving) {
			obsolete = append(obsolete, dep)
		}
	}
	return obsolete
}

// isObsolete reports whether the previous Deployment dep belongs to notServing while serving serves.
func isObsolete(dep, serving *appsv1.Deployment) bool {
	return dep != serving && dep.Status.AvailableReplicas == 0 && !wasComplete(dep)
}

// replaced returns the previous Deployments that the Deployment can take over from.
func (s *State) replaced() []*appsv1.Deployment {
	var replaced []*appsv1.Deployment
	for _, dep := range s.previous() {
		if s.canReplace(dep) {
			replaced = append(replaced, dep)
		}
	}
	return replaced
}

// canReplace reports whether the Deployment can take over from previous: it is written for the current generation,
// its status is up to date, and it has at least as many replicas available as previous, or as are wanted, and at
// least one. It need not have one if it cannot create pods and previous never completed a rollout: the pods of previous
// may be what exhausts the quota.
func (s *State) canReplace(previous *appsv1.Deployment) bool {
	dep := s.Deployment
	if dep == nil || !Owns(s.Foo, dep) || dep.DeletionTimestamp != nil ||
		generationOf(dep) != s.Foo.Generation || dep.Status.ObservedGeneration < dep.Generation {
		return false
	}
	least := previous.Status.AvailableReplicas
	if replicaFailure(dep) == nil || wasComplete(previous) {
		least = max(1, least)
	}
	return dep.Status.AvailableReplicas >= min(s.wantedReplicas(), least)
}

// wantedReplicas returns how many replicas are asked for: by the Deployment, or by the Foo when a policy has given the
// Deployment fewer.
func (s *State) wantedReplicas() int32 {
	wanted := replicasOf(s.Deployment)
	if s.Foo.Spec.Replicas != nil {
		wanted = max(wanted, *s.Foo.Spec.Replicas)
	}
	return wanted
}

// describePrevious returns what there is to report of the other Deployments of the Foo, to be appended to the message
// of r.
func (s *State) describePrevious(r *readiness) string {
	var text strings.Builder
	serving := s.servingPrevious()
	for _, dep := range s.considered().all {
		text.WriteString(". " + s.describeOther(dep, serving, r.reason))
	}
	return text.String()
}

// describeOther returns what there is to report of another Deployment of a Foo with this reason. serving is the
// previous Deployment that serves, or nil.
func (s *State) describeOther(dep, serving *appsv1.Deployment, reason string) string {
	switch {
	case dep.DeletionTimestamp != nil:
		return fmt.Sprintf("Previous Deployment %q is being deleted", dep.Name)
	case !IsMadeFor(s.Foo, dep):
		return fmt.Sprintf("Deployment %q has an owner reference to this Foo, but the controller did not create it under "+
			"this name (it may be a copy), so it is neither changed nor deleted", dep.Name)
	case s.Foo.Spec.Paused:
		return fmt.Sprintf("Previous Deployment %q (%d available) is kept while this Foo is paused",
			dep.Name, dep.Status.AvailableReplicas)
	case reason == v1alpha1.ReasonInvalid:
		return fmt.Sprintf("Deployment %q (%d available) is kept while this Foo is invalid",
			dep.Name, dep.Status.AvailableReplicas)
	case s.canReplace(dep) || isObsolete(dep, serving): // It would be deleted by now, if that had not been refused.
		refused := s.attempt(Op{Verb: DeleteDeployment, Name: dep.Name}).Report.Message
		return fmt.Sprintf("Cannot delete previous Deployment %q: %s. %s", dep.Name, refused, triesAgain)
	case reason == v1alpha1.ReasonRenaming && dep == serving:
		return fmt.Sprintf("Previous Deployment %q keeps serving with %d until then", dep.Name, dep.Status.AvailableReplicas)
	}
	return fmt.Sprintf("Previous Deployment %q (%d available) is kept until its replacement is available",
		dep.Name, dep.Status.AvailableReplicas)
}
