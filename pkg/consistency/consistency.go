// Package consistency lets a controller read its own writes. An informer's cache lags behind the API server, so a
// sync right after a write may not see it, and would write again. The controller records in a Writes every write that
// the API server acknowledged, and asks it before the next sync whether the caches have caught up.
//
// kube-controller-manager handles stale caches in the same way (KEP-5647). Both rely on
// Store.LastStoreSyncResourceVersion of client-go. It returns the resourceVersion up to which a cache has seen its
// resource, bookmarks included.
package consistency

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

const (
	firstDelay = 5 * time.Millisecond
	maxDelay   = time.Second
	// maxHold is the longest time for which a key is held. A cache that lags longer has lost its watch. The key is then
	// synced with live reads instead.
	maxHold = time.Minute
)

// A Store reports the resourceVersion that a cache has reached. Every cache.Store is one.
type Store interface {
	LastStoreSyncResourceVersion() string
}

// Stores returns the cache that has the objects of a resource in a namespace, or nil.
type Stores func(resource, namespace string) Store

// Writes remembers the acknowledged writes for each object that a controller reconciles. It may be used concurrently.
// But only the worker that has a key may call methods with this key, except IsOwnWrite.
type Writes struct {
	stores Stores
	now    func() time.Time

	mu     sync.Mutex
	owners map[cache.ObjectName]*ownerRecord
}

// ownerRecord has the writes for one object.
type ownerRecord struct {
	uid types.UID
	// written has, per resource, the resourceVersion of our last write.
	written map[string]string
	// pending has, per resource, the newest known resourceVersion that the cache does not show yet.
	pending map[string]string
	// overdue has, per resource, a resourceVersion that was pending for longer than maxHold.
	overdue map[string]string
	// attempts counts the delays since a version was last recorded. The first of them began at firstAttempt.
	attempts     int
	firstAttempt time.Time
}

// New returns a Writes for the resources that have a cache in stores.
func New(stores Stores) *Writes {
	return &Writes{stores: stores, now: time.Now, owners: map[cache.ObjectName]*ownerRecord{}}
}

// WroteAt records a write that the API server acknowledged. key and uid are those of the object that is reconciled.
// The write was to an object of resource, which got this resourceVersion. Records for an earlier uid are dropped.
func (w *Writes) WroteAt(key cache.ObjectName, uid types.UID, resource, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owner(key, uid)
	o.written[resource] = resourceVersion
	o.expect(resource, resourceVersion)
}

// ObservedAt records the resourceVersion that a live read returned. The next sync waits until the cache reaches it. But
// its event does not count as our own write.
func (w *Writes) ObservedAt(key cache.ObjectName, uid types.UID, resource, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner(key, uid).expect(resource, resourceVersion)
}

// IsOwnWrite reports whether a watch event with this resourceVersion only shows our own last write for the object.
func (w *Writes) IsOwnWrite(key cache.ObjectName, resource, resourceVersion string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	return o != nil && resourceVersion != "" && o.written[resource] == resourceVersion
}

// owner returns the record of the object, or a new one for a new object or uid.
func (w *Writes) owner(key cache.ObjectName, uid types.UID) *ownerRecord {
	o := w.owners[key]
	if o == nil || o.uid != uid {
		o = &ownerRecord{uid: uid, written: map[string]string{}, pending: map[string]string{}, overdue: map[string]string{}}
		w.owners[key] = o
	}
	return o
}

// expect makes the next sync wait until the cache of resource has reached the version. An older version never replaces
// a newer one that is pending: answers may overtake each other.
func (o *ownerRecord) expect(resource, resourceVersion string) {
	order, err := resourceversion.CompareResourceVersion(resourceVersion, o.pending[resource])
	if err == nil && order < 0 {
		return
	}
	o.pending[resource] = resourceVersion
	o.attempts = 0
}

// CatchUpDelay returns how long to wait until the caches may have caught up with all writes for the object. It returns
// 0 if they have. Call it before you read the caches: an object that was read earlier may be older than the write.
//
// The delay doubles from call to call, from 5 ms to 1 s. After a minute it is 0 in any case, and IsStale is true from
// then on. It is also 0 if the versions cannot be compared: to hold a key for ever would be worse than a write that the
// API server refuses.
func (w *Writes) CatchUpDelay(key cache.ObjectName) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	if o == nil {
		return 0
	}
	for resource, version := range o.pending {
		if w.reached(resource, key.Namespace, version) {
			delete(o.pending, resource)
		}
	}
	if len(o.pending) == 0 {
		return 0
	}
	if o.attempts == 0 {
		o.firstAttempt = w.now()
	}
	if w.now().Sub(o.firstAttempt) >= maxHold {
		for resource, version := range o.pending {
			o.overdue[resource] = version
		}
		clear(o.pending)
		return 0
	}
	delay := min(firstDelay<<min(o.attempts, 10), maxDelay)
	o.attempts++
	return delay
}

// IsStale reports whether the cache of resource has lacked a version that is known to exist for more than a minute. If
// so, read live before you act on its objects.
func (w *Writes) IsStale(key cache.ObjectName, resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	if o == nil || o.overdue[resource] == "" {
		return false
	}
	if w.reached(resource, key.Namespace, o.overdue[resource]) {
		delete(o.overdue, resource)
		return false
	}
	return true
}

// Forget drops the records for key. Call it when the object does not exist any more.
func (w *Writes) Forget(key cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owners, key)
}

// reached reports whether the cache of resource in namespace has reached version. It returns true if the versions
// cannot be compared.
func (w *Writes) reached(resource, namespace, version string) bool {
	store := w.stores(resource, namespace)
	if store == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, store.LastStoreSyncResourceVersion())
	return err != nil || order <= 0
}
