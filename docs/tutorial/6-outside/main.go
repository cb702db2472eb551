// Command outside reports on Foos whether a shop, which is not in the cluster, is open. It is step 6 of the tutorial:
// changes that do not come from the API server, and a finalizer.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

const (
	annotation = "tutorial.example.com/shop"         // A Foo has the address of its shop here.
	finalizer  = "tutorial.example.com/subscription" // While a Foo has it, the API server keeps the Foo.
	condition  = "ShopOpen"                          // Ours. The others belong to the controller of Foos.
)

// shops is how shops are asked. A shop that does not answer must not keep the worker for ever.
var shops = http.Client{Timeout: 10 * time.Second}

type controller struct {
	samples  clientset.Interface
	foos     fooinformers.FooInformer
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	callback string // The URL to which a shop pushes. The port is another one in each run.
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	every := flag.Duration("every", 30*time.Second, "`time` after which all shops are asked again")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	utilruntime.Must(err) // It panics: without a connection there is nothing to do.
	samples := clientset.NewForConfigOrDie(config)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	factory := informers.NewSharedInformerFactory(samples, 0)
	foos := factory.Samplecontroller().V1alpha1().Foos()
	c := &controller{
		samples: samples, foos: foos,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}

	// Three sources of keys, and one queue. The first is the watch, as in step 4. When a Foo is gone, nothing is left to
	// do: that is what the finalizer is for. So there is no DeleteFunc.
	registration, err := foos.TypedInformer().AddTypedEventHandler(fooinformers.FooHandlerFuncs{
		AddFunc:    func(foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
		UpdateFunc: func(_, foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
	}, cache.HandlerOptions{})
	utilruntime.Must(err)
	factory.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return
	}
	// The second is what shops push. The server ends with the process.
	listener, err := net.Listen("tcp", "127.0.0.1:0") // 0 is any free port.
	utilruntime.Must(err)
	c.callback = "http://" + listener.Addr().String() + "/"
	go func() { utilruntime.Must(http.Serve(listener, http.HandlerFunc(c.receive))) }()
	// The third is the pull. At the start none is needed: the initial list has queued all Foos.
	go c.pull(*every)
	context.AfterFunc(ctx, c.queue.ShutDown)
	for c.processNext(ctx) { // One worker: the shops are asked one after another.
	}
	fmt.Println("stopped")
}

// receive is called by a shop. It does not use what the push contains: a push may be late, come twice, or in the wrong
// order. sync asks the shop, and its answer is newer than the push.
func (c *controller) receive(_ http.ResponseWriter, r *http.Request) {
	key, _ := cache.ParseObjectName(strings.TrimPrefix(r.URL.Path, "/")) // A path that is no key gives an empty one.
	c.queue.Add(key)
}

// pull is the loop of step 1. It finds the changes whose push was lost.
func (c *controller) pull(every time.Duration) {
	for range time.Tick(every) {
		foos, _ := c.foos.Lister().List(labels.Everything()) // It reads the store and does not fail.
		for _, foo := range foos {
			c.queue.Add(cache.MetaObjectToName(foo))
		}
	}
}

// sync is about one Foo. It has the form of step 4: compare, and write the difference. It does not know which source
// has brought the key.
func (c *controller) sync(ctx context.Context, key cache.ObjectName) error {
	foo, err := c.foos.Lister().Foos(key.Namespace).Get(key.Name)
	if err != nil {
		return nil // There is no such Foo. A lister has no other error.
	}
	shop, i := foo.Annotations[annotation], slices.Index(foo.Finalizers, finalizer)
	switch {
	case foo.DeletionTimestamp != nil && i >= 0: // First what is outside. After a stop in between, it is repeated.
		if _, err := call(shop+"/unsubscribe/"+key.String(), ""); err != nil {
			return err // The finalizer stays, and the key comes back.
		}
		return c.setFinalizers(ctx, foo, slices.Delete(slices.Clone(foo.Finalizers), i, i+1))
	case foo.DeletionTimestamp != nil || shop == "":
		return nil
	case i < 0: // First the finalizer, then what is outside. The change brings the key back.
		return c.setFinalizers(ctx, foo, append(slices.Clone(foo.Finalizers), finalizer))
	}
	// To subscribe is to ask: the answer is the state. It replaces the last subscription, so it can be repeated. A shop
	// that has forgotten its subscriptions gets a new one here.
	state, err := call(shop+"/subscribe/"+key.String(), c.callback)
	return c.report(ctx, foo, state, err)
}

// report writes our condition, and keeps those of others: it starts with the status that was read, and the API server
// refuses it with a conflict if somebody has written another one since.
func (c *controller) report(ctx context.Context, foo *v1alpha1.Foo, state string, failure error) error {
	isOpen := metav1.Condition{Type: condition, Status: "False", Reason: "NotOpen", Message: "The shop is " + state}
	if state == "open" {
		isOpen.Status, isOpen.Reason = metav1.ConditionTrue, "Open"
	}
	// The error has ports and times. With them, the message would be another one each time, each write a change that
	// brings the key back, and so on without end.
	if failure != nil {
		isOpen.Status, isOpen.Reason, isOpen.Message = metav1.ConditionUnknown, "Unreachable", "The shop does not answer"
	}
	foo = foo.DeepCopy()
	if !meta.SetStatusCondition(&foo.Status.Conditions, isOpen) {
		return nil // It is reported already.
	}
	_, err := c.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, foo, metav1.UpdateOptions{})
	if err == nil {
		fmt.Printf("reported on %s/%s: %s=%s\n", foo.Namespace, foo.Name, condition, isOpen.Status)
	}
	return err
}

func (c *controller) setFinalizers(ctx context.Context, foo *v1alpha1.Foo, finalizers []string) error {
	foo = foo.DeepCopy()
	foo.Finalizers = finalizers
	_, err := c.samples.SamplecontrollerV1alpha1().Foos(foo.Namespace).Update(ctx, foo, metav1.UpdateOptions{})
	if err == nil {
		fmt.Printf("finalizers of %s/%s: %v\n", foo.Namespace, foo.Name, finalizers)
	}
	return err
}

// call sends a request to a shop and returns the answer. It is a POST, because it changes something at the shop.
func call(address, text string) (string, error) {
	answer, err := shops.Post(address, "text/plain", strings.NewReader(text))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", address, answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 100))
	return string(body), err
}

func (c *controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	err := c.sync(ctx, key)
	if err == nil {
		c.queue.Forget(key)
		return true
	}
	if !apierrors.IsConflict(err) { // A conflict is normal: somebody else has changed the Foo.
		fmt.Printf("failed %v: %v\n", key, err)
	}
	c.queue.AddRateLimited(key)
	return true
}
