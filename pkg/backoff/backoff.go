// Package backoff says how long a key that failed has to pause, and lets one ask how much of the pause is
// left. It is a rate limiter for a workqueue. The ones of client-go only say how long the next pause is: a
// watch event that queues the key again cuts it short, and one more failure makes the next one longer. With
// Hold a worker can leave such a key alone until its time.
package backoff

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

const (
	// jitter is the part of a pause that is random, so that keys which failed together do not come back together.
	jitter = 0.2
	// fade is how long after its last pause a key counts as one that never failed.
	fade = 10 * time.Minute
)

var _ workqueue.TypedRateLimiter[string] = (*Backoff[string])(nil)

// A Backoff remembers the failures of keys. It may be used concurrently.
type Backoff[K comparable] struct {
	// Random returns how much of the random part of a pause is taken off, from 0 for nothing to 1. A test that is
	// about pauses may replace it, before the first use.
	Random func() float64

	first, longest time.Duration
	all            *rate.Limiter

	mu   sync.Mutex
	keys map[K]*failures
}

// failures is what is known of one key.
type failures struct {
	count int
	until time.Time // The end of the last pause.
	last  error
}

// New returns a Backoff whose pauses double from first to longest; up to a fifth of each is taken off at
// random. All keys together come back no faster than all allows; nil is no limit.
func New[K comparable](first, longest time.Duration, all *rate.Limiter) *Backoff[K] {
	return &Backoff[K]{Random: rand.Float64, first: first, longest: longest, all: all, keys: map[K]*failures{}}
}

// When counts a failure of key and returns the pause that follows.
func (b *Backoff[K]) When(key K) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.known(key)
	if f == nil {
		f = &failures{}
		b.keys[key] = f
	}
	pause := b.longest
	if doubled := b.first << min(f.count, 20); doubled < b.longest {
		pause = doubled
	}
	pause -= time.Duration(jitter * b.Random() * float64(pause))
	if b.all != nil {
		pause = max(pause, b.all.Reserve().Delay())
	}
	f.count++
	f.until = time.Now().Add(pause)
	f.last = nil
	return pause
}

// Because remembers why key failed, until it fails again or is forgotten.
func (b *Backoff[K]) Because(key K, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.known(key); f != nil {
		f.last = err
	}
}

// Hold returns how much is left of key's pause, 0 when it is over, and what Because was told of it.
func (b *Backoff[K]) Hold(key K) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.known(key)
	if f == nil {
		return 0, nil
	}
	left := time.Until(f.until)
	if left <= 0 {
		return 0, nil
	}
	return left, f.last
}

// NumRequeues returns how often key has failed since it was forgotten, or since ten minutes went by without.
func (b *Backoff[K]) NumRequeues(key K) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.known(key); f != nil {
		return f.count
	}
	return 0
}

// Forget ends key's pause and forgets its failures.
func (b *Backoff[K]) Forget(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys, key)
}

// known returns what is remembered of key, nil when nothing is or when it has faded.
func (b *Backoff[K]) known(key K) *failures {
	f := b.keys[key]
	if f == nil || time.Since(f.until) > fade {
		delete(b.keys, key)
		return nil
	}
	return f
}
