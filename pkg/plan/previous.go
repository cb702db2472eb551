package plan

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// MaxPrevious is how many of the other Deployments that a Foo controls one sync considers. Anybody who may create
// Deployments can give a Foo thousands of them, and a sync with so many requests would keep a worker from other Foos.
const MaxPrevious = 50

// A choice is what one sync considers of State.Previous: all of them, unless there are more than MaxPrevious. The rest
// is neither deleted nor reported. Each deletion is an event that brings the key back, and the next sync chooses again.
type choice struct {
	// all are sorted by name. They are nil until the choice is made.
	all []*appsv1.Deployment
	// made are those of all that were made for the Foo and are not being deleted, by name.
	made []*appsv1.Deployment
	// newestLeftOut is the newest generation of the Foo that a Deployment which is left out was written for.
	newestLeftOut int64
}

// choose returns which of previous a sync of foo considers. Its order has three reasons:
//   - The Deployment that serves is considered, so that no other one takes its place.
//   - If one that is left out could be deleted, so could each one that is considered, except the one that serves. Those
//     with the fewest available replicas come first, and of these the ones that never were complete: notServing and
//     canReplace ask the least for them. So if nothing can be deleted of what is considered, nothing can of the rest.
//   - What is only reported, a copy or what is being deleted, takes no place of what can be deleted.
func choose(foo *v1alpha1.Foo, previous []*appsv1.Deployment) choice {
	var made, others []*appsv1.Deployment
	for _, dep := range previous {
		if dep.DeletionTimestamp == nil && IsMadeFor(foo, dep) {
			made = append(made, dep)
			continue
		}
		others = append(others, dep)
	}
	made, leftOut := firstToGo(made)
	slices.SortFunc(made, compareNames)
	slices.SortFunc(others, compareNames)
	others = others[:min(len(others), MaxPrevious-len(made))]
	all := slices.Concat(made, others)
	slices.SortFunc(all, compareNames)
	return choice{all: all, made: made, newestLeftOut: newestGeneration(leftOut)}
}

// firstToGo splits made, which it sorts, into the MaxPrevious Deployments to consider, and the rest.
func firstToGo(made []*appsv1.Deployment) (considered, leftOut []*appsv1.Deployment) {
	if len(made) <= MaxPrevious {
		return made, nil
	}
	serving := slices.MinFunc(made, compareServing)
	slices.SortFunc(made, func(a, b *appsv1.Deployment) int {
		return cmp.Or(
			compareTrueFirst(a == serving, b == serving),
			cmp.Compare(a.Status.AvailableReplicas, b.Status.AvailableReplicas),
			compareTrueFirst(!wasComplete(a), !wasComplete(b)),
			compareNames(a, b),
		)
	})
	return made[:MaxPrevious], made[MaxPrevious:]
}

// without returns c without a Deployment that was deleted.
func (c choice) without(deleted *appsv1.Deployment) choice {
	c.all, c.made = withoutUID(c.all, deleted), withoutUID(c.made, deleted)
	return c
}

// withoutUID returns a copy of deps without the Deployment that has the uid of deleted.
func withoutUID(deps []*appsv1.Deployment, deleted *appsv1.Deployment) []*appsv1.Deployment {
	return slices.DeleteFunc(slices.Clone(deps), func(dep *appsv1.Deployment) bool { return dep.UID == deleted.UID })
}

// newestGeneration returns the newest generation of the Foo that one of deps was written for, 0 for none.
func newestGeneration(deps []*appsv1.Deployment) int64 {
	var newest int64
	for _, dep := range deps {
		newest = max(newest, generationOf(dep))
	}
	return newest
}

func compareNames(a, b *appsv1.Deployment) int { return cmp.Compare(a.Name, b.Name) }
