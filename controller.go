package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// nameWorkers is the number of workers that queue the Foos which name a Deployment. One namespace has at most half
	// of them. More are of no use, since they wait for no answer.
	nameWorkers = 2
	// ownerFirst is how much earlier the Foo that controls a Deployment is queued than other Foos that name it. If
	// somebody deletes the Deployment of a service, its own Foo can create it again before another one gets the name.
	ownerFirst = time.Second

	foosResource        = "foos"
	deploymentsResource = "deployments"

	// byDeployment indexes Foos by the namespace/name of the Deployment that they name.
	byDeployment = "deployment"
	// byFoo indexes Deployments by their namespace and the uid of the Foo that controls them.
	byFoo = "foo"
)

// A deploymentInformer is an informer of Deployments whose transform is plan.Trim.
type deploymentInformer = cache.TypedSharedIndexInformer[*plan.Observed]

// Controller reconciles Foos: it creates and patches the Deployment that a Foo names, deletes those that the Foo named
// before, and records the result in the Foo's status.
//
// Events of both kinds become keys of Foos on one queue. A worker takes a key and reads from the caches what its sync
// depends on: the Foo, the Deployments that it names or controls, and the Foo that controls the named one. From then on
// the rules of plan.Foos decide, see package reconcile.
type Controller struct {
	// Reconciler sends the requests of syncs, and remembers what the next sync of each Foo needs.
	*kit.Reconciler

	fooLister         listers.FooLister
	fooIndexer        cache.TypedIndexer[*v1alpha1.Foo]
	deploymentIndexer cache.TypedIndexer[*plan.Observed]
	// fooInformer and deploymentInformer get the handlers when Run begins.
	fooInformer        informers.FooIndexInformer
	deploymentInformer deploymentInformer

	// queue holds the namespace/name keys of Foos to sync, and calls syncHandler.
	queue *kit.Queue
	// names has Deployments. The Foos that name one of them are to be queued. There may be thousands of these Foos, and
	// the events of all namespaces are handled one after another, so a handler queues only the name of the Deployment.
	names *kit.Queue

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
	if err := deployments.AddTypedIndexers(cache.TypedIndexers[*plan.Observed]{byFoo: controllingFoo}); err != nil {
		return nil, fmt.Errorf("index Deployments: %w", err)
	}
	c := &Controller{
		fooLister: foos.Lister(), fooIndexer: fooInformer.GetTypedIndexer(),
		deploymentIndexer: deployments.GetTypedIndexer(), fooInformer: fooInformer, deploymentInformer: deployments,
		Reports: report.New(recorder.NewLimits().Allow),
	}
	c.queue = kit.NewQueue(ctx, kit.QueueConfig{Name: controllerName, Kind: "foo", Workers: workers, Sync: c.syncHandler})
	c.Reconciler = &kit.Reconciler{
		Name: controllerName, Queue: c.queue, Recorder: events, Trim: plan.Trim, Kinds: c.kinds(clients),
	}
	c.names = kit.NewQueue(ctx, kit.QueueConfig{Kind: "deployment", Workers: nameWorkers, Sync: c.enqueueNaming})
	return c, nil
}

// watch registers the event handlers, and returns checks that are done when the handlers have been called for all
// objects of the first lists. Run does it, and not New: the caches of a standby are filled too, but nobody takes keys
// from its queue, which would keep the name of every Foo that came and went.
func (c *Controller) watch(logger klog.Logger) ([]cache.DoneChecker, error) {
	foos, err := c.fooInformer.AddTypedEventHandler(kit.Handlers[*v1alpha1.Foo]{
		AddFunc: c.fooAdded, UpdateFunc: c.fooChanged, DeleteFunc: c.fooDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Foos: %w", err)
	}
	deployments, err := c.deploymentInformer.AddTypedEventHandler(kit.Handlers[*plan.Observed]{
		AddFunc: c.deploymentAdded, UpdateFunc: c.deploymentChanged, DeleteFunc: c.deploymentDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	return []cache.DoneChecker{foos.HasSyncedChecker(), deployments.HasSyncedChecker()}, nil
}

// Run syncs Foos until ctx ends. Then it takes no further key, waits for the running syncs, whose contexts end 10 s
// later, and returns. Call Run once.
func (c *Controller) Run(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	synced, err := c.watch(logger)
	if err != nil && ctx.Err() == nil { // Informers that have ended refuse handlers, too.
		logger.Error(err, "Cannot watch")
	}
	if err != nil || !cache.WaitFor(klog.NewContext(ctx, logger.V(4)), "caches", synced...) {
		c.shutDown()
		return // Asked to stop before the caches were filled, or no handlers.
	}
	logger.Info("Started")
	c.work(ctx)
}

// shutDown ends the goroutines of queues that do not run.
func (c *Controller) shutDown() {
	c.names.ShutDown()
	c.queue.ShutDown()
}

// work runs the queues until ctx ends.
func (c *Controller) work(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.names.Run(ctx) })
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
		Foo: foo, Deployment: c.deployment(foo.Namespace, foo.Spec.DeploymentName), Previous: c.previousOf(foo),
		Owner: c.resolveOwner,
	})
}

