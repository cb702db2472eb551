package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	clientset "acme.example.com/widget-controller/pkg/generated/clientset/versioned"
	informers "acme.example.com/widget-controller/pkg/generated/informers/externalversions/acme/v1alpha1"
	"acme.example.com/widget-controller/pkg/plan"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/conditions"
	"example.com/foo-controller/pkg/kit/consistency"
	"example.com/foo-controller/pkg/kit/drift"
	"example.com/foo-controller/pkg/kit/syncs"
)

const (
	// controllerName is the field manager of our writes, and names the queue, the Lease and the metrics.
	controllerName = "widget-controller"

	widgetsResource     = "widgets"
	configMapsResource  = "configmaps"
	deploymentsResource = "deployments"
)

// Controller reconciles Widgets: it keeps a ConfigMap and a Deployment for each of them, and reports in its status.
//
// Events of all three kinds become keys of Widgets on one queue. A sync reads the caches, asks package plan what there
// should be, and writes what differs. Between two syncs it remembers nothing but its own writes that the caches do not
// show yet.
type Controller struct {
	clients
	caches
	recorder events.EventRecorder
	queue    *kit.Queue
	writes   *consistency.Writes
}

// clients are what a Controller writes through.
type clients struct {
	kube    kubernetes.Interface
	widgets clientset.Interface
}

// caches are what a Controller reads from.
type caches struct {
	widgetCache     informers.TypedWidgetInformer
	configMapCache  coreinformers.TypedConfigMapInformer
	deploymentCache appsinformers.TypedDeploymentInformer
}

// New returns a Controller that works on as many Widgets at a time as there are workers.
func New(ctx context.Context, clients clients, caches caches, recorder events.EventRecorder, workers int) *Controller {
	c := &Controller{clients: clients, caches: caches, recorder: recorder}
	c.writes = consistency.New(map[string]consistency.Store{
		widgetsResource:     caches.widgetCache.Informer().GetStore(),
		configMapsResource:  caches.configMapCache.Informer().GetStore(),
		deploymentsResource: caches.deploymentCache.Informer().GetStore(),
	})
	c.queue = kit.NewQueue(ctx, kit.QueueConfig{
		Name: controllerName, Kind: "widget", Workers: workers, Sync: c.syncHandler,
	})
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
		return // Asked to stop before the caches were filled.
	}
	logger.Info("Started")
	c.queue.Run(ctx)
}

// watch registers the event handlers. Run does it, and not New, because nobody takes keys from the queue of a standby.
func (c *Controller) watch(logger klog.Logger) ([]cache.DoneChecker, error) {
	options := cache.HandlerOptions{Logger: &logger}
	widget := plan.WidgetKind.GroupKind()
	widgets, widgetErr := c.widgetCache.TypedInformer().AddTypedEventHandler(
		kit.Objects[*v1alpha1.Widget](c.queue), options)
	configMaps, configMapErr := c.configMapCache.TypedInformer().AddTypedEventHandler(
		kit.Children[*corev1.ConfigMap](widget, c.enqueueWidget), options)
	deployments, deploymentErr := c.deploymentCache.TypedInformer().AddTypedEventHandler(
		kit.Children[*appsv1.Deployment](widget, c.enqueueWidget), options)
	if err := errors.Join(widgetErr, configMapErr, deploymentErr); err != nil {
		return nil, err
	}
	return []cache.DoneChecker{
		widgets.HasSyncedChecker(), configMaps.HasSyncedChecker(), deployments.HasSyncedChecker(),
	}, nil
}

// enqueueWidget queues the Widget of this name because of an event about a child of it, or about an object that has the
// name of one. Most ConfigMaps and Deployments of a cluster are neither.
func (c *Controller) enqueueWidget(key cache.ObjectName) {
	if _, err := c.widgetCache.Lister().Widgets(key.Namespace).Get(key.Name); err == nil {
		c.queue.Add(key)
	}
}

// syncHandler brings the children and the status of one Widget in line with its spec. The queue never runs it twice at
// once for one key, and running it again changes nothing.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) kit.Outcome {
	if delay := c.writes.CatchUpDelay(key); delay > 0 { // Before the caches are read: they may catch up at any moment.
		return kit.Wait(delay)
	}
	widget, err := c.widgetCache.Lister().Widgets(key.Namespace).Get(key.Name)
	if err != nil { // A cache has no error but NotFound.
		c.writes.Forget(key)
		return kit.Done()
	}
	if widget.DeletionTimestamp != nil {
		return kit.Done() // The garbage collector deletes the children, and would race with a write.
	}
	configMap, configMapErr := c.syncConfigMap(ctx, widget)
	deployment, deploymentErr := c.syncDeployment(ctx, widget, configMap)
	status := plan.Status(widget, configMap, deployment, time.Now(), configMapErr, deploymentErr)
	statusErr := c.updateStatus(ctx, widget, status)
	switch err := plan.Retriable(configMapErr, deploymentErr, statusErr); {
	case statusErr == nil && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return kit.Wait(time.Minute) // The Widget is deleted soon, or that API server lags and the namespace is a new one.
	case err != nil:
		return kit.Retry(err)
	}
	if delay := c.writes.HoldDelay(key); delay > 0 { // Not done before the caches show what was written.
		return kit.Wait(delay)
	}
	return kit.Done()
}

