package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/claims"
	"example.com/foo-controller/pkg/consistency"
	"example.com/foo-controller/pkg/fairqueue"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	listers "example.com/foo-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/logging"
	"example.com/foo-controller/pkg/metrics"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/retry"
	"example.com/foo-controller/pkg/serving"
)

const (
	// controllerName is the field manager of our writes, the reporter of our events, and the queue's name.
	controllerName = "foo-controller"
	// syncGrace is how long running syncs may continue after a stop.
	syncGrace = 10 * time.Second
	// stuckAfter is the time without a new request after which a sync is stuck. A request ends after 10 s, but may have to
	// wait for --kube-api-qps before. A sync with many slow requests is not stuck: a user could cause one.
	stuckAfter = 10 * time.Minute
	// lookAgainAfter is when a Foo is synced once more after a Deployment was created for it. If somebody deletes the
	// Deployment while the watch is interrupted, the next list may show neither, so no event brings the key back.
	lookAgainAfter = time.Minute

	// retryRate, in a second, and retryBurst limit the retries after failures, of all keys together. First attempts,
	// conflicts and waits are not limited.
	retryRate  = 50
	retryBurst = 300

	// fanOutWorkers is the number of fanOuts that are worked on at a time. One namespace has at most half of them.
	fanOutWorkers = 2

	foosResource        = "foos"
	deploymentsResource = "deployments"

	// byDeployment indexes Foos by the namespace/name of the Deployment that they name.
	byDeployment = "deployment"
	// byUID indexes Foos by their namespace and uid.
	byUID = "uid"
	// byFoo indexes Deployments by their namespace and the uid of the Foo that controls them.
	byFoo = "foo"
)

// deploymentHandlerFuncs are handlers that learn whether an added Deployment is in the initial list.
type deploymentHandlerFuncs = cache.TypedResourceEventHandlerDetailedFuncs[*appsv1.Deployment]

// fooHandlerFuncs are handlers that learn whether an added Foo is in the initial list.
type fooHandlerFuncs = cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.Foo]

// errPanic is the error of a sync that panicked.
var errPanic = errors.New("sync panicked")

// Controller reconciles Foos: it creates and patches the Deployment that a Foo names, deletes those that the Foo named
// before, and records the result in the Foo's status.
//
// Events of both kinds become keys of Foos on one queue, some of them through a fanOut. A worker takes a key and
// reads its objects from the caches. From then on package plan decides: it returns the next request, the Controller
// sends it, and passes the answer to the plan, until nothing is left to do. Between syncs the Controller remembers,
// for each Foo, a plan.Memory and its own recent writes. Everything else is read again.
type Controller struct {
	kube     kubernetes.Interface
	samples  clientset.Interface
	recorder events.EventRecorder

	fooLister         listers.FooLister
	fooIndexer        cache.TypedIndexer[*v1alpha1.Foo]
	deploymentLister  appslisters.DeploymentLister
	deploymentIndexer cache.TypedIndexer[*appsv1.Deployment]
	// fooInformer and deploymentInformer get the handlers when Run begins.
	fooInformer        informers.FooIndexInformer
	deploymentInformer appsinformers.DeploymentIndexInformer

	// queue holds the namespace/name keys of Foos to sync. It never hands one key to two workers at once.
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// add queues a key at once. The class decides how soon it is handed out.
	add func(cache.ObjectName, fairqueue.Class)
	// lookAgain queues a key after lookAgainAfter.
	lookAgain func(cache.ObjectName)
	// fanOuts has the sets of Foos that are to be queued because of an event. enqueueFanOut adds to it.
	fanOuts       *fairqueue.Queue[fanOut]
	enqueueFanOut func(fanOut)
	// goroutines is the number of goroutines that call the queue's Get. The queue decides how many of them have a key.
	goroutines int
	// retries is the queue's rate limiter.
	retries *retry.Limiter[cache.ObjectName]
	// claims has, for each name, the Foo that may create the Deployment. The handlers of Foos keep it up to date.
	claims *claims.Index
	// writes has those of our acknowledged writes that the caches do not have yet.
	writes *consistency.Writes
	// failures logs syncs that fail.
	failures logging.Failures[cache.ObjectName]
	// unread logs fields of Foos that could not be decoded.
	unread logging.Unread

	mu sync.Mutex
	// memories has what plan remembers of each Foo. Only the worker that has a key changes its entry.
	memories map[cache.ObjectName]plan.Memory

	// Metrics counts syncs and requests. Set it before Run; nil counts nothing.
	Metrics *metrics.Metrics
	// Busy has the keys that are being synced, and notices one that takes too long.
	Busy *serving.Busy
	// random returns the random part of the delays of a sync, in [0, 1).
	random func() float64
	// onSynced, unless nil, is called with the outcome of every sync.
	onSynced func(cache.ObjectName, plan.Outcome)
}

