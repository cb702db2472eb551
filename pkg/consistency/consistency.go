// Package consistency lets a controller read its own writes. An informer's cache lags behind the API server, so a
// sync right after a write may not see it, and would write again. The controller records in a Writes every write that
// the API server acknowledged, and asks it before the next sync whether the caches have caught up.
//
// The idea is that of the staleness handling in kube-controller-manager (KEP-5647), which rests on
// Store.LastStoreSyncResourceVersion of client-go: the resourceVersion up to which a cache has seen its resource,
// bookmarks included.
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
	// maxHold is how long a key is held at most. A cache that lags longer has lost its watch; the key is then synced
	// with live reads instead.
	maxHold = time.Minute
)

// A Store reports how far a cache has come. Every cache.Store is one.
type Store interface {
	LastStoreSyncResourceVersion() string
}

// Stores returns the cache that has the objects of a resource in a namespace, or nil.
type Stores func(resource, namespace string) Store

// Writes remembers the acknowledged writes made for each object that a controller reconciles. It may be used
// concurrently, except that one key is only for the worker that has the key; IsOwnWrite by everybody.
type Writes struct {
	stores Stores
	now    func() time.Time

	mu     sync.Mutex
	owners map[cache.ObjectName]*ownerRecord
}

// ownerRecord is what was written for one object.
type ownerRecord struct {
	uid types.UID
	// written has, per resource, the resourceVersion of our last write.
	written map[string]string
	// pending has, per resource, the newest resourceVersion known to us that its cache lacks.
	pending map[string]string
	// overdue has, per resource, what was pending for longer than maxHold.
	overdue map[string]string
	// attempts counts the questions since the last write, the first of them at firstAttempt.
	attempts     int
	firstAttempt time.Time
}

// New returns a Writes for the resources whose caches stores knows.
func New(stores Stores) *Writes {
	return &Writes{stores: stores, now: time.Now, owners: map[cache.ObjectName]*ownerRecord{}}
}

// WroteAt records that the API server acknowledged, for the object key with the given uid, a write that gave an object
// of resource its resourceVersion. What was recorded for an earlier uid is dropped.
func (w *Writes) WroteAt(key cache.ObjectName, uid types.UID, resource, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owner(key, uid)
	o.written[resource] = resourceVersion
	o.expect(resource, resourceVersion)
}

// ObservedAt records the resourceVersion that a live read found: the next sync waits for the cache to reach it, but its
// event is not taken for our own write.
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

// CatchUpDelay returns how long to wait before the caches may have caught up with all writes for the object, and 0 when
// they have. Ask before reading the caches: what was read before may be older than the answer.
//
// The delay doubles from 5 ms to 1 s from one question to the next. After a minute it is 0 in any case, and IsStale is
// true from then on. It is 0 also when the versions cannot be compared: holding a key for ever would be worse than a
// write that the API server refuses.
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

// IsStale reports whether the cache of resource lacks, for longer than a minute, a version that is known to exist. Read
// live before acting on what it has.
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

// Forget drops what is recorded for key. Call it when the object is gone.
func (w *Writes) Forget(key cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owners, key)
}

// reached reports whether the cache of resource in namespace has come to version, or the versions cannot be compared.
func (w *Writes) reached(resource, namespace, version string) bool {
	store := w.stores(resource, namespace)
	if store == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, store.LastStoreSyncResourceVersion())
	return err != nil || order <= 0
}
