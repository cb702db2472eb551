package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
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
	"example.com/foo-controller/pkg/backoff"
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

	// toleratedReports is how often a status that something else has written is replaced at once.
	toleratedReports = 3

	foosResource        = "foos"
	deploymentsResource = "deployments"
)

// Controller keeps the Deployments that Foos name as the Foos say, and reports on the Foos.
//
// Events of both kinds become keys of Foos on one queue. A worker takes a key, observes what the caches
// have under it, lets package plan decide, performs what was decided, and writes the Foo's status when it
// differs. Nothing is remembered from one sync to the next but for whom we wrote, which of these writes the
// caches have still to show, and what failed how often; everything else is looked at again.
type Controller struct {
	kube     kubernetes.Interface
	samples  clientset.Interface
	recorder events.EventRecorder

	foos              listers.FooLister
	fooIndexer        cache.TypedIndexer[*v1alpha1.Foo]
	deployments       appslisters.DeploymentLister
	deploymentIndexer cache.TypedIndexer[*appsv1.Deployment]
	synced            []cache.DoneChecker

	// queue holds the namespace/name keys of Foos to sync. It never hands one key to two workers at once.
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// retries says when a key that failed may be tried again; it is the queue's rate limiter.
	retries *backoff.Backoff[cache.ObjectName]
	// pauses say what else may not be tried yet.
	pauses pauses
	// writes knows which of our acknowledged writes the caches have not shown yet.
	writes *consistency.Writes

	// onSynced is called after each sync, unless it is nil. Only tests set it.
	onSynced func(key cache.ObjectName, outcome plan.Outcome, err error)
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
	if err := deploymentInformer.AddTypedIndexers(appsinformers.DeploymentIndexers{byFoo: fooUIDs}); err != nil {
		return nil, fmt.Errorf("index Deployments: %w", err)
	}
	// A key that failed comes back after 5 ms, doubling to 60 s; all failed keys together come back at most 50
	// times a second after the first 300. First tries are not limited.
	retries := backoff.New[cache.ObjectName](5*time.Millisecond, time.Minute, rate.NewLimiter(50, 300))
	stores := map[string]consistency.Store{
		foosResource:        fooInformer.GetTypedIndexer(),
		deploymentsResource: deploymentInformer.GetTypedIndexer(),
	}
	c := &Controller{
		kube: kube, samples: samples, recorder: recorder,
		foos: foos.Lister(), fooIndexer: fooInformer.GetTypedIndexer(),
		deployments: deployments.Lister(), deploymentIndexer: deploymentInformer.GetTypedIndexer(),
		queue: newQueue(logger, retries), retries: retries,
		pauses: newPauses(),
		writes: consistency.New(func(resource, _ string) consistency.Store { return stores[resource] }),
	}

	fooHandler, err := fooInformer.AddTypedEventHandler(informers.FooHandlerFuncs{
		AddFunc: c.fooAdded, UpdateFunc: c.fooChanged, DeleteFunc: c.fooDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Foos: %w", err)
	}
	deploymentHandler, err := deploymentInformer.AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: c.deploymentAdded, UpdateFunc: c.deploymentChanged, DeleteFunc: c.deploymentDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	c.synced = []cache.DoneChecker{fooHandler.HasSyncedChecker(), deploymentHandler.HasSyncedChecker()}
	return c, nil
}

// newQueue returns the queue of keys to sync; those that failed come back as retries says.
func newQueue(logger klog.Logger, retries workqueue.TypedRateLimiter[cache.ObjectName]) workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	logger = klog.LoggerWithName(logger, "queue")
	return workqueue.NewTypedRateLimitingQueueWithConfig(retries, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
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
	if c.onSynced != nil {
		c.onSynced(key, outcome, err)
	}
	switch outcome.Kind {
	case plan.Retry:
		if !outcome.Quiet {
			utilruntime.HandleErrorWithContext(syncCtx, err, "Sync failed, will try again")
		}
		c.queue.AddRateLimited(key)
		if outcome.Told {
			c.retries.Because(key, err)
		}
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
			err = &panicError{value: r}
		}
	}()
	return c.syncHandler(ctx, key)
}

