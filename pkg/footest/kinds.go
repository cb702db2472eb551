package footest

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
)

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
