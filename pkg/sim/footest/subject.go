package footest

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/plan"
)

// controllerName is the user name of the controller under test, and the field manager that it must use.
const controllerName = "foo-controller"

// namespace is the namespace of all Foos and Deployments.
const namespace = "default"

// AddAs queues a key.
type AddAs = func(cache.ObjectName, fairqueue.Class)

// Wiring has the dependencies of a controller.
type Wiring struct {
	Kube        kubernetes.Interface
	Samples     clientset.Interface
	Recorder    events.EventRecorder
	Foos        fooinformers.TypedFooInformer
	Deployments cache.TypedSharedIndexInformer[*plan.Observed]
	// Workers is the number of workers of the controller.
	Workers int
	// Random returns the random part of delays in a simulation, in [0, 1). It depends only on the virtual time.
	Random func() float64
	// Settle, unless nil, returns the AddAs of a queue of Foos for its original one. See settle.
	Settle func(add AddAs) AddAs
	// OnSynced, unless nil, is called after each sync of a simulation with the key of the Foo.
	OnSynced func(cache.ObjectName)
}

// NewSubject makes a controller for a scenario. Its delays must have no random part.
type NewSubject func(ctx context.Context, wiring Wiring) (*Subject, error)

// A Subject is a controller under test, as the player of scenarios sees it. The player calls the event handlers that
// the controller registered with its informers, and replaces parts of the queues to see what is queued.
type Subject struct {
	// Queue has the keys of Foos. Names has the Deployments whose Foos are to be queued.
	Queue, Names *kit.Queue
}

// NewRunner makes a controller for a simulation. The function that it returns runs the controller until ctx ends.
type NewRunner func(ctx context.Context, wiring Wiring) (run func(ctx context.Context), err error)
