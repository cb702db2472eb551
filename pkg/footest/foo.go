package footest

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// controllerName is the user name of the controller under test, and the field manager that it must use.
const controllerName = "foo-controller"

// namespace is the namespace of all Foos and Deployments of schedules and of a day.
const namespace = "default"

// New makes a controller.
type New = func(context.Context, scenario.Wiring) (*scenario.Controller, error)

// Kind returns Foos with a controller, for simulations.
func Kind(newController New) scenario.Kind {
	return scenario.Kind{
		Controller: controllerName, Served: []apiserver.Kind{FooKind(), apiserver.Deployments()}, New: newController,
		Describe: func(obj scenario.Object) string {
			spec := obj.(*appsv1.Deployment).Spec
			return fmt.Sprintf(" replicas=%d image=%s", *spec.Replicas, spec.Template.Spec.Containers[0].Image)
		},
		Short: strings.NewReplacer(
			"metadata.labels.samplecontroller.k8s.io/", "label ",
			"metadata.labels.app.kubernetes.io/", "label ",
			"metadata.labels.", "label ",
			"metadata.ownerReferences", "owner",
			"spec.template.spec.containers[nginx].image", "image",
			"spec.replicas", "replicas",
		),
	}
}

// Scenarios returns Foos with a controller and the steps of docs/scenarios, without validation: a Foo may have been
// stored before there were rules.
func Scenarios(newController New) scenario.Kind {
	kind := Kind(newController)
	foos := &kind.Served[0]
	foos.Validate, foos.ValidateStatus, foos.Scale = nil, nil, nil // A scale has rules of its own.
	kind.Steps = []scenario.Step{
		{Words: "foo", Do: foo},
		{Words: "store foo", Do: storeFoo},
		{Words: "deployment", Do: deployment},
		{Words: "copy deployment", Do: copyDeployment},
		{Words: "edit deployment", Do: editDeployments},
		{Words: "override", Do: override},
		{Words: "show foo", Do: showFoo},
		{Words: "show deployment", Do: showDeployment},
	}
	return kind
}
