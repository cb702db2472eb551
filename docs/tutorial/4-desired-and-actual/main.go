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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	foohandlers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	foolisters "example.com/foo-controller/pkg/generated/listers/samplecontroller/v1alpha1"
)

// fooKind is what an owner reference to a Foo names.
var fooKind = schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: v1alpha1.GroupVersion.Version, Kind: "Foo"}

type controller struct {
	kube    kubernetes.Interface // The client for the kinds of Kubernetes.
	samples clientset.Interface  // The generated client for Foos. It has the same form.

	foos        foolisters.FooLister
	deployments appslisters.DeploymentLister
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName] // Keys of Foos, and of nothing else.
	pause       time.Duration
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	user := flag.String("as", "", "`name` of the user or ServiceAccount to act as; empty is that of the kubeconfig")
	pause := flag.Duration("pause", 0, "`time` to wait after a Deployment was created, so that you can kill the program")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	config.Impersonate.UserName = *user
	kube, err := kubernetes.NewForConfig(config)
	exitOn(err)
	samples, err := clientset.NewForConfig(config)
	exitOn(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	kubeFactory := kubeinformers.NewSharedInformerFactory(kube, 0)
	fooFactory := fooinformers.NewSharedInformerFactory(samples, 0)
	foos, deployments := fooFactory.Samplecontroller().V1alpha1().Foos(), kubeFactory.Apps().V1().Deployments()
	c := &controller{
		kube: kube, samples: samples, foos: foos.Lister(), deployments: deployments.Lister(), pause: *pause,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](100*time.Millisecond, 2*time.Second)),
	}

	// Events of both kinds become keys of Foos. A Foo is its own key.
	foosSynced, err := foos.TypedInformer().AddTypedEventHandler(foohandlers.FooHandlerFuncs{
		AddFunc:    func(foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
		UpdateFunc: func(_, foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
	}, cache.HandlerOptions{})
	exitOn(err)
	// The key of a Deployment is that of the Foo that owns it.
	deploymentsSynced, err := deployments.TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc:    c.enqueueOwner,
		UpdateFunc: func(_, dep *appsv1.Deployment) { c.enqueueOwner(dep) },
		DeleteFunc: func(deleted appsinformers.DeletedDeployment) { c.enqueueOwner(deleted.OptionalObj) },
	}, cache.HandlerOptions{})
	exitOn(err)
	printRefused := func(_ context.Context, _ *cache.Reflector, err error) { fmt.Println("refused:", err) }
	exitOn(foos.Informer().SetWatchErrorHandlerWithContext(printRefused))
	exitOn(deployments.Informer().SetWatchErrorHandlerWithContext(printRefused))

	kubeFactory.StartWithContext(ctx)
	fooFactory.StartWithContext(ctx)
	// Both stores must be complete. With only half of the Deployments, the program would create the others again.
	if !cache.WaitFor(ctx, "", foosSynced.HasSyncedChecker(), deploymentsSynced.HasSyncedChecker()) {
		return
	}
	fmt.Println("ready")
	context.AfterFunc(ctx, c.queue.ShutDown)
	for c.processNext(ctx) { // One worker, to keep it short. Step 3 has several.
	}
	fmt.Println("stopped")
}

// enqueueOwner queues the Foo that controls dep. The owner reference has its name.
func (c *controller) enqueueOwner(dep *appsv1.Deployment) {
	if dep == nil {
		return // A deletion that the watch missed; see step 7.
	}
	if owner := metav1.GetControllerOf(dep); owner != nil && owner.Kind == "Foo" {
		c.queue.Add(cache.NewObjectName(dep.Namespace, owner.Name))
	}
}

func (c *controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	err := c.sync(ctx, key)
	switch {
	case err == nil:
		c.queue.Forget(key)
		return true
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // The store was old. This is normal, and passes.
	default:
		fmt.Printf("failed %v: %v\n", key, err)
	}
	c.queue.AddRateLimited(key)
	return true
}

// sync compares what should be with what is, and writes the difference. It does not know which event brought the key.
func (c *controller) sync(ctx context.Context, key cache.ObjectName) error {
	deployments := c.kube.AppsV1().Deployments(key.Namespace)
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	if err != nil || foo.DeletionTimestamp != nil {
		return nil // Gone, or going. The garbage collector deletes the Deployment: it has an owner reference.
	}
	have, err := c.deployments.Deployments(foo.Namespace).Get(foo.Spec.DeploymentName)
	if apierrors.IsNotFound(err) {
		if _, err := deployments.Create(ctx, deploymentFor(foo), metav1.CreateOptions{}); err != nil {
			return err
		}
		fmt.Printf("created Deployment %s/%s\n", foo.Namespace, foo.Spec.DeploymentName)
		time.Sleep(c.pause)
		return nil // The new Deployment is an event, which brings this key back.
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(have, foo) { // It compares uids. A name can be the same by chance.
		return fmt.Errorf("not our own: Deployment %s", have.Name)
	}
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
	report.Status.ObservedGeneration = foo.Generation // This spec is the one that the status is about.
	report.Status.AvailableReplicas = have.Status.AvailableReplicas
	if equality.Semantic.DeepEqual(foo.Status, report.Status) {
		return nil // Nothing differs, so nothing is written.
	}
	foos := c.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace)
	if _, err := foos.UpdateStatus(ctx, report, metav1.UpdateOptions{}); err != nil {
		return err
	}
	fmt.Printf("reported on Foo %v: available %d\n", key, report.Status.AvailableReplicas)
	return nil
}

// deploymentFor returns what should be. The same Foo always gives the same Deployment.
func deploymentFor(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: foo.Spec.DeploymentName,
			// Who owns it: for our event handler, for the garbage collector, and for everybody who wonders.
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, fooKind)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
			},
		},
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
