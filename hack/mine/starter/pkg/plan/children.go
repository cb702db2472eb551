// Package plan decides what a Widget needs: its children in this file, its status in status.go. It has functions of
// objects only, without a client, clock, logger or goroutine.
package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
)

// WidgetKind is the kind of Widgets.
var WidgetKind = schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Widget")

// labelWidget has the name of the Widget, on its children and their pods.
const labelWidget = v1alpha1.GroupName + "/widget"

// ConfigMap returns the ConfigMap that w asks for. Fields that it leaves out belong to others.
func ConfigMap(w *v1alpha1.Widget) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: childMeta(w), Data: map[string]string{"message": w.Spec.Message}}
}

// Deployment returns the Deployment that w asks for, whose pods mount configMap, a ConfigMap of w. Without one it is
// nil: with the name alone, a user who may create Widgets could read any ConfigMap of the namespace. Fields that it
// leaves out belong to others. A new message reaches the pods within about a minute, without a restart: the kubelet
// updates mounted ConfigMaps.
func Deployment(w *v1alpha1.Widget, configMap *corev1.ConfigMap) *appsv1.Deployment {
	if configMap == nil {
		return nil
	}
	message := corev1.LocalObjectReference{Name: configMap.Name}
	labels := map[string]string{labelWidget: w.Name}
	return &appsv1.Deployment{
		ObjectMeta: childMeta(w),
		Spec: appsv1.DeploymentSpec{
			Replicas: w.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: new(false),
					Containers: []corev1.Container{{
						Name: "widget", Image: w.Spec.Image,
						VolumeMounts: []corev1.VolumeMount{{Name: "message", MountPath: "/etc/widget"}},
					}},
					Volumes: []corev1.Volume{{Name: "message", VolumeSource: corev1.VolumeSource{
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: message},
					}}},
				},
			},
		},
	}
}

// childMeta returns the metadata of all children: the name of the Widget, and the Widget as their controller. The
// garbage collector deletes them with it.
func childMeta(w *v1alpha1.Widget) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.Name, Labels: map[string]string{labelWidget: w.Name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w, WidgetKind)},
	}
}

// Trim reduces what is cached. All ConfigMaps and Deployments are watched, so that the caches show each name that is
// taken. Of those that no Widget controls, only the name and the owner are kept. It is a cache.TransformFunc.
func Trim(obj any) (any, error) {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		if !isChild(obj) {
			return &corev1.ConfigMap{ObjectMeta: trimmed(obj)}, nil
		}
	case *appsv1.Deployment:
		if !isChild(obj) {
			return &appsv1.Deployment{ObjectMeta: trimmed(obj)}, nil
		}
	}
	return obj, nil
}

// isChild reports whether a Widget controls obj, in whichever version its owner reference was written.
func isChild(obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref != nil && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == WidgetKind.GroupKind()
}

func trimmed(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		DeletionTimestamp: obj.GetDeletionTimestamp(), OwnerReferences: obj.GetOwnerReferences(),
	}
}
