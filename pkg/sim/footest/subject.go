package footest

import (
	"context"

	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/plan"
)

// controllerName is the user name of the controller under test, and the field manager that it must use.
const controllerName = "foo-controller"

// namespace is the namespace of all Foos and Deployments.
const namespace = "default"

// Wiring has the dependencies of a controller.
type Wiring struct {
	Kube        kubernetes.Interface
	Samples     clientset.Interface
	Recorder    events.EventRecorder
	Foos        fooinformers.TypedFooInformer
	Deployments appsinformers.TypedDeploymentInformer
	// Workers is the number of workers of the controller.
	Workers int
	// OnSynced, unless nil, is called after each sync of a simulation with the key of the Foo.
	OnSynced func(cache.ObjectName)
}

// NewSubject makes a controller for a scenario. The controller must call onSynced after each sync, from the goroutine
// of that sync. Its delays must have no random part.
type NewSubject func(ctx context.Context, wiring Wiring, onSynced func(Synced)) (*Subject, error)

// A Subject is a controller under test, as the player of scenarios sees it. The player calls the event handlers that
// the controller registered with its informers.
type Subject struct {
	// Queue points to the field of the controller, so that the player can replace the queue by one that records delays.
	Queue *workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// Add points to the function with which the controller queues a key at once.
	Add *func(cache.ObjectName, fairqueue.Class)
	// Retries is the rate limiter of the queue.
	Retries workqueue.TypedRateLimiter[cache.ObjectName]
	// Names points to the queue of the names of Deployments about which the Foos that name them must hear.
	Names *workqueue.TypedDelayingInterface[cache.ObjectName]
	// ProcessNext syncs the next key of the queue, and ProcessName queues the Foos that name the next Deployment.
	ProcessNext, ProcessName func(ctx context.Context)
}

// Synced is the result of one sync.
type Synced struct {
	Key     cache.ObjectName
	Outcome plan.Outcome
	// Panicked reports whether the sync panicked. The error of the outcome has the value of the panic.
	Panicked bool
}

// NewRunner makes a controller for a simulation. The function that it returns runs the controller until ctx ends.
type NewRunner func(ctx context.Context, wiring Wiring) (run func(ctx context.Context), err error)
