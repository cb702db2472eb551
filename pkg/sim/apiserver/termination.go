package apiserver

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunNamespaces deletes the contents of namespaces that are being deleted, and removes their finalizer when they are
// empty. It sees a change after lag. It does not set the conditions of a real server. It returns when ctx ends, or at
// once if Namespaces are not registered.
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
			if err := a.deleteContents(ctx, namespace); err != nil {
				retry = time.Now().Add(retryAfter)
			}
		}
	}
}

// deleteContents deletes the objects in a namespace, or removes the finalizer of the namespace if there are none.
func (a *actor) deleteContents(ctx context.Context, namespace *corev1.Namespace) error {
	left := 0
	for _, kind := range a.server.kinds {
		if kind.ClusterScoped {
			continue
		}
		if active, terminating := a.contents(kind, namespace.Name); active == 0 {
			left += terminating
			continue
		}
		policy := metav1.DeletePropagationBackground
		opts := &metav1.DeleteOptions{PropagationPolicy: &policy}
		if err := a.do(ctx, http.MethodDelete, kind.path(namespace.Name, "", ""), string(mediaJSON), opts); err != nil {
			return err
		}
		active, terminating := a.contents(kind, namespace.Name)
		left += active + terminating
	}
	if left > 0 {
		return nil // The next change in the namespace triggers another attempt.
	}
	done := namespace.DeepCopy()
	done.Spec.Finalizers = nil
	return a.do(ctx, http.MethodPut, a.server.namespaces().path("", done.Name, "finalize"), string(mediaJSON), done)
}

// contents counts the objects of a kind in a namespace: the active ones and those that are being deleted.
func (a *actor) contents(kind *resource, namespace string) (active, terminating int) {
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	for _, rev := range kind.live {
		switch {
		case rev.Namespace != namespace:
		case accessor(rev.Object).GetDeletionTimestamp() == nil:
			active++
		default:
			terminating++
		}
	}
	return active, terminating
}
