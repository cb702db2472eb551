package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof" // The benchmark reads the heap of each contender there.
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions"
	listers "example.com/foo-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

// own are the contenders in this program, which starts itself with their names. Each works until ctx ends.
var own = map[string]func(ctx context.Context, config *rest.Config) error{
	raw: runRaw, watch: runWatching, lean: runLean, full: runFull, plain: runPlain,
}

// contend is the process of a contender. It serves profiles on address, unless that is 0.
func contend(ctx context.Context) error {
	name, kubeconfig, address := os.Args[2], os.Args[3], os.Args[4]
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	if address != "0" {
		go func() { log.Fatal(http.ListenAndServe(address, nil)) }()
	}
	return own[name](ctx, config)
}

// clients have no limit of requests.
type clients struct {
	kube    kubernetes.Interface
	samples clientset.Interface
}

func newClients(config *rest.Config) clients {
	config.QPS = -1
	return clients{kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)}
}

// write sends the two writes of a new Foo, as foo-controller sends them.
func (c clients) write(ctx context.Context, foo *v1alpha1.Foo) error {
	dep, err := c.kube.AppsV1().Deployments(foo.Namespace).Create(ctx, plan.Deployment(foo), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	patch, err := nextStep(foo, dep).StatusPatch() // A new Foo always gets a status.
	if err == nil {
		foos := c.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace)
		_, err = foos.Patch(ctx, foo.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	}
	return err
}

// nextStep returns the request that foo-controller would send for foo when dep, or nil, has the name. It is nil if all
// is right.
func nextStep(foo *v1alpha1.Foo, dep *appsv1.Deployment) *reconcile.Step {
	sync := plan.Foos.Sync(&plan.Input{Foo: foo, Deployment: plan.TrimDeployment(dep)})
	sync.Begin(reconcile.Memory{}, time.Now(), 0)
	return sync.Next()
}

// runRaw lists the Foos once, and sends the writes for them. It is what the API server can do.
func runRaw(ctx context.Context, config *rest.Config) error {
	c := newClients(config)
	foos, err := c.samples.SamplecontrollerV1alpha1().Foos("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	err = inParallel(len(foos.Items), func(i int) error { return c.write(ctx, &foos.Items[i]) })
	<-ctx.Done() // Its memory is measured.
	return err
}

// runWatching sends the same writes for the Foos that an informer shows, while another one watches Deployments, on a
// connection for watches. It plans each Foo once, and does nothing after its two writes. Its caches keep whole objects.
func runWatching(ctx context.Context, config *rest.Config) error {
	c := newClients(config)
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext // Otherwise client-go shares the connection.
	reads := newClients(config)
	deployments := kubeinformers.NewSharedInformerFactory(reads.kube, 0).Apps().V1().Deployments().Informer()
	foos := informers.NewSharedInformerFactory(reads.samples, 0).Samplecontroller().V1alpha1().Foos().Informer()
	added := make(chan *v1alpha1.Foo, 100_000) // More than there are.
	_, err := foos.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if foo := obj.(*v1alpha1.Foo); foo.Status.ObservedGeneration == 0 {
			added <- foo
		}
	}})
	go foos.RunWithContext(ctx)
	go deployments.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), foos.HasSynced, deployments.HasSynced)
	for range workers {
		go func() {
			for foo := range added {
				if err := c.write(ctx, foo); err != nil {
					log.Print(err)
				}
			}
		}()
	}
	<-ctx.Done()
	return err
}

// A plainController has the habits of Kubernetes' sample-controller, from which many controllers were made: two
// workers, client-go's default limits of 5 requests a second with bursts of 10, a resync every 30 s, whole objects in
// the caches, and a status and an event in each sync. It was written for this benchmark. Its Deployments and statuses
// have the same content as those of the other contenders.
type plainController struct {
	clients
	foos        listers.FooLister
	deployments appslisters.DeploymentLister
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]
	recorder    record.EventRecorder
}

func runPlain(ctx context.Context, config *rest.Config) error {
	const resync, workers = 30 * time.Second, 2
	c := &plainController{
		clients: clients{kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)},
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	defer c.queue.ShutDown()
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.kube.CoreV1().Events("")})
	c.recorder = events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "plain"})
	deployments := kubeinformers.NewSharedInformerFactory(c.kube, resync).Apps().V1().Deployments()
	foos := informers.NewSharedInformerFactory(c.samples, resync).Samplecontroller().V1alpha1().Foos()
	c.foos, c.deployments = foos.Lister(), deployments.Lister()
	_, err := foos.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue, UpdateFunc: func(_, obj any) { c.enqueue(obj) }, DeleteFunc: c.enqueue,
	})
	_, errDeployments := deployments.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueueOwner, DeleteFunc: c.enqueueOwner,
		UpdateFunc: func(have, obj any) {
			if have.(metav1.Object).GetResourceVersion() != obj.(metav1.Object).GetResourceVersion() {
				c.enqueueOwner(obj)
			}
		},
	})
	if err := errors.Join(err, errDeployments, v1alpha1.Install(scheme.Scheme)); err != nil {
		return err
	}
	go foos.Informer().RunWithContext(ctx)
	go deployments.Informer().RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), foos.Informer().HasSynced, deployments.Informer().HasSynced)
	for range workers {
		go c.work(ctx)
	}
	<-ctx.Done()
	return nil
}

func (c *plainController) enqueue(obj any) {
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		c.queue.Add(key)
	}
}

func (c *plainController) enqueueOwner(obj any) {
	if dep, ok := obj.(*appsv1.Deployment); ok && plan.FooReference(dep) != nil {
		c.queue.Add(cache.NewObjectName(dep.Namespace, plan.FooReference(dep).Name))
	}
}

func (c *plainController) work(ctx context.Context) {
	for key, shutdown := c.queue.Get(); !shutdown; key, shutdown = c.queue.Get() {
		if err := c.sync(ctx, key); err != nil {
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
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
		c.recorder.Event(foo, corev1.EventTypeWarning, "ErrResourceExists", "The Deployment is not managed by this Foo")
		return fmt.Errorf("deployment %s is not managed by Foo %s", dep.Name, foo.Name)
	}
	if foo.Spec.Replicas != nil && *foo.Spec.Replicas != *dep.Spec.Replicas {
		if dep, err = deployments.Update(ctx, plan.Deployment(foo), metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if step := nextStep(foo, dep); step != nil && step.Verb == reconcile.UpdateStatus {
		foo = step.Body.(*v1alpha1.Foo)
	}
	foos := c.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace)
	if _, err = foos.UpdateStatus(ctx, foo, metav1.UpdateOptions{}); err == nil { // Also if it is the same as before.
		c.recorder.Event(foo, corev1.EventTypeNormal, "Synced", "Foo synced successfully")
	}
	return err
}

// inParallel calls f with the numbers below n, several at a time, and returns the first error.
func inParallel(n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}
