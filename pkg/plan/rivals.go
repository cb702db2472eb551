package plan

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about several Foos that name one Deployment. The Foo that controls the Deployment keeps it. When no
// Deployment has the name, the oldest Foo that names it creates the Deployment, and the others do not try.

// MaxChain is how many Foos that wait for each other are followed from one to the next. A longer cycle is reported as
// waiting, not as a cycle.
const MaxChain = 50

// firstClaimant returns the Foo that creates the Deployment when none has the name, nil when that is the Foo itself.
func (s *State) firstClaimant() *v1alpha1.Foo {
	first := s.FirstClaimant
	if first == nil || first.Name == s.Foo.Name || CompareAge(first, s.Foo) > 0 {
		return nil // A younger one is first as long as the index lacks the claim of this Foo.
	}
	return first
}

// CompareAge orders the Foos that claim one Deployment. It is less than 0 when a is the older one, or, of the same age,
// the one whose name comes first.
func CompareAge(a, b *v1alpha1.Foo) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Claims reports whether foo would create its Deployment if it could. The status of a paused or invalid Foo
// does not report what it waits for.
func Claims(foo *v1alpha1.Foo) bool {
	return foo.DeletionTimestamp == nil && !foo.Spec.Paused && invalidReason(foo) == ""
}

// reserved returns why the Foo does not create its Deployment. It does not name the older Foo: when that one is
// deleted, the next one comes first, and the reports of all others would change.
func (s *State) reserved() *ConditionError {
	return &ConditionError{
		Reason: v1alpha1.ReasonNameTaken, Stalled: true,
		Message: fmt.Sprintf("Deployment %q does not exist and is left to an older Foo, which also names it",
			s.Foo.Spec.DeploymentName),
		Advice: s.setAnotherName() + ". To see the Foos that name it: " +
			s.kubectl("get foos --field-selector=spec.deploymentName=%s", s.Foo.Spec.DeploymentName),
	}
}

// setAnotherName returns the advice to name another Deployment.
func (s *State) setAnotherName() string {
	return "Set another spec.deploymentName on this Foo: " + s.kubectl("edit foo %s", s.Foo.Name)
}

// checkFinalizers returns what to do when an object that is being deleted does not disappear.
func (s *State) checkFinalizers(kind, name string) string {
	return fmt.Sprintf("If %s %q still exists after some minutes, check its finalizers: %s", kind, name,
		s.kubectl("get %s %s -o yaml", strings.ToLower(kind), name))
}

// nameConflictReport returns who has the Deployment, when that is not the Foo.
func (s *State) nameConflictReport() *ConditionError {
	dep := s.Deployment
	ref := FooReference(dep)
	if ref == nil {
		return s.notOwned()
	}
	if len(s.OwnerChain) == 0 {
		return s.waitingForName(
			fmt.Sprintf("Waiting for the garbage collector to delete Deployment %q: its Foo %q no longer exists",
				dep.Name, ref.Name),
			s.checkFinalizers("Deployment", dep.Name))
	}
	owner, last := s.OwnerChain[0], s.OwnerChain[len(s.OwnerChain)-1]
	switch {
	case owner.DeletionTimestamp != nil:
		return s.waitingForName(
			fmt.Sprintf("Waiting until Foo %q, which is being deleted, and its Deployment %q no longer exist",
				owner.Name, dep.Name),
			s.checkFinalizers("Foo", owner.Name))
	case owner.Spec.DeploymentName == dep.Name:
		return s.nameTaken(owner)
	case !IsMadeFor(owner, dep):
		return s.notOwned() // A copy, which that Foo will not delete.
	case last.UID == s.Foo.UID:
		return s.cycle()
	case len(s.OwnerChain) == MaxChain:
		return s.waitingForMany(owner)
	}
	return s.waitingForRename(owner)
}

// nameTaken returns that owner has the Deployment and names it.
func (s *State) nameTaken(owner *v1alpha1.Foo) *ConditionError {
	return &ConditionError{
		Reason: v1alpha1.ReasonNameTaken, Stalled: true,
		Message: fmt.Sprintf("Deployment %q is controlled by Foo %q, which also names it", s.Deployment.Name, owner.Name),
		Advice:  s.setAnotherName(),
	}
}

