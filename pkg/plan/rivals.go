package plan

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about a name that is not the Foo's. The Foo that has the Deployment keeps it. A name that becomes free
// goes to the oldest Foo that names it, and the others do not try.

// firstClaimant returns the Foo that a free name goes to, nil when that is the Foo itself.
func (s *State) firstClaimant() *v1alpha1.Foo {
	first := s.Foo
	for _, claimant := range s.Claimants {
		if claimant.Name == s.Foo.Name {
			continue // The Foo itself, or a former one of its name.
		}
		if compareAge(claimant, first) < 0 && Claims(claimant) {
			first = claimant
		}
	}
	if first == s.Foo {
		return nil
	}
	return first
}

// compareAge is less than 0 when a is the older one, or, of the same age, the one whose name comes first.
func compareAge(a, b *v1alpha1.Foo) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Claims reports whether foo would create its Deployment if it could. The status of one that would not, because it is
// paused or invalid, does not say what it waits for.
func Claims(foo *v1alpha1.Foo) bool {
	return foo.DeletionTimestamp == nil && !foo.Spec.Paused && invalidReason(foo) == ""
}

// reservedFor returns why a Foo does not create its Deployment although there is none.
func reservedFor(foo, first *v1alpha1.Foo) *ConditionError {
	return &ConditionError{
		Reason: v1alpha1.ReasonNameTaken, Stalled: true,
		Message: fmt.Sprintf("Deployment %q goes to Foo %q, which names it too and is older. "+
			"Set another spec.deploymentName here, or change or delete that Foo", foo.Spec.DeploymentName, first.Name),
	}
}

// conflict returns who has the Deployment, when that is not the Foo.
func (s *State) conflict() *ConditionError {
	dep := s.Deployment
	if FooReference(dep) == nil {
		return notOwned(dep)
	}
	if len(s.OwnerChain) == 0 {
		return waitingForName(false, "Deployment %q belongs to a Foo %q that is gone, and its name is free when the "+
			"garbage collector has removed it", dep.Name, FooReference(dep).Name)
	}
	owner, last := s.OwnerChain[0], s.OwnerChain[len(s.OwnerChain)-1]
	switch {
	case owner.DeletionTimestamp != nil:
		return waitingForName(false, "Deployment %q belongs to Foo %q, which is being deleted", dep.Name, owner.Name)
	case owner.Spec.DeploymentName == dep.Name:
		return nameTaken(dep, owner)
	case !madeUnderItsName(owner, dep):
		return notOwned(dep) // A copy, which that Foo will not delete.
	case last.UID == s.Foo.UID:
		return &ConditionError{Reason: v1alpha1.ReasonNameCycle, Message: s.cycle(), Stalled: true}
	}
	return waitingForRename(dep, owner)
}

// nameTaken returns that owner has dep and names it.
func nameTaken(dep *appsv1.Deployment, owner *v1alpha1.Foo) *ConditionError {
	return &ConditionError{
		Reason: v1alpha1.ReasonNameTaken, Stalled: true,
		Message: fmt.Sprintf("Deployment %q belongs to Foo %q, which names it too and had it first. "+
			"Set another spec.deploymentName here, or change or delete that Foo", dep.Name, owner.Name),
	}
}

// waitingForRename returns what keeps owner, which has dep and names another Deployment, from moving there.
func waitingForRename(dep *appsv1.Deployment, owner *v1alpha1.Foo) *ConditionError {
	next := owner.Spec.DeploymentName
	switch {
	case isStalled(owner):
		return waitingForName(true, "Deployment %q belongs to Foo %q, which keeps it, since it cannot move to %q: "+
			"look at that Foo", dep.Name, owner.Name, next)
	case owner.Spec.Paused:
		return waitingForName(false, "Deployment %q belongs to Foo %q, which moves to another one, %q, when it is not "+
			"paused any more", dep.Name, owner.Name, next)
	case isReady(owner):
		return waitingForName(false, "Deployment %q belongs to Foo %q, which has moved to %q and could not delete it yet: "+
			"see the status of that Foo", dep.Name, owner.Name, next)
	}
	return waitingForName(false, "Deployment %q belongs to Foo %q, which keeps it until its new one, %q, can take over",
		dep.Name, owner.Name, next)
}

func waitingForName(stalled bool, format string, args ...any) *ConditionError {
	return &ConditionError{Reason: v1alpha1.ReasonWaitingForName, Message: fmt.Sprintf(format, args...), Stalled: stalled}
}

// notOwned returns who has dep, when no Foo does.
func notOwned(dep *appsv1.Deployment) *ConditionError {
	owner := "it has no controller"
	if ref := metav1.GetControllerOfNoCopy(dep); ref != nil {
		owner = fmt.Sprintf("it belongs to %s %s %q", ref.APIVersion, ref.Kind, ref.Name)
	}
	return &ConditionError{
		Reason: v1alpha1.ReasonNotOwned, Stalled: true,
		Message: fmt.Sprintf("Deployment %q is not this Foo's and is left alone: %s. Set another spec.deploymentName, "+
			"delete that Deployment, or hand it over by an owner reference to this Foo with controller: true", dep.Name, owner),
	}
}

// cycle returns which Foo names whose Deployment, beginning with the Foo itself.
func (s *State) cycle() string {
	var text strings.Builder
	claimant := s.Foo
	for _, owner := range s.OwnerChain {
		fmt.Fprintf(&text, "Foo %q wants Deployment %q of Foo %q; ", claimant.Name, claimant.Spec.DeploymentName, owner.Name)
		claimant = owner
	}
	return "None of these can move: " + text.String() +
		"give one of them a spec.deploymentName that nobody has, and when it has moved the others can follow"
}