// A panicError is the error of a sync that panicked.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// syncHandler brings one Foo's Deployment and status in line with its spec. The queue never runs it twice
// at once for one key, and running it again changes nothing.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) error {
	if pause := c.writes.Wait(key); pause > 0 { // Before the caches are read: they may catch up at any moment.
		return &plan.WaitError{After: pause, For: plan.CacheBehind}
	}
	pause, why := c.retries.Hold(key)
	if pause > 0 && why == nil {
		return &plan.WaitError{After: pause, For: plan.Backoff} // Whatever event has brought the key back.
	}
	seen, err := c.observe(key)
	if err != nil || seen.Foo == nil {
		return err
	}
	if pause > 0 {
		seen.Held = &plan.WaitError{After: pause, For: plan.Backoff, Err: why}
	}
	seen, step, err := c.decide(ctx, seen)
	if err != nil {
		return err
	}
	if step.Leave {
		return nil // The cache is behind; the event that it waits for brings the key back.
	}

	stepErr := c.act(ctx, &seen, step)
	if plan.OutcomeOf(stepErr).Quiet {
		return stepErr // Nothing to tell the user.
	}
	if step.Delete != nil && stepErr == nil && plan.Next(seen) != (plan.Step{}) {
		return nil // There is more to do before there is something to say; the deletion is an event.
	}
	if err := c.updateFooStatus(ctx, seen.Foo, plan.Status(seen, stepErr, time.Now())); err != nil {
		return err // Worth a retry whatever stepErr was, and the retry meets stepErr again.
	}
	if stepErr == nil && step.Patch != nil && plan.Next(seen).Asks() {
		return nextStep() // Our own patch is no event that would bring the key back.
	}
	return stepErr
}

// decide returns the next step. It asks the API server for what the decision rests on when the step says so, and when
// something is to be written while the caches cannot be relied upon; seen then has the answers.
func (c *Controller) decide(ctx context.Context, seen plan.Seen) (plan.Seen, plan.Step, error) {
	key, step := cache.MetaObjectToName(seen.Foo), plan.Next(seen)
	if !step.Asks() && step.Err == nil {
		c.writes.Trust(key, deploymentsResource) // There is nothing to write: what had no answer was done.
	}
	if c.doubtful(seen, step) {
		live, err := c.look(ctx, key)
		if err != nil || live.Foo == nil {
			return seen, plan.Step{Leave: true}, err
		}
		live.Held = seen.Held
		seen, step = live, plan.Next(live)
	}
	if !step.LookAtFoo {
		return seen, step, nil
	}

	write := &plan.WriteError{Verb: step.Verb(), Deployment: step.Target(seen.Foo)}
	var err error
	if seen.Live, err = c.lookAtFoo(ctx, key); err == nil {
		step = plan.Next(seen)
	}
	if err == nil && step.Delete != nil && seen.Named != nil { // The one that is to replace it may be worse off than the cache has it.
		var named *appsv1.Deployment
		if named, err = c.lookAtDeployment(ctx, key.Namespace, seen.Named.Name); err == nil {
			seen.Named, seen.Holders = named, c.holders(seen.Foo, named)
			step = plan.Next(seen)
		}
	}
	switch write.Err = err; {
	case err == nil:
		return seen, step, nil
	case write.Verb == "delete":
		return seen, plan.Step{Err: c.undeleted(ctx, seen.Foo, write)}, nil
	default:
		return seen, plan.Step{Err: write}, nil // To be told: that it is not written may hurt.
	}
}

// doubtful reports whether step, or the status after it, would be written on what the caches may have wrong.
func (c *Controller) doubtful(seen plan.Seen, step plan.Step) bool {
	key := cache.MetaObjectToName(seen.Foo)
	if c.writes.Doubts(key, foosResource) {
		return step.Asks() || !equality.Semantic.DeepEqual(seen.Foo.Status, plan.Status(seen, step.Err, time.Now()))
	}
	return step.Asks() && c.writes.Doubts(key, deploymentsResource)
}

