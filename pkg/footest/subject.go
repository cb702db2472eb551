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
	"example.com/foo-controller/pkg/plan"
)

// controllerName is the user that the controller under test is, and the field manager that it has to use.
const controllerName = "foo-controller"

// namespace is where all Foos and Deployments are.
const namespace = "default"

// Wiring is what a controller is made of.
type Wiring struct {
	Kube        kubernetes.Interface
	Samples     clientset.Interface
	Recorder    events.EventRecorder
	Foos        fooinformers.TypedFooInformer
	Deployments appsinformers.TypedDeploymentInformer
}

// NewSubject makes a controller that a scenario can be played with. The controller has to call onSynced after each
// sync, from the goroutine of that sync, and to leave out the random part of its delays.
type NewSubject func(ctx context.Context, wiring Wiring, onSynced func(Synced)) (*Subject, error)

// A Subject is a controller under test, as the player of scenarios sees it. The player calls the event handlers that
// the controller registered with its informers.
type Subject struct {
	// Queue is the controller's own field. The player replaces the queue by one that also records delays.
	Queue *workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// Retries is the rate limiter of the queue.
	Retries workqueue.TypedRateLimiter[cache.ObjectName]
	// ProcessNext syncs the next key of the queue.
	ProcessNext func(ctx context.Context)
}

// Synced is how one sync ended.
type Synced struct {
	Key  cache.ObjectName
	Kind plan.Kind
	// For is what the controller waits for, when Kind is plan.Wait.
	For plan.WaitReason
	Err error
	// Panicked says that the sync panicked, and Err with what.
	Panicked bool
}

// NewRunner makes a controller for a simulation, and returns what runs it until ctx ends.
type NewRunner func(ctx context.Context, wiring Wiring) (run func(ctx context.Context, workers int), err error)
