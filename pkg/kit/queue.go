package kit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/consistency"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/serving"
	"example.com/foo-controller/pkg/kit/syncs"
	"example.com/foo-controller/pkg/kit/telemetry"
)

const (
	// syncGrace is how long running syncs may continue after a stop.
	syncGrace = 10 * time.Second
	// stuckAfter is the time without a new request after which a sync is stuck. A request ends after 10 s, but may have to
	// wait for --kube-api-qps before. A sync with many slow requests is not stuck: a user could cause one.
	stuckAfter = 10 * time.Minute
	// panicDelay is the delay before a key is synced again whose sync panicked.
	panicDelay = time.Minute
	// firstRetry and lastRetry are the limits of the delay that the Queue chooses.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
	// maxExpected is how many expected failures in a row are not logged. More mean that a cache never has the object, for
	// example because its informer has a selector.
	maxExpected = 6

	// retryRate, in a second, and retryBurst limit the retries after failures, of all keys together. First attempts,
	// conflicts and waits are not limited.
	retryRate  = 50
	retryBurst = 300
)

// ErrPanic is the error of a sync that panicked.
var ErrPanic = errors.New("sync panicked")

// A QueueConfig describes a Queue.
type QueueConfig struct {
	// Name is that of the queue in client-go's metrics. Without it, it has none.
	Name string
	// Kind is what a key is called in lines of the log, such as foo.
	Kind string
	// Workers is the number of keys that are worked on at a time, at least one. One namespace has at most half of them. A
	// sync that has lasted for a second does not count, so up to four times as many may be running.
	Workers int
	// Namespace returns the namespace whose share of the workers a key needs. Nil is that of the key. It is for a kind
	// without namespaces: return that of the children, from a cache. /debug/syncs shows a key with it. It must not call
	// the Queue.
	Namespace func(cache.ObjectName) string
	// Sync is called for each key.
	Sync Sync
}

// A Queue holds the keys of objects and calls a Sync for each. It is client-go's rate-limited workqueue with a fair one
// inside, see package fairqueue for the order of the keys. It may be used concurrently. Its exported fields may be set
// before Run.
type Queue struct {
	// Workqueue is that of client-go, which never hands one key to two workers at once. A test may replace it.
	Workqueue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// AddAs queues a key at once. The class decides how soon it is handed out. A test may replace it.
	AddAs func(key cache.ObjectName, class fairqueue.Class)
	// Metrics counts syncs and panics. Nil counts nothing.
	Metrics *telemetry.Metrics
	// Writes has the versions that the caches must reach. Sync is not called before they have, for a minute at most. After
	// a sync that recorded one the key is not done: events are only hints, so it comes back until the caches have it.
	Writes *consistency.Writes
	// Syncs records each sync, for /debug/syncs. Nil records nothing. Process.Show sets it.
	Syncs *syncs.Log
	// OnSynced, unless nil, is called with the outcome of every sync, by the goroutine of the sync. It is for tests.
	OnSynced func(cache.ObjectName, Outcome)

	config QueueConfig
	// goroutines is the number of goroutines that call Get. The fair queue decides how many of them have a key.
	goroutines int
	// retries is the rate limiter of Workqueue, fair its storage, and tokens what retries need.
	retries *fairqueue.Limiter[cache.ObjectName]
	fair    *fairqueue.Queue[cache.ObjectName]
	tokens  *rate.Limiter
	// busy has the keys that are being synced, and notices one that takes too long.
	busy *serving.Busy
}

// NewQueue returns a Queue, which logs to the logger of ctx. It starts goroutines of client-go: call Run or ShutDown.
func NewQueue(ctx context.Context, config QueueConfig) *Queue {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "queue")
	retries, tokens := fairqueue.NewLimiter[cache.ObjectName](), rate.NewLimiter(retryRate, retryBurst)
	if config.Namespace == nil {
		config.Namespace = func(key cache.ObjectName) string { return key.Namespace }
	}
	// A key that comes back after a failure needs one of the tokens that the retries of all keys share.
	fair := fairqueue.New(fairqueue.Config[cache.ObjectName]{
		Name: config.Name, Workers: config.Workers, Retries: tokens,
		Namespace: config.Namespace, Class: retries.Class,
	})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
		Name: config.Name, Logger: &logger, Queue: fair,
	})
	return &Queue{
		Workqueue: workqueue.NewTypedRateLimitingQueueWithConfig(retries,
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: config.Name, DelayingQueue: delaying}),
		AddAs: fair.AddAs, Writes: consistency.New(),
		config: config, goroutines: fair.Goroutines(), busy: serving.NewBusy(stuckAfter),
		retries: retries, fair: fair, tokens: tokens,
	}
}

// Add queues a key because of a change.
func (q *Queue) Add(key cache.ObjectName) { q.Enqueue(key, fairqueue.Change, "a change") }

// Enqueue queues a key at once. The class decides how soon it is handed out. why is a constant, for /debug/syncs.
func (q *Queue) Enqueue(key cache.ObjectName, class fairqueue.Class, why string) {
	q.Syncs.Queued(key, why)
	q.AddAs(key, class)
}

