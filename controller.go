package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"example.com/foo-controller/pkg/consistency"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	listers "example.com/foo-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

const (
	// controllerName is the field manager of our writes, the reporter of our events, and the queue's name.
	controllerName = "foo-controller"
	// syncGrace is how long a sync that a stop interrupts may still take.
	syncGrace = 10 * time.Second
	// byDeployment indexes Foos by the namespace/name of the Deployment that they name.
	byDeployment = "deployment"

	foosResource        = "foos"
	deploymentsResource = "deployments"
)

// Controller keeps the Deployments that Foos name as the Foos say, and reports on the Foos.
//
// Events of both kinds become keys of Foos on one queue. A worker takes a key, observes what the caches
// have under it, lets package plan decide, performs what was decided, and writes the Foo's status when it
// differs. Nothing is remembered from one sync to the next but for whom we wrote, and which of these writes
// the caches have still to show; everything else is looked at again.
type Controller struct {
	kube     kubernetes.Interface
	samples  clientset.Interface
	recorder events.EventRecorder

	foos        listers.FooLister
	fooIndexer  cache.TypedIndexer[*v1alpha1.Foo]
	deployments appslisters.DeploymentLister
	synced      []cache.DoneChecker

	// queue holds the namespace/name keys of Foos to sync. It never hands one key to two workers at once.
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// writes knows which of our acknowledged writes the caches have not shown yet.
	writes *consistency.Writes
}

// New returns a Controller that reads from the informers and writes through the clients. It adds its
// handlers and an index to the informers, which therefore must not have been started.
func New(ctx context.Context, kube kubernetes.Interface, samples clientset.Interface, recorder events.EventRecorder,
	foos informers.TypedFooInformer, deployments appsinformers.TypedDeploymentInformer) (*Controller, error) {
	logger := klog.FromContext(ctx)
	fooInformer, deploymentInformer := foos.TypedInformer(), deployments.TypedInformer()
	if err := fooInformer.AddTypedIndexers(informers.FooIndexers{byDeployment: deploymentKeys}); err != nil {
		return nil, fmt.Errorf("index Foos: %w", err)
	}
	c := &Controller{
		kube: kube, samples: samples, recorder: recorder,
		foos: foos.Lister(), fooIndexer: fooInformer.GetTypedIndexer(), deployments: deployments.Lister(),
		queue: newQueue(logger),
		writes: consistency.New(map[string]consistency.Store{
			foosResource:        fooInformer.GetTypedIndexer(),
			deploymentsResource: deploymentInformer.GetTypedIndexer(),
		}),
	}

	fooHandler, err := fooInformer.AddTypedEventHandler(informers.FooHandlerFuncs{
		AddFunc: c.enqueueFoo, UpdateFunc: c.fooChanged, DeleteFunc: c.fooDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Foos: %w", err)
	}
	deploymentHandler, err := deploymentInformer.AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: c.handleObject, UpdateFunc: c.deploymentChanged, DeleteFunc: c.deploymentDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	c.synced = []cache.DoneChecker{fooHandler.HasSyncedChecker(), deploymentHandler.HasSyncedChecker()}
	return c, nil
}

// newQueue returns the queue of keys to sync. A key that failed comes back after 5 ms, doubling to 60 s;
// all failed keys together come back at most 50 times a second after the first 300. First tries are not
// limited.
func newQueue(logger klog.Logger) workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	logger = klog.LoggerWithName(logger, "queue")
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, time.Minute),
			&workqueue.TypedBucketRateLimiter[cache.ObjectName]{Limiter: rate.NewLimiter(50, 300)},
		),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			Name: controllerName,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
				Name: controllerName, Logger: &logger,
			}),
		})
}

// Run syncs Foos with the given number of workers until ctx ends. It then takes no further key, gives the
// syncs in hand 10 s, and returns when the last of them has.
func (c *Controller) Run(ctx context.Context, workers int) {
	defer utilruntime.HandleCrashWithContext(ctx)
	if !cache.WaitFor(klog.NewContext(ctx, klog.FromContext(ctx).V(2)), "caches", c.synced...) {
		c.queue.ShutDown()
		return // Asked to stop before the caches were filled.
	}
	klog.FromContext(ctx).Info("Started", "workers", workers)
	syncCtx, cancel := outlive(ctx, syncGrace)
	defer cancel()

	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.processNextWorkItem(ctx, syncCtx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
}

// outlive returns a context that ends grace after ctx does, so that a request in flight when the stop
// comes can complete. Its values are those of ctx.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, cancel
}

