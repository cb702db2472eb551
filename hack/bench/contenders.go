package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof" // The benchmark reads the heap of each contender there.
	"os/signal"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/kit/conditions"
	"example.com/foo-controller/pkg/plan"
)

// workers is how many Foos a contender works on at a time, except the plain one. It is the default of foo-controller.
const workers = 32

// A contender maintains Deployments for Foos until ctx ends.
type contender func(ctx context.Context, config *rest.Config) error

// own are the contenders that are part of this program. It starts itself with their names.
var own = map[string]contender{raw: runRaw, watching: runWatching, framework: runFramework, plain: runPlain}

// contend is the process of a contender. It serves profiles on address.
func contend(name, kubeconfig, address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "bench-" + name
	go func() { log.Fatal(http.ListenAndServe(address, nil)) }()
	return own[name](ctx, config)
}

// A writer sends the two writes of a new Foo.
type writer struct {
	kube    kubernetes.Interface
	samples clientset.Interface
}

func newWriter(config *rest.Config) (w writer, err error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	if w.kube, err = kubernetes.NewForConfig(config); err != nil {
		return w, err
	}
	w.samples, err = clientset.NewForConfig(config)
	return w, err
}

// write creates the Deployment of foo and reports that, with the bodies that foo-controller sends.
func (w writer) write(ctx context.Context, foo *v1alpha1.Foo) error {
	dep, err := w.kube.AppsV1().Deployments(foo.Namespace).Create(ctx, plan.Deployment(foo), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	foo = foo.DeepCopy()
	foo.Status = statusOf(foo, dep)
	_, err = w.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, foo, metav1.UpdateOptions{})
	return err
}

// statusOf returns the status of foo, as its Deployment is now.
func statusOf(foo *v1alpha1.Foo, dep *appsv1.Deployment) v1alpha1.FooStatus {
	report, s := conditions.Report{}, dep.Status
	wanted := *dep.Spec.Replicas
	switch available := fmt.Sprintf("%d of %d replicas available", s.AvailableReplicas, wanted); {
	case s.ObservedGeneration == 0:
		report = conditions.Report{True: conditions.Reconciling, Reason: v1alpha1.ReasonCreating, Message: fmt.Sprintf(
			"Created Deployment %q. Waiting for the Deployment controller to create its pods", dep.Name)}
	case s.ObservedGeneration < dep.Generation, s.Replicas != wanted, s.UpdatedReplicas < wanted,
		s.AvailableReplicas < wanted:
		report = conditions.Report{True: conditions.Reconciling, Reason: v1alpha1.ReasonProgressing, Message: available}
	default:
		report = conditions.Report{True: conditions.Ready, Reason: v1alpha1.ReasonAvailable, Message: available}
	}
	return v1alpha1.FooStatus{
		ObservedGeneration: foo.Generation,
		Replicas:           s.Replicas, AvailableReplicas: s.AvailableReplicas,
		Selector:   metav1.FormatLabelSelector(dep.Spec.Selector),
		Conditions: conditions.Set(foo.Status.Conditions, report, foo.Generation, time.Now()),
	}
}

// runRaw lists the Foos once, sends the writes for them, and ends. It is what the API server can do.
func runRaw(ctx context.Context, config *rest.Config) error {
	w, err := newWriter(config)
	if err != nil {
		return err
	}
	foos, err := w.samples.SamplecontrollerV1alpha1().Foos("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	err = inParallel(len(foos.Items), func(i int) error { return w.write(ctx, &foos.Items[i]) })
	if err == nil {
		<-ctx.Done() // Its profile may be read.
	}
	return err
}

// runWatching sends the same writes for the Foos that an informer shows, while another one watches Deployments, on a
// connection for watches. It decides nothing, repeats nothing and corrects nothing: no controller can do with less. It
// prints when both lists are complete.
func runWatching(ctx context.Context, config *rest.Config) error {
	w, err := newWriter(config)
	if err != nil {
		return err
	}
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext // Otherwise client-go shares the connection.
	reader, err := newWriter(config)
	if err != nil {
		return err
	}
	deployments := kubeinformers.NewSharedInformerFactory(reader.kube, 0).Apps().V1().Deployments().Informer()
	foos := informers.NewSharedInformerFactory(reader.samples, 0).Samplecontroller().V1alpha1().Foos().Informer()
	added := make(chan *v1alpha1.Foo, 100_000) // More than there are.
	_, err = foos.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if foo := obj.(*v1alpha1.Foo); foo.Status.ObservedGeneration == 0 {
			added <- foo
		}
	}})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { foos.RunWithContext(ctx) })
	running.Go(func() { deployments.RunWithContext(ctx) })
	defer running.Wait()
	if !cache.WaitForCacheSync(ctx.Done(), foos.HasSynced, deployments.HasSynced) {
		return nil
	}
	fmt.Println(listed)
	for range workers {
		running.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case foo := <-added:
					if err := w.write(ctx, foo); err != nil && ctx.Err() == nil {
						log.Print(err)
					}
				}
			}
		})
	}
	return nil
}

// inParallel calls f with the numbers below n, in as many goroutines as there are workers. It returns an error of f.
func inParallel(n int, f func(i int) error) error {
	numbers, errs := make(chan int), make(chan error, n)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range numbers {
				if err := f(i); err != nil {
					errs <- err
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	running.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