// Clients are what a Controller sends its requests through.
type Clients struct {
	Kube    kubernetes.Interface
	Samples clientset.Interface
}

// New returns a Controller that reads from the informers, writes through the clients, and works on as many Foos at a
// time as there are workers. A sync that has lasted for a second does not count, so up to four times as many may be
// running, see package fairqueue. New adds its indexes to the informers, which therefore must not have been started.
func New(ctx context.Context, clients Clients, recorder events.EventRecorder, foos informers.TypedFooInformer,
	deployments appsinformers.TypedDeploymentInformer, workers int) (*Controller, error) {
	logger := klog.FromContext(ctx)
	fooInformer, deploymentInformer := foos.TypedInformer(), deployments.TypedInformer()
	if err := fooInformer.AddTypedIndexers(informers.FooIndexers{
		byDeployment: namedDeployment, byUID: ownUID,
	}); err != nil {
		return nil, fmt.Errorf("index Foos: %w", err)
	}
	if err := deploymentInformer.AddTypedIndexers(appsinformers.DeploymentIndexers{byFoo: controllingFoo}); err != nil {
		return nil, fmt.Errorf("index Deployments: %w", err)
	}
	retries := retry.NewLimiter[cache.ObjectName]()
	fair := newFairQueue(retries, workers)
	stores := map[string]consistency.Store{
		foosResource:        fooInformer.GetTypedIndexer(),
		deploymentsResource: deploymentInformer.GetTypedIndexer(),
	}
	c := &Controller{
		kube: clients.Kube, samples: clients.Samples, recorder: recorder,
		fooLister: foos.Lister(), fooIndexer: fooInformer.GetTypedIndexer(),
		deploymentLister: deployments.Lister(), deploymentIndexer: deploymentInformer.GetTypedIndexer(),
		fooInformer: fooInformer, deploymentInformer: deploymentInformer,
		queue: newQueue(logger, fair, retries), add: fair.AddAs, goroutines: fair.Goroutines(), retries: retries,
		claims:   claims.New(plan.Claims, plan.CompareAge),
		writes:   consistency.New(func(resource, _ string) consistency.Store { return stores[resource] }),
		memories: map[cache.ObjectName]plan.Memory{},
		random:   rand.Float64,
		Busy:     serving.NewBusy(stuckAfter),
	}

	c.fanOuts = fairqueue.New(fairqueue.Config[fanOut]{
		Workers: fanOutWorkers, Namespace: func(f fanOut) string { return f.namespace },
	})
	c.lookAgain = func(key cache.ObjectName) { c.queue.AddAfter(key, lookAgainAfter) }
	c.enqueueFanOut = func(f fanOut) { c.fanOuts.AddAs(f, fairqueue.Change) }
	return c, nil
}

// newFairQueue returns the queue that decides which key is next. A key that comes back after a failure needs one of the
// tokens that the retries of all keys share.
func newFairQueue(retries *retry.Limiter[cache.ObjectName], workers int) *fairqueue.Queue[cache.ObjectName] {
	return fairqueue.New(fairqueue.Config[cache.ObjectName]{
		Name: controllerName, Workers: workers, Retries: rate.NewLimiter(retryRate, retryBurst),
		Namespace: func(key cache.ObjectName) string { return key.Namespace },
		Class: func(key cache.ObjectName) fairqueue.Class {
			if retries.HasFailed(key) {
				return fairqueue.Failed
			}
			return fairqueue.Retry
		},
	})
}

// newQueue returns the queue of keys to sync: fair, with delays. Its rate limiter is retries.
func newQueue(logger klog.Logger, fair *fairqueue.Queue[cache.ObjectName],
	retries *retry.Limiter[cache.ObjectName]) workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	logger = klog.LoggerWithName(logger, "queue")
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
		Name: controllerName, Logger: &logger, Queue: fair,
	})
	return workqueue.NewTypedRateLimitingQueueWithConfig(retries, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
		Name: controllerName, DelayingQueue: delaying,
	})
}

