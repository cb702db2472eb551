// Package plan decides what happens to a Widget: its rules in this file, its children in children.go, its status in
// status.go. It has functions of objects only, without a client, clock, logger or goroutine.
package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// An Input is what is known of a Widget: from the caches, then from live reads and writes. A child that does not exist
// is nil.
type Input struct {
	Widget     *v1alpha1.Widget
	ConfigMap  *corev1.ConfigMap
	Deployment *appsv1.Deployment
}

// The kinds that are read and written.
var (
	WidgetKind     = reconcile.KindOf[*v1alpha1.Widget](schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Widget"))
	ConfigMapKind  = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	DeploymentKind = reconcile.KindOf[*appsv1.Deployment](appsv1.SchemeGroupVersion.WithKind("Deployment"))
)

// Widgets is how Widgets are reconciled: by these rules, from top to bottom, and then the status. After each answer of
// the API server, all of them are asked again.
var Widgets = reconcile.New(reconcile.Plan[Input]{
	Object:             func(in *Input) reconcile.Ref { return reconcile.RefTo(WidgetKind, &in.Widget) },
	ObservedGeneration: func(in *Input) int64 { return in.Widget.Status.ObservedGeneration },
	Describe:           func(in *Input) (_, status string) { return "", reconcile.Summary(in.Widget.Status.Conditions) },
	Rules: []reconcile.Rule[Input]{
		{Name: "keep ConfigMap", Ask: (*Input).keepConfigMap},
		{Name: "keep Deployment", Ask: (*Input).keepDeployment},
	},
	Status: (*Input).status,
})

func (in *Input) keepConfigMap() reconcile.Answer {
	return reconcile.Keep(ConfigMapKind, &in.ConfigMap, ConfigMap(in.Widget))
}

// keepDeployment leaves the Deployment as it is while there is no ConfigMap that its pods may mount.
func (in *Input) keepDeployment() reconcile.Answer {
	if !in.mayMount() {
		return reconcile.Answer{Why: "there is no ConfigMap of the Widget to mount"}
	}
	return reconcile.Keep(DeploymentKind, &in.Deployment, Deployment(in.Widget))
}

// mayMount reports whether pods may mount the ConfigMap: it exists, is the Widget's and is not being deleted. With any
// other, a user who may create Widgets, and nothing else, could read a ConfigMap of somebody else.
func (in *Input) mayMount() bool {
	c := in.ConfigMap
	return c != nil && reconcile.Owns(in.Widget, c) && c.DeletionTimestamp == nil
}
