package main

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"acme.example.com/widget-controller/pkg/plan"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
)

const (
	// controllerName is the field manager of our writes, the reporter of our events, and the name of queue and Lease.
	controllerName = "widget-controller"
)

// Controller reconciles Widgets: it keeps a ConfigMap and a Deployment for each of them, and reports in its status.
//
// Events of all three kinds become keys of Widgets on one queue. A sync reads the caches. From then on the rules of
// plan.Widgets decide, see package reconcile.
type Controller struct {
	caches
	queue *kit.Queue
	// Reconciler sends the requests of syncs, and remembers the failures and backoffs of each Widget.
	*kit.Reconciler
}

// New returns a Controller that works on as many Widgets at a time as there are workers.
func New(ctx context.Context, clients clients, caches caches, recorder events.EventRecorder, workers int) *Controller {
	c := &Controller{caches: caches}
	c.queue = kit.NewQueue(ctx, kit.QueueConfig{
		Name: controllerName, Kind: "widget", Workers: workers, Sync: c.syncHandler,
	})
	coreV1, appsV1, ours := clients.kube.CoreV1(), clients.kube.AppsV1(), clients.widgets.AcmeV1alpha1()
	c.Reconciler = &kit.Reconciler{Name: controllerName, Queue: c.queue, Recorder: recorder, Trim: plan.Trim}
	c.Kinds = []kit.Kind{
		kit.KindOf(plan.WidgetKind, "widgets", caches.widgets.Informer(), ours.Widgets),
		kit.KindOf(plan.ConfigMapKind, "configmaps", caches.configMaps.Informer(), coreV1.ConfigMaps),
		kit.KindOf(plan.DeploymentKind, "deployments", caches.deployments.Informer(), appsV1.Deployments),
	}
	return c
}

// Run syncs Widgets until ctx ends. Then it finishes the running syncs and returns. Call it once.
func (c *Controller) Run(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	handled, err := c.watch(logger)
	if err != nil && ctx.Err() == nil { // Informers that have ended refuse handlers, too.
		logger.Error(err, "Cannot watch")
	}
	if err != nil || !cache.WaitFor(klog.NewContext(ctx, logger.V(4)), "caches", handled...) {
		c.queue.ShutDown()
		return // Asked to stop before the caches were filled, or there are no handlers.
	}
	logger.Info("Started")
	c.queue.Run(ctx)
}

// watch registers the event handlers. Run does it, and not New, because nobody takes keys from the queue of a standby.
func (c *Controller) watch(logger klog.Logger) ([]cache.DoneChecker, error) {
	options := cache.HandlerOptions{Logger: &logger}
	widget := plan.WidgetKind.GroupKind()
	widgets, widgetErr := c.widgets.TypedInformer().AddTypedEventHandler(
		kit.Objects[*v1alpha1.Widget](c.queue), options)
	configMaps, configMapErr := c.configMaps.TypedInformer().AddTypedEventHandler(
		kit.Children[*corev1.ConfigMap](widget, c.enqueueWidget), options)
	deployments, deploymentErr := c.deployments.TypedInformer().AddTypedEventHandler(
		kit.Children[*appsv1.Deployment](widget, c.enqueueWidget), options)
	if err := errors.Join(widgetErr, configMapErr, deploymentErr); err != nil {
		return nil, err
	}
	return []cache.DoneChecker{
		widgets.HasSyncedChecker(), configMaps.HasSyncedChecker(), deployments.HasSyncedChecker(),
	}, nil
}

// enqueueWidget queues the Widget of this name because of an event about a child of it, or about an object with the
// same name as a Widget. Most ConfigMaps and Deployments of a cluster are neither.
func (c *Controller) enqueueWidget(key cache.ObjectName) {
	if _, err := c.widgets.Lister().Widgets(key.Namespace).Get(key.Name); err == nil {
		c.queue.Add(key)
	}
}

// syncHandler brings the children and the status of one Widget in line with its spec. The queue never runs it twice at
// once for one key, and running it again changes nothing.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) kit.Outcome {
	if sync := c.syncOf(key); sync != nil {
		return c.Reconcile(ctx, sync)
	}
	return c.Gone(ctx, key)
}

// syncOf returns a sync of what the caches have of a Widget. It returns nil for one that does not exist, or is being
// deleted: a write would race with the garbage collector.
func (c *Controller) syncOf(key cache.ObjectName) *reconcile.Sync {
	widget, err := c.widgets.Lister().Widgets(key.Namespace).Get(key.Name)
	if err != nil || widget.DeletionTimestamp != nil { // A cache has no error but NotFound.
		return nil
	}
	in := &plan.Input{Widget: widget}
	in.ConfigMap, _ = c.configMaps.Lister().ConfigMaps(key.Namespace).Get(key.Name)
	in.Deployment, _ = c.deployments.Lister().Deployments(key.Namespace).Get(key.Name)
	return plan.Widgets.Sync(in)
}
