// Command queue works on ConfigMaps, one key after another. It is step 3 of the tutorial: between the handler and the
// work there is a queue. With --in-handler there is no queue, as in step 2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	inHandler := flag.Bool("in-handler", false, "work in the handler, as in step 2")
	workers := flag.Int("workers", 2, "`number` of keys to work on at a time")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	clients, err := kubernetes.NewForConfig(config)
	exitOn(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// Only ConfigMaps with the label: the API server does not send the others.
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "tutorial=queue" }))
	configMaps := factory.Core().V1().ConfigMaps()
	c := &controller{
		lister: configMaps.Lister(),
		// The first retry of a key comes after half a second, the next after one, two, four, up to a minute.
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](500*time.Millisecond, time.Minute)),
	}
	handle := c.queue.Add // Takes no time, whatever the work is.
	if *inHandler {
		handle = func(key cache.ObjectName) { _ = c.work(key) } // An error is dropped: there is nothing to try it again.
	}
	// The handler makes a key of each event, the namespace and name of the object. A deletion is a key, too.
	registration, err := configMaps.TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapDetailedHandlerFuncs{
		AddFunc:    func(cm *corev1.ConfigMap, _ bool) { handle(cache.MetaObjectToName(cm)) },
		UpdateFunc: func(_, cm *corev1.ConfigMap) { handle(cache.MetaObjectToName(cm)) },
		DeleteFunc: func(deleted coreinformers.DeletedConfigMap) { handle(deleted.GetObjectName()) },
	}, cache.HandlerOptions{})
	exitOn(err)
	factory.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) { // The work reads the store, which must be complete.
		return
	}
	fmt.Println("ready")
	var running sync.WaitGroup
	for range *workers {
		running.Go(func() {
			for c.processNext() {
			}
		})
	}
	<-ctx.Done()
	// Get returns what is still queued, and then ends the workers. Keys that wait for a retry are dropped. After a
	// restart, the informer reports every object as added.
	c.queue.ShutDown()
	running.Wait()
	fmt.Println("stopped")
}

type controller struct {
	lister corelisters.ConfigMapLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// processNext works on the next key, and decides whether and when the key comes back. It returns false after ShutDown.
func (c *controller) processNext() bool {
	// Until Done, no other worker gets this key. If it is added meanwhile, Get returns it once more after Done.
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.work(key); err != nil {
		c.queue.AddRateLimited(key) // After a delay, which doubles with each failure of this key.
		fmt.Printf("failed %v: %v; this was try %d\n", key, err, c.queue.NumRequeues(key))
		return true
	}
	c.queue.Forget(key) // The next failure counts as the first one.
	return true
}

// work is what the program is for. It gets a key, and reads the newest version of the object.
func (c *controller) work(key cache.ObjectName) error {
	cm, err := c.lister.ConfigMaps(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) { // It was deleted, or has lost the label.
		fmt.Printf("gone %v\n", key)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("begin %v: note is %q\n", key, cm.Data["note"])
	takes, _ := time.ParseDuration(cm.Data["takes"]) // 0 without a duration.
	time.Sleep(takes)                                // Stands for requests to slow services.
	if cm.Data["fails"] == "true" {
		return errors.New("its data has fails=true")
	}
	fmt.Printf("done %v\n", key)
	return nil
}

func exitOn(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
