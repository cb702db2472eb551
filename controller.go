package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	listers "example.com/foo-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/report"
)

const (
	// controllerName is the field manager of our writes, the reporter of our events, and the queue's name.
	controllerName = "foo-controller"
	// deploymentWorkers is the number of workers of deploymentQueue. One namespace has at most half of them. Two are
	// enough, since they send no requests.
	deploymentWorkers = 2
	// ownerHeadStart is how much earlier the Foo that controls a Deployment is queued than its waiters. If somebody
	// deletes a Deployment, the Foo that controlled it can create it again before a waiter gets the name.
	ownerHeadStart = time.Second

	foosResource        = "foos"
	deploymentsResource = "deployments"
	// byDeployment indexes Foos by the namespace/name of the Deployment that they name, byFoo indexes Deployments by the
	// namespace and the uid of the Foo that controls them. Most Foos have the name of their Deployment. These are found by
	// name, and have no entry in either index, which saves a tenth of the memory of the caches.
	byDeployment = "deployment"
	byFoo        = "foo"
)

// A deploymentInformer is an informer of Deployments whose transform is plan.Trim.
type deploymentInformer = cache.TypedSharedIndexInformer[*plan.TrimmedDeployment]

// Controller reconciles Foos: it creates and patches the Deployment that a Foo names, deletes those that the Foo named
// before, and records the result in the Foo's status.
//
// Events of both kinds become keys of Foos on one queue. A worker takes a key and reads from the caches what its sync
// depends on: the Foo, the Deployments that it names or controls, and the Foo that controls the named one. From then on
// the rules of plan.Foos decide, see package reconcile.
//
// A Foo that names a Deployment and does not control it is a waiter of this Deployment, here and in package plan.
type Controller struct {
	// Reconciler sends the requests of syncs, and remembers what the next sync of each Foo needs.
	*kit.Reconciler

	fooLister   listers.FooLister
	fooInformer informers.FooIndexInformer
	deployments deploymentInformer

	// queue holds the namespace/name keys of Foos to sync, and calls syncHandler.
	queue *kit.Queue
	// deploymentQueue holds the keys of Deployments whose waiters are to be queued, and calls enqueueWaiters. There may
	// be thousands of waiters, and the events of all namespaces are handled one after another, so a handler queues only
	// the Deployment.
	deploymentQueue *kit.Queue

	// Reports logs what happens to Foos, and observes it in a metric.
	Reports *report.Foos
}

// Clients are what a Controller sends its requests through.
type Clients struct {
	Kube    kubernetes.Interface
	Samples clientset.Interface
}

// New returns a Controller that reads from the informers, writes through the clients, and works on as many Foos at a
// time as there are workers. It adds its indexes to the informers, which therefore must not have been started.
func New(ctx context.Context, clients Clients, events events.EventRecorder, foos informers.TypedFooInformer,
	deployments deploymentInformer, workers int) (*Controller, error) {
	fooInformer := foos.TypedInformer()
	if err := fooInformer.AddTypedIndexers(informers.FooIndexers{byDeployment: namedDeployment}); err != nil {
		return nil, fmt.Errorf("index Foos: %w", err)
	}
	indexers := cache.TypedIndexers[*plan.TrimmedDeployment]{byFoo: controllingFoo}
	if err := deployments.AddTypedIndexers(indexers); err != nil {
		return nil, fmt.Errorf("index Deployments: %w", err)
	}
	c := &Controller{
		fooLister: foos.Lister(), fooInformer: fooInformer, deployments: deployments,
		Reports: report.New(recorder.NewLimits().Allow),
	}
	c.queue = kit.NewQueue(ctx, kit.QueueConfig{Name: controllerName, Kind: "foo", Workers: workers, Sync: c.syncHandler})
	c.Reconciler = &kit.Reconciler{
		Name: controllerName, Queue: c.queue, Recorder: events, Trim: plan.Trim, Kinds: c.kinds(clients),
	}
	c.deploymentQueue = kit.NewQueue(ctx, kit.QueueConfig{
		Kind: "deployment", Workers: deploymentWorkers, Sync: c.enqueueWaiters,
	})
	return c, nil
}

