package footest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
