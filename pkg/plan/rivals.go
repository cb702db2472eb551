package plan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file is about a Foo that waits for its name: another Deployment has it. The report depends on that Deployment
// and on the spec of the Foo that controls it, so only their events can change it. The API server decides who gets a
// name that becomes free.

// nameConflictProblem reports who has the Deployment, when that is not the Foo.
func (in *Input) nameConflictProblem() *reconcile.Problem {
	dep, ref := in.Deployment, FooReference(in.Deployment)
	if ref == nil {
		return in.notOwnedProblem()
	}
	owner := in.Owner(dep)
	switch {
	case owner == nil: // Or the cache does not have it yet: then its event asks again.
		return waitingForNameProblem(
			fmt.Sprintf("Waiting for the garbage collector to delete Deployment %q: its Foo %q no longer exists",
				dep.Name, ref.Name),
			in.checkFinalizers("Deployment", dep.Name))
	case owner.DeletionTimestamp != nil:
		return waitingForNameProblem(
			fmt.Sprintf("Waiting until Foo %q, which is being deleted, and its Deployment %q no longer exist",
				owner.Name, dep.Name),
			in.checkFinalizers("Foo", owner.Name))
	case owner.Spec.DeploymentName == dep.Name, !isMadeFor(owner, dep): // A copy is not deleted when its owner moves.
		return in.nameTakenProblem(owner)
	case in.isPrevious(owner.Spec.DeploymentName):
		return in.nameCycleProblem(owner)
	}
	return waitingForNameProblem(
		fmt.Sprintf("Waiting for Foo %q to move from Deployment %q to %q",
			owner.Name, dep.Name, owner.Spec.DeploymentName),
		"If it does not move, this shows why: "+in.kubectl("describe foo %s", owner.Name))
}

// isPrevious reports whether the Foo itself has the Deployment of this name, and releases it only when it has moved.
func (in *Input) isPrevious(name string) bool {
	return slices.ContainsFunc(in.previous(), func(dep *TrimmedDeployment) bool { return dep.Name == name })
}

// waitingForNameProblem reports that the Foo waits until the name is free: the Foo that has it leaves it. If that Foo
// cannot, its own status has the reason; in a circle of three or more, each waits for the next.
func waitingForNameProblem(message, advice string) *reconcile.Problem {
	return &reconcile.Problem{Reason: v1alpha1.ReasonWaitingForName, Message: message, Advice: advice}
}

// nameTakenProblem reports that another Foo has the Deployment and keeps it.
func (in *Input) nameTakenProblem(owner *v1alpha1.Foo) *reconcile.Problem {
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonNameTaken, Stalled: true,
		Message: fmt.Sprintf("Deployment %q is controlled by Foo %q", in.Deployment.Name, owner.Name),
		Advice:  in.setAnotherName(),
	}
}

// nameCycleProblem reports that this Foo and another one name each other's Deployments.
func (in *Input) nameCycleProblem(owner *v1alpha1.Foo) *reconcile.Problem {
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonNameCycle, Stalled: true,
		Message: fmt.Sprintf("This Foo waits for Deployment %q of Foo %q, which waits for Deployment %q of this Foo, "+
			"so neither can move", in.Deployment.Name, owner.Name, owner.Spec.DeploymentName),
		Advice: "Set spec.deploymentName of one of them to a name that no Deployment has, and the other follows: " +
			in.kubectl("edit foo %s", in.Foo.Name),
	}
}

// notOwnedProblem reports who has the Deployment, when no Foo does.
func (in *Input) notOwnedProblem() *reconcile.Problem {
	dep := in.Deployment
	owner := "it has no controller"
	if ref := metav1.GetControllerOfNoCopy(dep); ref != nil {
		owner = fmt.Sprintf("its controller is %s %s %q", ref.APIVersion, ref.Kind, ref.Name)
	}
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonNotOwned, Stalled: true,
		Message: fmt.Sprintf("Deployment %q exists, but this Foo does not control it (%s), so it is not changed",
			dep.Name, owner),
		Advice: in.setAnotherName() +
			". To make this Foo the controller of that Deployment, see NotOwned in docs/operations.md",
	}
}

// setAnotherName returns the advice to name another Deployment.
func (in *Input) setAnotherName() string {
	return "Set another spec.deploymentName on this Foo: " + in.kubectl("edit foo %s", in.Foo.Name)
}

// checkFinalizers returns what to do when an object that is being deleted does not disappear.
func (in *Input) checkFinalizers(kind, name string) string {
	return fmt.Sprintf("If %s %q still exists after some minutes, check its finalizers: %s", kind, name,
		in.kubectl("get %s %s -o yaml", strings.ToLower(kind), name))
}
