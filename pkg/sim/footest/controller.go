package footest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A controllerUnderTest is one running controller with its caches. No informer runs: updateCaches does their work.
type controllerUnderTest struct {
	env     *env
	ctx     context.Context
	subject *Subject
	// name is empty if this is the only controller.
	name   string
	caches map[string]*cacheUnderTest // By resource.
	// copies has a copy of each cached object, made when it was cached. They show whether a sync changed an object.
	copies map[metav1.Object]metav1.Object
	queue  *queue
	names  *names
	// synced is the key of the last sync, and outcome how it ended.
	synced  cache.ObjectName
	outcome kit.Outcome
}

// A cacheUnderTest is the cache of an informer that does not run.
type cacheUnderTest struct {
	store  cache.Indexer
	notify func(notification)
	// version is the version up to which the cache has seen changes.
	version int64
	// paused is true while the cache sees no changes.
	paused bool
}

// start starts a controller. Its caches have all existing objects.
func (e *env) start(name string) *controllerUnderTest {
	c := &controllerUnderTest{env: e, name: name, copies: map[metav1.Object]metav1.Object{}}
	c.ctx = klog.NewContext(e.ctx, klog.Logger{})
	config := e.cluster.Config(controllerName + name)
	kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
	foos, deployments := newIdleFoos(samples), newIdleDeployments(kube)
	subject, err := e.newSubject(c.ctx, Wiring{
		Kube: kube, Samples: samples, Recorder: eventRecorder{c}, Foos: foos, Deployments: deployments,
		Workers: 1,
	})
	if err != nil {
		panic(err)
	}
	c.subject = subject
	subject.Queue.OnSynced = func(key cache.ObjectName, outcome kit.Outcome) { c.synced, c.outcome = key, outcome }
	c.queue = newQueue(c, subject.Queue)
	subject.Queue.Workqueue, subject.Queue.AddAs = c.queue, c.queue.add
	c.names = newNames(c, subject.Names)
	subject.Names.Workqueue, subject.Names.AddAs = c.names, c.names.add
	c.caches = map[string]*cacheUnderTest{
		foosResource:        {store: foos.Informer().GetIndexer(), notify: foos.idle.notify},
		deploymentsResource: {store: deployments.GetIndexer(), notify: deployments.notify},
	}
	c.list(foosResource, true)
	c.list(deploymentsResource, true)
	e.controllers = append(e.controllers, c)
	return c
}

// line returns a line of output about this controller.
func (c *controllerUnderTest) line(format string, args ...any) string {
	line := fmt.Sprintf(format, args...)
	if c.name != "" {
		line = c.name + ": " + line
	}
	return line
}

// serve answers a request of the controller.
func (c *controllerUnderTest) serve(from *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	r := c.env.cluster.describe(from, next)
	c.env.onRequest(c.env, r)
	if r.flaw != nil {
		c.env.problem("%s: %v", r.line, r.flaw)
		return nil, r.flaw
	}
	answer, err := c.env.cluster.serve(from, r)
	c.env.log(c, "%s", r.line)
	if c.env.eventsFirst {
		c.updateCaches()
	}
	return answer, err
}

// updateCaches brings the caches that are not paused up to date, and calls the handlers of the controller.
func (c *controllerUnderTest) updateCaches() {
	for _, change := range c.env.cluster.changes() {
		cached := c.caches[change.Resource.Resource]
		if change.Version <= cached.version || cached.paused {
			continue
		}
		cached.version = change.Version
		c.apply(cached, change)
	}
}

// behind reports whether a paused cache has not seen all changes.
func (c *controllerUnderTest) behind() bool {
	return slices.ContainsFunc(c.env.cluster.changes(), func(change *apiserver.Revision) bool {
		cached := c.caches[change.Resource.Resource]
		return cached.paused && change.Version > cached.version
	})
}

