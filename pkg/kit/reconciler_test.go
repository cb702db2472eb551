package kit

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// A decision does not depend on where an object comes from: answers are trimmed like the objects in the caches.
func TestAnswersAreTrimmed(t *testing.T) {
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"a": "b"}}}
	for name, send := range map[string]func(context.Context, string, *reconcile.Step) (metav1.Object, error){
		"found":     func(context.Context, string, *reconcile.Step) (metav1.Object, error) { return stored, nil },
		"not found": func(context.Context, string, *reconcile.Step) (metav1.Object, error) { return nil, nil },
	} {
		ctx, stop := context.WithCancel(t.Context())
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		r := &Reconciler{
			Queue: NewQueue(ctx, QueueConfig{Kind: "widget", Sync: returnsDone}),
			Trim: func(obj any) (any, error) {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: obj.(*corev1.ConfigMap).Name}}, nil
			},
			Kinds: []Kind{{Name: "ConfigMap", Store: store, Send: send}},
		}
		step := &reconcile.Step{Op: reconcile.Op{Verb: reconcile.Get, Kind: "ConfigMap", Name: "web"}}
		reply := r.send(ctx, cache.NewObjectName("", "web"), step, "web")
		if reply.Err != nil || (reply.Object != nil) != (name == "found") ||
			reply.Object != nil && len(reply.Object.GetAnnotations()) > 0 {
			t.Errorf("%s: the answer is %+v", name, reply)
		}
		r.Queue.ShutDown()
		stop()
	}
}
