package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/apisim"
)

// This file tells a simulated API server about the kinds that the controller works with, as far as it depends on them.
// hack/conformance has them with all their rules, and shows that the server then answers as a real one does.

var (
	fooResource        = v1alpha1.SchemeGroupVersion.WithResource(foosResource)
	deploymentResource = appsv1.SchemeGroupVersion.WithResource(deploymentsResource)
)

// fooKind is what our CustomResourceDefinition makes of Foos, but for the rules on their fields: tests want Foos
// that were stored before there were rules.
var fooKind = apisim.Kind{
	Resource: fooResource, Kind: "Foo", Object: &v1alpha1.Foo{},
	Custom: true, Status: true,
	Scale: &apisim.Scale{SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".status.selector"},
	Default: func(obj runtime.Object) {
		if status := &obj.(*v1alpha1.Foo).Status; len(status.Conditions) == 0 {
			status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.Unix(0, 0),
				Reason: v1alpha1.ReasonPending, Message: "Waiting for controller",
			}}
		}
	},
}

// deploymentKind is a Deployment, with the defaults of what can be compared or shown here.
var deploymentKind = apisim.Kind{
	Resource: deploymentResource, Kind: "Deployment", Object: &appsv1.Deployment{},
	Status: true,
	Scale:  &apisim.Scale{SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".spec.selector"},
	Default: func(obj runtime.Object) {
		spec := &obj.(*appsv1.Deployment).Spec
		setDefault(&spec.Replicas, 1)
		setDefault(&spec.RevisionHistoryLimit, 10)
		setDefault(&spec.ProgressDeadlineSeconds, 600)
		if spec.Strategy.Type == "" {
			spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
		}
		if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType && spec.Strategy.RollingUpdate == nil {
			quarter := intstr.FromString("25%")
			spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &quarter}
		}
		setDefault(&spec.Template.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	},
}

var namespaceKind = apisim.Kind{
	Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", Object: &corev1.Namespace{},
	ClusterScoped: true, Status: true,
}

// setDefault sets what is not set.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
