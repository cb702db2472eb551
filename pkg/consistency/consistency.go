// Package consistency lets a controller read its own writes. An informer's cache lags behind the API
// server, so a sync right after a write may not see it, and would write again. The controller tells a
// Writes of every write that the API server acknowledged, and asks it before the next sync whether the
// caches have caught up.
//
// The idea is that of the staleness handling in kube-controller-manager (KEP-5647), which rests on
// Store.LastStoreSyncResourceVersion of client-go: the resourceVersion up to which a cache has seen its
// resource, bookmarks included.
package consistency

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

const (
	firstWait = 5 * time.Millisecond
	maxWait   = time.Second
	// giveUp is how long a key is held at most. A cache that is later than this has lost its watch; the
	// API server is asked instead.
	giveUp = time.Minute
)

// A Store says how far a cache has come. Every cache.Store is one.
type Store interface {
	LastStoreSyncResourceVersion() string
}

// Stores returns the cache that has the objects of a resource in a namespace, nil when there is none.
type Stores func(resource, namespace string) Store

// Writes remembers the acknowledged writes made for each object that a controller looks after. It may
// be used concurrently, but for one key only by the worker that has the key.
type Writes struct {
	stores Stores
	now    func() time.Time

	mu     sync.Mutex
	owners map[cache.ObjectName]*owner
}

// owner is what was written for one object.
type owner struct {
	uid types.UID
	// wrote has, per resource, the resourceVersion that our last write gave.
	wrote map[string]string
	// reported stands for the status that was written last, "" when none was.
	reported string
	// unseen has, per resource, the newest resourceVersion known to us that its cache lacks.
	unseen map[string]string
	// doubts has the resources whose caches cannot be relied upon.
	doubts map[string]bool
	// asked counts the questions since the last write, the first of them at firstAsked.
	asked      int
	firstAsked time.Time
}

// New returns a Writes for the resources whose caches stores knows.
func New(stores Stores) *Writes {
	return &Writes{stores: stores, now: time.Now, owners: map[cache.ObjectName]*owner{}}
}

// Wrote records that the API server acknowledged, for the object key with the given uid, a write that
// gave an object of resource its resourceVersion. What was known of an earlier uid is dropped.
func (w *Writes) Wrote(key cache.ObjectName, uid types.UID, resource, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owner(key, uid)
	o.wrote[resource] = resourceVersion
	o.expect(resource, resourceVersion)
}

// Met records that the API server has an object of resource with this resourceVersion, which somebody else
// gave it: like Wrote, but no Echo comes of it.
func (w *Writes) Met(key cache.ObjectName, uid types.UID, resource, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner(key, uid).expect(resource, resourceVersion)
}

// Doubt records that the cache of resource cannot be relied upon for the object: a write had no answer, or the
// cache does not come on.
func (w *Writes) Doubt(key cache.ObjectName, uid types.UID, resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner(key, uid).doubts[resource] = true
}

// Doubts reports whether the API server itself has to be asked before what the cache of resource has is acted
// upon: because of a Doubt, or because the cache did not show the last write in time.
func (w *Writes) Doubts(key cache.ObjectName, resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	return o != nil && o.doubts[resource]
}

// Trust ends the doubts about the resource: the API server was asked, or there is nothing to be done.
func (w *Writes) Trust(key cache.ObjectName, resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.owners[key]; o != nil {
		delete(o.doubts, resource)
	}
}

// Echo reports whether a watch event with this resourceVersion only tells of our own last write for the object.
func (w *Writes) Echo(key cache.ObjectName, resource, resourceVersion string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	return o != nil && resourceVersion != "" && o.wrote[resource] == resourceVersion
}

// Reported records what the API server acknowledged as the status of the object.
func (w *Writes) Reported(key cache.ObjectName, uid types.UID, status any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner(key, uid).reported = sum(status)
}

// Overwritten reports whether status, which the cache has, is not what was Reported last: somebody else has written
// it since. When nothing was reported it is not known, and false.
func (w *Writes) Overwritten(key cache.ObjectName, uid types.UID, status any) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	return o != nil && o.uid == uid && o.reported != "" && o.reported != sum(status)
}

// sum returns a few bytes that stand for status.
func sum(status any) string {
	text, err := json.Marshal(status)
	if err != nil {
		return "" // Not known.
	}
	hash := sha256.Sum256(text)
	return string(hash[:])
}

// owner returns what is known of the object, and begins anew when that is of another uid.
func (w *Writes) owner(key cache.ObjectName, uid types.UID) *owner {
	o := w.owners[key]
	if o == nil || o.uid != uid {
		o = &owner{uid: uid, wrote: map[string]string{}, unseen: map[string]string{}, doubts: map[string]bool{}}
		w.owners[key] = o
	}
	return o
}

// expect makes the next sync wait until the cache of resource has come to the version. It never takes an older one
// for a newer one that is waited for: answers may overtake each other.
func (o *owner) expect(resource, resourceVersion string) {
	if order, err := resourceversion.CompareResourceVersion(resourceVersion, o.unseen[resource]); err == nil && order < 0 {
		return
	}
	o.unseen[resource] = resourceVersion
	o.asked = 0
}

// Known reports whether a write for this very object was ever recorded.
func (w *Writes) Known(key cache.ObjectName, uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	return o != nil && o.uid == uid
}

// Wait returns how long to wait before the caches may have seen all writes for the object, and 0 when
// they have. Ask before reading the caches: what was read before may be older than the answer.
//
// The pause doubles from 5 ms to 1 s from one question to the next. After a minute it is 0 in any case, and
// there are Doubts from then on. It is 0 also when the versions cannot be compared: holding a key for ever
// would be worse than a write that the API server refuses.
func (w *Writes) Wait(key cache.ObjectName) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[key]
	if o == nil {
		return 0
	}
	for resource, version := range o.unseen {
		if w.seen(resource, key.Namespace, version) {
			delete(o.unseen, resource)
		}
	}
	if len(o.unseen) == 0 {
		return 0
	}
	if o.asked == 0 {
		o.firstAsked = w.now()
	}
	if w.now().Sub(o.firstAsked) >= giveUp {
		for resource := range o.unseen {
			o.doubts[resource] = true
		}
		clear(o.unseen)
		return 0
	}
	pause := min(firstWait<<min(o.asked, 10), maxWait)
	o.asked++
	return pause
}

// Forget drops what is known of key. Call it when the object is gone.
func (w *Writes) Forget(key cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owners, key)
}

// seen reports whether the cache of resource in namespace has come to version, or cannot say.
func (w *Writes) seen(resource, namespace, version string) bool {
	store := w.stores(resource, namespace)
	if store == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, store.LastStoreSyncResourceVersion())
	return err != nil || order <= 0
}
