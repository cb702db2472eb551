// Command foo-controller runs a controller that maintains one Deployment for each Foo.
//
// It runs outside a cluster with --kubeconfig, or inside one with the ServiceAccount of its pod. This file constructs
// what lives as long as the process: clients, informers, the recorder of events and the controller. Flags, connections,
// the election, the endpoints and the stop are those of any controller, and in pkg/kit. What happens to a Foo is in
// controller.go, and what is decided about it in pkg/plan.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	samplesscheme "example.com/foo-controller/pkg/generated/clientset/versioned/scheme"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/decode"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/kit/telemetry"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/report"
)

// flushTimeout is how long a stop waits for events to be sent.
const flushTimeout = 2 * time.Second

// buildVersion is set by the linker, see hack/build.sh.
var buildVersion string

func main() {
	switch err := run(os.Args[1:], os.Stdout); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, kit.ErrWouldWrite):
		os.Exit(2)
	default:
		telemetry.LastLine(controllerName, err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	question := &kit.Question{Kind: "Foo"}
	options, err := kit.Parse(kit.Program{
		Name: controllerName, Does: "maintains one Deployment for each object of the kind Foo",
		Kind: "Foo", Kinds: "Foos", Version: buildVersion, Flags: question.AddFlags,
	}, args, stdout)
	if err != nil {
		return err
	}
	asked, err := question.Check(options)
	if err != nil {
		return err
	}
	if asked {
		return explain(question, options, stdout)
	}
	ctx := kit.UntilSignal(context.Background())
	process, err := kit.NewProcess(ctx, options, hints(options.Namespace))
	if err != nil {
		return err
	}
	// The informers have a network connection of their own. Writes are refused unless this process leads.
	reads, err := newClients(process.Watch)
	if err != nil {
		return err
	}
	writes, err := newClients(process.Write)
	if err != nil {
		return err
	}
	caches, err := newCaches(reads, options)
	if err != nil {
		return err
	}
	recordCtx, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRecording()
	events, err := newRecorder(recordCtx, writes)
	if err != nil {
		return err
	}
	controller, err := New(ctx, writes, events, caches.foos, caches.deployments, options.Workers)
	if err != nil {
		return err
	}
	process.Show(controller.queue)
	controller.queue.Metrics = telemetry.NewMetrics("foo_controller", legacyregistry.MustRegister)
	controller.Reports.Register(legacyregistry.MustRegister)
	legacyregistry.CustomMustRegister(report.Count(v1alpha1.ReadyReasons, caches.listFoos),
		telemetry.Problems("foo_controller", process.Problems))

	informers := controller.Informers()
	stopServing, err := process.Serve(ctx, needs(options.Namespace), informers, controller.queue.Check())
	if err != nil {
		return err
	}
	defer stopServing()
	return process.Lead(ctx, informers, func(ctx context.Context) {
		controller.Run(ctx)
		events.Flush(flushTimeout)
	})
}

// explain prints what the controller would do with a Foo. Nothing else is started, and the connection refuses writes.
func explain(question *kit.Question, options *kit.Options, stdout io.Writer) error {
	connection, err := options.ReadOnly()
	if err != nil {
		return err
	}
	clients, err := newClients(connection)
	if err != nil {
		return err
	}
	caches, err := newCaches(clients, options)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	controller, err := New(ctx, clients, nil, caches.foos, caches.deployments, 1)
	if err != nil {
		return err
	}
	defer controller.shutDown()
	return controller.Explain(ctx, question, controller.syncOf, stdout)
}

// newClients returns the clients for a connection.
func newClients(c kit.Connection) (clients Clients, err error) {
	if clients.Kube, err = kubernetes.NewForConfigAndClient(c.Config, c.HTTP); err != nil {
		return clients, fmt.Errorf("make client: %w", err)
	}
	samples, err := decode.NewClient(c.Config, c.HTTP, samplesscheme.Scheme, plan.FooKind.GroupVersion())
	if err != nil {
		return clients, fmt.Errorf("make client: %w", err)
	}
	clients.Samples = clientset.New(samples)
	return clients, nil
}

// caches are the informers, of all namespaces or one.
type caches struct {
	foos        fooinformersv1alpha1.TypedFooInformer
	deployments deploymentInformer
}

func newCaches(clients Clients, options *kit.Options) (*caches, error) {
	name, err := cache.NewInformerName(controllerName)
	if err != nil {
		return nil, err
	}
	namespace := options.Namespace
	kubeFactory := kubeinformers.NewSharedInformerFactoryWithOptions(clients.Kube, 0,
		kubeinformers.WithTransform(plan.Trim), kubeinformers.WithNamespace(namespace), kubeinformers.WithInformerName(name))
	samplesFactory := fooinformers.NewSharedInformerFactoryWithOptions(clients.Samples, options.Resync,
		fooinformers.WithTransform(plan.Trim), fooinformers.WithNamespace(namespace), fooinformers.WithInformerName(name))
	foos := samplesFactory.Samplecontroller().V1alpha1().Foos()
	deployments := cache.NewTypedSharedIndexInformer[*plan.Observed](kubeFactory.Apps().V1().Deployments().Informer())
	return &caches{foos: foos, deployments: deployments}, nil
}

// listFoos returns the Foos in the cache.
func (c *caches) listFoos() []*v1alpha1.Foo {
	foos, err := c.foos.Lister().List(labels.Everything())
	utilruntime.Must(err) // A cache has no errors.
	return foos
}

// newRecorder returns a recorder of events about Foos, which sends them until ctx ends.
func newRecorder(ctx context.Context, clients Clients) (*recorder.Recorder, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.Install(scheme))
	return recorder.New(ctx, clients.Kube.EventsV1(), scheme, v1alpha1.GroupName+"/"+controllerName)
}

// hints returns what an administrator can do about common problems.
func hints(namespace string) preflight.Hints {
	hints := preflight.Hints{
		Missing: "install the CustomResourceDefinition with: kubectl apply -f artifacts/crd",
		Forbidden: "apply the permissions of this installation again; in the namespace foo-system: " +
			"kubectl apply -f artifacts/deploy/rbac.yaml",
	}
	if namespace != "" {
		hints.Forbidden = "apply the permissions of this installation again; in the namespace default: " +
			"kubectl apply -k artifacts/namespaced"
	}
	return hints
}

// needs returns what the controller needs of the cluster. artifacts/deploy/rbac.yaml and artifacts/namespaced grant the
// permissions.
func needs(namespace string) kit.Needs {
	return kit.Needs{
		Served: []kit.Served{{
			Kind: plan.FooKind.GroupVersionKind, Resource: foosResource,
			StatusFields: []string{"conditions", "observedGeneration"},
		}},
		Permissions: slices.Concat(
			kit.Allow(namespace, v1alpha1.GroupName, "foos", "get", "list", "watch"),
			kit.Allow(namespace, v1alpha1.GroupName, "foos/status", "patch"),
			kit.Allow(namespace, v1alpha1.GroupName, "foos/finalizers", "update"),
			kit.Allow(namespace, "apps", "deployments", "get", "list", "watch", "create", "patch", "delete"),
			kit.Allow(namespace, "events.k8s.io", "events", "create", "patch"),
		),
	}
}
