package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// retryAfter is the delay after which an actor retries a failed request.
const retryAfter = time.Second

// An actor is a simulated controller or user. It reads the stored objects directly, but writes by requests like any
// client, so interceptors and the trace see its writes.
type actor struct {
	server *Server
	user   string
	lag    time.Duration // How long it takes to see a change.
	seen   int64         // The version up to which it has seen changes.
}

// changes returns the changes since the last call that are older than the lag. If the history does not reach back so
// far, it returns all current objects instead, as for a client that has to list again. It waits until there is a change
// or, unless until is zero, until then.
func (a *actor) changes(ctx context.Context, until time.Time, kinds ...*resource) ([]*Revision, error) {
	for {
		revisions, next, wake := a.visibleChanges(kinds)
		if len(revisions) > 0 {
			return revisions, context.Cause(ctx)
		}
		due := until
		if !next.IsZero() && (due.IsZero() || next.Before(due)) {
			due = next
		}
		if err := waitForChange(ctx, due, wake); err != nil {
			return nil, err
		}
		if !until.IsZero() && !time.Now().Before(until) {
			return nil, nil
		}
	}
}

// waitForChange waits for a change or, unless due is zero, until due.
func waitForChange(ctx context.Context, due time.Time, wake <-chan struct{}) error {
	var timeout <-chan time.Time
	if !due.IsZero() {
		timer := time.NewTimer(max(time.Until(due), 0))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-wake:
	case <-timeout:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// visibleChanges returns the changes that are older than the lag, the time at which the next one will be, and a channel
// that is closed at the next change.
func (a *actor) visibleChanges(kinds []*resource) (seen []*Revision, next time.Time, wake <-chan struct{}) {
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	horizon, upTo := time.Now().Add(-a.lag), a.server.version
	behind := slices.ContainsFunc(kinds, func(r *resource) bool { return a.seen < r.dropped })
	for _, r := range kinds {
		revisions := r.since(a.seen)
		if behind { // For all kinds, because a deletion that was missed may concern objects of another kind.
			revisions = r.sorted()
		}
		for _, rev := range revisions {
			if behind || !rev.Time.After(horizon) {
				seen = append(seen, rev)
				continue
			}
			upTo = min(upTo, rev.Version-1)
			if visible := rev.Time.Add(a.lag); next.IsZero() || visible.Before(next) {
				next = visible
			}
		}
	}
	slices.SortFunc(seen, func(a, b *Revision) int { return cmp.Compare(a.Version, b.Version) })
	a.seen = max(a.seen, upTo)
	return seen, next, nextChange(&a.server.wake)
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	return waitForChange(ctx, time.Now().Add(d), nil)
}

// path returns the path of an object or, without a name, of all objects of a namespace.
func (r *resource) path(namespace, name, subresource string) string {
	path := "/" + gvPath(r.gvk.GroupVersion())
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	for _, part := range []string{r.gr.Resource, name, subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// do sends a request, whose patch is a merge patch. It returns the error that a client would get.
func (a *actor) do(ctx context.Context, method, path string, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %T: %w", body, err)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://apiserver"+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", string(types.MergePatchType))
	}
	response, err := a.server.roundTrip(r, a.user)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusBadRequest {
		return nil
	}
	status := &metav1.Status{}
	if err := json.NewDecoder(response.Body).Decode(status); err != nil {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return &apierrors.StatusError{ErrStatus: *status}
}

// RunGarbageCollector deletes objects whose owners do not exist. Before an owner is removed, it applies the propagation
// policy: it deletes the dependents (foreground), or removes their owner references (orphan). It sees a change after
// lag. It returns when ctx ends.
//
// As in a cluster, it leaves an object alone while it cannot find out whether all its owners exist: if one of them has
// a kind or a version that is not registered, or has a namespace and the object has none.
func RunGarbageCollector(ctx context.Context, s *Server, lag time.Duration) {
	g := &collector{
		actor:      actor{server: s, user: "garbage-collector", lag: lag},
		items:      map[types.UID]item{},
		dependents: map[types.UID]map[item]bool{},
	}
	var retry time.Time
	for {
		revisions, err := g.changes(ctx, retry, s.kinds...)
		if err != nil {
			return
		}
		for _, rev := range revisions {
			g.observe(rev)
		}
		retry = time.Time{}
		if g.processQueue(ctx); len(g.queue) > 0 {
			retry = time.Now().Add(retryAfter)
		}
	}
}

// A collector is the garbage collector. Its graph comes from the changes that it has seen. Before it acts, it reads the
// stored objects.
type collector struct {
	actor
	items      map[types.UID]item          // Those that exist, as far as it has seen.
	dependents map[types.UID]map[item]bool // By the uid of an owner.
	queue      []item                      // The objects to process.
}

// An item identifies an object, which may not exist.
type item struct {
	kind            *resource
	namespace, name string
}

func (i item) key() string {
	return i.kind.keyPrefix + i.kind.key(i.namespace, i.name)
}

// observe updates the graph with a change, and enqueues the objects that the change concerns.
func (g *collector) observe(rev *Revision) {
	it := item{rev.kind, rev.Namespace, rev.Name}
	if rev.Before != nil {
		for _, ref := range accessor(rev.Before).GetOwnerReferences() {
			if delete(g.dependents[ref.UID], it); len(g.dependents[ref.UID]) == 0 {
				delete(g.dependents, ref.UID)
			}
			g.enqueueWaitingOwner(ref) // The owner may have waited for the removal of this reference.
		}
	}
	m := accessor(rev.Object)
	if rev.Type == watch.Deleted {
		g.queue = append(g.queue, g.dependentsOf(m.GetUID())...)
		delete(g.dependents, m.GetUID())
		delete(g.items, m.GetUID())
		for _, ref := range m.GetOwnerReferences() {
			g.enqueueWaitingOwner(ref)
		}
		return
	}
	g.items[m.GetUID()] = it
	for _, ref := range m.GetOwnerReferences() {
		if g.dependents[ref.UID] == nil {
			g.dependents[ref.UID] = map[item]bool{}
		}
		g.dependents[ref.UID][it] = true
		g.enqueueWaitingOwner(ref)
	}
	if len(m.GetOwnerReferences()) > 0 || m.GetDeletionTimestamp() != nil {
		g.queue = append(g.queue, it)
	}
}

// enqueueWaitingOwner enqueues an owner, if it waits for the deletion of its dependents.
func (g *collector) enqueueWaitingOwner(ref metav1.OwnerReference) {
	owner, known := g.items[ref.UID] // Not by name, because the reference may have a version that is not served.
	if !known {
		return
	}
	obj := g.server.get(owner.kind, owner.namespace, owner.name)
	if obj != nil && accessor(obj).GetUID() == ref.UID && waitsForDependents(accessor(obj)) {
		g.queue = append(g.queue, owner)
	}
}

// dependentsOf returns the dependents of an owner in a stable order.
func (g *collector) dependentsOf(owner types.UID) []item {
	return slices.SortedFunc(maps.Keys(g.dependents[owner]), func(a, b item) int {
		return cmp.Compare(a.key(), b.key())
	})
}

// processQueue processes the objects in the queue, each once. An object whose processing fails stays in the queue.
func (g *collector) processQueue(ctx context.Context) {
	processed := map[item]bool{}
	var failed []item
	for _, it := range g.queue {
		if processed[it] {
			continue
		}
		processed[it] = true
		if err := g.process(ctx, it); err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, it)
		}
	}
	g.queue = failed
}

func (g *collector) process(ctx context.Context, it item) error {
	obj := g.server.get(it.kind, it.namespace, it.name)
	if obj == nil {
		return nil
	}
	m := accessor(obj)
	switch finalizers := m.GetFinalizers(); {
	case m.GetDeletionTimestamp() == nil:
		return g.collect(ctx, it, m)
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return g.orphan(ctx, it, m)
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return g.foreground(ctx, it, m)
	}
	return nil
}

// collect deletes an object if none of its owners exists. If some of them exist, it removes the other references.
func (g *collector) collect(ctx context.Context, it item, m metav1.Object) error {
	var solid, dangling, waiting []metav1.OwnerReference
	for _, ref := range m.GetOwnerReferences() {
		owner, known := g.find(it, ref)
		switch {
		case !known:
			return nil
		case owner == nil:
			dangling = append(dangling, ref)
		case waitsForDependents(accessor(owner)):
			waiting = append(waiting, ref)
		default:
			solid = append(solid, ref)
		}
	}
	switch {
	case len(dangling)+len(waiting) == 0:
		return nil
	case len(solid) > 0:
		return g.patch(ctx, it, m, "ownerReferences", solid)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case len(waiting) > 0 && len(g.dependents[m.GetUID()]) > 0:
		if slices.ContainsFunc(m.GetOwnerReferences(), blocks) && g.ownsWaiting(m) {
			refs := slices.Clone(m.GetOwnerReferences())
			for i := range refs {
				refs[i].BlockOwnerDeletion = new(false) // Otherwise, a cycle of owners waits for itself.
			}
			return g.patch(ctx, it, m, "ownerReferences", refs) // This change enqueues the object again.
		}
		policy = metav1.DeletePropagationForeground
	case slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return g.do(ctx, http.MethodDelete, it.kind.path(it.namespace, it.name, ""), &metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: new(m.GetUID()), ResourceVersion: new(m.GetResourceVersion())},
		PropagationPolicy: &policy,
	})
}

// ownsWaiting reports whether a dependent of an object waits for its own dependents, which may be a cycle.
func (g *collector) ownsWaiting(m metav1.Object) bool {
	for it := range g.dependents[m.GetUID()] {
		if obj := g.server.get(it.kind, it.namespace, it.name); obj != nil && waitsForDependents(accessor(obj)) {
			return true
		}
	}
	return false
}

// orphan removes the owner references to an object from its dependents, and then the finalizer of the object.
func (g *collector) orphan(ctx context.Context, it item, m metav1.Object) error {
	for _, dependent := range g.dependentsOf(m.GetUID()) {
		obj := g.server.get(dependent.kind, dependent.namespace, dependent.name)
		if obj == nil {
			continue
		}
		refs := accessor(obj).GetOwnerReferences()
		kept := slices.DeleteFunc(slices.Clone(refs),
			func(ref metav1.OwnerReference) bool { return ref.UID == m.GetUID() })
		if len(kept) == len(refs) {
			continue
		}
		err := g.patch(ctx, dependent, accessor(obj), "ownerReferences", kept)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return g.removeFinalizer(ctx, it, m, metav1.FinalizerOrphanDependents)
}

// foreground deletes the dependents of an object. When none of them blocks the deletion of the object any more, it
// removes the finalizer of the object.
func (g *collector) foreground(ctx context.Context, it item, m metav1.Object) error {
	blocked := false
	for _, dependent := range g.dependentsOf(m.GetUID()) {
		obj := g.server.get(dependent.kind, dependent.namespace, dependent.name)
		if obj == nil {
			continue
		}
		for _, ref := range accessor(obj).GetOwnerReferences() {
			blocked = blocked || ref.UID == m.GetUID() && blocks(ref)
		}
		if waitsForDependents(accessor(obj)) {
			continue
		}
		if err := g.process(ctx, dependent); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if blocked {
		return nil // The deletion of the last dependent enqueues the object again.
	}
	return g.removeFinalizer(ctx, it, m, metav1.FinalizerDeleteDependents)
}

func (g *collector) removeFinalizer(ctx context.Context, it item, m metav1.Object, finalizer string) error {
	kept := slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return f == finalizer })
	return g.patch(ctx, it, m, "finalizers", kept)
}

// patch sets a field of an object's metadata. The uid and the resourceVersion of m are preconditions.
func (g *collector) patch(ctx context.Context, it item, m metav1.Object, field string, value any) error {
	body := map[string]any{"metadata": map[string]any{
		"uid": m.GetUID(), "resourceVersion": m.GetResourceVersion(), field: value,
	}}
	return g.do(ctx, http.MethodPatch, it.kind.path(it.namespace, it.name, ""), body)
}

// find returns the owner that a reference names, nil if it does not exist, and whether it is known that it does not.
func (g *collector) find(it item, ref metav1.OwnerReference) (owner runtime.Object, known bool) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	i := slices.IndexFunc(g.server.kinds, func(r *resource) bool { return r.gvk == gvk })
	if i < 0 || it.kind.ClusterScoped && !g.server.kinds[i].ClusterScoped {
		return nil, false
	}
	owner = g.server.get(g.server.kinds[i], it.namespace, ref.Name)
	if owner == nil || accessor(owner).GetUID() != ref.UID {
		return nil, true
	}
	return owner, true
}

