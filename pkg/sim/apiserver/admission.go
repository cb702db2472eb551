package apiserver

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An Admission is a write that passes through admission.
type Admission struct {
	Operation   string // CREATE, UPDATE or DELETE.
	User        string
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string // Empty if the server will generate it.
	// Object is the new object, nil for DELETE. Functions given to Admit may change it. At the scale subresource it is
	// a Scale, and so is Old.
	Object runtime.Object
	Old    runtime.Object // The stored object, nil for CREATE. It must not be modified.
	DryRun bool
}

// Admit adds a function to the mutating admission, which runs before validation. The function may change a write, or
// refuse it with an error. It may be called more than once for an update. No lock is held.
func (s *Server) Admit(f func(*Admission) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutating = append(slices.Clip(s.mutating), f)
}

// Review adds a function to the validating admission, which runs after validation. The function may refuse a write with
// an error, as a policy or a quota does. No lock is held.
func (s *Server) Review(f func(*Admission) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.validating = append(slices.Clip(s.validating), f)
}

func (c *call) admission(operation string, obj, old runtime.Object) *Admission {
	name := c.request.Name
	if obj != nil && name == "" {
		name = accessor(obj).GetName()
	}
	return &Admission{
		Operation: operation, User: c.request.User, Resource: c.kind.Resource, Subresource: c.request.Subresource,
		Namespace: c.request.Namespace, Name: name, Object: obj, Old: old, DryRun: c.dryRun,
	}
}

// admit passes a write through the mutating admission.
func (c *call) admit(operation string, obj, old runtime.Object) error {
	if err := c.admitNamespace(operation, obj); err != nil {
		return err
	}
	c.server.mu.Lock()
	mutating := c.server.mutating
	c.server.mu.Unlock()
	for _, f := range mutating {
		if err := f(c.admission(operation, obj, old)); err != nil {
			return err
		}
		if obj != nil && c.request.Subresource != "scale" {
			c.kind.setDefaults(obj)
		}
	}
	return nil
}

// review passes a write through the validating admission.
func (c *call) review(operation string, obj, old runtime.Object) error {
	c.server.mu.Lock()
	validating := c.server.validating
	c.server.mu.Unlock()
	for _, f := range validating {
		if err := f(c.admission(operation, obj, old)); err != nil {
			return err
		}
	}
	return nil
}

// admitNamespace refuses a create if the namespace does not exist or is being deleted.
func (c *call) admitNamespace(operation string, obj runtime.Object) error {
	namespaces := c.server.namespaces()
	if namespaces == nil || c.kind.ClusterScoped || operation == "DELETE" {
		return nil
	}
	have := c.server.find(namespaces, c.request.Namespace)
	if have == nil {
		return apierrors.NewNotFound(namespaces.gr, c.request.Namespace)
	}
	namespace, ok := have.Object.(*corev1.Namespace)
	if operation != "CREATE" || !ok || namespace.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	err := forbidden(c.kind.gr, obj, c.request.Name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace.Name))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", namespace.Name),
		Field:   "metadata.namespace",
	})
	return err
}

// forbidden returns the error with which admission refuses a write.
func forbidden(gr schema.GroupResource, obj runtime.Object, name string, why error) *apierrors.StatusError {
	if name == "" {
		name = "Unknown"
		if obj != nil && accessor(obj).GetName() != "" {
			name = accessor(obj).GetName()
		} else if obj != nil && accessor(obj).GetGenerateName() != "" {
			name = accessor(obj).GetGenerateName()
		}
	}
	return apierrors.NewForbidden(gr, name, why)
}
