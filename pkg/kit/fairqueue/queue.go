package fairqueue

import (
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