// deployment returns the cached Deployment of this name, or nil.
func (c *Controller) deployment(namespace, name string) *plan.Observed {
	found, _, _ := c.deploymentIndexer.GetByKey(cache.NewObjectName(namespace, name).String())
	dep, _ := found.(*plan.Observed) // Nil if the cache has none; a cache has no errors.
	return dep
}

// kinds returns how requests about Foos and Deployments are sent.
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
		foos,
		kit.KindOf(plan.DeploymentKind, deploymentsResource, c.deploymentInformer, clients.Kube.AppsV1().Deployments),
	}
}

// A sync depends on one Foo: it reads the Foo, the Deployments that the Foo names or controls, and the spec of the Foo
// that controls the named one. So these events queue it:
//
//	event                                          queues
//	a Foo is added, changed or deleted             the Foo
//	  it is new, gone or being deleted,
//	  or names another Deployment                  also the Foos that name a Deployment which it controls
//	a Deployment is added, changed or deleted      the Foo that controls it
//	  it is new, gone or being deleted, or its
//	  controller or made-for label changes         also the other Foos that name it (if it is gone, all of them), a
//	                                               second later if the Foo that controls it still names it
//
// Events are hints: a sync finds out what to do, and finds nothing after an event that our own write has caused. The
// initial list queues each Foo once. A resync queues each Foo again, at the rank of the initial list, in case a hint
// was lost.

// enqueueFoo queues foo to be synced, because of a change. why is for /debug/syncs.
func (c *Controller) enqueueFoo(foo *v1alpha1.Foo, why string) {
	c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Change, why)
}

// fooAdded queues a new Foo, and the Foos that name a Deployment which it controls: the Deployment's event may have
// come first. Of the initial list it queues only the Foo: the others are in the list too.
func (c *Controller) fooAdded(foo *v1alpha1.Foo, isInInitialList bool) {
	if isInInitialList {
		c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Initial, "the initial list has the Foo")
		return
	}
	c.enqueueFoo(foo, "the Foo was created")
	c.enqueueWaiting(foo)
}

// fooChanged queues a Foo that has changed, or that is resynced. When only its status has changed, mostly by a report
// of our own, what has failed still needs a token.
func (c *Controller) fooChanged(have, foo *v1alpha1.Foo) {
	switch {
	case have.ResourceVersion == foo.ResourceVersion:
		c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Initial, "a resync")
	case have.UID == foo.UID && have.Generation == foo.Generation:
		c.queue.Enqueue(cache.MetaObjectToName(foo), fairqueue.Retry, "the status of the Foo has changed")
	default:
		c.enqueueFoo(foo, "the Foo has changed")
	}
	if !plan.SameToOthers(have, foo) {
		c.enqueueWaiting(have) // It may be another Foo, with another uid.
		c.enqueueWaiting(foo)
	}
}

// fooDeleted queues a Foo that is gone, so that the controller forgets it. If the watch missed the deletion, only the
// key may be known. The Foos that name its Deployment are then queued when the garbage collector deletes that.
func (c *Controller) fooDeleted(deleted informers.DeletedFoo) {
	c.queue.Enqueue(deleted.GetObjectName(), fairqueue.Change, "the Foo was deleted")
	if foo := deleted.OptionalObj; foo != nil {
		c.enqueueWaiting(foo)
	}
}

// enqueueWaiting queues the Foos that name a Deployment which foo controls.
func (c *Controller) enqueueWaiting(foo *v1alpha1.Foo) {
	for _, dep := range c.controlledBy(foo) {
		c.names.Add(cache.MetaObjectToName(dep))
	}
}

// deploymentAdded queues the Foos that a new Deployment concerns. The initial list needs no handling: every Foo is
// queued by its own event, and no sync begins before both lists are complete.
func (c *Controller) deploymentAdded(dep *plan.Observed, isInInitialList bool) {
	if !isInInitialList {
		c.handleObject(dep)
	}
}

