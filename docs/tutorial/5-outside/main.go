// Command outside reports on Foos whether a shop, which is not in the cluster, is open. It is step 5 of the tutorial:
// events that do not come from the API server, and a finalizer.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	informers "example.com/foo-controller/pkg/generated/informers/externalversions"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	listers "example.com/foo-controller/pkg/generated/listers/samplecontroller/v1alpha1"
)

const (
	annotation = "tutorial.example.com/shop"         // A Foo has the address of its shop here.
	finalizer  = "tutorial.example.com/subscription" // While a Foo has it, the API server keeps the Foo.
	condition  = "ShopOpen"                          // Ours. The others belong to the controller of Foos.
)

// shops is how shops are asked. A shop that hangs must not keep a worker for ever.
var shops = http.Client{Timeout: 2 * time.Second}

type controller struct {
	samples  clientset.Interface
	foos     listers.FooLister
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	callback string   // The URL to which a shop pushes.
	states   sync.Map // The last answer of the shop of each key, to notice a change.
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	every := flag.Duration("every", 30*time.Second, "`time` after which all shops are asked again")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	samples, err := clientset.NewForConfig(config)
	exitOn(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	factory := informers.NewSharedInformerFactory(samples, 0)
	foos := factory.Samplecontroller().V1alpha1().Foos()
	c := &controller{
		samples: samples, foos: foos.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}

	// Three sources of keys, and one queue. The first is the watch, as in step 4.
	registration, err := foos.TypedInformer().AddTypedEventHandler(fooinformers.FooHandlerFuncs{
		AddFunc:    func(foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
		UpdateFunc: func(_, foo *v1alpha1.Foo) { c.queue.Add(cache.MetaObjectToName(foo)) },
		DeleteFunc: func(deleted fooinformers.DeletedFoo) { c.queue.Add(deleted.GetObjectName()) },
	}, cache.HandlerOptions{})
	exitOn(err)
	factory.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return
	}
	// The second is what shops push.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	exitOn(err)
	c.callback = "http://" + listener.Addr().String() + "/"
	go func() { _ = http.Serve(listener, http.HandlerFunc(c.receive)) }() // Ends with the process.
	// The third is to pull: once before the first sync, and then again and again.
	c.pull(ctx)
	go wait.UntilWithContext(ctx, c.pull, *every)

	context.AfterFunc(ctx, c.queue.ShutDown)
	for c.processNext(ctx) {
	}
	fmt.Println("stopped")
}

// pull asks all shops: the loop of step 1. It finds the changes whose push was lost.
func (c *controller) pull(context.Context) {
	foos, _ := c.foos.List(labels.Everything()) // It reads the store and does not fail.
	for _, foo := range foos {
		c.ask(cache.MetaObjectToName(foo))
	}
}

// receive is called by a shop. It does not use what the push contains: a push may be late, come twice, or in the wrong
// order. It only asks now, and the answer is newer than the push.
func (c *controller) receive(_ http.ResponseWriter, r *http.Request) {
	key, _ := cache.ParseObjectName(strings.TrimPrefix(r.URL.Path, "/")) // Empty if it is not one: then no Foo is found.
	c.ask(key)
}

// ask asks the shop of a Foo. If the answer is another one than before, the key is queued, as with any other event.
func (c *controller) ask(key cache.ObjectName) {
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	if err != nil || foo.Annotations[annotation] == "" || foo.DeletionTimestamp != nil {
		return
	}
	state, _ := call(foo.Annotations[annotation] + "/state")
	if before, _ := c.states.Swap(key, state); before != state {
		fmt.Printf("the shop of %v is %s\n", key, state)
		c.queue.Add(key)
	}
}

// sync is about one Foo. It has the form of step 4: compare, and write the difference.
func (c *controller) sync(ctx context.Context, key cache.ObjectName) error {
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	if err != nil {
		c.states.Delete(key) // The Foo is gone.
		return nil
	}
	shop, i := foo.Annotations[annotation], slices.Index(foo.Finalizers, finalizer)
	switch {
	case foo.DeletionTimestamp != nil && i >= 0: // First what is outside. After a stop in between, it is repeated.
		if _, err := call(shop + "/unsubscribe/" + key.String()); err != nil {
			return err
		}
		return c.setFinalizers(ctx, foo, slices.Delete(slices.Clone(foo.Finalizers), i, i+1))
	case foo.DeletionTimestamp != nil || shop == "":
		return nil
	case i < 0: // First the finalizer, then what is outside. The change brings the key back.
		return c.setFinalizers(ctx, foo, append(slices.Clone(foo.Finalizers), finalizer))
	}
	// A new subscription replaces the last one, so this can be repeated. The answer is the state, or "unreachable".
	state, _ := call(shop + "/subscribe/" + key.String() + "?callback=" + url.QueryEscape(c.callback))
	return c.report(ctx, foo, state)
}

// report writes our condition, and keeps those of others: it starts with the status that was read, and the API server
// refuses it with a conflict if somebody has written another one since.
func (c *controller) report(ctx context.Context, foo *v1alpha1.Foo, state string) error {
	isOpen := metav1.Condition{Type: condition, Status: "False", Reason: "NotOpen", Message: "The shop is " + state}
	if state == "open" {
		isOpen.Status, isOpen.Reason = metav1.ConditionTrue, "Open"
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

// call sends a request to a shop and returns the answer, which for an error is only one word: an error has ports and
// times, and a condition with them would change each time.
func call(address string) (string, error) {
	answer, err := shops.Post(address, "", nil)
	if err != nil {
		return "unreachable", err
	}
	defer answer.Body.Close()
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

func exitOn(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