// blocks reports whether a foreground deletion of the owner waits for the object with this reference.
func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}

// waitsForDependents reports whether an object is being deleted in the foreground.
func waitsForDependents(m metav1.Object) bool {
	return m.GetDeletionTimestamp() != nil && slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

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
		if _, active := a.contents(kind, namespace.Name); active > 0 {
			opts := &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
			if err := a.do(ctx, http.MethodDelete, kind.path(namespace.Name, "", ""), opts); err != nil {
				return err
			}
		}
		all, _ := a.contents(kind, namespace.Name)
		left += all
	}
	if left > 0 {
		return nil // The next change in the namespace triggers another attempt.
	}
	done := namespace.DeepCopy()
	done.Spec.Finalizers = nil
	return a.do(ctx, http.MethodPut, a.server.namespaces().path("", done.Name, "finalize"), done)
}

// contents counts the objects of a kind in a namespace, and those of them that are not being deleted.
func (a *actor) contents(kind *resource, namespace string) (all, active int) {
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	for _, rev := range kind.live {
		if rev.Namespace != namespace {
			continue
		}
		all++
		if accessor(rev.Object).GetDeletionTimestamp() == nil {
			active++
		}
	}
	return all, active
}

// A User makes random edits at random times. See RunUser.
type User struct {
	Name string // The name in the trace.
	// Rand chooses the edits and their times. Nothing else may use it while RunUser runs.
	Rand *rand.Rand
	// Pause is the average pause between two edits. Each pause is random, between zero and twice Pause.
	Pause time.Duration
	// Edits are the edits to choose from. An edit that is listed more than once is more likely. The error of an edit
	// is added to the trace, and the user continues.
	Edits []func(ctx context.Context, config *rest.Config, random *rand.Rand) error
	// Times is the number of edits. 0 means that the user continues until the context ends.
	Times int
}

// RunUser makes the edits of the user, through an ordinary client. It returns after the last edit, or when ctx ends.
func RunUser(ctx context.Context, s *Server, user User) {
	config := s.Config(user.Name)
	for done := 0; len(user.Edits) > 0 && (user.Times == 0 || done < user.Times); done++ {
		if err := pause(ctx, time.Duration(user.Rand.Int63n(int64(2*user.Pause)+1))); err != nil {
			return
		}
		edit := user.Edits[user.Rand.Intn(len(user.Edits))]
		if err := edit(ctx, config, user.Rand); err != nil && ctx.Err() == nil {
			s.Note("%s: %v", user.Name, err)
		}
	}
}