// processNextWorkItem syncs the next key under syncCtx and tells the queue what becomes of it. It returns
// false when ctx has ended: what is queued then stays undone, the next process finds it again.
func (c *Controller) processNextWorkItem(ctx, syncCtx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}

	logger := klog.LoggerWithValues(klog.FromContext(syncCtx), "foo", klog.KRef(key.Namespace, key.Name))
	syncCtx = klog.NewContext(syncCtx, logger)
	err := c.syncSafely(syncCtx, key)
	outcome := plan.OutcomeOf(err)
	logger.V(4).Info("Synced", "outcome", outcome.Kind, "err", err)
	switch outcome.Kind {
	case plan.Retry:
		if !outcome.Quiet {
			utilruntime.HandleErrorWithContext(syncCtx, err, "Sync failed, will try again")
		}
		c.queue.AddRateLimited(key)
	case plan.Wait: // No Forget: a pause between two failures is not a success.
		c.queue.AddAfter(key, outcome.After)
	default:
		c.queue.Forget(key)
	}
	return true
}

// syncSafely is syncHandler, with a panic turned into an error: one object that we cannot cope with must
// not end the service for all others.
func (c *Controller) syncSafely(ctx context.Context, key cache.ObjectName) (err error) {
	defer func() {
		if r := recover(); r != nil {
			klog.FromContext(ctx).Error(nil, "Sync panicked", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.syncHandler(ctx, key)
}

// syncHandler brings one Foo's Deployment and status in line with its spec. The queue never runs it twice
// at once for one key, and running it again changes nothing.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) error {
	if pause := c.writes.Wait(key); pause > 0 { // Before the caches are read: they may catch up at any moment.
		return &plan.WaitError{After: pause, For: "the caches to show our own writes"}
	}
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.writes.Forget(key)
		return nil // Deleted. The garbage collector removes the Deployment.
	}
	if err != nil {
		return err
	}
	if foo.DeletionTimestamp != nil {
		return nil // Being deleted, perhaps for days: a write now would race the garbage collector.
	}

	seen, err := c.observe(key, foo)
	if err != nil {
		return err
	}
	step := plan.Next(seen)
	if step.LookAtFoo {
		if seen.Live, err = c.lookAtFoo(ctx, key); err != nil {
			return err
		}
		step = plan.Next(seen)
	}
	if step.Leave {
		return nil // The cache is behind; the event that it waits for brings the key back.
	}

	dep, stepErr := c.act(ctx, seen, step)
	if plan.OutcomeOf(stepErr).Quiet {
		return stepErr // Nothing to tell the user.
	}
	want := plan.Status(foo, dep, stepErr, time.Now())
	if err := c.updateFooStatus(ctx, foo, want); err != nil {
		return err // Worth a retry whatever stepErr was, and the retry meets stepErr again.
	}
	return stepErr
}

// observe gathers what the caches have about foo.
func (c *Controller) observe(key cache.ObjectName, foo *v1alpha1.Foo) (plan.Seen, error) {
	seen := plan.Seen{Foo: foo, Wrote: c.writes.Known(key, foo.UID)}
	dep, err := c.deployments.Deployments(foo.Namespace).Get(foo.Spec.DeploymentName)
	if err != nil && !apierrors.IsNotFound(err) {
		return seen, err
	}
	if err == nil {
		seen.Named = dep
	}
	return seen, nil
}

// lookAtFoo asks the API server itself about a Foo.
func (c *Controller) lookAtFoo(ctx context.Context, key cache.ObjectName) (*plan.Live, error) {
	foo, err := c.samples.SamplecontrollerV1alpha1().Foos(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &plan.Live{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at Foo %s: %w", key, err)
	}
	return &plan.Live{Foo: foo}, nil
}

// act performs step and returns the named Deployment as it is then known.
func (c *Controller) act(ctx context.Context, seen plan.Seen, step plan.Step) (*appsv1.Deployment, error) {
	switch {
	case step.Create != nil:
		return c.createDeployment(ctx, seen.Foo, step.Create)
	case step.Patch != nil:
		return c.patchDeployment(ctx, seen.Foo, seen.Named, step.Patch)
	default:
		return seen.Named, step.Err
	}
}

// createDeployment creates want for foo. A refusal is not the last word on what exists under that name:
// admission answers before the name is looked at, and the cache may be behind.
func (c *Controller) createDeployment(ctx context.Context, foo *v1alpha1.Foo, want *appsv1.Deployment) (*appsv1.Deployment, error) {
	deployments := c.kube.AppsV1().Deployments(want.Namespace)
	dep, err := deployments.Create(ctx, want, metav1.CreateOptions{FieldManager: controllerName})
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Created Deployment", "deployment", klog.KObj(dep))
		c.wrote(foo, deploymentsResource, dep.ResourceVersion)
		return dep, nil
	}
	err = fmt.Errorf("create Deployment %s: %w", klog.KObj(want), err)
	if !plan.NameMayBeTaken(err) {
		return nil, err
	}

	live, lookErr := deployments.Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(lookErr) {
		return nil, err
	}
	if lookErr != nil {
		return nil, fmt.Errorf("%v; look at Deployment %s: %w", err, klog.KObj(want), lookErr) // What decides is the failed look.
	}
	c.wrote(foo, deploymentsResource, live.ResourceVersion) // Go on when the cache has it too.
	return live, plan.Found(foo, live)
}

// patchDeployment applies patch to have, in the very version that the patch was made for.
func (c *Controller) patchDeployment(ctx context.Context, foo *v1alpha1.Foo, have *appsv1.Deployment, patch *plan.Patch) (*appsv1.Deployment, error) {
	dep, err := c.kube.AppsV1().Deployments(have.Namespace).Patch(ctx, have.Name, types.StrategicMergePatchType, patch.Body,
		metav1.PatchOptions{FieldManager: controllerName})
	if err != nil {
		return have, fmt.Errorf("patch Deployment %s: %w", klog.KObj(have), err)
	}
	klog.FromContext(ctx).V(2).Info("Patched Deployment", "deployment", klog.KObj(dep), "fields", patch.Fields)
	c.wrote(foo, deploymentsResource, dep.ResourceVersion)
	return dep, nil
}

// updateFooStatus writes want as the status of foo when it differs, and then tells what changed as an
// event, if it is worth one.
func (c *Controller) updateFooStatus(ctx context.Context, foo *v1alpha1.Foo, want v1alpha1.FooStatus) error {
	if equality.Semantic.DeepEqual(foo.Status, want) {
		return nil
	}
	changed := foo.DeepCopy() // foo is the cache's.
	changed.Status = want
	updated, err := c.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{FieldManager: controllerName})
	if apierrors.IsNotFound(err) {
		return nil // The Foo is gone, and with it the need for a status.
	}
	if err != nil {
		return fmt.Errorf("update status of Foo %s: %w", klog.KObj(foo), err)
	}
	klog.FromContext(ctx).V(2).Info("Updated status", "availableReplicas", want.AvailableReplicas, "reason", meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionReady).Reason)
	c.wrote(foo, foosResource, updated.ResourceVersion)
	if event := plan.EventOf(&foo.Status, &want); event != nil {
		c.recorder.Eventf(updated, nil, event.Type, event.Reason, event.Action, "%s", event.Note)
	}
	return nil
}

