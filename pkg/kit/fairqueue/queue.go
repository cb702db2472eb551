// Package fairqueue is a workqueue for a controller that serves many namespaces. A user of one namespace cannot stop or
// slow the controller for the others: not with many objects, not with writes that hang, not with writes that are
// refused. Use it in the place of client-go's workqueue.Typed, as the Queue of a TypedDelayingQueueConfig.
//
// The package decides which key is next, and when. Everything else is client-go's: a Queue contains a workqueue.Typed
// and is its storage. One key is never in the hands of two workers, a key that is added twice is handed out once, a key
// that is added while it is in hand is queued by Done, the metrics count all keys that wait, and the end is as there.
// Two differences: Get is stricter about when a key is handed out, and Done of a key that is not in hand is ignored.
//
// # Which key is next
//
// Namespaces take turns. In a round each namespace that has a key to hand out is served once. A namespace that was
// not served in this round is before one that was, so that a new key does not wait for the thousands of another
// namespace. If new namespaces never end, 1,000 of them join a round, and the others the next one. So the old
// ones do not wait for ever.
//
// Within a namespace the key with the smallest rank is next: the time when it was queued, plus 5 s for a retry. So a
// change comes first, but a retry that has waited for 5 s comes before a change that is added then. A key that is added
// again moves up if that gives it a smaller rank, and never down.
//
// The initial list, which is there when the controller starts, must not delay changes, be it of one namespace or of
// thousands. So its keys have turns of their own. They are handed out when there is nothing else to hand out, and after
// seven other keys one of them is next in any case. A key of the initial list that is added again in another class
// belongs to the others then, and counts as a change.
//
// A retry of what failed needs a token of a limiter that all namespaces share. The token is taken at the moment when
// the key is handed out, and not before: nothing is reserved. Without a token the namespace gives another key, or keeps
// its turn until there is a token. So a namespace that has keys in hand up to its limit takes no token, and n keys that
// failed come back within n/rate. A key that is added again because of a change needs no token any more.
//
// # How many keys are in hand
//
// A key that has been in hand for a second is slow. At most Workers keys that are not slow are in hand, so that this is
// the work that the controller does at a time. A slow key, one that waits for an answer, takes no place. Including
// these, at most four times Workers keys are in hand, and one namespace has at most half of Workers, at least one. That
// limit holds also when no other namespace needs a worker: a new key elsewhere finds one that is free.
//
// The caller starts as many goroutines as Goroutines returns, which call Get and Done. The Queue starts none. It has
// one timer, which runs only when a key waits for a token, or for a key in hand to become slow.
//
// Eight namespaces whose keys all hang have every goroutine, and with one worker it takes only four. Seven leave some
// for the others. If there are no more of them than workers, a new key elsewhere waits a second at most, until a key in
// hand is slow.
//
// # Invariant
//
// When a goroutine waits in Get, and fewer than Workers keys that are not slow and fewer than four times Workers keys
// in all are in hand, then each key that is queued needs a token that is not there, or its namespace is at its limit.
//
// # Cost
//
// With n keys and namespaces an operation makes O(log n) comparisons. ShutDown lifts the limits, for each namespace
// once. A namespace is forgotten when it has no key. Only its name is kept until the end of the round.
package fairqueue

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

var _ workqueue.TypedInterface[string] = (*Queue[string])(nil)

// A Config describes a Queue.
type Config[K comparable] struct {
	// Name is the name of the queue in the metrics. Without it, it has none.
	Name string
	// MetricsProvider makes the metrics. Nil means the one that was set for all workqueues.
	MetricsProvider workqueue.MetricsProvider
	// Workers is the number of keys that are worked on at a time. Less than one means one.
	Workers int
	// Namespace returns the namespace of a key. It is asked each time the key is added, and another answer counts unless
	// the key is in hand. It must not call the Queue.
	Namespace func(K) string
	// Class returns the class of a key that is added with Add. Client-go's delaying queue calls Add when a delay has
	// ended, and cannot pass a class. Nil means Retry for all keys.
	Class func(K) Class
	// Retries has the tokens that keys of class Failed need. Nil means that they need no token.
	Retries *rate.Limiter
}