// watch registers the event handlers, and returns checks that are done when the handlers have been called for all
// objects of the first lists. Run does it, and not New: a standby fills its caches too, but takes no keys, so its queue
// would only grow.
func (c *Controller) watch(logger klog.Logger) ([]cache.DoneChecker, error) {
	foos, err := c.fooInformer.AddTypedEventHandler(kit.Handlers[*v1alpha1.Foo]{
		AddFunc: c.fooAdded, UpdateFunc: c.fooChanged, DeleteFunc: c.fooDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Foos: %w", err)
	}
	deployments, err := c.deployments.AddTypedEventHandler(kit.Handlers[*plan.TrimmedDeployment]{
		AddFunc: c.deploymentAdded, UpdateFunc: c.deploymentChanged, DeleteFunc: c.deploymentDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	return []cache.DoneChecker{foos.HasSyncedChecker(), deployments.HasSyncedChecker()}, nil
}

// Run syncs Foos until ctx ends. Then it takes no further key, gives the running syncs some time to end, see
// kit.Queue.Run, and returns. Call Run once.
func (c *Controller) Run(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	synced, err := c.watch(logger)
	if err != nil && ctx.Err() == nil { // Informers that have ended refuse handlers.
		logger.Error(err, "Cannot watch")
	}
	if err != nil || !cache.WaitFor(klog.NewContext(ctx, logger.V(4)), "caches", synced...) {
		c.shutDown()
		return // Asked to stop before the caches were filled, or there are no handlers.
	}
	logger.Info("Started")
	c.work(ctx)
}

// shutDown ends the goroutines of queues that do not run.
func (c *Controller) shutDown() {
	c.deploymentQueue.ShutDown()
	c.queue.ShutDown()
}

// work runs the queues until ctx ends.
func (c *Controller) work(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.deploymentQueue.Run(ctx) })
	c.queue.Run(ctx)
	running.Wait()
}

// syncHandler brings one Foo's Deployment and status in line with its spec. The queue never runs it twice at once for
// one key, and running it again changes nothing.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) kit.Outcome {
	sync := c.syncOf(key)
	if sync == nil {
		return c.Gone(ctx, key) // The garbage collector removes the Deployment.
	}
	c.Reports.Read(klog.FromContext(ctx), sync.Object().(*v1alpha1.Foo))
	return c.Reconcile(ctx, sync)
}

// syncOf returns a sync of what the caches have of a Foo. It returns nil for a Foo that does not exist, or is being
// deleted: a write now would race with the garbage collector.
func (c *Controller) syncOf(key cache.ObjectName) *reconcile.Sync {
	foo, err := c.fooLister.Foos(key.Namespace).Get(key.Name)
	if err != nil || foo.DeletionTimestamp != nil { // Only NotFound is possible.
		return nil
	}
	return plan.Foos.Sync(&plan.Input{
		Foo: foo, Deployment: c.deployment(foo.Namespace, foo.Spec.DeploymentName), Others: c.othersOf(foo),
		Owner: c.resolveOwner,
	})
}

// deployment returns the cached Deployment of this name, or nil.
func (c *Controller) deployment(namespace, name string) *plan.TrimmedDeployment {
	found, _, _ := c.deployments.GetTypedIndexer().GetByKey(cache.NewObjectName(namespace, name).String())
	dep, _ := found.(*plan.TrimmedDeployment) // Nil if the cache has none; a cache has no errors.
	return dep
}

// listFoos returns the Foos in the cache.
func (c *Controller) listFoos() []*v1alpha1.Foo {
	foos, _ := c.fooLister.List(labels.Everything()) // A cache has no errors.
	return foos
}

// kinds returns how requests about Foos and Deployments are sent. What is written to the status of a Foo is reported.
func (c *Controller) kinds(clients Clients) []kit.Kind {
	foos := kit.KindOf(plan.FooKind, foosResource, c.fooInformer, clients.Samples.SamplecontrollerV1alpha1().Foos)
	send := foos.Send
	foos.Send = func(ctx context.Context, manager string, step *reconcile.Step) (metav1.Object, error) {
		answer, err := send(ctx, manager, step)
		if err == nil && step.Verb == reconcile.UpdateStatus {
			c.Reports.Written(klog.FromContext(ctx), step.Have().(*v1alpha1.Foo), answer.(*v1alpha1.Foo))
		}
		return answer, err
	}
	return []kit.Kind{
		foos, kit.KindOf(plan.DeploymentKind, deploymentsResource, c.deployments, clients.Kube.AppsV1().Deployments),
	}
}

