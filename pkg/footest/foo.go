// Package footest has what the tests of the Foo controller need of Foos: the steps of docs/scenarios, the edits and
// invariants of schedules, and long situations. Package scenario plays them. The tests pass a [New] that makes the
// controller, which this package does not know.
//
//   - [Scenarios] is for [scenario.Play]; [Kind] and [Schedule] are for [scenario.PlaySchedules].
//   - [SimulateNeighbours] and others let a namespace have a problem, while the controller runs as in production.
//   - [FooKind] describes Foos to a simulated API server; any other test can use it too.
package footest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// controllerName is the user name of the controller under test, and the field manager that it must use.
const controllerName = "foo-controller"

// namespace is the namespace of all Foos and Deployments of schedules.
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
			"spec.selector.matchLabels.", "selects ",
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
	}
	return kind
}

const (
	foosResource        = "foos"
	deploymentsResource = "deployments"
)

var (
	fooResource        = schema.GroupVersion(v1alpha1.GroupVersion).WithResource(foosResource)
	deploymentResource = appsv1.SchemeGroupVersion.WithResource(deploymentsResource)
)

// FooKind returns Foos as the CustomResourceDefinition defines them, with its validation. A test with Foos that were
// stored before validation existed sets Validate, ValidateStatus and Scale to nil. The conformance test compares this
// kind with a real API server that has the CustomResourceDefinition.
func FooKind() apiserver.Kind {
	return apiserver.Kind{
		Resource: fooResource, Kind: "Foo", Object: &v1alpha1.Foo{},
		Status: true, ShortNames: []string{"fo"},
		Strict: func(obj runtime.Object) runtime.Object { return (*strictFoo)(obj.(*v1alpha1.Foo)) },
		Scale: &apiserver.Scale{
			SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".status.selector",
		},
		Default: setDefaultConditions, Validate: validateFoo, ValidateStatus: validateFooStatus,
		Fields: map[string]func(runtime.Object) string{
			"spec.deploymentName": func(obj runtime.Object) string { return obj.(*v1alpha1.Foo).Spec.DeploymentName },
		},
	}
}

// A strictFoo is a Foo for which a value of a wrong type is an error.
type strictFoo v1alpha1.Foo

// DeepCopyObject returns a copy.
func (foo *strictFoo) DeepCopyObject() runtime.Object {
	return (*strictFoo)((*v1alpha1.Foo)(foo).DeepCopy())
}

// setDefaultConditions sets the condition that a Foo has before the controller has seen it.
func setDefaultConditions(obj runtime.Object) {
	status := &obj.(*v1alpha1.Foo).Status
	if status.Conditions != nil {
		return
	}
	status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.Unix(0, 0),
		Reason: v1alpha1.ReasonPending, Message: "No controller has seen this Foo yet. Is foo-controller running?",
	}}
}

// validateFoo has the rules of the CustomResourceDefinition in the order of the server: the schema, and then the
// expressions of the schema, which the server does not evaluate after certain other errors.
func validateFoo(obj, old runtime.Object) field.ErrorList {
	foo, spec := obj.(*v1alpha1.Foo), field.NewPath("spec")
	var errs field.ErrorList
	if foo.Spec != (v1alpha1.FooSpec{}) && foo.Spec.DeploymentName == "" {
		errs = append(errs, field.Required(spec.Child("deploymentName"), ""))
	}
	if n := foo.Spec.Replicas; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), *n, belowMinimum("spec.replicas")))
	}
	owners := validation.ValidateOwnerReferences(foo.OwnerReferences, field.NewPath("metadata", "ownerReferences"))
	if blocking(errs) || blocking(owners) || old == nil && foo.Name == "" {
		return append(errs, notChecked)
	}
	if foo.Spec == (v1alpha1.FooSpec{}) {
		return append(errs,
			field.Required(spec, "set at least spec.deploymentName, the name of the Deployment to create"))
	}
	if name := foo.Spec.DeploymentName; len(utilvalidation.IsDNS1123Subdomain(name)) > 0 {
		errs = append(errs, field.Invalid(spec.Child("deploymentName"), name, "deploymentName must be a name that a "+
			"Deployment can have: lowercase letters, digits, '-' and '.', beginning and ending with a letter or digit, "+
			`for example "web-1"`))
	}
	if image := foo.Spec.Image; strings.Contains(image, " ") {
		errs = append(errs, field.Invalid(spec.Child("image"), image,
			`image must not contain spaces: give a reference such as "nginx:1.29"`))
	}
	return errs
}

// validateFooStatus has the rules for writes at the status subresource.
func validateFooStatus(obj, _ runtime.Object) field.ErrorList {
	s, path := &obj.(*v1alpha1.Foo).Status, field.NewPath("status")
	var errs field.ErrorList
	if n := s.ObservedGeneration; n < 0 {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), n, belowMinimum("observedGeneration")))
	}
	for i, c := range s.Conditions {
		known := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
		if !slices.Contains(known, c.Status) {
			errs = append(errs, field.NotSupported(path.Child("conditions").Index(i).Child("status"), c.Status, known))
		}
	}
	if blocking(errs) {
		return append(errs, notChecked)
	}
	return errs
}

func belowMinimum(field string) string {
	return field + " in body should be greater than or equal to 0"
}

// notChecked is the error that a real server adds if it does not evaluate the expressions because of other errors.
var notChecked = field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; "+
	"correct the existing errors to complete validation")

func blocking(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(err *field.Error) bool {
		return err.Type == field.ErrorTypeRequired || err.Type == field.ErrorTypeNotSupported
	})
}
