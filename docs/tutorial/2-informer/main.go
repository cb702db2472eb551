// Command informer prints the containers of each new ReplicaSet as soon as it exists. It is step 2 of the tutorial: an
// informer in place of a loop.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	resync := flag.Duration("resync", 0, "`time` after which each object is given to the handler again; 0 is never")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	config.Wrap(printRequests)
	clients, err := kubernetes.NewForConfig(config)
	exitOn(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// A factory makes one informer for each kind, which all parts of a program share. Inside of an informer:
	//   the reflector sends the requests: one that begins with all objects, and continues with every change;
	//   the store has the newest version of each object, in memory;
	//   the indexer finds objects in the store by something other than the name;
	//   each handler is called for one change after another.
	factory := informers.NewSharedInformerFactory(clients, *resync)
	replicaSets := factory.Apps().V1().ReplicaSets()
	informer := replicaSets.TypedInformer() // Since client-go v0.37. Informer(), in most examples, has no types.
	exitOn(informer.AddTypedIndexers(appsinformers.ReplicaSetIndexers{byContainer: containerNames}))

	// The handler. The objects belong to the store: to read them is fine, to change them is not.
	registration, err := informer.AddTypedEventHandler(appsinformers.ReplicaSetDetailedHandlerFuncs{
		AddFunc: func(rs *appsv1.ReplicaSet, isInInitialList bool) {
			if isInInitialList { // It existed before the program did. Perhaps an earlier run has seen it, perhaps not.
				fmt.Printf("exists: %s/%s: %s\n", rs.Namespace, rs.Name, list(rs))
				return
			}
			fmt.Printf("new: %s/%s: %s\n", rs.Namespace, rs.Name, list(rs))
		},
		UpdateFunc: func(have, rs *appsv1.ReplicaSet) {
			// Every change has a resourceVersion of its own. This program prints nothing for a real change.
			if have.ResourceVersion == rs.ResourceVersion {
				fmt.Printf("again: %s/%s has not changed\n", rs.Namespace, rs.Name)
			}
		},
		DeleteFunc: func(deleted appsinformers.DeletedReplicaSet) {
			// If the watch was interrupted, the last state is unknown. client-go calls that a tombstone: it has the name, and
			// usually an older state, which the store had.
			fmt.Printf("gone: %v\n", deleted.GetObjectName())
		},
	}, cache.HandlerOptions{})
	exitOn(err)

	factory.StartWithContext(ctx)
	// Wait until the handler has had the whole initial list. With a text in place of "", WaitFor logs what it waits for.
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return // Stopped before the initial list was complete.
	}
	// A lister reads the store: it sends no request.
	all, err := replicaSets.Lister().List(labels.Everything())
	exitOn(err)
	// So does an indexer. It leads from the name of a container to the ReplicaSets, and does not read all of them.
	withNginx, err := informer.GetTypedIndexer().ByIndex(byContainer, "nginx")
	exitOn(err)
	fmt.Printf("ReplicaSets in the store: %d, with a container nginx: %d\n", len(all), len(withNginx))
	<-ctx.Done()
	factory.Shutdown() // Waits until all goroutines have ended.
	fmt.Println("stopped")
}

// byContainer is an index: from the name of a container to the ReplicaSets that have one of this name.
const byContainer = "container"

func containerNames(rs *appsv1.ReplicaSet) ([]string, error) {
	var names []string
	for _, container := range rs.Spec.Template.Spec.Containers {
		names = append(names, container.Name)
	}
	return names, nil
}

func list(rs *appsv1.ReplicaSet) string {
	names, _ := containerNames(rs) // It returns no error.
	return strings.Join(names, ", ")
}

// printRequests prints every request.
func printRequests(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(request *http.Request) (*http.Response, error) {
		fmt.Println("request:", request.Method, request.URL.RequestURI())
		return next.RoundTrip(request)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func exitOn(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