// A sync depends on one Foo: it reads the Foo, the Deployments that the Foo names or controls, and the spec of the Foo
// that controls the named one. So these events queue it:
//
//	event                                          queues
//	a Foo is added, changed or deleted             the Foo
//	  it is new, gone or being deleted,
//	  or names another Deployment                  also the waiters of the Deployments that it controls
//	a Deployment is added, changed or deleted      the Foo that controls it
//	  it is new, gone or being deleted, or its
//	  controller or made-for label changes         also its waiters, and the Foo that controlled it before
//
// If the Foo that controls a Deployment, or controlled it until it was deleted, still names it, the waiters are queued
// later by ownerHeadStart.
//
// Events are hints: a sync finds out what to do, which is mostly nothing after an event that our own write has caused.
// The initial list queues each Foo once. A resync queues each Foo again, in the class of the initial list, in case a
// hint was lost.

// enqueueFoo queues foo to be synced, because of a change. why is for /debug/syncs.
func (c *Controller) enqueueFoo(foo *v1alpha1.Foo, why string) {
	c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Change, why)
}

// fooAdded queues a new Foo, and the waiters of the Deployments that it controls: their events may have come first.
// Of the initial list it queues only the Foo: the others are in the list too.
func (c *Controller) fooAdded(foo *v1alpha1.Foo, isInInitialList bool) {
	if isInInitialList {
		c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Initial, "the initial list has the Foo")
		return
	}
	c.enqueueFoo(foo, "the Foo was created")
	c.enqueueDeploymentsOf(foo)
}

// fooChanged queues a Foo that has changed, or that is resynced.
func (c *Controller) fooChanged(old, foo *v1alpha1.Foo) {
	switch {
	case old.ResourceVersion == foo.ResourceVersion:
		c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Initial, "a resync")
	case old.UID == foo.UID && old.Generation == foo.Generation:
		// Mostly it is our own write of the status. A Change needs no token of the limit of retries, so a Foo that fails
		// and reports it would pass that limit.
		c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Retry, "the Foo has changed, but not its spec")
	default:
		c.enqueueFoo(foo, "the Foo has changed")
	}
	if !plan.SameFooForWaiters(old, foo) {
		c.enqueueDeploymentsOf(old) // It may be another Foo, with another uid.
		c.enqueueDeploymentsOf(foo)
	}
}

// fooDeleted queues a Foo that is gone, so that the controller forgets it. If the watch missed the deletion, only the
// key may be known. The waiters of its Deployment are then queued when the garbage collector deletes that.
func (c *Controller) fooDeleted(deleted informers.DeletedFoo) {
	c.queue.Enqueue(deleted.GetObjectName(), fairqueue.Change, "the Foo was deleted")
	if foo := deleted.OptionalObj; foo != nil {
		c.enqueueDeploymentsOf(foo)
	}
}

// enqueueDeploymentsOf queues the Deployments that foo controls, so that their waiters are queued.
func (c *Controller) enqueueDeploymentsOf(foo *v1alpha1.Foo) {
	for _, dep := range c.controlledBy(foo) {
		c.deploymentQueue.Add(cache.MetaObjectToName(dep))
	}
}

// deploymentAdded queues the Foos that a new Deployment concerns. The initial list needs no handling: every Foo is
// queued by its own event, and no sync begins before both lists are complete.
func (c *Controller) deploymentAdded(dep *plan.TrimmedDeployment, isInInitialList bool) {
	if !isInInitialList {
		c.handleObject(dep)
	}
}

// deploymentChanged queues the owner of a changed Deployment. It also queues the waiters, and a former owner, when the
// change concerns them.
func (c *Controller) deploymentChanged(old, dep *plan.TrimmedDeployment) {
	switch {
	case old.ResourceVersion == dep.ResourceVersion: // A list has brought nothing new.
	case plan.SameDeploymentForWaiters(old, dep):
		if owner := c.resolveOwner(dep); owner != nil {
			c.enqueueFoo(owner, "its Deployment has changed")
		}
	default:
		c.handleObject(old)
		c.handleObject(dep)
	}
}

