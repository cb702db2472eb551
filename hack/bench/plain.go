package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions"
	listers "example.com/foo-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// A plainController has the habits of Kubernetes' sample-controller, which many controllers began as: two workers,
// client-go's default limits of 5 requests a second with bursts of 10, a resync every 30 s, full objects in the cache,
// and a write of the status and an event in each sync that succeeds. It is written for this benchmark: what it writes is
// the same as for the other contenders.
type plainController struct {
	kube        kubernetes.Interface
	samples     clientset.Interface
	foos        listers.FooLister
	deployments appslisters.DeploymentLister
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]
	recorder    record.EventRecorder
}

func runPlain(ctx context.Context, config *rest.Config) error {
	const resync, workers = 30 * time.Second, 2
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	samples, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := v1alpha1.Install(scheme.Scheme); err != nil {
		return err
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	kubeFactory := kubeinformers.NewSharedInformerFactory(kube, resync)
	samplesFactory := informers.NewSharedInformerFactory(samples, resync)
	foos, deployments := samplesFactory.Samplecontroller().V1alpha1().Foos(), kubeFactory.Apps().V1().Deployments()
	c := &plainController{
		kube: kube, samples: samples, foos: foos.Lister(), deployments: deployments.Lister(),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "plain"}),
	}
	if err := c.watch(foos.Informer(), deployments.Informer()); err != nil {
		return err
	}
	kubeFactory.StartWithContext(ctx)
	samplesFactory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), foos.Informer().HasSynced, deployments.Informer().HasSynced) {
		return nil
	}
	for range workers {
		go wait.UntilWithContext(ctx, func(ctx context.Context) {
			for c.processNextWorkItem(ctx) {
			}
		}, time.Second)
	}
	<-ctx.Done()
	c.queue.ShutDown()
	return nil
}

// watch queues a Foo for each event of it and of its Deployment, resyncs included.
func (c *plainController) watch(foos, deployments cache.SharedIndexInformer) error {
	enqueue := func(obj any) { c.queue.Add(cache.MetaObjectToName(obj.(metav1.Object))) }
	_, err := foos.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	if err != nil {
		return err
	}
	enqueueOwner := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		dep := obj.(*appsv1.Deployment)
		if ref := plan.FooReference(dep); ref != nil {
			c.queue.Add(cache.NewObjectName(dep.Namespace, ref.Name))
		}
	}
	_, err = deployments.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueueOwner, DeleteFunc: enqueueOwner,
		UpdateFunc: func(have, obj any) {
			if have.(*appsv1.Deployment).ResourceVersion != obj.(*appsv1.Deployment).ResourceVersion {
				enqueueOwner(obj)
			}
		},
	})
	return err
}

func (c *plainController) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.sync(ctx, key); err != nil {
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

func (c *plainController) sync(ctx context.Context, key cache.ObjectName) error {
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	if err != nil {
		return nil // It is gone.
	}
	deployments := c.kube.AppsV1().Deployments(key.Namespace)
	dep, err := c.deployments.Deployments(key.Namespace).Get(foo.Spec.DeploymentName)
	if apierrors.IsNotFound(err) {
		dep, err = deployments.Create(ctx, plan.Deployment(foo), metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(dep, foo) {
		c.recorder.Event(foo, corev1.EventTypeWarning, "ErrResourceExists", "the Deployment is not managed by this Foo")
		return fmt.Errorf("deployment %s is not managed by Foo %s", dep.Name, foo.Name)
	}
	if foo.Spec.Replicas != nil && *foo.Spec.Replicas != *dep.Spec.Replicas {
		dep = dep.DeepCopy()
		dep.Spec.Replicas = foo.Spec.Replicas
		if dep, err = deployments.Update(ctx, dep, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	foo = foo.DeepCopy()
	foo.Status = statusOf(foo, dep)
	_, err = c.samples.SamplecontrollerV1alpha1().Foos(key.Namespace).UpdateStatus(ctx, foo, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	c.recorder.Event(foo, corev1.EventTypeNormal, "Synced", "Foo synced successfully")
	return nil
}
