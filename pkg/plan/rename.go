package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about a Foo that has changed its Deployment's name. The Deployment of the new name is created
// first; the old one is not touched any more and goes on serving, until the new one can do as well. Only what
// was made for the Foo under the name that it has is ever deleted: a copy has our owner reference and
// labels, but not the name that is in the label's hash.

// old returns the Deployments of earlier names that were made for the Foo and are not being deleted, by name.
func (s *Seen) old() []*appsv1.Deployment {
	var old []*appsv1.Deployment
	for _, dep := range s.owned() {
		if dep.DeletionTimestamp == nil && madeUnderItsName(s.Foo, dep) {
			old = append(old, dep)
		}
	}
	return old
}

// owned returns the Deployments of other names that the Foo controls, by name.
func (s *Seen) owned() []*appsv1.Deployment {
	return slices.SortedFunc(slices.Values(s.Owned), func(a, b *appsv1.Deployment) int { return cmp.Compare(a.Name, b.Name) })
}

func madeUnderItsName(foo *v1alpha1.Foo, dep *appsv1.Deployment) bool {
	return dep.Labels[v1alpha1.LabelMadeFor] == madeFor(foo, dep.Name)
}

// fence returns the newest generation of the Foo that a Deployment of another name was written for.
func (s *Seen) fence() int64 {
	var newest int64
	for _, dep := range s.old() {
		newest = max(newest, generationOf(dep))
	}
	return newest
}

// kept returns which Deployment of an earlier name serves until the named one can: the one with most
// available replicas, and of several the first that was made. It is nil when there is none.
func (s *Seen) kept() *appsv1.Deployment {
	old := s.old()
	if len(old) == 0 {
		return nil
	}
	return slices.MinFunc(old, func(a, b *appsv1.Deployment) int {
		return cmp.Or(
			cmp.Compare(b.Status.AvailableReplicas, a.Status.AvailableReplicas),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// abandoned returns a Deployment whose name was changed again before it had anything available, or nil.
// There is another one that serves, so nobody needs it, and it takes room that others do.
func (s *Seen) abandoned() *appsv1.Deployment {
	for _, dep := range s.old() {
		if s.Undeleted[dep.Name] == nil && s.abandons(dep) {
			return dep
		}
	}
	return nil
}

// abandons reports whether dep is one that never came to serve, beside another one.
func (s *Seen) abandons(dep *appsv1.Deployment) bool {
	return dep != s.kept() && dep.Status.AvailableReplicas == 0
}

// replaced returns a Deployment of an earlier name that the named one does at least as well as, or nil.
func (s *Seen) replaced() *appsv1.Deployment {
	for _, old := range s.old() {
		if s.Undeleted[old.Name] == nil && s.replaces(old) {
			return old
		}
	}
	return nil
}

// replaces reports whether the named Deployment does at least as well as old, and, if it is to do anything, does it:
// an old one that has nothing available just now may soon have. One that was never complete gets no such time when its
// pods may be what leaves the named one no room. What the named one says of itself counts only when it is about the
// present spec.
func (s *Seen) replaces(old *appsv1.Deployment) bool {
	dep := s.Named
	if dep == nil || !Owns(s.Foo, dep) || dep.DeletionTimestamp != nil ||
		generationOf(dep) != s.Foo.Generation || dep.Status.ObservedGeneration < dep.Generation {
		return false
	}
	least := old.Status.AvailableReplicas
	if !noRoom(dep) || complete(old) {
		least = max(1, least)
	}
	return dep.Status.AvailableReplicas >= min(replicasOf(dep), least)
}

// undeleted returns the pause, the shortest of several, before a Deployment that is not needed and could not be deleted
// is tried again, nil when there is none.
func (s *Seen) undeleted() *WaitError {
	var next *WaitError
	for _, dep := range s.old() {
		if wait := s.Undeleted[dep.Name]; wait != nil && s.unneeded(dep) && (next == nil || wait.After < next.After) {
			next = wait
		}
	}
	return next
}

// unneeded reports whether dep, one of old, is to go.
func (s *Seen) unneeded(dep *appsv1.Deployment) bool {
	return s.replaces(dep) || s.abandons(dep)
}

// others says what there is to know about the other Deployments of the Foo, to be put behind a message. Of one that is
// about to be deleted there is nothing.
func (s *Seen) others() string {
	var text strings.Builder
	for _, dep := range s.owned() {
		switch {
		case dep.DeletionTimestamp != nil:
			fmt.Fprintf(&text, "; Deployment %q is being deleted", dep.Name)
		case !madeUnderItsName(s.Foo, dep):
			fmt.Fprintf(&text, "; Deployment %q has this Foo as its owner, but was not made for it under that name, and is left alone", dep.Name)
		case s.unneeded(dep) && s.Undeleted[dep.Name] != nil:
			fmt.Fprintf(&text, "; Deployment %q could not be deleted, trying again: %s", dep.Name, words(s.Undeleted[dep.Name].Err))
		case !s.replaces(dep):
			fmt.Fprintf(&text, "; Deployment %q is kept on purpose meanwhile, with %d available", dep.Name, dep.Status.AvailableReplicas)
		}
	}
	return text.String()
}
