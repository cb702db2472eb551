package apisim

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

// RunGarbageCollector deletes objects whose owners are gone, and does what propagation policies ask for before an
// owner goes: it deletes dependents (foreground), or takes their owner references away (orphan). It sees a change
// after lag. References to kinds that are not registered are taken for good. It returns when ctx ends.
func RunGarbageCollector(ctx context.Context, s *Server, lag time.Duration) {
	g := &collector{
		actor:      actor{server: s, user: "garbage-collector", lag: lag},
		dependents: map[types.UID]map[item]bool{},
	}
	var retry time.Time
	for {
		revisions, err := g.changes(ctx, retry, s.kinds...)
		if err != nil {
			return
		}
		for _, rev := range revisions {
			g.note(rev)
		}
		retry = time.Time{}
		if g.work(ctx); len(g.queue) > 0 {
			retry = time.Now().Add(retryAfter)
		}
	}
}

// A collector is the garbage collector. Its graph has what it has seen; what it does, it decides by what is stored.
type collector struct {
	actor
	dependents map[types.UID]map[item]bool // By the uid of an owner.
	queue      []item                      // What to look at.
}

// An item is an object, there or not.
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

// note takes a change into the graph, and into the queue what may have to be done about it.
func (g *collector) note(rev *Revision) {
	it := itemOf(rev)
	if rev.Before != nil {
		for _, ref := range accessor(rev.Before).GetOwnerReferences() {
			delete(g.dependents[ref.UID], it)
			g.lookAtOwner(it, ref) // It may have waited for just this reference to go.
		}
	}
	m := accessor(rev.Object)
	if rev.Type == watch.Deleted {
		g.look(m.GetUID())
		delete(g.dependents, m.GetUID())
		for _, ref := range m.GetOwnerReferences() {
			g.lookAtOwner(it, ref)
		}
		return
	}
	for _, ref := range m.GetOwnerReferences() {
		if g.dependents[ref.UID] == nil {
			g.dependents[ref.UID] = map[item]bool{}
		}
		g.dependents[ref.UID][it] = true
		g.lookAtOwner(it, ref)
	}
	if len(m.GetOwnerReferences()) > 0 || m.GetDeletionTimestamp() != nil {
		g.enqueue(it)
	}
}

func (g *collector) enqueue(it item) {
	if !slices.Contains(g.queue, it) {
		g.queue = append(g.queue, it)
	}
}

// look puts the dependents of an owner into the queue.
func (g *collector) look(owner types.UID) {
	for _, it := range g.of(owner) {
		g.enqueue(it)
	}
}

// lookAtOwner puts an owner that may wait for it into the queue.
func (g *collector) lookAtOwner(it item, ref metav1.OwnerReference) {
	owner, known := g.find(it, ref)
	if known && owner != nil && waitsForDependents(accessor(owner)) {
		g.enqueue(item{g.kindOf(ref), accessor(owner).GetNamespace(), ref.Name})
	}
}

// of returns the dependents of an owner in a stable order.
func (g *collector) of(owner types.UID) []item {
	return slices.SortedFunc(maps.Keys(g.dependents[owner]), func(a, b item) int {
		return cmp.Compare(a.key(), b.key())
	})
}

// work does what the queue asks for. What did not work stays in it.
func (g *collector) work(ctx context.Context) {
	queue := g.queue
	g.queue = nil
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

// collect deletes an object that has owners, none of which is there.
func (g *collector) collect(ctx context.Context, it item, m metav1.Object) error {
	var solid, gone, waiting []metav1.OwnerReference
	for _, ref := range m.GetOwnerReferences() {
		owner, known := g.find(it, ref)
		switch {
		case !known:
			solid = append(solid, ref)
		case owner == nil:
			gone = append(gone, ref)
		case waitsForDependents(accessor(owner)):
			waiting = append(waiting, ref)
		default:
			solid = append(solid, ref)
		}
	}
	switch {
	case len(gone)+len(waiting) == 0:
		return nil
	case len(solid) > 0:
		return g.setOwners(ctx, it, m, solid)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case len(waiting) > 0 && len(g.of(m.GetUID())) > 0:
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

// orphan takes the owner away from the dependents of an object, and then lets it go.
func (g *collector) orphan(ctx context.Context, it item, m metav1.Object) error {
	for _, dependent := range g.of(m.GetUID()) {
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
	return g.release(ctx, it, m, metav1.FinalizerOrphanDependents)
}

// foreground lets an object go when no dependent is left that blocks it.
func (g *collector) foreground(ctx context.Context, it item, m metav1.Object) error {
	blocked := false
	for _, dependent := range g.of(m.GetUID()) {
		obj := g.get(dependent.kind, dependent.namespace, dependent.name)
		if obj == nil {
			continue
		}
		for _, ref := range accessor(obj).GetOwnerReferences() {
			blocked = blocked || ref.UID == m.GetUID() && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
		}
		if err := g.process(ctx, dependent); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if blocked {
		return nil // The deletion of the last dependent brings it here again.
	}
	return g.release(ctx, it, m, metav1.FinalizerDeleteDependents)
}

// release takes a finalizer away.
func (g *collector) release(ctx context.Context, it item, m metav1.Object, finalizer string) error {
	kept := slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return f == finalizer })
	return g.patch(ctx, it, m, "finalizers", kept)
}

func (g *collector) setOwners(ctx context.Context, it item, m metav1.Object, refs []metav1.OwnerReference) error {
	return g.patch(ctx, it, m, "ownerReferences", refs)
}

// patch sets a field of an object's metadata, provided that the object is still as it was.
func (g *collector) patch(ctx context.Context, it item, m metav1.Object, field string, value any) error {
	body := map[string]any{"metadata": map[string]any{
		"uid": m.GetUID(), "resourceVersion": m.GetResourceVersion(), field: value,
	}}
	return g.do(ctx, http.MethodPatch, it.kind.path(it.namespace, it.name, ""), string(types.MergePatchType), body)
}

// find returns the owner that a reference names, nil when it is gone; and whether its kind is known at all.
func (g *collector) find(it item, ref metav1.OwnerReference) (owner runtime.Object, known bool) {
	kind := g.kindOf(ref)
	if kind == nil {
		return nil, false
	}
	owner = g.get(kind, it.namespace, ref.Name)
	if owner == nil || accessor(owner).GetUID() != ref.UID {
		return nil, true
	}
	return owner, true
}

// kindOf returns the kind of an owner, nil when it is not registered. Any version of its group will do.
func (g *collector) kindOf(ref metav1.OwnerReference) *resource {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	for _, kind := range g.server.kinds {
		if kind.gvk.Group == gv.Group && kind.gvk.Kind == ref.Kind {
			return kind
		}
	}
	return nil
}

// waitsForDependents says whether an object is being deleted in the foreground.
func waitsForDependents(m metav1.Object) bool {
	return m.GetDeletionTimestamp() != nil && slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents)
}
