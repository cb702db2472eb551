// Package simtest is for the tests of a controller on the simulated API server: which writes it sent, whether its role
// permits its requests, whether it changed cached objects, and which events it recorded. Like package apiserver, it is
// for controllers of any kind.
package simtest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// Writes are the writes of one user, in the order in which they arrived. They may be used concurrently.
type Writes struct {
	fails map[string]error

	mu   sync.Mutex
	list []string
}

// RecordWrites records the writes of a user from now on, each as a text such as "update deployments/status web". A
// write that is a key of fails is refused with its error.
func RecordWrites(server *apiserver.Server, user string, fails map[string]error) *Writes {
	w := &Writes{fails: fails}
	server.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		if r.User != user || slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			return next()
		}
		if err := w.Record(strings.Join([]string{r.Verb, resourceOf(r), nameOf(r)}, " ")); err != nil {
			return r.Refuse(err)
		}
		return next()
	})
	return w
}

// Record records a write, such as one to something outside of the cluster, and returns its error.
func (w *Writes) Record(write string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, write)
	return w.fails[write]
}

// Take returns the writes since the last call.
func (w *Writes) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// resourceOf returns the resource of a request, with its subresource.
func resourceOf(r *apiserver.Request) string {
	return strings.TrimSuffix(r.Resource.Resource+"/"+r.Subresource, "/")
}

// nameOf returns the name of the object that a write is about. That of a create is only in the object.
func nameOf(r *apiserver.Request) string {
	if r.Name != "" {
		return r.Name
	}
	if obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, nil); err == nil {
		if obj, ok := obj.(metav1.Object); ok {
			return obj.GetName()
		}
	}
	var custom metav1.PartialObjectMetadata
	_ = json.Unmarshal(r.Body, &custom) // The server refuses what is not an object.
	return custom.Name
}

// Authorize refuses the requests of a user that no rule permits, as RBAC does with the rules of a role. unused returns
// the permissions that no request needed, each as a text such as "update deployments.apps/status", sorted. Names of
// objects and wildcards in rules are not supported.
func Authorize(server *apiserver.Server, user string, rules []rbacv1.PolicyRule) (unused func() []string) {
	permitted := sets.New(Permissions(rules)...)
	var mu sync.Mutex
	rest := permitted.Clone()
	server.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		// Everybody may ask for discovery, and for the own permissions.
		if r.User != user || r.Resource.Resource == "" || strings.HasPrefix(r.Resource.Resource, "selfsubject") {
			return next()
		}
		permission := permissionOf(r.Verb, r.Resource.Group, resourceOf(r))
		if !permitted.Has(permission) {
			cause := fmt.Errorf("no rule permits: %s", permission)
			return r.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, cause))
		}
		mu.Lock()
		rest.Delete(permission)
		mu.Unlock()
		return next()
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return sets.List(rest)
	}
}

// Permissions returns what rules permit, each as a text such as "update deployments.apps/status", sorted.
func Permissions(rules []rbacv1.PolicyRule) []string {
	permissions := sets.New[string]()
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					permissions.Insert(permissionOf(verb, group, resource))
				}
			}
		}
	}
	return sets.List(permissions)
}

func permissionOf(verb, group, resource string) string {
	resource, subresource, _ := strings.Cut(resource, "/")
	return verb + " " + strings.TrimSuffix(strings.TrimSuffix(resource+"."+group, ".")+"/"+subresource, "/")
}

// Cached remembers the objects in the caches of informers. changed returns the types of those that somebody has
// modified in place since. Objects of a cache are shared, so they must be copied before a change.
func Cached(informers ...cache.SharedIndexInformer) (changed func() []string) {
	copies := map[runtime.Object]runtime.Object{}
	for _, informer := range informers {
		for _, obj := range informer.GetStore().List() {
			if obj, ok := obj.(runtime.Object); ok {
				copies[obj] = obj.DeepCopyObject()
			}
		}
	}
	return func() []string {
		var list []string
		for obj, before := range copies {
			if !equality.Semantic.DeepEqual(obj, before) {
				list = append(list, fmt.Sprintf("%T", obj))
			}
		}
		slices.Sort(list)
		return list
	}
}

// Condition returns the status and the reason of a condition of a stored object, such as "False/NotOwned", and nothing
// if there is no such object or condition.
func Condition(server *apiserver.Server, gvr schema.GroupVersionResource, namespace, name, condition string) string {
	stored := server.Object(gvr, namespace, name)
	if stored == nil {
		return ""
	}
	var obj struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	text, err := json.Marshal(stored)
	if err := errors.Join(err, json.Unmarshal(text, &obj)); err != nil {
		return err.Error()
	}
	if c := meta.FindStatusCondition(obj.Status.Conditions, condition); c != nil {
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}

// RunInformers runs informers until the context of the test ends, and returns when their caches are filled, or after a
// minute for each. It is for a test in a bubble of testing/synctest.
func RunInformers(t testing.TB, informers ...cache.SharedIndexInformer) {
	var running sync.WaitGroup
	for _, informer := range informers {
		running.Go(func() { informer.RunWithContext(t.Context()) })
	}
	t.Cleanup(running.Wait) // The context ends before.
	synctest.Wait()
	for _, informer := range informers {
		for seconds := 0; seconds < 60 && !informer.HasSynced(); seconds++ { // Faults may delay or refuse the list.
			time.Sleep(time.Second)
			synctest.Wait()
		}
	}
}

// Events returns the events since the last call, each as "Normal Reason Note".
func Events(recorder *events.FakeRecorder) []string {
	var list []string
	for {
		select {
		case event := <-recorder.Events:
			list = append(list, event)
		default:
			return list
		}
	}
}