// deploymentDeleted queues the Foos that a deleted Deployment concerns. If the watch missed the deletion, only the name
// may be known: a Foo that controlled it and names another one is then left to the resync.
func (c *Controller) deploymentDeleted(deleted cache.DeletedObject[*plan.TrimmedDeployment]) {
	if deleted.OptionalObj == nil {
		c.deploymentQueue.Add(deleted.GetObjectName())
		return
	}
	c.handleObject(deleted.OptionalObj)
}

// handleObject queues the Foo that controls dep, and the waiters, because dep may now have a name that they want, or
// have freed it. A Foo that controls it and is not in the cache yet is queued when it is added.
func (c *Controller) handleObject(dep *plan.TrimmedDeployment) {
	var after time.Duration
	if owner := c.resolveOwner(dep); owner != nil {
		c.enqueueFoo(owner, "its Deployment was created or deleted, or its owner has changed")
		if owner.Spec.DeploymentName == dep.Name {
			after = ownerHeadStart
		}
	}
	c.deploymentQueue.AddAfter(cache.MetaObjectToName(dep), after)
}

// enqueueWaiters queues the waiters of a Deployment: if it is gone, all Foos that name it.
func (c *Controller) enqueueWaiters(_ context.Context, key cache.ObjectName) kit.Outcome {
	foos, _ := c.fooInformer.GetTypedIndexer().ByTypedIndex(byDeployment, key.String()) // Fails only without the index.
	if foo, err := c.fooLister.Foos(key.Namespace).Get(key.Name); err == nil && foo.Spec.DeploymentName == foo.Name {
		// The index does not have it.
		foos = append(foos, foo)
	}
	dep := c.deployment(key.Namespace, key.Name)
	for _, foo := range foos {
		if dep == nil || !plan.Owns(foo, dep) { // An event of its own has queued the owner.
			c.enqueueFoo(foo, "the Deployment that it names was created or deleted, or its owner has changed")
		}
	}
	return kit.Done()
}

// resolveOwner returns the cached Foo that controls dep, or nil. Its name finds it, and the uid decides, as in
// plan.Owns.
func (c *Controller) resolveOwner(dep *plan.TrimmedDeployment) *v1alpha1.Foo {
	ref := plan.FooReference(dep)
	if ref == nil {
		return nil
	}
	foo, err := c.fooLister.Foos(dep.Namespace).Get(ref.Name)
	if err != nil || !plan.Owns(foo, dep) {
		return nil
	}
	return foo
}

// controlledBy returns the cached Deployments that foo controls.
func (c *Controller) controlledBy(foo *v1alpha1.Foo) []*plan.TrimmedDeployment {
	owner := foo.Namespace + "/" + string(foo.UID)
	deps, _ := c.deployments.GetTypedIndexer().ByTypedIndex(byFoo, owner) // Fails only without the index.
	if dep := c.deployment(foo.Namespace, foo.Name); dep != nil && hasNameOfOwner(dep) && plan.Owns(foo, dep) {
		deps = append(deps, dep)
	}
	return deps
}

// othersOf returns the cached Deployments that foo controls and does not name.
func (c *Controller) othersOf(foo *v1alpha1.Foo) []*plan.TrimmedDeployment {
	return slices.DeleteFunc(c.controlledBy(foo), func(dep *plan.TrimmedDeployment) bool {
		return dep.Name == foo.Spec.DeploymentName
	})
}

// hasNameOfOwner reports whether dep has the name of the Foo that controls it.
func hasNameOfOwner(dep *plan.TrimmedDeployment) bool {
	ref := plan.FooReference(dep)
	return ref != nil && ref.Name == dep.Name
}

// namedDeployment is the index function of byDeployment.
func namedDeployment(foo *v1alpha1.Foo) ([]string, error) {
	if foo.Spec.DeploymentName == foo.Name {
		return nil, nil
	}
	return []string{cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName).String()}, nil
}

// controllingFoo is the index function of byFoo.
func controllingFoo(dep *plan.TrimmedDeployment) ([]string, error) {
	if ref := plan.FooReference(dep); ref != nil && !hasNameOfOwner(dep) {
		// With the namespace, because an owner reference is valid only in its own one.
		return []string{dep.Namespace + "/" + string(ref.UID)}, nil
	}
	return nil, nil
}
