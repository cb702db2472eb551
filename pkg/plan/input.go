package plan

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// The kinds that are read and written.
var (
	FooKind        = reconcile.KindOf[*v1alpha1.Foo](schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))
	DeploymentKind = reconcile.KindOf[*TrimmedDeployment](appsv1.SchemeGroupVersion.WithKind("Deployment"))
)

// An Input is what the caches have of a Foo. Live reads and writes of a sync replace it.
type Input struct {
	// Foo is the Foo, which has no deletionTimestamp.
	Foo *v1alpha1.Foo
	// Deployment is the one that Foo names, or nil.
	Deployment *TrimmedDeployment
	// Others are the other Deployments that Foo controls, in any order. Foo named them before, or somebody has copied its
	// Deployment. The sync sets one that it has deleted to nil.
	Others []*TrimmedDeployment
	// Owner returns the cached Foo that controls a Deployment, nil if no Foo does, or if the cache does not have it.
	Owner func(*TrimmedDeployment) *v1alpha1.Foo
}

// Foos is the plan for Foos.
var Foos = reconcile.New(reconcile.Plan[Input]{
	Object:             func(in *Input) reconcile.Ref { return reconcile.RefTo(FooKind, &in.Foo) },
	ObservedGeneration: (*Input).observedGeneration,
	Describe:           (*Input).describe,
	Clone: func(in Input) Input {
		in.Others = slices.Clone(in.Others)
		return in
	},
	Rules: []reconcile.Rule[Input]{
		{Name: "paused", Ask: (*Input).paused},
		{Name: "invalid", Ask: (*Input).invalid, Terminal: true},

		// No Deployment has the name.
		{Name: "create", Ask: (*Input).create},
		// One has it that is not the Foo's, or that is about to be gone.
		{Name: "name conflict", Ask: (*Input).nameConflict, Terminal: true},
		{Name: "wait for deletion", Ask: (*Input).waitForDeletion},
		// It is the Foo's.
		{Name: "patch drift", Ask: (*Input).patchDrift},
		{Name: "delete replaced", Ask: (*Input).deleteReplaced},
	},
	Status: (*Input).status,
})

// observedGeneration returns the generation that the status is about. It is -1 if a Deployment may exist although the
// status does not show it, so that a create is preceded by a live read.
func (in *Input) observedGeneration() int64 {
	if hasUnreadStatus(in.Foo) || len(in.Others) > 0 {
		return -1
	}
	return in.Foo.Status.ObservedGeneration
}

// deploymentOp is an operation on the Deployment of this name.
func (in *Input) deploymentOp(verb reconcile.Verb, name string) reconcile.Op {
	return reconcile.Op{Verb: verb, Kind: DeploymentKind.Kind, Namespace: in.Foo.Namespace, Name: name}
}

// describe returns the Input and the status in one line each.
func (in *Input) describe() (observed, status string) {
	text := fmt.Sprintf("Foo at generation %d; ", in.Foo.Generation)
	switch dep := in.Deployment; {
	case dep == nil:
		text += "no Deployment " + in.Foo.Spec.DeploymentName
	case !Owns(in.Foo, dep):
		text += fmt.Sprintf("Deployment %s, which is not the Foo's", dep.Name)
	default:
		text += fmt.Sprintf("its Deployment %s, written for generation %s, with %d replicas available",
			dep.Name, dep.FooGeneration, dep.Status.AvailableReplicas)
	}
	if others := len(in.Others); others > 0 { // Only their number: there may be many.
		text += fmt.Sprintf("; other Deployments of the Foo: %d", others)
	}
	return text, reconcile.Summary(in.Foo.Status.Conditions)
}
