package apiserver_test

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/foo-controller/pkg/sim/apiserver"
)

var (
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	jobs        = batchv1.SchemeGroupVersion.WithResource("jobs")
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

// kinds are the kinds that the tests register.
func kinds() []apiserver.Kind {
	return []apiserver.Kind{
		apiserver.Namespaces(),
		{Resource: configMaps, Kind: "ConfigMap", Object: &corev1.ConfigMap{}}, // Without rules, for short requests.
		deploymentKind(),
		apiserver.Leases(),
		apiserver.KindOf(&batchv1.Job{}, scheme.Scheme),
		apiserver.Events(),
		widgetKind,
		{
			Resource: gadgets, Kind: "Gadget", Object: &unstructured.Unstructured{}, Status: true,
			ClusterScoped: true,
		},
	}
}

// deploymentKind is the kind of Deployments without most of its validation, so that requests can be short.
func deploymentKind() apiserver.Kind {
	kind := apiserver.Deployments()
	kind.ValidateStatus = nil
	kind.Validate = func(obj, _ runtime.Object) field.ErrorList {
		if spec := &obj.(*appsv1.Deployment).Spec; *spec.Replicas < 0 {
			path := field.NewPath("spec", "replicas")
			return field.ErrorList{field.Invalid(path, *spec.Replicas, "must be greater than or equal to 0")}
		}
		return nil
	}
	return kind
}

var widgetKind = apiserver.Kind{
	Resource: widgets, Kind: "Widget", Object: &Widget{}, Status: true,
	Scale: &apiserver.Scale{
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
