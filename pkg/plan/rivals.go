package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about a name that is not the Foo's. Whoever has the Deployment keeps it. A name that becomes
// free goes to the oldest Foo that wants it, and the others do not try.

// firstClaimant returns the Foo that a free name goes to, nil when that is the Foo itself.
func (s *Seen) firstClaimant() *v1alpha1.Foo {
	first := s.Foo
	for _, rival := range s.Claimants {
		if rival.Name == s.Foo.Name {
			continue // The Foo itself, or one that was before it.
		}
		if claims(rival) && cmp.Or(rival.CreationTimestamp.Compare(first.CreationTimestamp.Time), cmp.Compare(rival.Name, first.Name)) < 0 {
			first = rival
		}
	}
	if first == s.Foo {
		return nil
	}
	return first
}

// claims reports whether foo would create its Deployment if it could.
func claims(foo *v1alpha1.Foo) bool {
	return foo.DeletionTimestamp == nil && !foo.Spec.Paused && invalid(foo) == ""
}

// goesTo says why a Foo does not create its Deployment although there is none.
func goesTo(foo, first *v1alpha1.Foo) *TerminalError {
	return &TerminalError{
		Reason: v1alpha1.ReasonNameTaken,
		Message: fmt.Sprintf("Deployment %q goes to Foo %q, which names it too and is older. Set another spec.deploymentName here, or change or delete that Foo",
			foo.Spec.DeploymentName, first.Name),
	}
}

// Found decides about a Foo after a refused create and a live look that found seen.Named under the name.
func Found(seen Seen) error {
	if Owns(seen.Foo, seen.Named) {
		return &WaitError{After: 5 * time.Millisecond, For: CacheLacksDeployment}
	}
	terminal := taken(&seen)
	terminal.Unseen = true
	return terminal
}

// taken says whose the named Deployment is, when it is not the Foo's.
func taken(seen *Seen) *TerminalError {
	name := seen.Named.Name
	if FooReference(seen.Named) == nil {
		return notOwned(seen.Named)
	}
	if len(seen.Holders) == 0 {
		return &TerminalError{
			Reason: v1alpha1.ReasonWaitingForName,
			Message: fmt.Sprintf("Deployment %q belongs to a Foo %q that is gone, and its name is free when the garbage collector has removed it",
				name, FooReference(seen.Named).Name),
			Passing: true,
		}
	}
	holder, last := seen.Holders[0], seen.Holders[len(seen.Holders)-1]
	switch {
	case holder.DeletionTimestamp != nil:
		return &TerminalError{
			Reason:  v1alpha1.ReasonWaitingForName,
			Message: fmt.Sprintf("Deployment %q belongs to Foo %q, which is being deleted", name, holder.Name),
			Passing: true,
		}
	case holder.Spec.DeploymentName != name && !madeUnderItsName(holder, seen.Named):
		return notOwned(seen.Named) // A copy, which that Foo will not delete.
	case last.UID == seen.Foo.UID:
		return &TerminalError{Reason: v1alpha1.ReasonNameCycle, Message: ring(seen)}
	case holder.Spec.DeploymentName != name && Stuck(holder):
		return &TerminalError{
			Reason:  v1alpha1.ReasonWaitingForName,
			Message: fmt.Sprintf("Deployment %q belongs to Foo %q, which keeps it, since it cannot move to %q: look at that Foo", name, holder.Name, holder.Spec.DeploymentName),
		}
	case holder.Spec.DeploymentName != name && holder.Spec.Paused:
		return &TerminalError{
			Reason:  v1alpha1.ReasonWaitingForName,
			Message: fmt.Sprintf("Deployment %q belongs to Foo %q, which moves to another one, %q, when it is not paused any more", name, holder.Name, holder.Spec.DeploymentName),
			Passing: true,
		}
	case holder.Spec.DeploymentName != name:
		return &TerminalError{
			Reason:  v1alpha1.ReasonWaitingForName,
			Message: fmt.Sprintf("Deployment %q belongs to Foo %q, which keeps it until its new one, %q, can take over", name, holder.Name, holder.Spec.DeploymentName),
			Passing: true,
		}
	}
	return &TerminalError{
		Reason: v1alpha1.ReasonNameTaken,
		Message: fmt.Sprintf("Deployment %q belongs to Foo %q, which names it too and had it first. Set another spec.deploymentName here, or change or delete that Foo",
			name, holder.Name),
	}
}

// notOwned says whose dep is, when it is no Foo's.
func notOwned(dep *appsv1.Deployment) *TerminalError {
	holder := "it has no controller"
	if ref := metav1.GetControllerOfNoCopy(dep); ref != nil {
		holder = fmt.Sprintf("it belongs to %s %s %q", ref.APIVersion, ref.Kind, ref.Name)
	}
	return &TerminalError{
		Reason: v1alpha1.ReasonNotOwned,
		Message: fmt.Sprintf("Deployment %q is not this Foo's and is left alone: %s. Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true",
			dep.Name, holder),
	}
}

// ring says who wants whose Deployment, beginning with the Foo itself.
func ring(seen *Seen) string {
	var text strings.Builder
	wants := seen.Foo
	for _, holder := range seen.Holders {
		fmt.Fprintf(&text, "Foo %q wants Deployment %q of Foo %q; ", wants.Name, wants.Spec.DeploymentName, holder.Name)
		wants = holder
	}
	return "None of these can move: " + text.String() +
		"give one of them a spec.deploymentName that nobody has, and when it has moved the others can follow"
}