// waitingForMany returns that the chain of Foos is too long to be followed. The report must not depend on that of
// owner: in a long cycle, each report would depend on the next one, and a change would run around for ever.
func (s *State) waitingForMany(owner *v1alpha1.Foo) *ConditionError {
	return s.waitingForName(
		fmt.Sprintf("Deployment %q is controlled by Foo %q, which waits for others, in a chain of at least %d Foos",
			s.Deployment.Name, owner.Name, MaxChain), s.setAnotherName())
}

// waitingForRename returns what keeps owner, which has the Deployment and names another one, from moving there.
func (s *State) waitingForRename(owner *v1alpha1.Foo) *ConditionError {
	name, next := s.Deployment.Name, owner.Spec.DeploymentName
	describe := s.kubectl("describe foo %s", owner.Name)
	switch {
	case isStalled(owner):
		waiting := s.waitingForName(
			fmt.Sprintf("Deployment %q is controlled by Foo %q, which cannot move to Deployment %q", name, owner.Name, next),
			fmt.Sprintf("Resolve what Foo %q reports, or set another spec.deploymentName on this Foo. See: %s",
				owner.Name, describe))
		waiting.Stalled = true
		return waiting
	case owner.Spec.Paused:
		waiting := s.waitingForName(
			fmt.Sprintf("Deployment %q is controlled by Foo %q, which is paused and so does not move to Deployment %q",
				name, owner.Name, next),
			fmt.Sprintf("To resume Foo %q: %s", owner.Name,
				s.kubectl(`patch foo %s --type=merge -p '{"spec":{"paused":false}}'`, owner.Name)))
		waiting.Stalled = true
		return waiting
	case isReady(owner):
		return s.waitingForName(
			fmt.Sprintf("Foo %q has moved to Deployment %q, but its previous Deployment %q is not deleted yet",
				owner.Name, next, name),
			"See: "+describe)
	}
	return s.waitingForName(
		fmt.Sprintf("Waiting for Foo %q to move from Deployment %q to %q", owner.Name, name, next), "See: "+describe)
}

// waitingForName returns that the Foo waits for the name. Unless Stalled is set, no person needs to act.
func (s *State) waitingForName(message, advice string) *ConditionError {
	return &ConditionError{Reason: v1alpha1.ReasonWaitingForName, Message: message, Advice: advice}
}

// notOwned returns who has the Deployment, when no Foo does.
func (s *State) notOwned() *ConditionError {
	dep := s.Deployment
	owner := "it has no controller"
	if ref := metav1.GetControllerOfNoCopy(dep); ref != nil {
		owner = fmt.Sprintf("its controller is %s %s %q", ref.APIVersion, ref.Kind, ref.Name)
	}
	return &ConditionError{
		Reason: v1alpha1.ReasonNotOwned, Stalled: true,
		Message: fmt.Sprintf("Deployment %q exists, but this Foo does not control it (%s), so it is not changed",
			dep.Name, owner),
		Advice: s.setAnotherName() +
			". To make this Foo the controller of that Deployment, see NotOwned in docs/operations.md",
	}
}

// cycle returns which Foo names whose Deployment, beginning with the Foo itself.
func (s *State) cycle() *ConditionError {
	var waits []string
	claimant := s.Foo
	for _, owner := range s.OwnerChain {
		waits = append(waits, fmt.Sprintf("Foo %q waits for Deployment %q of Foo %q",
			claimant.Name, claimant.Spec.DeploymentName, owner.Name))
		claimant = owner
	}
	return &ConditionError{
		Reason: v1alpha1.ReasonNameCycle, Stalled: true,
		Message: "These Foos wait for each other's Deployments, so none can move: " + strings.Join(waits, "; "),
		Advice: "Set spec.deploymentName of one of them to a name that no Deployment has, and the others follow: " +
			s.kubectl("edit foo %s", s.Foo.Name),
	}
}