// act performs step and updates seen with what it does to the Deployments.
func (c *Controller) act(ctx context.Context, seen *plan.Seen, step plan.Step) error {
	switch {
	case step.Create != nil:
		return cmp.Or(c.createDeployment(ctx, seen, step.Create), step.Err)
	case step.Patch != nil:
		return cmp.Or(c.patchDeployment(ctx, seen, step.Patch), step.Err)
	case step.Delete != nil:
		return cmp.Or(c.deleteDeployment(ctx, seen, step.Delete), step.Err)
	}
	return step.Err
}

// createDeployment creates want. A refusal is not the last word on what exists under that name: admission
// answers before the name is looked at, and the cache may be behind.
func (c *Controller) createDeployment(ctx context.Context, seen *plan.Seen, want *appsv1.Deployment) error {
	dep, err := c.kube.AppsV1().Deployments(want.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: controllerName})
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Created Deployment", "deployment", klog.KObj(dep))
		return c.accepted(seen, dep, nil)
	}
	failed := c.failed(seen.Foo, "create", want.Name, err)
	if !plan.NameMayBeTaken(err) {
		return failed
	}

	live, err := c.lookAtDeployment(ctx, want.Namespace, want.Name)
	if err != nil {
		return &plan.WriteError{Verb: "create", Deployment: want.Name, Err: fmt.Errorf("%v; %w", failed, err)} // What decides is the failed look.
	}
	if live == nil {
		return failed
	}
	c.writes.Met(cache.MetaObjectToName(seen.Foo), seen.Foo.UID, deploymentsResource, live.ResourceVersion) // Go on when the cache has it too.
	seen.Named = live
	seen.Holders = c.holders(seen.Foo, live)
	return plan.Found(*seen)
}