// A Queue is a fair workqueue. It may be used concurrently.
type Queue[K comparable] struct {
	workers int
	class   func(K) Class
	created time.Time

	// mu is held during every operation, so that an operation of inner and the changes of the schedule that it causes
	// are one. inner never waits in an operation, except for the end of ShutDownWithDrain.
	mu sync.Mutex
	// idle is where goroutines wait that find no key in Get, and waiting is their number.
	idle    *sync.Cond
	waiting int
	// inner rejects duplicates, knows which keys are in hand, and has the metrics. The schedule is its storage: inner
	// calls it, with mu held.
	inner    *workqueue.Typed[K]
	schedule *schedule[K]
	alarm    alarm
}

// New returns a Queue.
func New[K comparable](config Config[K]) *Queue[K] {
	class := config.Class
	if class == nil {
		class = func(K) Class { return Retry }
	}
	workers := max(1, config.Workers)
	q := &Queue[K]{
		workers: workers, class: class, created: time.Now(),
		schedule: newSchedule(workers, config.Namespace, config.Retries),
	}
	q.idle = sync.NewCond(&q.mu)
	q.alarm.ring = q.retry
	q.inner = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
		Name: config.Name, MetricsProvider: config.MetricsProvider, Queue: q.schedule,
	})
	return q
}

// Goroutines returns the number of goroutines that should call Get. No more keys than that are in hand.
func (q *Queue[K]) Goroutines() int { return perWorker * q.workers }

// Add adds a key in the class that Config.Class returns.
func (q *Queue[K]) Add(key K) { q.AddAs(key, q.class(key)) }

// AddAs adds a key in a class. If the key is queued already, the better of the two classes counts. If it is in hand, it
// is queued by Done, in the best class that it was added with until then.
func (q *Queue[K]) AddAs(key K, class Class) {
	q.begin()
	defer q.end()
	if q.schedule.stopping {
		return
	}
	q.schedule.claim(key, class)
	q.inner.Add(key)
}

// Get blocks until a key may be handed out, and returns it. It returns true if the queue is shutting down and empty.
// Call Done with the key after the work.
func (q *Queue[K]) Get() (key K, shutdown bool) {
	q.begin()
	defer q.end()
	for !q.schedule.choose() && !q.schedule.stopping {
		q.wait()
	}
	return q.inner.Get() // It does not wait: either a key is chosen, or inner is shutting down.
}

// Done ends the work on a key. If the key was added meanwhile, it is queued again. Done of a key that is not in hand
// does nothing.
func (q *Queue[K]) Done(key K) {
	q.begin()
	defer q.end()
	if !q.schedule.putBack(key) {
		return
	}
	q.inner.Done(key)
	q.schedule.forget(key)
}

// Len returns the number of keys that are queued, including those that wait for a token.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inner.Len()
}

// Counts returns, for each namespace, how many keys are queued, including those that wait for a token, how many are in
// hand, and how many of others are neither.
func (q *Queue[K]) Counts(others []K) map[string]Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := map[string]Count{}
	for name, n := range q.schedule.namespaces {
		counts[name] = Count{Queued: n.changes.queued() + n.initial.queued(), InHand: n.inHand}
	}
	for _, key := range others {
		if q.schedule.items[key] == nil {
			name := q.schedule.namespaceOf(key)
			count := counts[name]
			count.Others++
			counts[name] = count
		}
	}
	return counts
}

// A Count is what Counts returns for a namespace.
type Count struct{ Queued, InHand, Others int }

// ShutDown makes the queue ignore keys that are added from now on. What is queued is handed out without limits and
// tokens. Then Get returns true.
func (q *Queue[K]) ShutDown() {
	q.stop()
	q.inner.ShutDown() // Once more: this ends a ShutDownWithDrain that is waiting.
}