// watch registers the event handlers, and returns checks that are done when the handlers have been called for all
// objects of the first lists. Run does it, and not New: the caches of a standby are filled too, but nobody takes keys
// from its queue, which would keep the name of every Foo that came and went.
func (c *Controller) watch(logger klog.Logger) ([]cache.DoneChecker, error) {
	foos, err := c.fooInformer.AddTypedEventHandler(fooHandlerFuncs{
		AddFunc: c.fooAdded, UpdateFunc: c.fooChanged, DeleteFunc: c.fooDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Foos: %w", err)
	}
	deployments, err := c.deploymentInformer.AddTypedEventHandler(deploymentHandlerFuncs{
		AddFunc: c.deploymentAdded, UpdateFunc: c.deploymentChanged, DeleteFunc: c.deploymentDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	return []cache.DoneChecker{foos.HasSyncedChecker(), deployments.HasSyncedChecker()}, nil
}

// Run syncs Foos until ctx ends. Then it takes no further key, waits for the running syncs, at most for syncGrace, and
// returns. A fanOut in hand is completed too: it sends nothing. Call Run once.
func (c *Controller) Run(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	synced, err := c.watch(logger)
	if err != nil || !cache.WaitFor(klog.NewContext(ctx, logger.V(2)), "caches", synced...) {
		c.fanOuts.ShutDown()
		c.queue.ShutDown()
		return // Asked to stop before the caches were filled. Informers that have ended refuse handlers.
	}
	logger.Info("Started")
	c.work(ctx)
}

// work starts the workers, and returns when they have ended.
func (c *Controller) work(ctx context.Context) {
	syncCtx, cancel := withGrace(ctx, syncGrace)
	defer cancel()

	var running sync.WaitGroup
	start := func(goroutines int, processNext func() bool) {
		for range goroutines {
			running.Go(func() {
				for processNext() {
				}
			})
		}
	}
	start(c.goroutines, func() bool { return c.processNextWorkItem(ctx, syncCtx) })
	// A fanOut waits for no answer, so that no more goroutines are of use.
	start(fanOutWorkers, func() bool { return c.processNextFanOut(ctx) })
	<-ctx.Done()
	c.fanOuts.ShutDown()
	c.queue.ShutDown()
	running.Wait()
}

// withGrace returns a context that ends grace after ctx does, so that a request in flight when the stop comes can
// complete. Its values are those of ctx.
func withGrace(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	graceCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return graceCtx, cancel
}

// processNextWorkItem syncs the next key under syncCtx and requeues it if the outcome asks for that. It returns false
// when ctx has ended: what is queued then stays undone, the next process finds it again.
func (c *Controller) processNextWorkItem(ctx, syncCtx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	defer c.Busy.Start(key.String())()
	if ctx.Err() != nil {
		return false
	}

	start, logger := time.Now(), klog.LoggerWithValues(klog.FromContext(syncCtx),
		"foo", klog.KRef(key.Namespace, key.Name), "reconcileID", fmt.Sprintf("%08x", rand.Uint32()))
	outcome := c.syncSafely(klog.NewContext(syncCtx, logger), key)
	logger.V(4).Info("Synced", "outcome", outcome.Kind, "after", outcome.After, "for", outcome.Reason, "err", outcome.Err)
	c.Metrics.Synced(string(outcome.Kind), time.Since(start))
	if c.onSynced != nil {
		c.onSynced(key, outcome)
	}
	switch outcome.Kind {
	case plan.Retry:
		if !outcome.Expected {
			c.failures.Failed(logger, key, outcome.Err)
		}
		c.retries.Failed(key, outcome.After, outcome.Expected) // The queue asks retries, which returns this delay.
		c.queue.AddRateLimited(key)
	case plan.Wait: // No Forget: a delay between two failures is not a success.
		if outcome.Reason != plan.Backoff { // After a backoff the key comes back for the failure before.
			c.retries.Waits(key)
		}
		c.queue.AddAfter(key, outcome.After)
	case plan.Done:
		if outcome.Reason == "" { // Else a stale cache ended the sync early, and something may be left to do.
			c.failures.Succeeded(logger, key)
		}
		c.queue.Forget(key)
	case plan.Terminal: // It failed, and a retry does not help.
		c.failures.Forget(key)
		c.queue.Forget(key)
	}
	return true
}

// syncSafely is syncHandler, with a panic turned into a failure: one object that the code cannot cope with must not end
// the service for all others.
func (c *Controller) syncSafely(ctx context.Context, key cache.ObjectName) (outcome plan.Outcome) {
	defer func() {
		if r := recover(); r != nil {
			c.Metrics.Panicked()
			outcome = c.recordPanic(key, fmt.Errorf("%w: %v\n\n%s", errPanic, r, debug.Stack()))
		}
	}()
	return c.syncHandler(ctx, key)
}

// recordPanic backs off a key whose sync panicked.
func (c *Controller) recordPanic(key cache.ObjectName, err error) plan.Outcome {
	now, memory := time.Now(), c.recall(key)
	if foo, err := c.fooLister.Foos(key.Namespace).Get(key.Name); err == nil {
		memory = memory.For(foo, now) // The sync may have panicked before it remembered this generation.
	}
	memory, delay := memory.Panicked(now, c.random())
	c.remember(key, memory)
	return plan.Outcome{Kind: plan.Retry, After: delay, Reason: plan.Backoff, Err: err}
}

// syncHandler brings one Foo's Deployment and status in line with its spec. The queue never runs it twice at once for
// one key, and running it again changes nothing.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) plan.Outcome {
	if delay := c.writes.CatchUpDelay(key); delay > 0 { // Before the caches are read: they may catch up at any moment.
		return plan.WaitFor(plan.CacheStale, delay)
	}
	state := c.observe(key)
	if state == nil {
		return plan.Outcome{Kind: plan.Done} // Gone or being deleted: the garbage collector removes the Deployment.
	}
	c.unread.Observed(klog.FromContext(ctx), state.Foo)
	for step := state.Next(); step != nil; step = state.Next() {
		answer := c.perform(ctx, state.Foo, step)
		state.Record(step, answer, time.Now())
	}
	outcome := state.Outcome() // Also drops from the memory what is no longer wanted, so it comes before remember.
	c.remember(key, state.Memory)
	c.sendEvent(state.Foo, outcome.Event)
	return outcome
}

// observe returns what the caches have of a Foo, and what is remembered of it. It returns nil for a Foo that does not
// exist, and forgets it. It also returns nil for a Foo that is being deleted: a write now would race with the garbage
// collector.
func (c *Controller) observe(key cache.ObjectName) *plan.State {
	foo, err := c.fooLister.Foos(key.Namespace).Get(key.Name)
	if err != nil { // Only NotFound is possible.
		c.forget(key)
		return nil
	}
	if foo.DeletionTimestamp != nil {
		c.failures.Forget(key)
		return nil
	}
	now, name := time.Now(), foo.Spec.DeploymentName
	state := &plan.State{
		Foo:           foo,
		FirstClaimant: c.claims.First(cache.NewObjectName(foo.Namespace, name)),
		CacheStale:    c.writes.IsStale(key, foosResource) || c.writes.IsStale(key, deploymentsResource),
		Now:           now, Jitter: c.random(),
		Memory:   c.recall(key).For(foo, now),
		Previous: c.previousOf(foo),
	}
	if dep, err := c.deploymentLister.Deployments(key.Namespace).Get(name); err == nil {
		state.Deployment, state.OwnerChain = dep, c.ownerChain(foo, dep)
	}
	return state
}

// perform sends the request of step, logs it, and sends the event that belongs to it. foo is the Foo that the step
// was decided on; for a status, step.Foo is a copy of it. perform also remembers the version that a write, or a live
// read of the Deployment, returned: the caches must reach it before the next sync, and event handlers use it to
// recognize our own writes.
func (c *Controller) perform(ctx context.Context, foo *v1alpha1.Foo, step *plan.Step) plan.Answer {
	key, uid := cache.MetaObjectToName(foo), foo.UID
	c.Busy.Progress(key.String())
	answer := c.send(ctx, step)
	logRequest(klog.FromContext(ctx), step, answer)
	c.Metrics.Requested(step.Rule, string(step.Verb), answer.Err)
	if answer.Err != nil {
		return answer
	}
	switch step.Verb {
	case plan.ReadDeployment:
		if answer.Deployment != nil {
			c.writes.ObservedAt(key, uid, deploymentsResource, answer.Deployment.ResourceVersion)
		}
	case plan.CreateDeployment:
		c.writes.WroteAt(key, uid, deploymentsResource, answer.Deployment.ResourceVersion)
		c.lookAgain(key)
	case plan.PatchDeployment:
		c.writes.WroteAt(key, uid, deploymentsResource, answer.Deployment.ResourceVersion)
	case plan.UpdateStatus:
		c.writes.WroteAt(key, uid, foosResource, answer.Foo.ResourceVersion)
		logging.Stalled(klog.FromContext(ctx), foo, answer.Foo)
		c.Metrics.Reported(foo, answer.Foo)
	}
	c.sendEvent(step.Foo, step.EventAfter(answer))
	return answer
}

// logRequest logs a request and the rule that asked for it: at level 0 when it has changed a Deployment, otherwise at
// V(2).
func logRequest(logger klog.Logger, step *plan.Step, answer plan.Answer) {
	logger = klog.LoggerWithValues(logger, "rule", step.Rule)
	deployment := klog.KRef(step.Foo.Namespace, step.Name)
	switch {
	case answer.Err != nil:
		logger.V(2).Info("Request failed", "request", step.Verb, "name", step.Name, "err", answer.Err)
	case step.Verb == plan.ReadFoo:
		logger.V(2).Info("Read Foo")
	case step.Verb == plan.ReadDeployment:
		logger.V(2).Info("Read Deployment", "deployment", deployment)
	case step.Verb == plan.CreateDeployment:
		logger.Info("Created Deployment", "deployment", deployment)
	case step.Verb == plan.PatchDeployment:
		logger.Info("Corrected Deployment", "deployment", deployment, "fields", logging.List(step.Patch.Fields))
		logger.V(5).Info("Sent patch", "deployment", deployment, "body", string(step.Patch.Body))
	case step.Verb == plan.DeleteDeployment:
		logger.Info("Deleted Deployment", "deployment", deployment)
	case step.Verb == plan.UpdateStatus:
		reason, _ := plan.ReadyReason(answer.Foo)
		logger.V(2).Info("Updated status", "availableReplicas", answer.Foo.Status.AvailableReplicas, "reason", reason)
	}
}

// sendEvent sends an event about foo. It does nothing if event is nil. The resourceVersion is removed, because
// client-go combines events only if they regard the same version.
func (c *Controller) sendEvent(foo *v1alpha1.Foo, event *plan.Event) {
	if event == nil {
		return
	}
	regarding := *foo
	regarding.ResourceVersion = ""
	c.recorder.Eventf(&regarding, nil, event.Type, event.Reason, event.Action, "%s", event.Note)
}

// send is the part of perform that talks to the API server.
func (c *Controller) send(ctx context.Context, step *plan.Step) (answer plan.Answer) {
	foos := c.samples.SamplecontrollerV1alpha1().Foos(step.Foo.Namespace)
	deployments := c.kube.AppsV1().Deployments(step.Foo.Namespace)
	switch step.Verb {
	case plan.ReadFoo:
		answer.Foo, answer.Err = nilIfNotFound(foos.Get(ctx, step.Name, metav1.GetOptions{}))
	case plan.ReadDeployment:
		answer.Deployment, answer.Err = nilIfNotFound(deployments.Get(ctx, step.Name, metav1.GetOptions{}))
		answer.OwnerChain = c.ownerChain(step.Foo, answer.Deployment)
	case plan.CreateDeployment:
		answer.Deployment, answer.Err = deployments.Create(ctx, step.Deployment,
			metav1.CreateOptions{FieldManager: controllerName})
	case plan.PatchDeployment:
		answer.Deployment, answer.Err = deployments.Patch(ctx, step.Name, types.StrategicMergePatchType, step.Patch.Body,
			metav1.PatchOptions{FieldManager: controllerName})
	case plan.DeleteDeployment:
		// Delete only the version that was read: after an edit, or when it has become available, the Deployment may be
		// needed. The garbage collector deletes its pods in the background.
		answer.Err = deployments.Delete(ctx, step.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{
				UID: &step.Deployment.UID, ResourceVersion: &step.Deployment.ResourceVersion,
			},
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
	case plan.UpdateStatus:
		answer.Foo, answer.Err = foos.UpdateStatus(ctx, step.Foo, metav1.UpdateOptions{FieldManager: controllerName})
	}
	return answer
}

// nilIfNotFound returns nil without an error if the object does not exist.
func nilIfNotFound[T any](obj *T, err error) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return obj, nil
}

// recall returns what is remembered of a Foo.
func (c *Controller) recall(key cache.ObjectName) plan.Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memories[key]
}

// remember keeps memory for the next sync of key.
func (c *Controller) remember(key cache.ObjectName, memory plan.Memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memories[key] = memory
}

// forget drops what is remembered of a Foo that is gone.
func (c *Controller) forget(key cache.ObjectName) {
	c.writes.Forget(key)
	c.failures.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memories, key)
}

