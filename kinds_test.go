package main

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/apisim"
)

// This file tells a simulated API server about the kinds that the controller works with.

var (
	fooResource        = schema.GroupVersion(v1alpha1.GroupVersion).WithResource(foosResource)
	deploymentResource = appsv1.SchemeGroupVersion.WithResource(deploymentsResource)

	deploymentKind = apisim.Deployments()
)

// fooKind is what our CustomResourceDefinition makes of Foos, but for the rules on their fields: tests want Foos that
// were stored before there were rules. hack/conformance has it with the rules, and holds it against a real server.
var fooKind = apisim.Kind{
	Resource: fooResource, Kind: "Foo", Object: &v1alpha1.Foo{},
	Custom: true, Status: true,
	Scale: &apisim.Scale{SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".status.selector"},
	Default: func(obj runtime.Object) {
		if status := &obj.(*v1alpha1.Foo).Status; status.Conditions == nil {
			status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.Unix(0, 0),
				Reason: v1alpha1.ReasonPending, Message: "Waiting for controller",
			}}
		}
	},
	Fields: map[string]func(runtime.Object) string{
		"spec.deploymentName": func(obj runtime.Object) string { return obj.(*v1alpha1.Foo).Spec.DeploymentName },
	},
}
