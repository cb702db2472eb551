// Package consistency lets a controller read its own writes. An informer's cache lags behind the API server, so a
// sync right after a write may not see it, and would write again. The controller records in a Writes every version
// that a write or a live read returned, and asks it before the next sync whether the caches have caught up.
//
// Events are only hints. If a watch breaks, a list follows, and what came and went in between has no event. So a key
// for which a version was recorded is not done: it comes back until the cache has reached that version.
//
// kube-controller-manager handles stale caches in the same way (KEP-5647). Both rely on
// Store.LastStoreSyncResourceVersion of client-go. It returns the resourceVersion up to which a cache has seen its
// resource, bookmarks included.
package consistency

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

const (
	firstDelay = 5 * time.Millisecond
	maxDelay   = time.Second
	// maxWait is the longest time for which syncs of a key wait for a cache. A cache that lags longer has lost its watch.
	maxWait = time.Minute
	// maxAge is when a version is forgotten in any case: after a restore of etcd, no cache ever reaches it.
	maxAge = time.Hour
)

// A Store is a cache, and reports the resourceVersion that it has reached. Every cache.Store is one.
type Store interface {
	GetByKey(key string) (item any, exists bool, err error)
	LastStoreSyncResourceVersion() string
}

// Writes remembers, for each object that a controller reconciles, the versions that the caches must reach. It may be
// used concurrently, but only the worker that has a key may call methods with this key.
type Writes struct {
	mu   sync.Mutex
	keys map[cache.ObjectName]*expected
}

// expected are the versions for one key.
type expected struct {
	versions map[stored]recorded
	// attempts counts the delays since a version was recorded.
	attempts int
	// call is the pending one of CallAfter.
	call *time.Timer
}

// A recorded version, and when it was recorded. Of an object that was deleted only the uid is known.
type recorded struct {
	version string
	deleted types.UID
	at      time.Time
}

// A stored object has a name in a cache.
type stored struct {
	store Store
	name  cache.ObjectName
}

// New returns a Writes that expects nothing.
func New() *Writes { return &Writes{keys: map[cache.ObjectName]*expected{}} }

// Wrote records what a write returned: obj, which store is the cache of, for the object that has this key.
func (w *Writes) Wrote(key cache.ObjectName, store Store, obj metav1.Object) {
	w.record(key, store, obj, recorded{version: obj.GetResourceVersion(), at: time.Now()})
}

// Deleted records that obj was deleted: the cache must not have it any more, or show that it is being deleted.
func (w *Writes) Deleted(key cache.ObjectName, store Store, obj metav1.Object) {
	w.record(key, store, obj, recorded{deleted: obj.GetUID(), at: time.Now()})
}

func (w *Writes) record(key cache.ObjectName, store Store, obj metav1.Object, r recorded) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.keys[key]
	if e == nil {
		e = &expected{versions: map[stored]recorded{}}
		w.keys[key] = e
	}
	// It may be older than the one before: after a restore of etcd, a live read shows which versions exist.
	e.versions[stored{store, cache.MetaObjectToName(obj)}] = r
	e.attempts = 0
}

// Read records what a live read returned, unless the cache has the object in this version or a later one, whose event
// queues the key. That the cache has reached the version is not enough: a list may have come since the sync read the
// cache, on which obj was gone again, and which brought no event.
func (w *Writes) Read(key cache.ObjectName, store Store, obj metav1.Object) {
	name := cache.MetaObjectToName(obj)
	_, found, _ := store.GetByKey(name.String()) // A cache has no errors.
	if found && reached(store, obj.GetResourceVersion()) {
		return
	}
	w.Wrote(key, store, obj)
}

// CatchUpDelay returns how long to wait before the next sync of key, until the caches may have reached its versions: 0
// if they have. Call it before you read the caches: an object that was read earlier may be older.
//
// The delay doubles from call to call, from 5 ms to 1 s. After a minute it is 0 in any case: preconditions keep the
// writes of a sync with stale caches harmless, and while one watch is down, the other cache may have changes. It is
// also 0 if versions cannot be compared.
func (w *Writes) CatchUpDelay(key cache.ObjectName) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.keys[key]
	if e == nil {
		return 0
	}
	age := maxAge // Of the youngest version that is not reached.
	maps.DeleteFunc(e.versions, func(s stored, r recorded) bool {
		if s.shows(r) {
			return true
		}
		age = min(age, time.Since(r.at))
		return time.Since(r.at) >= maxAge
	})
	switch {
	case len(e.versions) == 0:
		w.drop(key)
		return 0
	case age >= maxWait:
		e.attempts++
		return 0
	}
	delay := min(firstDelay<<min(e.attempts, 10), maxDelay)
	e.attempts++
	return delay
}

// HoldDelay returns after how long key must be synced again although its sync has nothing left to do: 5 ms if the sync
// recorded a version, a minute if it did not wait any longer for an earlier one, and 0 if no version is expected.
//
// It does not ask the caches. After a list that has come during the sync they have reached the version, and there may
// have been no event: a Deployment that was created and deleted since the list before has none.
func (w *Writes) HoldDelay(key cache.ObjectName) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := w.keys[key]; {
	case e == nil:
		return 0
	case e.attempts == 0:
		return firstDelay
	}
	return maxWait
}

// CallAfter calls f after a delay, in a goroutine, unless a CatchUpDelay finds all versions of key in the caches before
// that. It replaces the call that is pending for key. It returns false, and calls nothing, if no version is expected.
func (w *Writes) CallAfter(key cache.ObjectName, delay time.Duration, f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.keys[key]
	if e == nil {
		return false
	}
	if e.call != nil {
		e.call.Stop()
	}
	e.call = time.AfterFunc(delay, f)
	return true
}

// Forget drops the versions for key. Call it when the object does not exist any more.
func (w *Writes) Forget(key cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(key)
}

// drop ends what is expected for key. The caller holds mu.
func (w *Writes) drop(key cache.ObjectName) {
	if e := w.keys[key]; e != nil && e.call != nil {
		e.call.Stop()
	}
	delete(w.keys, key)
}

// shows reports whether the cache of an object shows what was recorded.
func (s stored) shows(r recorded) bool {
	if r.deleted == "" {
		return reached(s.store, r.version)
	}
	cached, _, _ := s.store.GetByKey(s.name.String())
	obj, found := cached.(metav1.Object)
	return !found || obj.GetUID() != r.deleted || obj.GetDeletionTimestamp() != nil
}

// reached reports whether a cache has reached version. It returns true if versions cannot be compared.
func reached(store Store, version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, store.LastStoreSyncResourceVersion())
	return err != nil || order <= 0
}