// The table shows which event queues which Foos, by itself or through a fanOut. An event of our own write does not
// queue its Foo. The initial list queues each Foo once. Informers are not resynced: a key is requeued until no retry
// is needed, and a new list after a lost watch brings every change that the watch missed.
//
//	event                                          queues
//	a Foo is added, changed or deleted             the Foo itself
//	  another Foo has the first claim to a name    these two Foos, if that Deployment does not exist
//	  it is new, replaced, or (being) deleted;
//	  it moves                                     the Foos that name a Deployment of it
//	  it is paused; Ready, Stalled or what it
//	  waits for changes                            the Foos that name a previous Deployment of it
//	a Deployment is added or deleted               its owner, and the Foos that name it
//	a Deployment is changed                        its owner
//	  its controller, made-for label or deletion   also the Foos that name it
//
// A paused or invalid Foo that is queued as waiting also queues the Foos that wait for it.

// enqueueFoo queues foo to be synced, because of a change.
func (c *Controller) enqueueFoo(foo *v1alpha1.Foo) { c.enqueue(cache.MetaObjectToName(foo)) }

func (c *Controller) enqueue(key cache.ObjectName) { c.add(key, fairqueue.Change) }

// fooAdded queues a new Foo, and the Foos that name a Deployment which it controls: the Deployment's event may have
// come first. Of the initial list it queues only the Foo: the others are in the list too.
func (c *Controller) fooAdded(foo *v1alpha1.Foo, isInInitialList bool) {
	if isInInitialList {
		c.claims.Update(foo)
		c.add(cache.MetaObjectToName(foo), fairqueue.Initial)
		return
	}
	c.enqueueFoo(foo)
	c.enqueueFirst(cache.MetaObjectToName(foo), c.claims.Update(foo))
	c.enqueueFanOut(waitingFor(scopeControlled, foo))
}

