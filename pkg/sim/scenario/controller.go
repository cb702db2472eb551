package scenario

import (
	"cmp"
	"context"
	"encoding/json"
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

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
			c.env.problem("the sync of %s changed a cached object:\n%s", c.synced.Name, gocmp.Diff(want, obj))
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

// A request is a request of a controller.
type request struct {
	*apiserver.Request
	next apiserver.Next
	// verb and name are those of a scenario: the verb of a status write is status, and a create has a name.
	verb, name string
	// line describes the request in the output.
	line string
	// flaw is the reason why no controller should send the request, or nil for a correct request.
	flaw error
}

// describe describes a request of a controller.
func (k *Kind) describe(server *apiserver.Server, from *apiserver.Request, next apiserver.Next) *request {
	r := &request{Request: from, next: next, verb: from.Verb, name: from.Name, line: from.String()}
	served := k.served(from.Resource.Resource)
	if served == nil {
		r.flaw = errors.New("the controller has no informer of this resource")
		return r
	}
	r.line = fmt.Sprintf("%s %s %s", r.verb, strings.ToLower(served.Kind), r.name)
	switch from.Verb + from.Subresource {
	case "get":
		return r
	case "create":
		r.flaw = r.describeCreate(k)
	case "patch":
		r.flaw = r.describePatch(k, server)
	case "patchstatus":
		r.flaw = r.describeStatus(k, server)
	case "delete":
		r.flaw = r.checkDelete()
		return r // A delete has no field manager.
	default:
		r.line, r.flaw = from.String(), errors.New("a controller on the kit does not send such requests")
	}
	if manager := from.Query.Get("fieldManager"); manager != k.Controller && r.flaw == nil {
		r.flaw = fmt.Errorf("its field manager is %q", manager)
	}
	return r
}

func (r *request) describeCreate(k *Kind) error {
	obj, err := k.decode(r.Request)
	if err != nil {
		return err
	}
	r.name = obj.GetName()
	r.line += r.name
	if k.Describe != nil {
		r.line += k.Describe(obj)
	}
	return nil
}

func (r *request) checkDelete() error {
	options := &metav1.DeleteOptions{}
	if err := runtime.DecodeInto(decoder, r.Body, options); err != nil {
		return err
	}
	if options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground {
		return errors.New("its propagation policy is not Background")
	}
	if p := options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
		return errors.New("it lacks a uid or resourceVersion")
	}
	return nil
}

// describePatch shows each field of a patch, with its value in the stored object and in the patch.
func (r *request) describePatch(k *Kind, server *apiserver.Server) error {
	have, want := map[string]string{}, map[string]string{}
	var patch any
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return err
	}
	flatten("", patch, want)
	if stored := server.Object(r.Resource, r.Namespace, r.name); stored != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
		if err != nil {
			return err
		}
		flatten("", content, have)
	}
	identified := want["metadata.uid"] != "" && want["metadata.resourceVersion"] != ""
	delete(want, "metadata.uid")
	delete(want, "metadata.resourceVersion")
	r.line += " " + k.changes(have, want)
	switch types.PatchType(r.HTTP.Header.Get("Content-Type")) {
	case types.StrategicMergePatchType, types.MergePatchType:
	default:
		return errors.New("it is no merge patch")
	}
	if !identified {
		return errors.New("it lacks a uid or resourceVersion")
	}
	return nil
}

// changes describes the fields of want, with their values in have.
func (k *Kind) changes(have, want map[string]string) string {
	var changes []string
	for _, path := range slices.Sorted(maps.Keys(want)) {
		before := cmp.Or(have[path], "none")
		changes = append(changes, fmt.Sprintf("%s %s -> %s", k.short(path), before, want[path]))
	}
	return strings.Join(changes, ", ")
}

// flatten adds the values at path and below to leaves.
func flatten(path string, value any, leaves map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, value := range value {
			flatten(strings.TrimPrefix(path+"."+key, "."), value, leaves)
		}
	case []any:
		flattenList(path, value, leaves)
	default:
		leaves[path] = fmt.Sprint(value)
	}
}

func flattenList(path string, list []any, leaves map[string]string) {
	for i, element := range list {
		fields, _ := element.(map[string]any)
		switch name := fields["name"]; {
		case path == "metadata.ownerReferences":
			leaves[path] = strings.TrimPrefix(leaves[path]+" and "+describeOwner(fields), " and ")
		case name != nil:
			delete(fields, "name")
			flatten(fmt.Sprintf("%s[%s]", path, name), fields, leaves)
		default:
			flatten(fmt.Sprintf("%s[%d]", path, i), element, leaves)
		}
	}
}

func describeOwner(ref map[string]any) string {
	line := fmt.Sprintf("%v %v %v", ref["apiVersion"], ref["kind"], ref["name"])
	if ref["controller"] != true {
		line += " (not controller)"
	}
	return line
}

// describeStatus describes a write of a status. If the conditions do not change, the line has the other fields that
// change.
func (r *request) describeStatus(k *Kind, server *apiserver.Server) error {
	r.verb = "status"
	obj, err := k.decode(r.Request)
	if err != nil {
		return err
	}
	summary := Summary(obj)
	r.line = fmt.Sprintf("status %s %s", r.name, summary)
	if have := server.Object(r.Resource, r.Namespace, r.name); have != nil && Summary(have) == summary {
		r.line += k.otherFields(have, obj)
	}
	if obj.GetUID() == "" || obj.GetResourceVersion() == "" {
		return errors.New("it lacks a uid or resourceVersion")
	}
	return nil
}

// otherFields returns which fields of two statuses outside the conditions differ, in parentheses.
func (k *Kind) otherFields(have, want runtime.Object) string {
	before, after := statusFields(have), statusFields(want)
	for path := range before {
		after[path] = cmp.Or(after[path], "none")
	}
	maps.DeleteFunc(after, func(path, value string) bool { return cmp.Or(before[path], "none") == value })
	if len(after) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", k.changes(before, after))
}

// statusFields returns the fields of the status of an object, except the conditions.
func statusFields(obj runtime.Object) map[string]string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err) // The API server has encoded it before.
	}
	status, _, _ := unstructured.NestedMap(content, "status")
	delete(status, "conditions")
	fields := map[string]string{}
	flatten("", status, fields)
	return fields
}

// Summary returns the conditions of an object in one line. All of them should have the reason and message of Ready. A
// condition with another reason or message is shown with it.
func Summary(obj runtime.Object) string {
	conditions := statusOf(obj).Conditions
	ready := meta.FindStatusCondition(conditions, "Ready")
	if ready == nil {
		return "nothing"
	}
	line := "Ready=" + string(ready.Status)
	for _, cond := range conditions {
		if cond.Type == ready.Type {
			continue
		}
		line += " " + cond.Type
		if cond.Status != metav1.ConditionTrue || cond.Reason != ready.Reason || cond.Message != ready.Message {
			line += fmt.Sprintf("(%s, %s: %s)", cond.Status, cond.Reason, cond.Message)
		}
	}
	return fmt.Sprintf("%s %s: %s", line, ready.Reason, ready.Message)
}