// AddAfter queues a key when a delay is over.
func (q *Queue) AddAfter(key cache.ObjectName, after time.Duration) { q.Workqueue.AddAfter(key, after) }

// Progress notes that the sync of key continues. Call it before each request, else Check fails when many slow requests
// take more than 10 minutes.
func (q *Queue) Progress(key cache.ObjectName) { q.busy.Progress(key.String()) }

// Check returns the check "workers" for the liveness probe. It fails while a sync is stuck.
func (q *Queue) Check() serving.Check { return q.busy.Check("workers") }

// state returns how many keys of each namespace the queue has.
func (q *Queue) state() syncs.Queue {
	state := syncs.Queue{Tokens: int(q.tokens.Tokens())}
	for namespace, n := range q.fair.Counts(q.retries.Failing()) {
		state.Namespaces = append(state.Namespaces, syncs.Namespace{
			Namespace: namespace, Waiting: n.Queued, InWork: n.InHand, BackingOff: n.Others,
		})
	}
	return state
}

// ShutDown ends the goroutines of a Queue that does not run. Keys that are added from now on are ignored.
func (q *Queue) ShutDown() { q.Workqueue.ShutDown() }

// Run syncs keys until ctx ends. Then it takes no further key, waits for the running syncs, whose context ends 10 s
// later, and returns. What is queued then stays undone: the next process finds it again. Call Run once.
func (q *Queue) Run(ctx context.Context) {
	// A request that is in flight when the stop comes can complete.
	syncCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() { time.AfterFunc(syncGrace, cancel) })
	var running sync.WaitGroup
	for range q.goroutines {
		running.Go(func() {
			for q.ProcessNextWorkItem(ctx, syncCtx) {
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	running.Wait()
}

// ProcessNextWorkItem waits for a key, syncs it under syncCtx and requeues it if the outcome asks for that. It returns
// false when the queue is shut down, or when ctx has ended. Run calls it; a test may call it instead of Run.
func (q *Queue) ProcessNextWorkItem(ctx, syncCtx context.Context) bool {
	key, shutdown := q.Workqueue.Get()
	if shutdown {
		return false
	}
	defer q.Workqueue.Done(key)
	defer q.busy.Start(key.String())()
	if ctx.Err() != nil {
		return false
	}

	start, id := time.Now(), fmt.Sprintf("%08x", rand.Uint32())
	logger := klog.LoggerWithValues(klog.FromContext(syncCtx),
		q.config.Kind, klog.KRef(key.Namespace, key.Name), "reconcileID", id)
	recorded := q.Syncs.Begin(key, id)
	outcome := q.syncSafely(klog.NewContext(syncs.NewContext(syncCtx, recorded), logger), key)
	if outcome.After == chosenByQueue {
		outcome.After = min(firstRetry<<min(q.retries.NumRequeues(key), 20), lastRetry)
	}
	logger.V(4).Info("Synced", "outcome", outcome.Kind, "after", outcome.After, "for", outcome.For, "err", outcome.Err)
	q.Metrics.Synced(outcome.Kind, time.Since(start))
	recorded.End(outcome.Kind, outcome.ComesBack(), outcome.After, outcome.For, outcome.Err)
	if q.OnSynced != nil {
		q.OnSynced(key, outcome)
	}
	q.requeue(logger, key, outcome)
	return true
}

// requeue brings key back if outcome asks for that.
func (q *Queue) requeue(logger klog.Logger, key cache.ObjectName, outcome Outcome) {
	switch outcome.Kind {
	case reconcile.Retry:
		expected := outcome.Expected && q.retries.NumRequeues(key) < maxExpected
		if !expected { // Its backoff, up to a minute, limits the number of lines.
			logger.Error(outcome.Err, "Sync failed")
		}
		q.retries.Failed(key, outcome.After, expected)
		q.Workqueue.AddRateLimited(key) // After the delay that retries has.
	case reconcile.Wait: // No Forget: a delay between two failures is not a success.
		q.retries.Waits(key, outcome.For == reconcile.Backoff)
		// Mostly, an event has brought the key back when the delay ends, and its sync has found the caches caught up. A
		// further sync would find nothing to do.
		comeBack := func() { q.Workqueue.Add(key) }
		if outcome.For == reconcile.CacheStale && q.Writes.CallAfter(key, outcome.After, comeBack) {
			return
		}
		q.Workqueue.AddAfter(key, outcome.After)
	case reconcile.Done, reconcile.Terminal:
		q.Workqueue.Forget(key)
	}
}

// syncSafely calls Sync and turns a panic, and an outcome of no kind, into a failure: one object that the code cannot
// cope with must not end the service for all others.
func (q *Queue) syncSafely(ctx context.Context, key cache.ObjectName) (outcome Outcome) {
	defer func() {
		if r := recover(); r != nil {
			q.Metrics.Panicked()
			outcome = Retry(fmt.Errorf("%w: %v\n\n%s", ErrPanic, r, debug.Stack()))
			outcome.After = panicDelay
		}
	}()
	outcome = q.Sync(ctx, key)
	switch outcome.Kind {
	case reconcile.Done, reconcile.Retry, reconcile.Wait, reconcile.Terminal:
		return outcome
	}
	return Retry(fmt.Errorf("Sync returned an outcome of kind %q: use kit.Done, Retry, Wait or Terminal", outcome.Kind))
}

// Sync syncs key once the caches have what was recorded for it, or after a minute, and with a wait until they have what
// this sync recorded. Run calls it; a test may call it instead.
func (q *Queue) Sync(ctx context.Context, key cache.ObjectName) Outcome {
	if delay := q.Writes.CatchUpDelay(key); delay > 0 { // Before Sync reads the caches: they may catch up at any moment.
		return reconcile.WaitFor(reconcile.CacheStale, delay)
	}
	outcome := q.config.Sync(ctx, key)
	lags := outcome.Kind == reconcile.Wait && outcome.For == reconcile.CacheStale
	if delay := q.Writes.HoldDelay(key); delay > 0 && (lags || !outcome.ComesBack()) {
		return reconcile.WaitFor(reconcile.CacheStale, delay)
	}
	return outcome
}

// A Sync brings one object in line with its spec. key has the name of the object, which may not exist any more. A Queue
// never calls it twice at once for one key. Running it again must change nothing. ctx ends 10 s after the stop of the
// process; its logger adds the key to each line.
type Sync func(ctx context.Context, key cache.ObjectName) Outcome

// An Outcome is what a Queue does with a key after a sync. Done, Retry, Wait and Terminal make one, whose fields may be
// changed. What the status of the object reports is another question.
type Outcome = reconcile.Outcome

// chosenByQueue as Outcome.After is the delay of Retry.
const chosenByQueue time.Duration = -1

// Done is the outcome of a sync after which nothing is left to do, or a watch event will come when something is.
func Done() Outcome { return Outcome{Kind: reconcile.Done} }

// Retry is the outcome of a sync that failed. The Queue chooses its delay: 5 ms, doubled with each failure in a
// row, up to a minute. If reconcile.IsConflict(err), the failure is an expected one.
func Retry(err error) Outcome {
	return Outcome{Kind: reconcile.Retry, After: chosenByQueue, Err: err, Expected: reconcile.IsConflict(err)}
}

// Wait is the outcome of a sync after which time must pass, and perhaps no watch event will come. It does not end a
// series of failures.
func Wait(after time.Duration) Outcome { return Outcome{Kind: reconcile.Wait, After: after} }

// Terminal is the outcome of a sync that no retry can help, only a change of an object.
func Terminal() Outcome { return Outcome{Kind: reconcile.Terminal} }

// Handlers are what AddTypedEventHandler of a typed informer takes.
type Handlers[T reconcile.Object] = cache.TypedResourceEventHandlerDetailedFuncs[T]

// Objects returns handlers that queue each object that is added, changed or deleted. The initial list and a resync come
// after changes, see fairqueue.Initial.
func Objects[T reconcile.Object](queue *Queue) Handlers[T] {
	return Handlers[T]{
		AddFunc: func(obj T, isInInitialList bool) {
			if isInInitialList {
				queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Initial, "the initial list")
				return
			}
			queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Change, "it was created")
		},
		UpdateFunc: func(old, obj T) {
			if old.GetResourceVersion() == obj.GetResourceVersion() {
				queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Initial, "a resync")
				return
			}
			queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Change, "it has changed")
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			queue.Enqueue(deleted.GetObjectName(), fairqueue.Change, "it was deleted")
		},
	}
}