// fooChanged queues a Foo that has changed, except when the only change is our own status write. It also queues the
// Foos that wait for a Deployment of this Foo, if their reports depend on the change.
func (c *Controller) fooChanged(have, foo *v1alpha1.Foo) {
	if have.ResourceVersion == foo.ResourceVersion {
		return
	}
	replaced := have.UID != foo.UID || (have.DeletionTimestamp == nil) != (foo.DeletionTimestamp == nil)
	if replaced || have.Generation != foo.Generation {
		c.enqueueFirst(cache.MetaObjectToName(foo), c.claims.Update(foo))
	}
	switch {
	case replaced:
		c.enqueueFanOut(waitingFor(scopeControlled, have))
		c.enqueueFanOut(waitingFor(scopeControlled, foo))
	case have.Spec.DeploymentName != foo.Spec.DeploymentName: // Either name was, or is, a previous one.
		c.enqueueFanOut(waitingFor(scopeControlled, foo))
	case plan.Claims(have) != plan.Claims(foo):
		c.enqueueFanOut(waitingFor(scopePrevious, foo))
	case !plan.SameToOthers(have, foo):
		c.enqueueFanOut(waitingFor(scopeReport, foo))
	}
	if key := cache.MetaObjectToName(foo); !c.writes.IsOwnWrite(key, foosResource, foo.ResourceVersion) {
		c.enqueue(key)
	}
}