// deploymentChanged queues the owner of a changed Deployment. It also queues the Foos that only name it, and a former
// owner, when the change concerns them.
func (c *Controller) deploymentChanged(have, dep *plan.Observed) {
	switch {
	case have.ResourceVersion == dep.ResourceVersion: // A list has brought nothing new.
	case plan.SameOwnership(have, dep):
		if owner := c.resolveOwner(dep); owner != nil {
			c.enqueueFoo(owner, "its Deployment has changed")
		}
	default:
		c.handleObject(have)
		c.handleObject(dep)
	}
}

// deploymentDeleted queues the Foos that a deleted Deployment concerns. If the watch missed the deletion, only the name
// may be known: a Foo that controlled it and names another one is then left to the resync.
func (c *Controller) deploymentDeleted(deleted cache.DeletedObject[*plan.Observed]) {
	if deleted.OptionalObj == nil {
		c.names.Add(deleted.GetObjectName())
		return
	}
	c.handleObject(deleted.OptionalObj)
}

// handleObject queues the Foo that controls dep, and the Foos that name dep, because dep may now have that name, or
// have freed it. A Foo that controls it and that the cache lacks is queued when it is added.
func (c *Controller) handleObject(dep *plan.Observed) {
	owner, after := c.resolveOwner(dep), time.Duration(0)
	if owner != nil {
		c.enqueueFoo(owner, "its Deployment was created or deleted, or has another owner")
	}
	if owner != nil && owner.Spec.DeploymentName == dep.Name {
		after = ownerFirst
	}
	c.names.AddAfter(cache.MetaObjectToName(dep), after)
}

// enqueueNaming queues the Foos that name a Deployment and do not control it.
func (c *Controller) enqueueNaming(_ context.Context, name cache.ObjectName) kit.Outcome {
	foos, _ := c.fooIndexer.ByTypedIndex(byDeployment, name.String()) // Fails only without the index.
	if foo, err := c.fooLister.Foos(name.Namespace).Get(name.Name); err == nil && foo.Spec.DeploymentName == foo.Name {
		foos = append(foos, foo)
	}
	dep := c.deployment(name.Namespace, name.Name)
	for _, foo := range foos {
		if dep != nil && plan.Owns(foo, dep) {
			continue // handleObject has queued it at once.
		}
		c.enqueueFoo(foo, "the Deployment that it names was created or deleted, or its owner has changed")
	}
	return kit.Done()
}

// resolveOwner returns the cached Foo that controls dep, or nil. Its name finds it, and the uid decides, as in
// plan.Owns.
func (c *Controller) resolveOwner(dep *plan.Observed) *v1alpha1.Foo {
	if dep == nil || plan.FooReference(dep) == nil {
		return nil
	}
	foo, err := c.fooLister.Foos(dep.Namespace).Get(plan.FooReference(dep).Name)
	if err != nil || !plan.Owns(foo, dep) {
		return nil
	}
	return foo
}

// controlledBy returns the cached Deployments that foo controls.
func (c *Controller) controlledBy(foo *v1alpha1.Foo) []*plan.Observed {
	deps, _ := c.deploymentIndexer.ByTypedIndex(byFoo, foo.Namespace+"/"+string(foo.UID)) // Fails only without the index.
	if dep := c.deployment(foo.Namespace, foo.Name); dep != nil && hasNameOfOwner(dep) && plan.Owns(foo, dep) {
		deps = append(deps, dep)
	}
	return deps
}

// previousOf returns the cached Deployments that foo controls and does not name.
func (c *Controller) previousOf(foo *v1alpha1.Foo) []*plan.Observed {
	return slices.DeleteFunc(c.controlledBy(foo), func(dep *plan.Observed) bool {
		return dep.Name == foo.Spec.DeploymentName
	})
}

// namedDeployment is the index function of byDeployment. Most Foos have the name of their Deployment. That finds them,
// and an entry of an index is a set, which needs a tenth of the memory of a Foo with its Deployment.
func namedDeployment(foo *v1alpha1.Foo) ([]string, error) {
	if foo.Spec.DeploymentName == foo.Name {
		return nil, nil
	}
	return []string{cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName).String()}, nil
}

// hasNameOfOwner reports whether dep has the name of the Foo that controls it.
func hasNameOfOwner(dep *plan.Observed) bool {
	ref := plan.FooReference(dep)
	return ref != nil && ref.Name == dep.Name
}

// controllingFoo is the index function of byFoo. As in byDeployment, a Deployment with the name of its Foo has no
// entry.
func controllingFoo(dep *plan.Observed) ([]string, error) {
	if ref := plan.FooReference(dep); ref != nil && !hasNameOfOwner(dep) {
		// With the namespace, because an owner reference is valid only in its own one.
		return []string{dep.Namespace + "/" + string(ref.UID)}, nil
	}
	return nil, nil
}