// Children returns handlers for the children of objects of a kind. For each child that is added, changed or deleted,
// they call add with the name of its controller, of that kind, and with its own name: an object that is to have a child
// of this name may wait for it. So add should ignore names of objects that do not exist.
//
// An owner has the namespace of its children, or none: then add ignores the one that it gets. The handlers ignore the
// initial list, because the owners are in a list too, and resyncs. If a watch has missed a deletion, only the name of
// the child may be known. So a child should have the name of its owner, or add should know whose child has that name.
func Children[T reconcile.Object](owner schema.GroupKind, add func(cache.ObjectName)) Handlers[T] {
	changed := func(child T) {
		name := cache.MetaObjectToName(child)
		add(name)
		ref := metav1.GetControllerOf(child)
		if ref == nil || ref.Name == name.Name {
			return
		}
		if schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == owner { // In any version.
			add(cache.NewObjectName(name.Namespace, ref.Name))
		}
	}
	return Handlers[T]{
		AddFunc: func(child T, isInInitialList bool) {
			if !isInInitialList {
				changed(child)
			}
		},
		UpdateFunc: func(have, child T) {
			if have.GetResourceVersion() != child.GetResourceVersion() {
				changed(have) // It may have had another owner.
				changed(child)
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			var unknown T
			if deleted.OptionalObj == unknown {
				add(deleted.GetObjectName())
				return
			}
			changed(deleted.OptionalObj)
		},
	}
}

// ByController is an index function: it returns the uid of the controller of an object, for those who keep a list of
// children.
func ByController(obj any) ([]string, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return []string{string(ref.UID)}, nil
	}
	return nil, nil
}
