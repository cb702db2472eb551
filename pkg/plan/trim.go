package plan

import (
	"fmt"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	// maxReference is how many bytes are kept of each text in an owner reference. Names and uids are shorter.
	maxReference = 256
	// maxImage is how many characters an image of a Foo may have.
	maxImage = 1024
	// maxSelector is how many bytes a selector may have. That of a Deployment that we made has less than 250.
	maxSelector = 4096
)

// Trim keeps only the fields of a Foo or a Deployment that this package reads. It is the transform of both informers,
// and every answer of the API server passes it too, so that a decision does not depend on where an object comes from.
// What a tenant can put into an object and nobody reads costs no memory, and what is read has a limit.
//
// All Deployments in scope are watched, so that the cache has every name in use. Of a Deployment that no Foo controls
// only its name, uid, version and controller remain. Trim is a cache.TransformFunc: it returns any other object
// unchanged.
//
// A trimmed object must not be written back, except for the status of a Foo: the API server keeps everything else.
func Trim(obj any) (any, error) {
	switch obj := obj.(type) {
	case *v1alpha1.Foo:
		return TrimFoo(obj), nil
	case *appsv1.Deployment:
		return TrimDeployment(obj), nil
	}
	return obj, nil
}

// TrimFoo is Trim of a Foo, which may be nil.
func TrimFoo(foo *v1alpha1.Foo) *v1alpha1.Foo {
	if foo == nil {
		return nil
	}
	return &v1alpha1.Foo{
		ObjectMeta: identity(&foo.ObjectMeta), Spec: foo.Spec, Status: foo.Status, Unread: foo.Unread,
	}
}

// TrimDeployment is Trim of a Deployment, which may be nil.
func TrimDeployment(dep *appsv1.Deployment) *appsv1.Deployment {
	if dep == nil {
		return nil
	}
	trimmed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name:            dep.Name,
		Namespace:       dep.Namespace,
		UID:             dep.UID,
		ResourceVersion: dep.ResourceVersion,
	}}
	if ref := metav1.GetControllerOfNoCopy(dep); ref != nil {
		trimmed.OwnerReferences = []metav1.OwnerReference{trimReference(ref)}
	}
	if FooReference(trimmed) == nil {
		return trimmed
	}
	references := trimmed.OwnerReferences
	trimmed.ObjectMeta = identity(&dep.ObjectMeta)
	trimmed.OwnerReferences, trimmed.Labels = references, map[string]string{}
	for _, label := range []string{labelManagedBy, v1alpha1.LabelMadeFor, v1alpha1.LabelFooGeneration} {
		if value, ok := dep.Labels[label]; ok {
			trimmed.Labels[label] = value
		}
	}
	trimmed.Spec.Replicas = dep.Spec.Replicas
	trimmed.Spec.Paused = dep.Spec.Paused
	if dep.Spec.Selector.Size() <= maxSelector {
		trimmed.Spec.Selector = dep.Spec.Selector
	}
	if image := imageOf(dep); image != "" {
		trimmed.Spec.Template.Spec.Containers = []corev1.Container{{Name: ContainerName, Image: trimImage(image)}}
	}
	trimmed.Status = trimStatus(dep)
	return trimmed
}

// identity returns the metadata that every object has. It leaves out what users write: labels, annotations, finalizers,
// and owners.
func identity(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         meta.Namespace,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		Generation:        meta.Generation,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// trimReference returns ref with each text shortened. A text that is too long is then no name or uid that exists.
func trimReference(ref *metav1.OwnerReference) metav1.OwnerReference {
	trimmed := *ref
	trimmed.APIVersion, trimmed.Kind = clip(ref.APIVersion, maxReference), clip(ref.Kind, maxReference)
	trimmed.Name = clip(ref.Name, maxReference)
	trimmed.UID = types.UID(clip(string(ref.UID), maxReference))
	return trimmed
}

// trimImage returns image, or a text instead of a long one. It has spaces, so it differs from every image of a Foo.
func trimImage(image string) string {
	if length := utf8.RuneCountInString(image); length > maxImage {
		return fmt.Sprintf("an image of %d characters", length)
	}
	return image
}

// trimStatus returns what is read of the status of dep: the numbers, and the conditions that report a failure.
func trimStatus(dep *appsv1.Deployment) appsv1.DeploymentStatus {
	status := appsv1.DeploymentStatus{
		ObservedGeneration: dep.Status.ObservedGeneration,
		Replicas:           dep.Status.Replicas,
		UpdatedReplicas:    dep.Status.UpdatedReplicas,
		AvailableReplicas:  dep.Status.AvailableReplicas,
	}
	for _, cond := range dep.Status.Conditions {
		if cond.Type != appsv1.DeploymentProgressing && cond.Type != appsv1.DeploymentReplicaFailure {
			continue
		}
		kept := appsv1.DeploymentCondition{Type: cond.Type, Status: cond.Status, Reason: cond.Reason}
		if isFailure(&cond) {
			kept.Message = clip(withoutPodNames(cond.Message, dep.Name), causeLimit)
		}
		status.Conditions = append(status.Conditions, kept)
	}
	return status
}
