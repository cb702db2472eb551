// Command ask-again lists all Pods of a cluster every ten seconds, and prints the name and the phase of each. It is
// step 1 of the tutorial: the simplest program that observes a cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the address and credentials")
	every := flag.Duration("every", 10*time.Second, "`time` between two lists")
	flag.Parse()
	if err := run(*kubeconfig, *every); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, every time.Duration) error {
	// A kubeconfig has the address of the API server and the credentials. kubectl reads such a file, too.
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = 30 * time.Second // A request that has no answer until then fails. Without this, it waits for ever.
	var cost meter
	config.Wrap(cost.wrap) // Every request passes through the meter.

	// A clientset has methods for each kind that Kubernetes itself has. They take and return Go types such as v1.Pod.
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // Ends with Ctrl-C.
	defer stop()

	for n := 1; ; n++ {
		// List all Pods of all namespaces, whether they have changed or not.
		pods, err := clients.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		switch {
		case ctx.Err() != nil: // Stopped. The list may have failed because of that.
		case err != nil: // The API server may be restarting. Print the error and go on: the next list may succeed.
			fmt.Printf("list %d: error: %v\n", n, err)
		default:
			fmt.Printf("list %d: Pods: %d; so far: %v\n", n, len(pods.Items), &cost)
			for _, pod := range pods.Items {
				fmt.Printf("  %s/%s %s\n", pod.Namespace, pod.Name, pod.Status.Phase)
			}
		}
		select {
		case <-ctx.Done():
			fmt.Println("stopped")
			return nil
		case <-time.After(every): // Until the next list, the program sees nothing.
		}
	}
}

// A meter counts the requests of this program, also those that fail, and the bytes of the answers: of their bodies,
// after they are unpacked. The API server compresses large answers.
type meter struct{ requests, bytes atomic.Int64 }

func (m *meter) String() string {
	return fmt.Sprintf("requests: %d, bytes: %d", m.requests.Load(), m.bytes.Load())
}

// wrap returns an HTTP transport that counts, and leaves the work to next.
func (m *meter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(request *http.Request) (*http.Response, error) {
		m.requests.Add(1)
		response, err := next.RoundTrip(request)
		if err == nil {
			response.Body = countingBody{response.Body, m}
		}
		return response, err
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

type countingBody struct {
	io.ReadCloser
	meter *meter
}

func (b countingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.meter.bytes.Add(int64(n))
	return n, err
}