// ShutDownWithDrain is ShutDown, and waits until no key is in hand. A call of ShutDown ends the wait.
func (q *Queue[K]) ShutDownWithDrain() {
	q.stop()
	q.inner.ShutDownWithDrain()
}

// ShuttingDown reports whether the queue is shutting down.
func (q *Queue[K]) ShuttingDown() bool { return q.inner.ShuttingDown() }

// stop shuts down, and wakes all goroutines that wait in Get.
func (q *Queue[K]) stop() {
	q.begin()
	defer q.end()
	if q.schedule.stopping {
		return
	}
	q.inner.ShutDown()
	q.schedule.stop()
	q.alarm.stop()
	q.idle.Broadcast()
}

// begin starts an operation.
func (q *Queue[K]) begin() {
	q.mu.Lock()
	q.schedule.advance(time.Since(q.created))
}

// end ends an operation.
func (q *Queue[K]) end() {
	q.settle()
	q.mu.Unlock()
}

// wait waits in Get, after choose has found no key, until there may be one.
func (q *Queue[K]) wait() {
	if !q.prepareWait() {
		q.waiting++
		q.idle.Wait()
		q.waiting--
	}
	q.schedule.advance(time.Since(q.created))
}

// settle follows every operation. If a key may be handed out now, it wakes one goroutine. That one calls settle after
// it has taken the key, and so wakes the next if there is another key.
func (q *Queue[K]) settle() {
	q.schedule.settle()
	if q.schedule.stopping || q.waiting == 0 {
		return
	}
	if q.prepareWait() {
		q.idle.Signal()
	}
}

// prepareWait reports whether a key may be handed out now. If time must pass first, it sets the alarm. A goroutine that
// is about to wait needs this answer even though it has found no key: the next token may have come since.
func (q *Queue[K]) prepareWait() bool {
	at := q.schedule.nextChance()
	if at > q.schedule.now && at < never {
		q.alarm.set(at, q.schedule.now)
	}
	return at <= q.schedule.now
}

// retry follows when the alarm rings.
func (q *Queue[K]) retry() {
	q.begin()
	defer q.end()
	q.alarm.rang()
}

// An alarm calls ring at the earliest of the times to which it is set. It may ring when there is no reason any more.
type alarm struct {
	ring  func()
	timer *time.Timer
	at    time.Duration // 0: it is not set.
}

func (a *alarm) set(at, now time.Duration) {
	if a.at != 0 && a.at <= at {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(at-now, a.ring)
		return
	}
	a.timer.Reset(at - now)
}

func (a *alarm) rang() { a.at = 0 }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// A Class is the reason for which a key is added. It decides how soon the key is handed out.
type Class int

const (
	// Change is the class of a key whose object, or another that concerns it, was changed.
	Change Class = iota
	// Retry is the class of a key that comes back although nothing that it asks for has changed.
	Retry
	// Failed is the class of a Retry of an operation that failed. It needs a token of the common limiter.
	Failed
	// Initial is the class of a key of a list of all objects: when the controller starts, and at a resync.
	Initial
)

// handicap is what is added to the time of a key to get its rank, see the package comment.
func (c Class) handicap() time.Duration {
	if c == Retry || c == Failed {
		return 5 * time.Second
	}
	return 0
}

// A claim is what the classes give to a key with which it was added since it was last handed out.
type claim struct {
	made     bool
	handicap time.Duration // The smallest one.
	changed  bool          // One of them was Change.
	failed   bool          // One of them was Failed.
	initial  bool          // Each of them was Initial.
}

// and returns the claim of a key that is added once more.
func (c claim) and(class Class) claim {
	if !c.made {
		c = claim{made: true, handicap: class.handicap(), initial: true}
	}
	c.handicap = min(c.handicap, class.handicap())
	c.changed = c.changed || class == Change
	c.failed = c.failed || class == Failed
	c.initial = c.initial && class == Initial
	return c
}

// needsToken reports whether the key comes back because of a failure, and not because of a change.
func (c claim) needsToken() bool { return c.failed && !c.changed }

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