// apply does what an informer does with a watch event.
func (c *controllerUnderTest) apply(cached *cacheUnderTest, change *apiserver.Revision) {
	obj, deleted := c.cachedCopy(change.Object), change.Type == watch.Deleted
	had, _, _ := cached.store.GetByKey(cache.MetaObjectToName(obj).String())
	before, _ := had.(metav1.Object)
	put := cached.store.Update
	if deleted {
		put = cached.store.Delete
	}
	if err := put(obj); err != nil {
		panic(err)
	}
	c.notify(cached, notification{before: before, obj: obj, deleted: deleted})
}

// notify calls the handlers of a cache. The keys that they queue are added by name, since handlers may add them in the
// order of a map.
func (c *controllerUnderTest) notify(cached *cacheUnderTest, n notification) {
	c.collect(func() { cached.notify(n) })
}

// collect calls add, and then adds the keys that it has queued.
func (c *controllerUnderTest) collect(add func()) {
	c.queue.collecting = true
	add()
	c.queue.addCollected()
}

// list does what an informer does at its start and when it has to list again: it replaces its cache by the existing
// objects. Handlers do not see the changes between the two lists.
func (c *controllerUnderTest) list(resource string, initial bool) {
	cached := c.caches[resource]
	had := map[string]metav1.Object{}
	for _, obj := range cached.store.List() {
		had[obj.(metav1.Object).GetName()] = obj.(metav1.Object)
	}
	var items []any
	for _, obj := range c.env.cluster.Objects(resourceOf(resource)) {
		items = append(items, c.cachedCopy(obj))
	}
	version := c.env.cluster.Version()
	if err := cached.store.Replace(items, strconv.FormatInt(version, 10)); err != nil {
		panic(err)
	}
	cached.version = version
	for _, item := range items {
		obj := item.(metav1.Object)
		c.notify(cached, notification{before: had[obj.GetName()], obj: obj, initial: initial})
		delete(had, obj.GetName())
	}
	for _, name := range slices.Sorted(maps.Keys(had)) {
		c.notify(cached, notification{before: had[name], obj: had[name], deleted: true})
	}
}

// cachedCopy returns the object that a cache stores for obj, and keeps a copy of it for checkUnchanged.
func (c *controllerUnderTest) cachedCopy(obj runtime.Object) metav1.Object {
	trimmed := trimmedCopy(obj)
	c.copies[trimmed] = trimmedCopy(obj)
	return trimmed
}

// trimmedCopy returns what an informer stores for obj. It shares no memory with obj.
func trimmedCopy(obj runtime.Object) metav1.Object {
	trimmed, err := plan.Trim(obj.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	return trimmed.(metav1.Object)
}

// sync makes the worker process the next key.
func (c *controllerUnderTest) sync() {
	c.env.quiet = true
	c.queue.delayed, c.synced = nil, cache.ObjectName{}
	c.subject.Queue.ProcessNextWorkItem(c.ctx, c.ctx)
	if c.synced != c.queue.key {
		c.env.problem("the controller did not report the outcome of the sync of %s", c.queue.key.Name)
	}
	c.recordDelay()
	if errors.Is(c.outcome.Err, kit.ErrPanic) {
		c.env.problem("the sync of %s panicked: %v", c.synced.Name, c.outcome.Err)
	}
	for _, cached := range c.caches {
		c.checkUnchanged(cached)
	}
}

// checkUnchanged checks that the sync did not change cached objects.
func (c *controllerUnderTest) checkUnchanged(cached *cacheUnderTest) {
	for _, item := range cached.store.List() {
		obj := item.(metav1.Object)
		if want, found := c.copies[obj]; found && !reflect.DeepEqual(want, obj) {
			c.env.problem("the sync of %s changed a cached object:\n%s", c.synced.Name, cmp.Diff(want, obj))
			delete(c.copies, obj) // One report is enough.
		}
	}
}

// An eventRecorder logs the events of a controller.
type eventRecorder struct{ *controllerUnderTest }

var _ events.EventRecorder = eventRecorder{}

func (r eventRecorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	foo := regarding.(*v1alpha1.Foo).Name
	r.env.log(r.controllerUnderTest, "event %s %s %s: %s", foo, eventType, reason, fmt.Sprintf(note, args...))
}
