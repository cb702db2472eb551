package apiserver

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

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
		dependents: map[types.UID]map[item]bool{}, queued: map[item]bool{},
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
	queue      []item                      // The objects to process, each once.
	queued     map[item]bool               // The same.
}

// An item identifies an object, which may not exist.
type item struct {
	kind            *resource
	namespace, name string
}

func (i item) key() string {
	return i.kind.keyPrefix + i.kind.key(i.namespace, i.name)
}

func itemOf(rev *Revision) item {
	return item{rev.kind, rev.Namespace, rev.Name}
}

// observe updates the graph with a change, and enqueues the objects that the change concerns.
func (g *collector) observe(rev *Revision) {
	it := itemOf(rev)
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
		g.enqueueDependents(m.GetUID())
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
		g.enqueue(it)
	}
}

func (g *collector) enqueue(it item) {
	if !g.queued[it] {
		g.queue, g.queued[it] = append(g.queue, it), true
	}
}

// enqueueDependents enqueues the dependents of an owner.
func (g *collector) enqueueDependents(owner types.UID) {
	for _, it := range g.dependentsOf(owner) {
		g.enqueue(it)
	}
}

// enqueueWaitingOwner enqueues an owner, if it waits for the deletion of its dependents.
func (g *collector) enqueueWaitingOwner(ref metav1.OwnerReference) {
	owner, known := g.items[ref.UID] // Not by name, because the reference may have a version that is not served.
	if !known {
		return
	}
	obj := g.get(owner.kind, owner.namespace, owner.name)
	if obj != nil && accessor(obj).GetUID() == ref.UID && waitsForDependents(accessor(obj)) {
		g.enqueue(owner)
	}
}

// dependentsOf returns the dependents of an owner in a stable order.
func (g *collector) dependentsOf(owner types.UID) []item {
	return slices.SortedFunc(maps.Keys(g.dependents[owner]), func(a, b item) int {
		return cmp.Compare(a.key(), b.key())
	})
}

// processQueue processes the objects in the queue. An object whose processing fails stays in the queue.
func (g *collector) processQueue(ctx context.Context) {
	queue := g.queue
	g.queue, g.queued = nil, map[item]bool{}
	for _, it := range queue {
		if err := g.process(ctx, it); err != nil && !apierrors.IsNotFound(err) {
			g.enqueue(it)
		}
	}
}

func (g *collector) process(ctx context.Context, it item) error {
	obj := g.get(it.kind, it.namespace, it.name)
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
		return g.setOwners(ctx, it, m, solid)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case len(waiting) > 0 && len(g.dependents[m.GetUID()]) > 0:
		if slices.ContainsFunc(m.GetOwnerReferences(), blocks) && g.ownsWaiting(m) {
			return g.unblock(ctx, it, m) // This change enqueues the object again.
		}
		policy = metav1.DeletePropagationForeground
	case slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	path := it.kind.path(it.namespace, it.name, "")
	return g.do(ctx, http.MethodDelete, path, string(mediaJSON), &metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: new(m.GetUID()), ResourceVersion: new(m.GetResourceVersion())},
		PropagationPolicy: &policy,
	})
}

// ownsWaiting reports whether a dependent of an object waits for its own dependents, which may be a cycle.
func (g *collector) ownsWaiting(m metav1.Object) bool {
	for it := range g.dependents[m.GetUID()] {
		if obj := g.get(it.kind, it.namespace, it.name); obj != nil && waitsForDependents(accessor(obj)) {
			return true
		}
	}
	return false
}

// unblock makes the references of an object non-blocking, so that a cycle of owners does not wait for itself.
func (g *collector) unblock(ctx context.Context, it item, m metav1.Object) error {
	refs := slices.Clone(m.GetOwnerReferences())
	for i := range refs {
		refs[i].BlockOwnerDeletion = new(false)
	}
	return g.setOwners(ctx, it, m, refs)
}

// orphan removes the owner references to an object from its dependents, and then the finalizer of the object.
func (g *collector) orphan(ctx context.Context, it item, m metav1.Object) error {
	for _, dependent := range g.dependentsOf(m.GetUID()) {
		obj := g.get(dependent.kind, dependent.namespace, dependent.name)
		if obj == nil {
			continue
		}
		refs := accessor(obj).GetOwnerReferences()
		kept := slices.DeleteFunc(slices.Clone(refs),
			func(ref metav1.OwnerReference) bool { return ref.UID == m.GetUID() })
		if len(kept) == len(refs) {
			continue
		}
		if err := g.setOwners(ctx, dependent, accessor(obj), kept); err != nil && !apierrors.IsNotFound(err) {
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
		obj := g.get(dependent.kind, dependent.namespace, dependent.name)
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

// removeFinalizer removes a finalizer.
func (g *collector) removeFinalizer(ctx context.Context, it item, m metav1.Object, finalizer string) error {
	kept := slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return f == finalizer })
	return g.patch(ctx, it, m, "finalizers", kept)
}

func (g *collector) setOwners(ctx context.Context, it item, m metav1.Object, refs []metav1.OwnerReference) error {
	return g.patch(ctx, it, m, "ownerReferences", refs)
}

// patch sets a field of an object's metadata. The uid and the resourceVersion of m are preconditions.
func (g *collector) patch(ctx context.Context, it item, m metav1.Object, field string, value any) error {
	body := map[string]any{"metadata": map[string]any{
		"uid": m.GetUID(), "resourceVersion": m.GetResourceVersion(), field: value,
	}}
	return g.do(ctx, http.MethodPatch, it.kind.path(it.namespace, it.name, ""), string(types.MergePatchType), body)
}

// find returns the owner that a reference names, nil if it does not exist, and whether it is known that it does not.
func (g *collector) find(it item, ref metav1.OwnerReference) (owner runtime.Object, known bool) {
	kind := g.kindOf(ref)
	if kind == nil || it.kind.ClusterScoped && !kind.ClusterScoped {
		return nil, false
	}
	owner = g.get(kind, it.namespace, ref.Name)
	if owner == nil || accessor(owner).GetUID() != ref.UID {
		return nil, true
	}
	return owner, true
}

// kindOf returns the kind of an owner, nil if it is not registered in this version.
func (g *collector) kindOf(ref metav1.OwnerReference) *resource {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	for _, kind := range g.server.kinds {
		if kind.gvk == gv.WithKind(ref.Kind) {
			return kind
		}
	}
	return nil
}

// blocks reports whether a foreground deletion of the owner waits for the object with this reference.
func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}

// waitsForDependents reports whether an object is being deleted in the foreground.
func waitsForDependents(m metav1.Object) bool {
	return m.GetDeletionTimestamp() != nil && slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents)
}