// syncConfigMap returns the ConfigMap, nil unless it is known to be the Widget's.
func (c *Controller) syncConfigMap(ctx context.Context, widget *v1alpha1.Widget) (*corev1.ConfigMap, error) {
	have, _ := c.configMapCache.Lister().ConfigMaps(widget.Namespace).Get(widget.Name) // Nil if there is none.
	client := c.kube.CoreV1().ConfigMaps(widget.Namespace)
	child := child{"ConfigMap", configMapsResource}
	configMap, err := ensure(ctx, c, widget, child, client, have, plan.ConfigMap(widget))
	if kit.IsConflict(err) { // The cache lags: somebody else may have replaced it.
		return nil, err
	}
	return configMap, err
}

// syncDeployment leaves the Deployment as it is while there is no ConfigMap that its pods may mount.
func (c *Controller) syncDeployment(ctx context.Context, widget *v1alpha1.Widget,
	configMap *corev1.ConfigMap) (*appsv1.Deployment, error) {
	have, _ := c.deploymentCache.Lister().Deployments(widget.Namespace).Get(widget.Name) // Nil if there is none.
	client := c.kube.AppsV1().Deployments(widget.Namespace)
	child := child{"Deployment", deploymentsResource}
	return ensure(ctx, c, widget, child, client, have, plan.Deployment(widget, configMap))
}

// A child is a kind of children, and its resource.
type child struct{ kind, resource string }

// A writer is what ensure uses of a typed client.
type writer[T any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (T, error)
}

// ensure creates a child if have, from the cache, is nil, and corrects the fields of want that it lacks. It writes
// nothing if want is nil. It returns the child as it is then, nil if it is not the Widget's or could not be created.
func ensure[T kit.Object](ctx context.Context, c *Controller, widget *v1alpha1.Widget, child child, client writer[T],
	have, want T) (T, error) {
	var none T
	if have != none {
		if err := plan.Taken(widget, child.kind, have); err != nil {
			return none, err
		}
	}
	if want == none {
		return have, nil
	}
	c.queue.Progress(cache.MetaObjectToName(widget)) // A slow API server is not a sync that is stuck.
	if have == none {
		created, err := client.Create(ctx, want, metav1.CreateOptions{FieldManager: controllerName})
		if err := c.wrote(ctx, widget, "create", child, created, err); err != nil {
			return none, err
		}
		klog.FromContext(ctx).Info("Created child", "kind", child.kind)
		return created, nil
	}
	patch, err := drift.Find(have, want)
	if err != nil || patch == nil {
		return have, err
	}
	patched, err := client.Patch(ctx, have.GetName(), types.StrategicMergePatchType, patch.Body,
		metav1.PatchOptions{FieldManager: controllerName})
	if err := c.wrote(ctx, widget, "patch", child, patched, err); err != nil {
		return have, err
	}
	left, err := drift.Find(patched, want)
	if left != nil {
		err = plan.Overridden(child.kind, want.GetName(), left.Fields)
	}
	if err != nil {
		return patched, err
	}
	fields := strings.Join(patch.Fields, ", ")
	klog.FromContext(ctx).Info("Corrected child", "kind", child.kind, "fields", fields)
	c.recorder.Eventf(widget, nil, corev1.EventTypeNormal, "Corrected", "Correct"+child.kind,
		"Corrected %s %q: %s", child.kind, want.GetName(), fields)
	return patched, nil
}

// wrote notes a request: its metric, and the version that it has written. The next sync waits until the caches have it.
func (c *Controller) wrote(ctx context.Context, widget *v1alpha1.Widget, verb string, child child, obj metav1.Object,
	err error) error {
	rule, request := "sync "+child.kind, verb+" "+child.kind
	c.queue.Metrics.Requested(rule, request, err)
	syncs.From(ctx).Sent(syncs.Request{Rule: rule, Request: request, Name: widget.Name}, err)
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", verb, child.kind, widget.Name, err)
	}
	c.writes.Wrote(cache.MetaObjectToName(widget), child.resource, obj)
	return nil
}

// updateStatus writes the status if it differs, and sends an event if there is a new reason that somebody should see.
func (c *Controller) updateStatus(ctx context.Context, widget *v1alpha1.Widget, status v1alpha1.WidgetStatus) error {
	if equality.Semantic.DeepEqual(widget.Status, status) {
		return nil
	}
	updated := widget.DeepCopy()
	updated.Status = status
	updated, err := c.widgets.AcmeV1alpha1().Widgets(widget.Namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{FieldManager: controllerName})
	if err := c.wrote(ctx, widget, "update", child{"status of Widget", widgetsResource}, updated, err); err != nil {
		return err
	}
	had := meta.FindStatusCondition(widget.Status.Conditions, conditions.Ready)
	ready := meta.FindStatusCondition(status.Conditions, conditions.Ready)
	klog.FromContext(ctx).V(2).Info("Reported", "ready", ready.Status, "reason", ready.Reason)
	switch {
	case had != nil && had.Reason == ready.Reason:
	case ready.Status == metav1.ConditionTrue:
		c.recorder.Eventf(widget, nil, corev1.EventTypeNormal, ready.Reason, "Sync", "%s", ready.Message)
	case ready.Reason != v1alpha1.ReasonProgressing && ready.Reason != v1alpha1.ReasonWaiting:
		c.recorder.Eventf(widget, nil, corev1.EventTypeWarning, ready.Reason, "Sync", "%s", ready.Message)
	}
	return nil
}
