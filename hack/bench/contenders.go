package main

import (
	"context"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof" // The benchmark reads the heap of each contender there.
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions"
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

// inParallel calls f with the numbers below n, several at a time, and returns the first error.
func inParallel(n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}