// patchDeployment applies patch to the named Deployment, in the very version that the patch was made for.
func (c *Controller) patchDeployment(ctx context.Context, seen *plan.Seen, patch *plan.Patch) error {
	have := seen.Named
	dep, err := c.kube.AppsV1().Deployments(have.Namespace).Patch(ctx, have.Name, types.StrategicMergePatchType, patch.Body,
		metav1.PatchOptions{FieldManager: controllerName})
	if err != nil {
		return c.failed(seen.Foo, "patch", have.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Patched Deployment", "deployment", klog.KObj(dep), "fields", fmt.Sprint(patch.Fields))
	return c.accepted(seen, dep, patch)
}

// deleteDeployment deletes old, in this very version: one that has just been edited or become available may
// be wanted after all. Its pods follow in the background, not before it is gone itself.
func (c *Controller) deleteDeployment(ctx context.Context, seen *plan.Seen, old *appsv1.Deployment) error {
	if err := plan.Identified("Deployment", old); err != nil {
		return err
	}
	err := c.kube.AppsV1().Deployments(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) { // Gone is gone.
		return c.undeleted(ctx, seen.Foo, c.failed(seen.Foo, "delete", old.Name, err))
	}
	klog.FromContext(ctx).V(2).Info("Deleted Deployment of an earlier name", "deployment", klog.KObj(old))
	seen.Owned = slices.DeleteFunc(slices.Clone(seen.Owned), func(dep *appsv1.Deployment) bool { return dep.UID == old.UID })
	return nil
}

// accepted takes the API server's answer to a create, or to patch, as the named Deployment. It is an error
// when that shows that something else decides about fields that the Foo sets.
func (c *Controller) accepted(seen *plan.Seen, answer *appsv1.Deployment, patch *plan.Patch) error {
	key, again := cache.MetaObjectToName(seen.Foo), seen.HadDeployment()
	seen.Named = answer
	c.writes.Wrote(key, seen.Foo.UID, deploymentsResource, answer.ResourceVersion)
	c.retries.Forget(key) // What failed has worked, even when there is something to wait for.
	if patch == nil && again {
		times := c.pauses.creations.NumRequeues(key) + 1
		c.pauses.creations.When(key)
		c.pauses.creations.Because(key, plan.Recreated(answer.Name, times))
		c.pauses.tell(seen)
	}
	overridden := plan.Overridden(seen.Foo, answer, patch, c.pauses.corrections.NumRequeues(key)+1)
	if overridden == nil && patch == nil {
		return nil
	}
	pause := c.pauses.corrections.When(key)
	if overridden == nil {
		return nil
	}
	c.pauses.corrections.Because(key, overridden)
	return &plan.WaitError{After: pause, For: plan.CorrectionBackoff, Err: overridden}
}

// failed returns what a refused or failed write to a Deployment of foo means.
func (c *Controller) failed(foo *v1alpha1.Foo, verb, deployment string, err error) *plan.WriteError {
	c.doubt(foo, deploymentsResource, err)
	return &plan.WriteError{Verb: verb, Deployment: deployment, Err: err}
}

// doubt makes the next try ask the API server itself when err, the answer to a write to the resource, is none, or
// says for the second time that the cache is behind.
func (c *Controller) doubt(foo *v1alpha1.Foo, resource string, err error) {
	key := cache.MetaObjectToName(foo)
	if plan.Unanswered(err) || plan.OutcomeOf(err).Quiet && c.retries.NumRequeues(key) > 0 {
		c.writes.Doubt(key, foo.UID, resource)
	}
}

// updateFooStatus writes want as the status of foo when it differs, and then tells what changed as an
// event, if it is worth one.
func (c *Controller) updateFooStatus(ctx context.Context, foo *v1alpha1.Foo, want v1alpha1.FooStatus) error {
	if equality.Semantic.DeepEqual(foo.Status, want) {
		return nil
	}
	key := cache.MetaObjectToName(foo)
	if err := plan.Identified("Foo", foo); err != nil {
		return err
	}
	foreign := c.writes.Overwritten(key, foo.UID, foo.Status)
	if pause, _ := c.pauses.reports.Hold(key); foreign && pause > 0 && c.pauses.reports.NumRequeues(key) > toleratedReports {
		return &plan.WaitError{After: pause, For: plan.ReportBackoff}
	}
	changed := foo.DeepCopy() // foo is the cache's.
	changed.Status = want
	updated, err := c.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{FieldManager: controllerName})
	if apierrors.IsNotFound(err) {
		return nil // The Foo is gone, and with it the need for a status.
	}
	if err != nil {
		c.doubt(foo, foosResource, err)
		return fmt.Errorf("update status of Foo %s: %w", key, err)
	}
	klog.FromContext(ctx).V(2).Info("Updated status", "availableReplicas", want.AvailableReplicas, "reason", meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionReady).Reason)
	c.writes.Wrote(key, foo.UID, foosResource, updated.ResourceVersion)
	c.writes.Reported(key, foo.UID, updated.Status)
	if foreign {
		c.pauses.reports.When(key)
	}
	if event := plan.EventOf(&foo.Status, &want); event != nil {
		c.recorder.Eventf(updated, nil, event.Type, event.Reason, event.Action, "%s", event.Note)
	}
	return nil
}

// enqueueFoo queues foo to be synced.
func (c *Controller) enqueueFoo(foo *v1alpha1.Foo) {
	c.queue.Add(cache.MetaObjectToName(foo))
}

// fooAdded queues a new Foo, and those that wait for a Deployment of its: they may have heard of the
// Deployment before they could know whose it is.
func (c *Controller) fooAdded(foo *v1alpha1.Foo) {
	c.enqueueFoo(foo)
	c.enqueueWaiting(foo)
}

// fooChanged queues a Foo that differs from what the cache had, unless our own status is all that is new. A new
// spec, or another Foo of the name, is tried at once, whatever failed before. It also concerns those who wait
// for this Foo's Deployments, or want the same one.
func (c *Controller) fooChanged(have, foo *v1alpha1.Foo) {
	if have.ResourceVersion == foo.ResourceVersion {
		return
	}
	key := cache.MetaObjectToName(foo)
	renewed := have.Generation != foo.Generation || have.UID != foo.UID || (have.DeletionTimestamp == nil) != (foo.DeletionTimestamp == nil)
	if renewed {
		c.forgetFailures(key)
		for _, dep := range c.controlledBy(foo) {
			c.pauses.deletions.Forget(cache.MetaObjectToName(dep))
		}
		c.enqueueRivals(have)
		c.enqueueRivals(foo)
	}
	if renewed || !sameWords(have, foo) { // A ring of Foos is told by each of them.
		c.enqueueWaiting(have)
		c.enqueueWaiting(foo)
	}
	if !c.writes.Echo(key, foosResource, foo.ResourceVersion) {
		c.queue.Add(key)
	}
}