// fooDeleted queues a Foo that is gone, so that the controller forgets it, and the Foos that wait for its name or its
// Deployments. If the watch missed the deletion, only the key may be known. Then every Foo of the namespace is queued.
func (c *Controller) fooDeleted(deleted informers.DeletedFoo) {
	key := deleted.GetObjectName()
	c.enqueue(key)
	c.enqueueFirst(key, c.claims.Delete(key))
	if foo := deleted.OptionalObj; foo != nil {
		c.enqueueFanOut(waitingFor(scopeControlled, foo))
		return
	}
	c.enqueueFanOut(fanOut{scope: scopeNamespace, namespace: key.Namespace})
}

// enqueueFirst queues the Foos that had and have the first claim to a Deployment, except the Foo except, which
// its own event queues: a worker may have taken it by then, and it would be synced twice. If the Deployment
// exists, claims do not matter. The reports of all other Foos that name it stay the same.
func (c *Controller) enqueueFirst(except cache.ObjectName, changes []claims.Change) {
	isExcept := func(foo *v1alpha1.Foo) bool { return cache.MetaObjectToName(foo) == except }
	for _, change := range changes {
		name := change.Deployment
		if _, err := c.deploymentLister.Deployments(name.Namespace).Get(name.Name); err == nil {
			continue
		}
		for _, foo := range slices.DeleteFunc(change.Foos, isExcept) {
			c.enqueueFoo(foo)
		}
	}
}

// A fanOut is a set of Foos that an event concerns, besides the Foo or the owner that the event is about. There may be
// thousands, and the events of all namespaces are handled one after another. So a handler queues only the fanOut, and
// processNextFanOut finds its Foos. Equal ones that wait are queued once.
type fanOut struct {
	scope     scope
	namespace string
	// deployment is the name of the Deployment, for scopeNamed.
	deployment string
	// foo is the uid of the Foo that controls the Deployments, or for scopeNamed of the one that has written it, or empty.
	// It is left out.
	foo types.UID
}

// A scope selects Deployments. The fanOut consists of the Foos that name one of them, of the Foos that wait for
// these, and so on: which Foo waits for which may have changed, and the report of each may depend on the whole chain.
// It is not enough to wait for statuses that change on the way, since they may be late, and then be the same as
// before.
type scope string

const (
	// scopeNamed is about one Deployment, scopeControlled about all that the Foo controls, and scopePrevious about those
	// of them that it does not name.
	scopeNamed      scope = "named"
	scopeControlled scope = "controlled"
	scopePrevious   scope = "previous"
	// scopeReport is scopePrevious without the rest of the chain: each Foo wakes the next one when its own status changes.
	// Paused and invalid Foos do not report what they wait for, so the Foos that wait for such a Foo are in it too.
	scopeReport scope = "report"
	// scopeNamespace is about no Deployment: all Foos of the namespace.
	scopeNamespace scope = "namespace"
)

// waitingFor returns the fanOut with this scope to the other Foos that wait for Deployments of foo.
func waitingFor(scope scope, foo *v1alpha1.Foo) fanOut {
	return fanOut{scope: scope, namespace: foo.Namespace, foo: foo.UID}
}

