// Package claims knows which Foos claim the name of a Deployment, and which of them is first. Without it, each sync
// would compare its Foo with all others that name the same Deployment, and n Foos that wait for one name would cost n²
// comparisons.
package claims

import (
	"container/heap"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A Compare function returns less than 0 when a comes before b, and never 0 for two Foos of different names.
type Compare func(a, b *v1alpha1.Foo) int

// An Index has, for each name of a Deployment, the Foos that claim it. Set and Delete return the Deployments whose
// first claim has changed, and take O(log n) steps, where n Foos claim one name. Create it with New. It may be used
// concurrently.
type Index struct {
	compare Compare

	mu sync.Mutex
	// claims has the claim of each Foo, by the Foo's namespace and name.
	claims map[cache.ObjectName]*claim
	// names has the claims to each Deployment. A name without claims is not in it.
	names map[cache.ObjectName]*claimHeap
}

// New returns an empty Index that orders claims by compare.
func New(compare Compare) *Index {
	return &Index{
		compare: compare, claims: map[cache.ObjectName]*claim{}, names: map[cache.ObjectName]*claimHeap{},
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
	// Before and After are the Foos that had and have the first claim. One of them may be nil.
	Before, After *v1alpha1.Foo
}

// Set replaces the claim of foo with a claim to the Deployment that foo names.
func (x *Index) Set(foo *v1alpha1.Foo) []Change {
	key := cache.MetaObjectToName(foo)
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

// SetIf is Set if the Foo claims its Deployment, and Delete otherwise.
func (x *Index) SetIf(claims bool, foo *v1alpha1.Foo) []Change {
	if claims {
		return x.Set(foo)
	}
	return x.Delete(cache.MetaObjectToName(foo))
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
	previous := x.claims[key]
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
			changes = append(changes, Change{Deployment: deployment, Before: before, After: after})
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
	x.claims[key] = c
	claims := x.names[c.deployment]
	if claims == nil {
		claims = &claimHeap{compare: x.compare}
		x.names[c.deployment] = claims
	}
	heap.Push(claims, c)
}

func (x *Index) remove(key cache.ObjectName, c *claim) {
	delete(x.claims, key)
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
	compare Compare
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
