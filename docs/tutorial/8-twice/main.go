// Command twice creates a bill for each order. It is step 8 of the tutorial: there are two bills if its store is late,
// or if two copies of it run. --wait and --elect prevent that. Orders and bills are ConfigMaps with a label.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

var (
	late  = flag.Bool("late", false, "the store of bills gets nothing new until an order was worked on twice")
	wait  = flag.Bool("wait", false, "wait until the store has what was written")
	elect = flag.Bool("elect", false, "work only while this copy leads")
)

type controller struct {
	clients       kubernetes.Interface
	orders, bills coreinformers.TypedConfigMapInformer
	queue         workqueue.TypedRateLimitingInterface[cache.ObjectName] // Keys of orders.
	wrote         map[cache.ObjectName]string                            // The resourceVersion of the bill of an order.
}

// network is locked while nothing arrives in the store of bills.
var network sync.Mutex

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	utilruntime.Must(err)
	clients := kubernetes.NewForConfigOrDie(config)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	labelled := func(label string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(clients, 0,
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = label }))
	}
	orders, bills := labelled("tutorial=order"), labelled("tutorial=bill")
	c := &controller{
		clients: clients, orders: orders.Core().V1().ConfigMaps(), bills: bills.Core().V1().ConfigMaps(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		wrote: map[cache.ObjectName]string{},
	}
	ordered, err := c.orders.TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(order *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(order)) },
		UpdateFunc: func(_, order *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(order)) },
	}, cache.HandlerOptions{})
	utilruntime.Must(err)
	// A transform gets each object before the store. This one stands for a slow network.
	utilruntime.Must(c.bills.Informer().SetTransform(func(bill any) (any, error) {
		network.Lock()
		defer network.Unlock()
		return bill, nil
	}))
	orders.StartWithContext(ctx)
	bills.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", ordered.HasSyncedChecker(), c.bills.Informer().HasSyncedChecker()) {
		return
	}
	if *late {
		network.Lock()
	}
	fmt.Println("ready")
	if *elect {
		c.lead(ctx)
	} else {
		c.work(ctx)
	}
	fmt.Println("stopped")
}

// lead works while this copy has the Lease, an object that the leader renews every second. Another copy takes it when
// it was not renewed for ten seconds. A leader that cannot renew it for eight ends.
func (c *controller) lead(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.New(nil)) // The election would log.
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "twice"},
			Client:    c.clients.CoordinationV1(),
			// The name of this copy. A real controller adds something random: each process needs another one.
			LockConfig: resourcelock.ResourceLockConfig{Identity: filepath.Base(os.Args[0])},
		},
		LeaseDuration: 10 * time.Second, RenewDeadline: 8 * time.Second, RetryPeriod: time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				fmt.Println("leads")
				c.work(ctx)
			},
			OnStoppedLeading: func() {
				if ctx.Err() == nil { // Nobody has stopped this copy.
					fmt.Println("lost the Lease")
					os.Exit(1) // At once: what is still done here is not ours any more.
				}
			},
		},
	})
}

// work is processNext of step 3, in a loop.
func (c *controller) work(ctx context.Context) {
	context.AfterFunc(ctx, c.queue.ShutDown)
	for syncs := 1; ; syncs++ {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if err := c.sync(ctx, key); err != nil {
			fmt.Printf("failed %v: %v\n", key, err)
			c.queue.AddRateLimited(key)
		}
		c.queue.Done(key)
		if *late && syncs == 2 {
			network.Unlock() // The first bill arrives.
		}
	}
}

// sync creates a bill, unless the store has one.
func (c *controller) sync(ctx context.Context, key cache.ObjectName) error {
	if *wait && !c.reached(c.wrote[key]) { // Before the store is read: it may have just missed what it has a moment later.
		fmt.Printf("wait %v: the store does not have what was written\n", key)
		c.queue.AddAfter(key, 100*time.Millisecond)
		return nil
	}
	bills, _ := c.bills.Lister().ConfigMaps(key.Namespace).List(labels.Set{"order": key.Name}.AsSelector())
	fmt.Printf("sync %v: bills in the store: %d\n", key, len(bills))
	if len(bills) > 0 {
		return nil
	}
	// The API server adds a random end to this name, so it does not refuse a second bill.
	bill := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: key.Name + "-", Labels: map[string]string{"tutorial": "bill", "order": key.Name},
	}}
	bill, err := c.clients.CoreV1().ConfigMaps(key.Namespace).Create(ctx, bill, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.wrote[key] = bill.ResourceVersion
	fmt.Printf("created a bill for %v\n", key)
	return nil
}

// reached reports whether the store has seen all changes of bills up to a version. It need not have that bill: somebody
// may have deleted it.
func (c *controller) reached(version string) bool {
	have := c.bills.Informer().GetStore().LastStoreSyncResourceVersion()
	order, err := resourceversion.CompareResourceVersion(have, version)
	return err != nil || order >= 0 // An error: nothing was written.
}