// processNextFanOut queues the Foos of the next fanOut. It returns false when the queue is shut down.
func (c *Controller) processNextFanOut(ctx context.Context) bool {
	f, shutdown := c.fanOuts.Get()
	if shutdown {
		return false
	}
	defer c.fanOuts.Done(f)
	if ctx.Err() == nil {
		c.enqueueFoosOf(f)
	}
	return true
}

// enqueueFoosOf queues the Foos of f, as the caches have them now.
func (c *Controller) enqueueFoosOf(f fanOut) {
	switch f.scope {
	case scopeNamed:
		c.walkWaiting(f, []string{f.deployment}, c.previousOf)
	case scopeControlled:
		c.walkWaiting(f, names(c.controlledBy(f.namespace, f.foo)), c.previousOf)
	case scopePrevious:
		c.walkWaiting(f, c.previousNames(f), c.previousOf)
	case scopeReport:
		c.walkWaiting(f, c.previousNames(f), func(other *v1alpha1.Foo) []*appsv1.Deployment {
			if plan.Claims(other) {
				return nil
			}
			return c.previousOf(other)
		})
	case scopeNamespace:
		c.enqueueNamespace(f.namespace)
	}
}

// previousNames returns the names of the previous Deployments of the Foo of f, which may be gone.
func (c *Controller) previousNames(f fanOut) []string {
	foo := c.fooWithUID(f.namespace, f.foo)
	if foo == nil {
		return nil
	}
	return names(c.previousOf(foo))
}

// walkWaiting queues the Foos that name one of deployments, then those that name a Deployment which next returns for
// one of them, and so on.
func (c *Controller) walkWaiting(f fanOut, deployments []string, next func(*v1alpha1.Foo) []*appsv1.Deployment) {
	visited := map[types.UID]bool{f.foo: true}
	for depth := 0; len(deployments) > 0 && depth < plan.MaxChain; depth++ {
		var behind []*appsv1.Deployment
		for _, other := range c.newFoosNaming(f.namespace, deployments, visited) {
			c.enqueueFoo(other)
			behind = append(behind, next(other)...)
		}
		deployments = names(behind)
	}
}

// newFoosNaming returns the Foos that name one of deployments and were not visited, and marks them as visited.
func (c *Controller) newFoosNaming(namespace string, deployments []string, visited map[types.UID]bool) []*v1alpha1.Foo {
	var foos []*v1alpha1.Foo
	for _, name := range deployments {
		foos = append(foos, c.foosNaming(namespace, name)...)
	}
	return slices.DeleteFunc(foos, func(foo *v1alpha1.Foo) bool {
		again := visited[foo.UID]
		visited[foo.UID] = true
		return again
	})
}

func names(deps []*appsv1.Deployment) []string {
	var names []string
	for _, dep := range deps {
		names = append(names, dep.Name)
	}
	return names
}

// deploymentAdded queues the Foos that a new Deployment concerns. The initial list needs no handling: every Foo is
// queued by its own event, and no sync begins before both lists are complete.
func (c *Controller) deploymentAdded(dep *appsv1.Deployment, isInInitialList bool) {
	if !isInInitialList {
		c.handleObject(dep, c.lastWriter(dep))
	}
}

// deploymentChanged queues the owner of a changed Deployment. It also queues the Foos that only name it, and a former
// owner, when the change concerns them.
func (c *Controller) deploymentChanged(have, dep *appsv1.Deployment) {
	switch {
	case have.ResourceVersion == dep.ResourceVersion:
	case plan.SameOwnership(have, dep):
		c.enqueueOwner(dep)
	default:
		writer := c.lastWriter(dep)
		c.handleObject(have, writer)
		c.handleObject(dep, writer)
	}
}

// enqueueOwner queues the Foo that controls dep, unless this very version was written for it.
func (c *Controller) enqueueOwner(dep *appsv1.Deployment) {
	if owner := c.resolveOwner(dep); owner != nil && !c.isWrittenFor(owner, dep) {
		c.enqueueFoo(owner)
	}
}

// deploymentDeleted queues the Foos that a deleted Deployment concerns. If the watch missed the deletion, only the key
// may be known, and not the owner. Then every Foo of the namespace is queued.
func (c *Controller) deploymentDeleted(deleted appsinformers.DeletedDeployment) {
	if deleted.OptionalObj == nil {
		c.enqueueFanOut(fanOut{scope: scopeNamespace, namespace: deleted.GetObjectName().Namespace})
		return
	}
	c.handleObject(deleted.OptionalObj, nil)
}

// enqueueNamespace queues all Foos of a namespace.
func (c *Controller) enqueueNamespace(namespace string) {
	foos, _ := c.fooLister.Foos(namespace).List(labels.Everything()) // It reads the cache and never fails.
	for _, foo := range foos {
		c.enqueueFoo(foo)
	}
}

