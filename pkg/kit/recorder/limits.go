package recorder

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

// Limits are for what users can make a controller do, such as to send an event or to log a line: 30 at once and one a
// second for each namespace, so that one cannot take what the others need, and 50 a second for all of them. They may be
// used concurrently.
//
// There is a token bucket of golang.org/x/time for each namespace that has used some of its tokens. A bucket that is
// full again is dropped, so the limit for all also limits the memory.
type Limits struct {
	mu      sync.Mutex
	all     *rate.Limiter
	buckets map[string]*rate.Limiter
}

// NewLimits returns limits that nobody has used yet.
func NewLimits() *Limits {
	return &Limits{all: rate.NewLimiter(total, total), buckets: map[string]*rate.Limiter{}}
}

// Allow reports whether a namespace may do what is limited once more, now. A namespace that has used up its own tokens
// takes none of the common ones.
func (l *Limits) Allow(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	bucket := l.buckets[namespace]
	if bucket != nil && bucket.TokensAt(now) < 1 || !l.all.AllowN(now, 1) {
		return false
	}
	if bucket == nil {
		l.dropFull(now)
		bucket = rate.NewLimiter(perNamespace, burst)
		l.buckets[namespace] = bucket
	}
	return bucket.AllowN(now, 1)
}

// dropFull makes room for one more bucket.
func (l *Limits) dropFull(now time.Time) {
	if len(l.buckets) < maxBuckets {
		return
	}
	maps.DeleteFunc(l.buckets, func(_ string, bucket *rate.Limiter) bool { return bucket.TokensAt(now) >= burst })
}
