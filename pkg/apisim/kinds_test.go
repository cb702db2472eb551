package apisim_test

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/apisim"
)

var (
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	leases      = coordinationv1.SchemeGroupVersion.WithResource("leases")
	events      = eventsv1.SchemeGroupVersion.WithResource("events")
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	gadgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
)

// A Widget is a custom resource with a Go type.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec   `json:"spec"`
	Status            WidgetStatus `json:"status,omitzero"`
}

type WidgetSpec struct {
	Size  *int32 `json:"size,omitempty"`
	Color string `json:"color,omitempty"`
}

type WidgetStatus struct {
	Size     int32             `json:"size,omitempty"`
	Selector string            `json:"selector,omitempty"`
	Phase    string            `json:"phase,omitempty"`
	Notes    map[string]string `json:"notes,omitempty"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	other := *w
	other.ObjectMeta = *w.ObjectMeta.DeepCopy()
	if w.Spec.Size != nil {
		other.Spec.Size = new(*w.Spec.Size)
	}
	other.Status.Notes = maps.Clone(w.Status.Notes)
	return &other
}

// kinds are all that the tests register.
func kinds() []apisim.Kind {
	return []apisim.Kind{
		{Resource: namespaces, Kind: "Namespace", Object: &corev1.Namespace{}, ClusterScoped: true, Status: true},
		{Resource: configMaps, Kind: "ConfigMap", Object: &corev1.ConfigMap{}},
		deploymentKind,
		{
			Resource: leases, Kind: "Lease", Object: &coordinationv1.Lease{},
			AllowCreateOnUpdate: true, RequireVersion: true,
		},
		{
			Resource: events, Kind: "Event", Object: &eventsv1.Event{},
			AllowCreateOnUpdate: true, IgnorePropagation: true,
		},
		widgetKind,
		{
			Resource: gadgets, Kind: "Gadget", Object: &unstructured.Unstructured{}, Custom: true, Status: true,
			ClusterScoped: true,
		},
	}
}

var deploymentKind = apisim.Kind{
	Resource: deployments, Kind: "Deployment", Object: &appsv1.Deployment{}, Status: true,
	Scale: &apisim.Scale{
		SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".spec.selector",
	},
	Default: func(obj runtime.Object) {
		spec := &obj.(*appsv1.Deployment).Spec
		if spec.Replicas == nil {
			spec.Replicas = new(int32(1))
		}
		if spec.ProgressDeadlineSeconds == nil {
			spec.ProgressDeadlineSeconds = new(int32(600))
		}
	},
	NewGeneration: func(obj, old runtime.Object) bool {
		dep, before := obj.(*appsv1.Deployment), old.(*appsv1.Deployment)
		return !equality.Semantic.DeepEqual(dep.Spec, before.Spec) ||
			!equality.Semantic.DeepEqual(dep.Annotations, before.Annotations)
	},
	PrepareStatus: func(obj, old runtime.Object) {
		obj.(*appsv1.Deployment).Labels = old.(*appsv1.Deployment).Labels
	},
	Validate: func(obj, _ runtime.Object) field.ErrorList {
		if spec := &obj.(*appsv1.Deployment).Spec; *spec.Replicas < 0 {
			path := field.NewPath("spec", "replicas")
			return field.ErrorList{field.Invalid(path, *spec.Replicas, "must be greater than or equal to 0")}
		}
		return nil
	},
}

var widgetKind = apisim.Kind{
	Resource: widgets, Kind: "Widget", Object: &Widget{}, Custom: true, Status: true,
	Scale: &apisim.Scale{
		SpecReplicas: ".spec.size", StatusReplicas: ".status.size", Selector: ".status.selector",
	},
	Default: func(obj runtime.Object) {
		if w := obj.(*Widget); w.Status.Phase == "" {
			w.Status.Phase = "Pending"
		}
	},
	Validate: func(obj, old runtime.Object) field.ErrorList {
		spec := field.NewPath("spec")
		var errs field.ErrorList
		w := obj.(*Widget)
		if w.Spec.Color == "ultraviolet" {
			errs = append(errs, field.NotSupported(spec.Child("color"), w.Spec.Color, []string{"blue", "red"}))
		}
		if old != nil && old.(*Widget).Spec.Color == "red" && w.Spec.Color != "red" {
			errs = append(errs, field.Forbidden(spec.Child("color"), "red stays red"))
		}
		return errs
	},
	Fields: map[string]func(runtime.Object) string{
		"spec.color": func(obj runtime.Object) string { return obj.(*Widget).Spec.Color },
	},
}
