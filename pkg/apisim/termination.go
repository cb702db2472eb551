package apisim

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunNamespaces deletes what is in namespaces that are being deleted, and lets them go when they are empty. It sees
// a change after lag. The conditions that a real server reports meanwhile are left out. It returns when ctx ends, at
// once when Namespaces are not registered.
func RunNamespaces(ctx context.Context, s *Server, lag time.Duration) {
	a := &actor{server: s, user: "namespace-controller", lag: lag}
	if s.namespaces() == nil {
		return
	}
	var retry time.Time
	for {
		if _, err := a.changes(ctx, retry, s.kinds...); err != nil {
			return
		}
		retry = time.Time{}
		for _, obj := range s.Objects(s.namespaces().Resource) {
			namespace, ok := obj.(*corev1.Namespace)
			if !ok || namespace.DeletionTimestamp == nil || !holdsContent(namespace) {
				continue
			}
			if err := a.empty(ctx, namespace); err != nil {
				retry = time.Now().Add(retryAfter)
			}
		}
	}
}

// empty deletes what is in a namespace, or lets it go when there is nothing.
func (a *actor) empty(ctx context.Context, namespace *corev1.Namespace) error {
	left := 0
	for _, kind := range a.server.kinds {
		if kind.ClusterScoped {
			continue
		}
		if fresh, waiting := a.contents(kind, namespace.Name); fresh == 0 {
			left += waiting
			continue
		}
		policy := metav1.DeletePropagationBackground
		opts := &metav1.DeleteOptions{PropagationPolicy: &policy}
		if err := a.do(ctx, http.MethodDelete, kind.path(namespace.Name, "", ""), string(mediaJSON), opts); err != nil {
			return err
		}
		fresh, waiting := a.contents(kind, namespace.Name)
		left += fresh + waiting
	}
	if left > 0 {
		return nil // The next change in it brings the namespace here again.
	}
	done := namespace.DeepCopy()
	done.Spec.Finalizers = nil
	return a.do(ctx, http.MethodPut, a.server.namespaces().path("", done.Name, "finalize"), string(mediaJSON), done)
}

// contents counts the objects in a namespace: those that nobody has deleted, and those that wait for a finalizer.
func (a *actor) contents(kind *resource, namespace string) (fresh, waiting int) {
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	for _, rev := range kind.live {
		switch {
		case rev.Namespace != namespace:
		case accessor(rev.Object).GetDeletionTimestamp() == nil:
			fresh++
		default:
			waiting++
		}
	}
	return fresh, waiting
}
