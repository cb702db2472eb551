// Command desired-and-actual keeps one Deployment for each Foo. It is step 4 of the tutorial: a controller.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	foohandlers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

// fooKind is the kind in an owner reference to a Foo.
var fooKind = schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: v1alpha1.GroupVersion.Version, Kind: "Foo"}

type controller struct {
	kube        kubernetes.Interface // The client for the kinds of Kubernetes.
	samples     clientset.Interface  // The generated client for Foos. It has the same form.
	foos        foohandlers.FooInformer
	deployments appsinformers.DeploymentInformer
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName] // Keys of Foos, and of nothing else.
}

var pause = flag.Duration("pause", 0, "`time` to wait after a Deployment was created, so that you can kill the program")

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	user := flag.String("as", "", "`name` of the user or ServiceAccount to act as; empty is that of the kubeconfig")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	utilruntime.Must(err) // It panics: without a connection there is nothing to do.
	config.Impersonate.UserName = *user
	kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	factory, fooFactory := informers.NewSharedInformerFactory(kube, 0), fooinformers.NewSharedInformerFactory(samples, 0)
	foos, deployments := fooFactory.Samplecontroller().V1alpha1().Foos(), factory.Apps().V1().Deployments()
	c := &controller{
		kube: kube, samples: samples, foos: foos, deployments: deployments,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](100*time.Millisecond, 2*time.Second)),
	}

	// Events of both kinds become keys of Foos. A Foo is its own key. The deletion of a Foo needs no work.
	foosSynced, err := foos.TypedInformer().AddTypedEventHandler(foohandlers.FooHandlerFuncs{
		AddFunc:    func(foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
		UpdateFunc: func(_, foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
	}, cache.HandlerOptions{})
	utilruntime.Must(err)
	// The key of a Deployment is that of the Foo that owns it.
	deploymentsSynced, err := deployments.TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc:    c.enqueueOwner,
		UpdateFunc: func(_, dep *appsv1.Deployment) { c.enqueueOwner(dep) },
		DeleteFunc: func(deleted appsinformers.DeletedDeployment) { c.enqueueOwner(deleted.OptionalObj) },
	}, cache.HandlerOptions{})
	utilruntime.Must(err)
	printError := func(_ context.Context, _ *cache.Reflector, err error) { fmt.Println("reflector:", err) }
	utilruntime.Must(foos.Informer().SetWatchErrorHandlerWithContext(printError))
	utilruntime.Must(deployments.Informer().SetWatchErrorHandlerWithContext(printError))

	factory.StartWithContext(ctx)
	fooFactory.StartWithContext(ctx)
	// Both stores must be complete. With half of the Deployments, the program would try to create the others, and fail.
	if !cache.WaitFor(ctx, "", foosSynced.HasSyncedChecker(), deploymentsSynced.HasSyncedChecker()) {
		return
	}
	fmt.Println("ready")
	context.AfterFunc(ctx, c.queue.ShutDown)
	for c.processNext(ctx) { // One worker, to keep it short. Step 3 has several.
	}
	fmt.Println("stopped")
}

// enqueueOwner queues the Foo that controls dep. The key may be wrong: the owner may be gone, or be a Foo of another
// API group. A wrong key does no harm, because sync compares uids.
func (c *controller) enqueueOwner(dep *appsv1.Deployment) {
	if dep == nil {
		return // The watch missed the deletion, and the store did not have the Deployment. This is rare; see step 9.
	}
	if owner := metav1.GetControllerOf(dep); owner != nil && owner.Kind == "Foo" {
		c.queue.Add(cache.NewObjectName(dep.Namespace, owner.Name))
	}
}

// processNext is that of step 3.
func (c *controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.sync(ctx, key); err != nil {
		fmt.Printf("failed %v: %v\n", key, err)
		c.queue.AddRateLimited(key) // After 0.1 s, 0.2 s, 0.4 s ... up to two seconds.
		return true
	}
	c.queue.Forget(key)
	return true
}

// sync compares what should be with what is, and writes the difference. It does not know which event brought the key.
func (c *controller) sync(ctx context.Context, key cache.ObjectName) error {
	deployments := c.kube.AppsV1().Deployments(key.Namespace)
	foo, err := c.foos.Lister().Foos(key.Namespace).Get(key.Name)
	if err != nil || foo.DeletionTimestamp != nil { // The only error of a lister is that the object is not in the store.
		return nil // Gone, or going. The garbage collector deletes the Deployment: it has an owner reference.
	}
	have, err := c.deployments.Lister().Deployments(key.Namespace).Get(foo.Spec.DeploymentName)
	if err != nil { // It is not there: create it.
		if _, err := deployments.Create(ctx, deploymentFor(foo), metav1.CreateOptions{}); err != nil {
			return err
		}
		fmt.Printf("created Deployment %s/%s\n", foo.Namespace, foo.Spec.DeploymentName)
		time.Sleep(*pause)
		return nil // The new Deployment is an event, which brings this key back.
	}
	if !metav1.IsControlledBy(have, foo) { // It compares uids. Another Foo may have had the same name.
		return fmt.Errorf("not our own: Deployment %s", have.Name)
	}
	// In the store, replicas is never nil: the API server fills in the default 1.
	if want := foo.Spec.Replicas; want != nil && *have.Spec.Replicas != *want {
		dep := have.DeepCopy() // What comes from a lister must not be changed.
		dep.Spec.Replicas = want
		// The copy has the resourceVersion that we have read. If the Deployment has changed since, this is a conflict.
		if _, err := deployments.Update(ctx, dep, metav1.UpdateOptions{}); err != nil {
			return err
		}
		fmt.Printf("corrected Deployment %s/%s: replicas %d, not %d\n", dep.Namespace, dep.Name, *want, *have.Spec.Replicas)
		return nil
	}
	report := foo.DeepCopy()
	// The generation is that of the spec which the status is about.
	report.Status.ObservedGeneration, report.Status.AvailableReplicas = foo.Generation, have.Status.AvailableReplicas
	if equality.Semantic.DeepEqual(foo.Status, report.Status) {
		return nil // Nothing differs, so nothing is written.
	}
	foos := c.samples.SamplecontrollerV1alpha1().Foos(key.Namespace)
	if _, err := foos.UpdateStatus(ctx, report, metav1.UpdateOptions{}); err != nil {
		return err
	}
	fmt.Printf("reported on Foo %v: available %d\n", key, report.Status.AvailableReplicas)
	return nil
}

// deploymentFor returns what should be. The same Foo always gives the same Deployment.
func deploymentFor(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	// Who owns it: for our event handler, for the garbage collector, and for everybody who wonders.
	owners := []metav1.OwnerReference{*metav1.NewControllerRef(foo, fooKind)}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: foo.Spec.DeploymentName, OwnerReferences: owners},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}
