package kit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/kit/fairqueue"
)

func TestObjectsQueuesWhatChanges(t *testing.T) {
	at := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", ResourceVersion: version}}
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "default/web"}
	for _, test := range []struct {
		name    string
		happens func(Handlers[*corev1.ConfigMap])
		want    fairqueue.Class
	}{
		{name: "it is in the initial list", want: fairqueue.Initial,
			happens: func(h Handlers[*corev1.ConfigMap]) { h.OnAdd(at("1"), true) }},
		{name: "it is added", want: fairqueue.Change,
			happens: func(h Handlers[*corev1.ConfigMap]) { h.OnAdd(at("1"), false) }},
		{name: "it is changed", want: fairqueue.Change,
			happens: func(h Handlers[*corev1.ConfigMap]) { h.OnUpdate(at("1"), at("2")) }},
		{name: "it is resynced", want: fairqueue.Initial,
			happens: func(h Handlers[*corev1.ConfigMap]) { h.OnUpdate(at("1"), at("1")) }},
		{name: "it is deleted", want: fairqueue.Change, happens: func(h Handlers[*corev1.ConfigMap]) {
			h.OnDelete(cache.DeletedObject[*corev1.ConfigMap]{OptionalObj: at("1")})
		}},
		{name: "it is deleted, and only its key is known", want: fairqueue.Change, happens: func(h Handlers[*corev1.ConfigMap]) {
			h.OnDelete(cache.DeletedObject[*corev1.ConfigMap]{FinalStateUnknown: &tombstone})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(t.Context(), QueueConfig{Kind: "configMap", Sync: returnsDone})
				defer q.ShutDown()
				var added []string
				q.AddAs = func(key cache.ObjectName, class fairqueue.Class) { added = append(added, fmt.Sprint(key, " ", class)) }
				test.happens(Objects[*corev1.ConfigMap](q))
				if got, want := strings.Join(added, ", "), fmt.Sprint(web, " ", test.want); got != want {
					t.Errorf("queued: %q, want %q", got, want)
				}
			})
		})
	}
}

// A Deployment "web-1" belongs to the Widget "web".
func TestChildrenQueuesTheirOwners(t *testing.T) {
	widgets := schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Widget"}
	child := func(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
		owner := &metav1.ObjectMeta{Name: "web", UID: "uid"}
		dep := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-1", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, widgets)},
		}}
		for _, edit := range edits {
			edit(dep)
		}
		return dep
	}
	refersTo := func(edit func(*metav1.OwnerReference)) func(*appsv1.Deployment) {
		return func(dep *appsv1.Deployment) { edit(&dep.OwnerReferences[0]) }
	}
	newer := func(dep *appsv1.Deployment) { dep.ResourceVersion = "2" }
	tombstone := cache.DeletedFinalStateUnknown{Key: "default/web-1"}
	for _, test := range []struct {
		name    string
		happens func(Handlers[*appsv1.Deployment])
		want    string
	}{
		{name: "it is in the initial list", happens: func(h Handlers[*appsv1.Deployment]) { h.OnAdd(child(), true) }},
		{name: "it is added", want: "web-1 web", happens: func(h Handlers[*appsv1.Deployment]) { h.OnAdd(child(), false) }},
		{name: "it has the name of its owner", want: "web", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnAdd(child(func(dep *appsv1.Deployment) { dep.Name = "web" }), false)
		}},
		{name: "it has no owner", want: "web-1", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnAdd(child(func(dep *appsv1.Deployment) { dep.OwnerReferences = nil }), false)
		}},
		{name: "its owner does not control it", want: "web-1", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnAdd(child(refersTo(func(ref *metav1.OwnerReference) { ref.Controller = nil })), false)
		}},
		{name: "its owner is of another kind", want: "web-1", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnAdd(child(refersTo(func(ref *metav1.OwnerReference) { ref.Kind = "Gadget" })), false)
		}},
		{name: "its owner is of another group", want: "web-1", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnAdd(child(refersTo(func(ref *metav1.OwnerReference) { ref.APIVersion = "other.example.com/v1" })), false)
		}},
		{name: "its owner was written in another version", want: "web-1 web", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnAdd(child(refersTo(func(ref *metav1.OwnerReference) { ref.APIVersion = "acme.example.com/v0" })), false)
		}},
		{name: "it is resynced", happens: func(h Handlers[*appsv1.Deployment]) { h.OnUpdate(child(), child()) }},
		{name: "it gets another owner", want: "web-1 web web-1 new", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnUpdate(child(), child(newer, refersTo(func(ref *metav1.OwnerReference) { ref.Name = "new" })))
		}},
		{name: "it is deleted", want: "web-1 web", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnDelete(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: child()})
		}},
		{name: "it is deleted, and only its name is known", want: "web-1", happens: func(h Handlers[*appsv1.Deployment]) {
			h.OnDelete(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &tombstone})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var added []string
			test.happens(Children[*appsv1.Deployment](widgets.GroupKind(), func(key cache.ObjectName) {
				added = append(added, key.Name)
			}))
			if got := strings.Join(added, " "); got != test.want {
				t.Errorf("queued: %q, want %q", got, test.want)
			}
		})
	}
}

func TestByController(t *testing.T) {
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{UID: "other"}, {UID: "uid", Controller: new(true)},
	}}}
	for want, obj := range map[string]any{"[uid] <nil>": owned, "[] <nil>": &corev1.ConfigMap{}} {
		keys, err := ByController(obj)
		if got := fmt.Sprint(keys, err); got != want {
			t.Errorf("the index has %s, want %s", got, want)
		}
	}
	if _, err := ByController("text"); err == nil {
		t.Error("a text has no controller")
	}
}
