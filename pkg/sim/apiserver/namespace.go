package apiserver

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// prepareNamespace makes a new namespace active and adds the finalizer that delays its deletion until it is empty.
func prepareNamespace(obj runtime.Object) {
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	namespace.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// labelNamespace sets the label that every namespace has.
func labelNamespace(obj runtime.Object) {
	labels := map[string]string{corev1.LabelMetadataName: accessor(obj).GetName()}
	for key, value := range accessor(obj).GetLabels() {
		if key != corev1.LabelMetadataName {
			labels[key] = value
		}
	}
	accessor(obj).SetLabels(labels)
}

// holdsContent reports whether a namespace must not be removed before its contents.
func holdsContent(obj runtime.Object) bool {
	namespace, ok := obj.(*corev1.Namespace)
	return ok && len(namespace.Spec.Finalizers) > 0
}

// terminate sets the deletion timestamp of a namespace, which is removed when its contents are. It returns nil if the
// namespace can be removed now, or has changed meanwhile.
func (c *call) terminate(key string, have *Revision, opts *metav1.DeleteOptions) (*Revision, error) {
	m := accessor(have.Object)
	namespace, ok := have.Object.(*corev1.Namespace)
	if !ok {
		return nil, nil
	}
	if slices.Contains([]string{"default", "kube-system", "kube-public"}, namespace.Name) {
		return nil, apierrors.NewForbidden(c.kind.gr, namespace.Name, errors.New("this namespace may not be deleted"))
	}
	if err := checkNamespacePreconditions(c.kind.gr, m, opts); err != nil {
		return nil, err
	}
	if m.GetDeletionTimestamp() != nil {
		if holdsContent(namespace) {
			return have, nil
		}
		return nil, nil
	}
	if err := c.review("DELETE", nil, have.Object); err != nil {
		return nil, err
	}
	obj := namespace.DeepCopy()
	obj.DeletionTimestamp = new(c.server.now())
	obj.Status.Phase = corev1.NamespaceTerminating
	obj.Finalizers = c.kind.finalizersFor(obj.Finalizers, opts)
	return c.commit(key, have, obj)
}

func checkNamespacePreconditions(gr schema.GroupResource, m metav1.Object, opts *metav1.DeleteOptions) error {
	want := opts.Preconditions
	if want == nil {
		return nil
	}
	if want.UID != nil && *want.UID != m.GetUID() {
		return apierrors.NewConflict(gr, m.GetName(), errors.New(preconditionFailed("UID", *want.UID, m.GetUID())))
	}
	if want.ResourceVersion != nil && *want.ResourceVersion != m.GetResourceVersion() {
		why := preconditionFailed("ResourceVersion", *want.ResourceVersion, m.GetResourceVersion())
		return apierrors.NewConflict(gr, m.GetName(), errors.New(why))
	}
	return nil
}
