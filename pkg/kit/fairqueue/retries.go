package fairqueue

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

var _ workqueue.TypedRateLimiter[string] = (*Limiter[string])(nil)

// A Limiter is the rate limiter of a workqueue whose delays are decided elsewhere. Those of client-go count the
// failures of a key and derive the delay from the count. It may be used concurrently.
type Limiter[K comparable] struct {
	mu sync.Mutex
	// keys has those that failed and were not forgotten since.
	keys map[K]failed
}

type failed struct {
	after time.Duration
	count int
	// expected means that the retry is part of normal work, such as a conflict, and needs no token.
	expected bool
	// forOther means that the key comes back for something else, such as a cache that has caught up.
	forOther bool
}

// NewLimiter returns a Limiter.
func NewLimiter[K comparable]() *Limiter[K] {
	return &Limiter[K]{keys: map[K]failed{}}
}

// Failed records that key failed and must not be retried before after has passed. An expected failure is normal work,
// such as a conflict. Call it before the queue's AddRateLimited.
func (l *Limiter[K]) Failed(key K, after time.Duration, expected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key] = failed{after: after, expected: expected, count: l.keys[key].count + 1}
}

// Waits records that key comes back although its last sync did not fail: for the end of the backoff after the failure
// before, or for something else. Earlier failures still count.
func (l *Limiter[K]) Waits(key K, forBackoff bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f, found := l.keys[key]; found {
		f.forOther = !forBackoff
		l.keys[key] = f
	}
}

// Class returns the class of key when its delay has ended: Failed if it comes back because of a failure that is no
// normal work. It is for Config.Class.
func (l *Limiter[K]) Class(key K) Class {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f, found := l.keys[key]; found && !f.expected && !f.forOther {
		return Failed
	}
	return Retry
}

// When returns the delay before key is retried.
func (l *Limiter[K]) When(key K) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key].after
}

// NumRequeues returns how often key has failed since it was forgotten.
func (l *Limiter[K]) NumRequeues(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key].count
}

// Failing returns the keys that failed and were not forgotten since.
func (l *Limiter[K]) Failing() []K {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.keys))
}

// Forget drops the record of key.
func (l *Limiter[K]) Forget(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}