// wrote remembers an acknowledged write for foo until the caches show it.
func (c *Controller) wrote(foo *v1alpha1.Foo, resource, resourceVersion string) {
	c.writes.Wrote(cache.MetaObjectToName(foo), foo.UID, resource, resourceVersion)
}

// enqueueFoo queues foo to be synced.
func (c *Controller) enqueueFoo(foo *v1alpha1.Foo) {
	c.queue.Add(cache.MetaObjectToName(foo))
}

// fooChanged queues a Foo that differs from what the cache had. A new spec, or another Foo of the name, is
// tried at once, whatever failed before. Any other change of a Foo that is to be tried again is most likely
// our own report of the failure, and must not cut the pause short.
func (c *Controller) fooChanged(have, foo *v1alpha1.Foo) {
	key := cache.MetaObjectToName(foo)
	switch {
	case have.Generation != foo.Generation || have.UID != foo.UID:
		c.queue.Forget(key)
	case have.ResourceVersion == foo.ResourceVersion || c.queue.NumRequeues(key) > 0:
		return
	}
	c.queue.Add(key)
}

// fooDeleted queues a Foo that is gone, so that what is remembered of it goes too.
func (c *Controller) fooDeleted(foo informers.DeletedFoo) {
	c.queue.Add(foo.GetObjectName())
}

// deploymentChanged queues whom a changed Deployment concerns; have may have had another owner.
func (c *Controller) deploymentChanged(have, dep *appsv1.Deployment) {
	if have.ResourceVersion == dep.ResourceVersion {
		return
	}
	c.handleObject(have)
	c.handleObject(dep)
}

// deploymentDeleted queues whom a deleted Deployment concerns. When the watch missed the deletion, perhaps
// only its name is known: not its owner, but still who names it.
func (c *Controller) deploymentDeleted(deleted appsinformers.DeletedDeployment) {
	dep := deleted.OptionalObj
	if dep == nil {
		name := deleted.GetObjectName()
		dep = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	}
	c.handleObject(dep)
}

// handleObject queues the Foos that an event of dep concerns: the one that controls it, and those that
// name it, for which it may be in the way or have just gone out of it.
func (c *Controller) handleObject(dep *appsv1.Deployment) {
	if ref := plan.FooReference(dep); ref != nil {
		foo, err := c.foos.Foos(dep.Namespace).Get(ref.Name)
		if err == nil && foo.UID == ref.UID { // Else the owner is gone, or not seen yet and queued when it is.
			c.enqueueFoo(foo)
		}
	}
	claimants, _ := c.fooIndexer.ByTypedIndex(byDeployment, cache.MetaObjectToName(dep).String()) // Fails only without the index.
	for _, foo := range claimants {
		c.enqueueFoo(foo)
	}
}

// deploymentKeys is the index function of byDeployment.
func deploymentKeys(foo *v1alpha1.Foo) ([]string, error) {
	return []string{cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName).String()}, nil
}
