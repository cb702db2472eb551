// Package retry is the rate limiter of a workqueue whose delays the worker decides. The rate limiters of client-go
// count the failures of a key and derive the delay from that. Here the worker has a backoff for each operation, so it
// decides how long the key must wait. The limiter only limits the retries of all keys together.
package retry

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

var _ workqueue.TypedRateLimiter[string] = (*Limiter[string])(nil)

// A Limiter decides when keys that failed are retried. It may be used concurrently.
type Limiter[K comparable] struct {
	bucket *rate.Limiter

	mu sync.Mutex
	// keys has the keys that failed and were not forgotten since then.
	keys map[K]failed
}

type failed struct {
	after    time.Duration
	expected bool
	count    int
}

// NewLimiter returns a Limiter for perSecond retries a second of all keys together, and burst retries at once.
func NewLimiter[K comparable](perSecond float64, burst int) *Limiter[K] {
	return &Limiter[K]{bucket: rate.NewLimiter(rate.Limit(perSecond), burst), keys: map[K]failed{}}
}

// Failed records that key failed and must not be retried before after has passed. An expected failure, such as a
// conflict, does not count for the common limit. Call it before the queue's AddRateLimited.
func (l *Limiter[K]) Failed(key K, after time.Duration, expected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key] = failed{after: after, expected: expected, count: l.keys[key].count + 1}
}

// When returns the delay before key is retried. No key waits longer than it takes to retry every failed key once. A
// longer delay means that reservations are left over from keys that an event requeued early. Then the new reservation
// is cancelled.
func (l *Limiter[K]) When(key K) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.keys[key]
	if f.expected {
		return f.after
	}
	longest := time.Duration(float64(len(l.keys)) / float64(l.bucket.Limit()) * float64(time.Second))
	reservation := l.bucket.Reserve()
	delay := reservation.Delay()
	if delay > longest {
		reservation.Cancel()
		delay = longest
	}
	return max(f.after, delay)
}

// NumRequeues returns how often key has failed since it was forgotten.
func (l *Limiter[K]) NumRequeues(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key].count
}

// Forget drops the record of key.
func (l *Limiter[K]) Forget(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}