// handleObject queues the owner of dep, and every Foo that names dep, because dep may now occupy that name, or have
// freed it. It leaves out writer, the Foo for which the controller wrote this very version, or nil.
func (c *Controller) handleObject(dep *appsv1.Deployment, writer *v1alpha1.Foo) {
	if owner := c.resolveOwner(dep); owner != nil && owner != writer { // One that the cache lacks is queued when added.
		c.enqueueFoo(owner)
		c.enqueueFanOut(waitingFor(scopePrevious, owner))
	}
	f := fanOut{scope: scopeNamed, namespace: dep.Namespace, deployment: dep.Name}
	if writer != nil {
		f.foo = writer.UID
	}
	c.enqueueFanOut(f)
}

// lastWriter returns the Foo for which the controller wrote this very version of dep, nil when somebody else did.
func (c *Controller) lastWriter(dep *appsv1.Deployment) *v1alpha1.Foo {
	if owner := c.resolveOwner(dep); c.isWrittenFor(owner, dep) {
		return owner
	}
	return nil
}

// isWrittenFor reports whether the controller wrote this very version of dep for owner, which may be nil.
func (c *Controller) isWrittenFor(owner *v1alpha1.Foo, dep *appsv1.Deployment) bool {
	return owner != nil &&
		c.writes.IsOwnWrite(cache.MetaObjectToName(owner), deploymentsResource, dep.ResourceVersion)
}

// ownerChain follows from dep to the Foo that controls it, the Deployment which that Foo names instead, the Foo that
// controls that one, and so on; see plan.State.
func (c *Controller) ownerChain(foo *v1alpha1.Foo, dep *appsv1.Deployment) []*v1alpha1.Foo {
	var chain []*v1alpha1.Foo
	for dep != nil && !plan.Owns(foo, dep) {
		owner := c.resolveOwner(dep)
		if owner == nil || slices.Contains(chain, owner) || len(chain) == plan.MaxChain {
			return chain
		}
		chain = append(chain, owner)
		if owner.DeletionTimestamp != nil || owner.Spec.DeploymentName == dep.Name || !plan.IsMadeFor(owner, dep) {
			return chain // This owner will not free the name by moving to another one.
		}
		dep, _ = c.deploymentLister.Deployments(owner.Namespace).Get(owner.Spec.DeploymentName) // Nil if it does not exist.
		if dep != nil && plan.Owns(foo, dep) && plan.IsMadeFor(foo, dep) {
			return append(chain, foo)
		}
	}
	return chain
}

// resolveOwner returns the cached Foo that controls dep, or nil. The uid decides, as in plan.Owns.
func (c *Controller) resolveOwner(dep *appsv1.Deployment) *v1alpha1.Foo {
	ref := plan.FooReference(dep)
	if ref == nil {
		return nil
	}
	return c.fooWithUID(dep.Namespace, ref.UID)
}

// fooWithUID returns the Foo, or nil if the cache does not have it.
func (c *Controller) fooWithUID(namespace string, uid types.UID) *v1alpha1.Foo {
	foos, _ := c.fooIndexer.ByTypedIndex(byUID, namespace+"/"+string(uid)) // Fails only without the index.
	if len(foos) == 0 {
		return nil
	}
	return foos[0]
}

// foosNaming returns the cached Foos that name the Deployment.
func (c *Controller) foosNaming(namespace, deployment string) []*v1alpha1.Foo {
	key := cache.NewObjectName(namespace, deployment).String()
	foos, _ := c.fooIndexer.ByTypedIndex(byDeployment, key) // Fails only without the index.
	return foos
}

// controlledBy returns the cached Deployments that the Foo with this uid controls.
func (c *Controller) controlledBy(namespace string, foo types.UID) []*appsv1.Deployment {
	deps, _ := c.deploymentIndexer.ByTypedIndex(byFoo, namespace+"/"+string(foo)) // Fails only without the index.
	return deps
}

// previousOf returns the cached Deployments that foo controls and does not name.
func (c *Controller) previousOf(foo *v1alpha1.Foo) []*appsv1.Deployment {
	return slices.DeleteFunc(c.controlledBy(foo.Namespace, foo.UID), func(dep *appsv1.Deployment) bool {
		return dep.Name == foo.Spec.DeploymentName
	})
}

// namedDeployment is the index function of byDeployment.
func namedDeployment(foo *v1alpha1.Foo) ([]string, error) {
	return []string{cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName).String()}, nil
}

// ownUID is the index function of byUID.
func ownUID(foo *v1alpha1.Foo) ([]string, error) {
	return []string{foo.Namespace + "/" + string(foo.UID)}, nil
}

// controllingFoo is the index function of byFoo.
func controllingFoo(dep *appsv1.Deployment) ([]string, error) {
	if ref := plan.FooReference(dep); ref != nil {
		// With the namespace, because an owner reference is valid only in its own one.
		return []string{dep.Namespace + "/" + string(ref.UID)}, nil
	}
	return nil, nil
}
