package plan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about a Deployment that has the name and is not the Foo's. A report depends on that Deployment and on
// the spec of the Foo that controls it, and never on another Foo's status: so two events are enough to know whose
// reports may change. Who gets a free name, the API server decides.

// nameConflictReport returns who has the Deployment, when that is not the Foo.
func (s *State) nameConflictReport() *ConditionError {
	dep, owner := s.Deployment, s.Owner
	ref := FooReference(dep)
	switch {
	case ref == nil:
		return s.notOwned()
	case owner == nil:
		return s.waitingForName(
			fmt.Sprintf("Waiting for the garbage collector to delete Deployment %q: its Foo %q no longer exists",
				dep.Name, ref.Name),
			s.checkFinalizers("Deployment", dep.Name))
	case owner.DeletionTimestamp != nil:
		return s.waitingForName(
			fmt.Sprintf("Waiting until Foo %q, which is being deleted, and its Deployment %q no longer exist",
				owner.Name, dep.Name),
			s.checkFinalizers("Foo", owner.Name))
	case owner.Spec.DeploymentName == dep.Name, !isMadeFor(owner, dep): // A copy is not deleted when its owner moves.
		return s.nameTaken()
	case s.isPrevious(owner.Spec.DeploymentName):
		return s.nameCycle()
	}
	return s.waitingForName(
		fmt.Sprintf("Waiting for Foo %q to move from Deployment %q to %q",
			owner.Name, dep.Name, owner.Spec.DeploymentName),
		"If it does not move, this shows why: "+s.kubectl("describe foo %s", owner.Name))
}

// isPrevious reports whether the Foo itself has the Deployment of this name, and releases it only when it has moved.
func (s *State) isPrevious(name string) bool {
	return slices.ContainsFunc(s.previous(), func(dep *Observed) bool { return dep.Name == name })
}

// waitingForName returns that the Foo waits until the name is free: the Foo that has it leaves it. Whether that Foo
// can, it reports itself.
func (s *State) waitingForName(message, advice string) *ConditionError {
	return &ConditionError{Reason: v1alpha1.ReasonWaitingForName, Message: message, Advice: advice}
}

// nameTaken returns that another Foo has the Deployment and keeps it.
func (s *State) nameTaken() *ConditionError {
	return &ConditionError{
		Reason: v1alpha1.ReasonNameTaken, Stalled: true,
		Message: fmt.Sprintf("Deployment %q is controlled by Foo %q", s.Deployment.Name, s.Owner.Name),
		Advice:  s.setAnotherName(),
	}
}

// nameCycle returns that this Foo and another one name each other's Deployments.
func (s *State) nameCycle() *ConditionError {
	return &ConditionError{
		Reason: v1alpha1.ReasonNameCycle, Stalled: true,
		Message: fmt.Sprintf("This Foo waits for Deployment %q of Foo %q, which waits for Deployment %q of this Foo, "+
			"so neither can move", s.Deployment.Name, s.Owner.Name, s.Owner.Spec.DeploymentName),
		Advice: "Set spec.deploymentName of one of them to a name that no Deployment has, and the other follows: " +
			s.kubectl("edit foo %s", s.Foo.Name),
	}
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

// setAnotherName returns the advice to name another Deployment.
func (s *State) setAnotherName() string {
	return "Set another spec.deploymentName on this Foo: " + s.kubectl("edit foo %s", s.Foo.Name)
}

// checkFinalizers returns what to do when an object that is being deleted does not disappear.
func (s *State) checkFinalizers(kind, name string) string {
	return fmt.Sprintf("If %s %q still exists after some minutes, check its finalizers: %s", kind, name,
		s.kubectl("get %s %s -o yaml", strings.ToLower(kind), name))
}
