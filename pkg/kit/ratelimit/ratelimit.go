// Package ratelimit limits what the users of a cluster can make a controller do, such as to send an event or to log a
// line: for each namespace, so that one cannot take what the others need, and for all of them together.
//
// It has a token bucket of golang.org/x/time for each namespace that has used some of its tokens. A bucket that is full
// again is dropped, so the limit for all also limits the memory.
package ratelimit

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// perNamespace, in a second, and burst limit one namespace.
	perNamespace = 1
	burst        = 30
	// total, in a second, limits all namespaces together.
	total = 50
	// maxBuckets is a number of buckets at which the full ones are dropped. Fewer than these are not full: each of the
	// tokens of the last 30 seconds may be missing in another one.
	maxBuckets = 2 * total * burst
)

// Namespaces are the limits: 30 at once and one a second for each namespace, 50 a second for all. It may be used
// concurrently.
type Namespaces struct {
	mu      sync.Mutex
	all     *rate.Limiter
	buckets map[string]*rate.Limiter
}

// New returns limits that nobody has used yet.
func New() *Namespaces {
	return &Namespaces{all: rate.NewLimiter(total, total), buckets: map[string]*rate.Limiter{}}
}

// Allow reports whether a namespace may do what is limited once more, now. A namespace that has used up its own tokens
// takes none of the common ones.
func (n *Namespaces) Allow(namespace string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	bucket := n.buckets[namespace]
	if bucket != nil && bucket.TokensAt(now) < 1 || !n.all.AllowN(now, 1) {
		return false
	}
	if bucket == nil {
		n.dropFull(now)
		bucket = rate.NewLimiter(perNamespace, burst)
		n.buckets[namespace] = bucket
	}
	return bucket.AllowN(now, 1)
}

// dropFull makes room for one more bucket.
func (n *Namespaces) dropFull(now time.Time) {
	if len(n.buckets) < maxBuckets {
		return
	}
	maps.DeleteFunc(n.buckets, func(_ string, bucket *rate.Limiter) bool { return bucket.TokensAt(now) >= burst })
}
