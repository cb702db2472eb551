package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit/trim"
)

// labelWidget has the name of the Widget, on its children and their pods.
const labelWidget = v1alpha1.GroupName + "/widget"

// ConfigMap returns the ConfigMap that w asks for. Fields that are not set belong to others.
func ConfigMap(w *v1alpha1.Widget) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: childMeta(w), Data: map[string]string{"message": w.Spec.Message}}
}

// Deployment returns the Deployment that w asks for. Fields that are not set belong to others. A new message reaches
// the pods within about a minute, without a restart: the kubelet updates mounted ConfigMaps.
func Deployment(w *v1alpha1.Widget) *appsv1.Deployment {
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
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: w.Name}},
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
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w, WidgetKind.GroupVersionKind)},
	}
}

// Trim reduces what is cached to what is read. All ConfigMaps and Deployments are watched, so that the caches show each
// name that is taken. Of those that no Widget controls, only the identity and the controller are kept. It is a
// cache.TransformFunc, and the answers of the API server pass it too.
func Trim(obj any) (any, error) {
	switch obj := obj.(type) {
	case *v1alpha1.Widget:
		widget := &v1alpha1.Widget{ObjectMeta: trim.Identity(obj), Spec: obj.Spec, Status: obj.Status}
		widget.Status.Conditions = trim.Conditions(obj.Status.Conditions)
		return widget, nil
	case *corev1.ConfigMap:
		child := &corev1.ConfigMap{ObjectMeta: trim.Child(obj)}
		if isChild(obj) {
			child.Labels, child.Data = obj.Labels, obj.Data
		}
		return child, nil
	case *appsv1.Deployment:
		child := &appsv1.Deployment{ObjectMeta: trim.Child(obj)}
		if isChild(obj) {
			child.Labels, child.Spec, child.Status = obj.Labels, obj.Spec, obj.Status
		}
		return child, nil
	}
	return obj, nil
}

// isChild reports whether a Widget controls obj, in whichever version its owner reference was written.
func isChild(obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref != nil && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == WidgetKind.GroupKind()
}
