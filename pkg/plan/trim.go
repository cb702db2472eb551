package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// trimmedMessageLimit is how many bytes of a failing condition's message are kept. It is more than is reported, so that
// a trimmed Deployment and one that was read live give the same report.
const trimmedMessageLimit = 2 * causeLimit

// Trim is the transform of the Deployment informer: it keeps only the fields that this package reads, to save memory.
// All Deployments in scope are watched, so that the cache has every name in use. Of a Deployment that no Foo controls
// only its identity and owners remain. Trim is a cache.TransformFunc: it returns any other object unchanged.
//
// A trimmed Deployment must not be written back.
func Trim(obj any) (any, error) {
	dep, ok := obj.(*appsv1.Deployment)
	if !ok {
		return obj, nil
	}
	trimmed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name:            dep.Name,
		Namespace:       dep.Namespace,
		UID:             dep.UID,
		ResourceVersion: dep.ResourceVersion,
		OwnerReferences: dep.OwnerReferences,
	}}
	if FooReference(dep) == nil {
		return trimmed, nil
	}
	trimmed.Generation = dep.Generation
	trimmed.CreationTimestamp = dep.CreationTimestamp
	trimmed.DeletionTimestamp = dep.DeletionTimestamp
	trimmed.Labels = map[string]string{}
	for _, label := range []string{labelManagedBy, v1alpha1.LabelMadeFor, v1alpha1.LabelFooGeneration} {
		if value, ok := dep.Labels[label]; ok {
			trimmed.Labels[label] = value
		}
	}
	trimmed.Spec.Replicas = dep.Spec.Replicas
	trimmed.Spec.Paused = dep.Spec.Paused
	trimmed.Spec.Selector = dep.Spec.Selector
	if image := imageOf(dep); image != "" {
		trimmed.Spec.Template.Spec.Containers = []corev1.Container{{Name: ContainerName, Image: image}}
	}
	trimmed.Status = appsv1.DeploymentStatus{
		ObservedGeneration: dep.Status.ObservedGeneration,
		Replicas:           dep.Status.Replicas,
		UpdatedReplicas:    dep.Status.UpdatedReplicas,
		AvailableReplicas:  dep.Status.AvailableReplicas,
	}
	for _, cond := range dep.Status.Conditions {
		kept := appsv1.DeploymentCondition{Type: cond.Type, Status: cond.Status, Reason: cond.Reason}
		if cond.Message != "" && isFailure(&cond) {
			kept.Message = clip(withoutPodNames(cond.Message, dep.Name), trimmedMessageLimit)
		}
		trimmed.Status.Conditions = append(trimmed.Status.Conditions, kept)
	}
	return trimmed, nil
}