// sameWords reports whether both say the same of themselves.
func sameWords(a, b *v1alpha1.Foo) bool {
	reasonA, messageA := plan.Said(a)
	reasonB, messageB := plan.Said(b)
	return reasonA == reasonB && messageA == messageB && plan.Stuck(a) == plan.Stuck(b)
}

// fooDeleted queues a Foo that is gone, so that what is remembered of it goes too, and whom that concerns.
func (c *Controller) fooDeleted(deleted informers.DeletedFoo) {
	key := deleted.GetObjectName()
	c.forgetFailures(key) // They are not those of the next Foo of that name.
	c.queue.Add(key)
	if foo := deleted.OptionalObj; foo != nil {
		c.enqueueRivals(foo)
		c.enqueueWaiting(foo)
	}
}

// forgetFailures makes the next sync of key one that acts at once.
func (c *Controller) forgetFailures(key cache.ObjectName) {
	c.queue.Forget(key)
	c.pauses.forget(key)
}

// enqueueRivals queues the other Foos that name the same Deployment as foo: one of them may be next.
func (c *Controller) enqueueRivals(foo *v1alpha1.Foo) {
	for _, rival := range c.claimants(foo.Namespace, foo.Spec.DeploymentName) {
		if rival.UID != foo.UID {
			c.enqueueFoo(rival)
		}
	}
}

// enqueueWaiting queues the other Foos that name a Deployment which foo has.
func (c *Controller) enqueueWaiting(foo *v1alpha1.Foo) {
	for _, dep := range c.controlledBy(foo) {
		for _, waiting := range c.claimants(dep.Namespace, dep.Name) {
			if waiting.UID != foo.UID {
				c.enqueueFoo(waiting)
			}
		}
	}
}

// deploymentAdded queues whom a Deployment concerns that the cache did not have.
func (c *Controller) deploymentAdded(dep *appsv1.Deployment) {
	c.handleObject(dep, c.author(dep))
}

// deploymentChanged queues whom a changed Deployment concerns; have may have had another owner.
func (c *Controller) deploymentChanged(have, dep *appsv1.Deployment) {
	if have.ResourceVersion == dep.ResourceVersion {
		return
	}
	if c.holder(have) != c.holder(dep) {
		c.handleObject(have, nil)
	}
	c.handleObject(dep, c.author(dep))
}

// deploymentDeleted queues whom a deleted Deployment concerns. When the watch missed the deletion, perhaps
// only its name is known: not its owner, but still who names it.
func (c *Controller) deploymentDeleted(deleted appsinformers.DeletedDeployment) {
	dep := deleted.OptionalObj
	if dep == nil {
		name := deleted.GetObjectName()
		dep = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	}
	c.pauses.deletions.Forget(cache.MetaObjectToName(dep))
	c.handleObject(dep, nil)
}

// handleObject queues the Foos that an event of dep concerns: the one that controls it, and those that
// name it, for which it may be in the way or have just gone out of it. All but author, which knows already.
func (c *Controller) handleObject(dep *appsv1.Deployment, author *v1alpha1.Foo) {
	concerned := c.claimants(dep.Namespace, dep.Name)
	if holder := c.holder(dep); holder != nil { // Else the owner is gone, or not seen yet and queued when it is.
		concerned = append(concerned, holder)
	}
	for _, foo := range concerned {
		if foo != author {
			c.enqueueFoo(foo)
		}
	}
}

// author returns the Foo that dep is as we wrote it for, nil when somebody else wrote it last.
func (c *Controller) author(dep *appsv1.Deployment) *v1alpha1.Foo {
	holder := c.holder(dep)
	if holder == nil || !c.writes.Echo(cache.MetaObjectToName(holder), deploymentsResource, dep.ResourceVersion) {
		return nil
	}
	return holder
}
