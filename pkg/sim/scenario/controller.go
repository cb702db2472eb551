package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A controller is one running controller with its caches. Its informers get no answer to their requests: updateCaches
// fills their caches and calls the handlers.
type controller struct {
	*Controller
	env  *Env
	ctx  context.Context
	stop func()
	// name is empty if this is the only controller.
	name, user string
	caches     []*cached
	// copies has a copy of each cached object, made when it was cached. They show whether a sync changed an object.
	copies map[metav1.Object]metav1.Object
	addNow addAs
	// collecting makes add append keys to collected instead of queueing them.
	collecting bool
	collected  []cache.ObjectName
	delays
}

// addAs is the type of the AddAs of a queue.
type addAs = func(cache.ObjectName, fairqueue.Class)

// A cached is the cache of an informer.
type cached struct {
	kind     *apiserver.Kind
	store    cache.Indexer
	handlers cache.ResourceEventHandler
	// version is the version up to which the cache has seen changes.
	version int64
	// paused is true while the cache sees no changes.
	paused bool
}

// start starts a controller. Its caches have all existing objects.
func (e *Env) start(name string) *controller {
	c := &controller{
		env: e, name: name, user: e.kind.Controller + name, copies: map[metav1.Object]metav1.Object{}, delays: newDelays(),
	}
	ctx, cancel := context.WithCancel(klog.NewContext(e.ctx, klog.Logger{}))
	made, err := e.kind.New(ctx, Wiring{Config: e.Server.Config(c.user), Recorder: eventRecorder{c}, Workers: 1})
	if err != nil {
		panic(err)
	}
	c.Controller, c.ctx = made, ctx
	c.Random = func() float64 { return 0 } // The delays are part of the output.
	c.Queue.OnSynced = c.onSynced
	c.addNow, c.Queue.AddAs = c.Queue.AddAs, c.add
	for _, other := range c.Others {
		other.Workqueue = delaying{other.Workqueue, &c.delays}
	}
	if _, err := c.Watch(klog.FromContext(ctx)); err != nil {
		panic(err)
	}
	e.controllers = append(e.controllers, c) // From now on, it gets its answers here.
	var running sync.WaitGroup
	for _, informer := range c.Informers() {
		c.caches = append(c.caches, &cached{
			kind: e.kind.served(informer.Resource.Resource), store: informer.GetIndexer(), handlers: handlersOf(informer),
		})
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	c.stop = func() {
		cancel()
		for _, queue := range append([]*kit.Queue{c.Queue}, c.Others...) {
			queue.ShutDown()
		}
		running.Wait()
	}
	synctest.Wait()
	for _, cached := range c.caches {
		c.list(cached, true)
	}
	return c
}

// handlersOf returns what calls the handlers of an informer. An informer of client-go does that itself, inside of the
// wrappers that give it types.
func handlersOf(informer cache.SharedIndexInformer) cache.ResourceEventHandler {
	for {
		if handlers, ok := informer.(cache.ResourceEventHandler); ok {
			return handlers
		}
		informer = reflect.Indirect(reflect.ValueOf(informer)).FieldByName("SharedIndexInformer").
			Interface().(cache.SharedIndexInformer)
	}
}

// line returns a line of output about this controller.
func (c *controller) line(format string, args ...any) string {
	line := fmt.Sprintf(format, args...)
	if c.name != "" {
		line = c.name + ": " + line
	}
	return line
}

// serve answers a request of the controller.
func (c *controller) serve(from *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	if from.Verb == "list" || from.Verb == "watch" { // Of an informer.
		<-from.Context().Done()
		return nil, from.Context().Err()
	}
	r := c.env.kind.describe(c.env.Server, from, next)
	c.env.onRequest(c.env, r)
	if r.flaw != nil {
		c.env.problem("%s: %v", r.line, r.flaw)
		return nil, r.flaw
	}
	answer, err := c.env.answer(r)
	c.env.log(c, "%s", r.line)
	if c.env.eventsFirst {
		c.updateCaches()
	}
	return answer, err
}

// updateCaches brings the caches that are not paused up to date, and calls the handlers of the controller.
func (c *controller) updateCaches() {
	for _, change := range c.env.changes() {
		cached := c.cacheOf(change.Resource.Resource)
		if cached == nil || change.Version <= cached.version || cached.paused {
			continue
		}
		cached.version = change.Version
		c.apply(cached, change)
	}
}

// changes returns the changes that watches send, in order.
func (e *Env) changes() []*apiserver.Revision { return e.Server.History(e.kind.resources()...) }

func (c *controller) cacheOf(resource string) *cached {
	i := slices.IndexFunc(c.caches, func(cached *cached) bool { return cached.kind.Resource.Resource == resource })
	if i < 0 {
		return nil
	}
	return c.caches[i]
}

// behind reports whether a paused cache has not seen all changes.
func (c *controller) behind() bool {
	return slices.ContainsFunc(c.env.changes(), func(change *apiserver.Revision) bool {
		cached := c.cacheOf(change.Resource.Resource)
		return cached != nil && cached.paused && change.Version > cached.version
	})
}

// apply does what an informer does with a watch event.
func (c *controller) apply(cached *cached, change *apiserver.Revision) {
	obj := c.cachedCopy(change.Object)
	before, found, _ := cached.store.GetByKey(cache.MetaObjectToName(obj).String())
	put := cached.store.Update
	if change.Type == watch.Deleted {
		put = cached.store.Delete
	}
	if err := put(obj); err != nil {
		panic(err)
	}
	c.notify(func() {
		switch {
		case change.Type == watch.Deleted:
			cached.handlers.OnDelete(obj)
		case !found:
			cached.handlers.OnAdd(obj, false)
		default:
			cached.handlers.OnUpdate(before, obj)
		}
	})
}

// notify calls handlers, and what they queue. The keys are added by name, since handlers may add them in the order of a
// map.
func (c *controller) notify(handlers func()) {
	c.collect(func() {
		handlers()
		synctest.Wait()
		c.runOthers()
	})
}

// collect calls add, and then adds the keys that it has queued, in the order of their names.
func (c *controller) collect(add func()) {
	c.collecting = true
	add()
	c.collecting = false
	slices.SortFunc(c.collected, compareNames)
	for _, key := range c.collected {
		c.add(key, fairqueue.Change)
	}
	c.collected = nil
}

// add queues a key at once. Scenarios do not show the class: their output has the order of the names.
func (c *controller) add(key cache.ObjectName, _ fairqueue.Class) {
	if c.collecting {
		c.collected = append(c.collected, key)
		return
	}
	c.addNow(key, fairqueue.Change)
}

// runOthers syncs the keys of the other queues.
func (c *controller) runOthers() {
	for _, other := range c.Others {
		for other.Workqueue.Len() > 0 {
			other.ProcessNextWorkItem(c.ctx, c.ctx)
		}
	}
}

// list does what an informer does at its start and when it has to list again: it replaces its cache by the existing
// objects. Handlers do not see the changes between the two lists.
func (c *controller) list(cached *cached, initial bool) {
	had := map[string]any{}
	for _, obj := range cached.store.List() {
		had[obj.(metav1.Object).GetName()] = obj
	}
	var items []any
	for _, obj := range c.env.Server.Objects(cached.kind.Resource) {
		items = append(items, c.cachedCopy(obj))
	}
	version := c.env.Server.Version()
	if err := cached.store.Replace(items, strconv.FormatInt(version, 10)); err != nil {
		panic(err)
	}
	cached.version = version
	for _, obj := range items {
		name := obj.(metav1.Object).GetName()
		if before, found := had[name]; found {
			c.notify(func() { cached.handlers.OnUpdate(before, obj) })
		} else {
			c.notify(func() { cached.handlers.OnAdd(obj, initial) })
		}
		delete(had, name)
	}
	for _, name := range slices.Sorted(maps.Keys(had)) {
		c.notify(func() { cached.handlers.OnDelete(had[name]) })
	}
}

// cachedCopy returns the object that a cache stores for obj, and keeps a copy of it for checkUnchanged.
func (c *controller) cachedCopy(obj runtime.Object) metav1.Object {
	trimmed := c.trimmedCopy(obj)
	c.copies[trimmed] = c.trimmedCopy(obj)
	return trimmed
}

// trimmedCopy returns what an informer stores for obj. It shares no memory with obj.
func (c *controller) trimmedCopy(obj runtime.Object) metav1.Object {
	trimmed, err := c.Trim(obj.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	return trimmed.(metav1.Object)
}

// sync makes the worker process the next key.
func (c *controller) sync() {
	c.env.sent = nil
	c.Queue.ProcessNextWorkItem(c.ctx, c.ctx)
	if len(c.env.sent) > 0 {
		c.env.syncs = append(c.env.syncs, syncLog{name: c.synced.Name, lines: c.env.sent})
	}
	for _, cached := range c.caches {
		c.checkUnchanged(cached)
	}
}

// checkUnchanged checks that the sync did not change cached objects.
func (c *controller) checkUnchanged(cached *cached) {
	for _, item := range cached.store.List() {
		obj := item.(metav1.Object)
		if want, found := c.copies[obj]; found && !reflect.DeepEqual(want, obj) {
			c.env.problem("the sync of %s changed a cached object:\n%s", c.synced.Name, cmp.Diff(want, obj))
			delete(c.copies, obj) // One report is enough.
		}
	}
}

// onSynced is called when a sync ends.
func (c *controller) onSynced(key cache.ObjectName, outcome kit.Outcome) {
	c.synced = key
	if errors.Is(outcome.Err, kit.ErrPanic) {
		c.env.problem("the sync of %s panicked: %v", key.Name, outcome.Err)
	}
	c.recordDelay(outcome)
}

// An eventRecorder logs the events of a controller.
type eventRecorder struct{ *controller }

var _ events.EventRecorder = eventRecorder{}

func (r eventRecorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	r.env.log(r.controller, "event %s %s %s: %s", regarding.(Object).GetName(), eventType, reason, text)
}

func compareNames(a, b cache.ObjectName) int { return strings.Compare(a.Name, b.Name) }
