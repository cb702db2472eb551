// Package claims knows which Foos claim the name of a Deployment, and which of them is first. Without it, each sync
// would compare its Foo with all others that name the same Deployment, and n Foos that wait for one name would cost n²
// comparisons.
package claims

import (
	"container/heap"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// An Index has, for each name of a Deployment, the Foos that claim it. Update and Delete return the Deployments whose
// first claim has changed, and take O(log n) steps, where n Foos claim one name. Create it with New. It may be used
// concurrently.
type Index struct {
	claims  func(*v1alpha1.Foo) bool
	compare func(a, b *v1alpha1.Foo) int

	mu sync.Mutex
	// byFoo has the claim of each Foo, by the Foo's namespace and name.
	byFoo map[cache.ObjectName]*claim
	// names has the claims to each Deployment. A name without claims is not in it.
	names map[cache.ObjectName]*claimHeap
}

// New returns an empty Index. claims reports whether a Foo claims the Deployment that it names. compare returns less
// than 0 when the claim of a comes before that of b, and never 0 for two Foos of different names.
func New(claims func(*v1alpha1.Foo) bool, compare func(a, b *v1alpha1.Foo) int) *Index {
	return &Index{
		claims: claims, compare: compare,
		byFoo: map[cache.ObjectName]*claim{}, names: map[cache.ObjectName]*claimHeap{},
	}
}

// First returns the Foo whose claim to the Deployment comes first, or nil. It has only a namespace, a name and a
// creation time.
func (x *Index) First(deployment cache.ObjectName) *v1alpha1.Foo {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.first(deployment)
}

// A Change is a Deployment whose first claim has changed.
type Change struct {
	Deployment cache.ObjectName
	// Foos had or have the first claim, in this order. There are one or two.
	Foos []*v1alpha1.Foo
}

// Update enters the claim of foo to the Deployment that it names, in place of its earlier one. A Foo that claims
// nothing loses its earlier claim.
func (x *Index) Update(foo *v1alpha1.Foo) []Change {
	key := cache.MetaObjectToName(foo)
	if !x.claims(foo) {
		return x.Delete(key)
	}
	deployment := cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName)
	return x.replace(key, &claim{foo: identity(foo), deployment: deployment})
}

// identity returns a copy of foo that has only what claims are compared by. The cache replaces foo when its status
// changes, and a claim must not keep the old version in memory.
func identity(foo *v1alpha1.Foo) *v1alpha1.Foo {
	return &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{
		Namespace: foo.Namespace, Name: foo.Name, CreationTimestamp: foo.CreationTimestamp,
	}}
}

// Delete removes the claim of a Foo, if it has one.
func (x *Index) Delete(foo cache.ObjectName) []Change {
	return x.replace(foo, nil)
}

// replace replaces the claim of the Foo with this key, or removes it when next is nil.
func (x *Index) replace(key cache.ObjectName, next *claim) (changes []Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	concerned := map[cache.ObjectName]*v1alpha1.Foo{} // The first of each name before the change.
	previous := x.byFoo[key]
	for _, c := range []*claim{previous, next} {
		if c != nil {
			concerned[c.deployment] = x.first(c.deployment)
		}
	}
	if previous != nil {
		x.remove(key, previous)
	}
	if next != nil {
		x.add(key, next)
	}
	for deployment, before := range concerned {
		if after := x.first(deployment); !sameName(before, after) {
			foos := slices.DeleteFunc([]*v1alpha1.Foo{before, after}, func(foo *v1alpha1.Foo) bool { return foo == nil })
			changes = append(changes, Change{Deployment: deployment, Foos: foos})
		}
	}
	return changes
}

func (x *Index) first(deployment cache.ObjectName) *v1alpha1.Foo {
	if claims := x.names[deployment]; claims != nil {
		return claims.heap[0].foo
	}
	return nil
}

func (x *Index) add(key cache.ObjectName, c *claim) {
	x.byFoo[key] = c
	claims := x.names[c.deployment]
	if claims == nil {
		claims = &claimHeap{compare: x.compare}
		x.names[c.deployment] = claims
	}
	heap.Push(claims, c)
}

func (x *Index) remove(key cache.ObjectName, c *claim) {
	delete(x.byFoo, key)
	claims := x.names[c.deployment]
	heap.Remove(claims, c.index)
	if claims.Len() == 0 {
		delete(x.names, c.deployment)
	}
}

// sameName reports whether a and b, which may be nil, are versions of the same Foo or successors under one name.
func sameName(a, b *v1alpha1.Foo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name
}

// A claim is the claim of a Foo to a Deployment.
type claim struct {
	foo        *v1alpha1.Foo
	deployment cache.ObjectName
	index      int // In its heap.
}

// claimHeap is a heap.Interface.
type claimHeap struct {
	compare func(a, b *v1alpha1.Foo) int
	heap    []*claim
}

func (h *claimHeap) Len() int           { return len(h.heap) }
func (h *claimHeap) Less(i, j int) bool { return h.compare(h.heap[i].foo, h.heap[j].foo) < 0 }
func (h *claimHeap) Swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].index, h.heap[j].index = i, j
}

func (h *claimHeap) Push(c any) {
	c.(*claim).index = len(h.heap)
	h.heap = append(h.heap, c.(*claim))
}

func (h *claimHeap) Pop() any {
	last := len(h.heap) - 1
	c := h.heap[last]
	h.heap[last] = nil // So that the memory of the Foo is released.
	h.heap = h.heap[:last]
	return c
}
