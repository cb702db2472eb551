// Command foo-controller runs a controller that maintains one Deployment for each Foo.
//
// It runs outside a cluster with --kubeconfig, or inside one with the ServiceAccount of its pod. This file constructs
// what lives as long as the process: clients, informers, the recorder of events and the controller. Flags, connections,
// leader election, endpoints and the shutdown are the same for every controller, and are in pkg/kit. controller.go has
// what happens to a Foo, and pkg/plan what is decided about it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
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
		os.Exit(2) // --explain has printed a write.
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
	asked, err := question.Check(options) // With --explain, it also limits options to the namespace of the Foo.
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
	// Events are still sent when ctx has ended: by the last syncs, and by the flush after them.
	recordCtx, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRecording()
	events, err := newRecorder(recordCtx, process.Write)
	if err != nil {
		return err
	}
	controller, err := newController(ctx, process.Watch, process.Write, options, events)
	if err != nil {
		return err
	}
	process.Show(controller.queue)
	controller.queue.Metrics = telemetry.NewMetrics("foo_controller", legacyregistry.MustRegister)
	controller.Reports.Register(legacyregistry.MustRegister)
	legacyregistry.CustomMustRegister(report.Count(v1alpha1.ReadyReasons, controller.listFoos),
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

// explain prints what the controller would do with a Foo. The connection refuses writes.
func explain(question *kit.Question, options *kit.Options, stdout io.Writer) error {
	connection, err := options.ReadOnly()
	if err != nil {
		return err
	}
	ctx := kit.UntilSignal(context.Background())
	controller, err := newController(ctx, connection, connection, options, nil)
	if err != nil {
		return err
	}
	defer controller.shutDown()
	return controller.Explain(ctx, question, controller.syncOf, stdout)
}

// newController returns a Controller for options.Namespace, or for all if it is "". Its informers have a connection of
// their own, so that a burst of writes does not delay watches. For --explain, both parameters are the same connection.
func newController(ctx context.Context, watch, write kit.Connection, options *kit.Options,
	recorder events.EventRecorder) (*Controller, error) {
	watchClients, watchErr := newClients(watch)
	writeClients, writeErr := newClients(write)
	name, nameErr := cache.NewInformerName(controllerName) // For metrics.
	if err := errors.Join(watchErr, writeErr, nameErr); err != nil {
		return nil, err
	}
	foos, deployments := newInformers(watchClients, name, options)
	return New(ctx, writeClients, recorder, foos, deployments, options.Workers)
}

// newClients returns the clients of a connection.
func newClients(c kit.Connection) (Clients, error) {
	kube, kubeErr := kubernetes.NewForConfigAndClient(c.Config, c.HTTP)
	samples, samplesErr := decode.NewClient(c.Config, c.HTTP, samplesscheme.Scheme, plan.FooKind.GroupVersion())
	if err := errors.Join(kubeErr, samplesErr); err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	return Clients{Kube: kube, Samples: clientset.New(samples)}, nil
}

// newInformers returns the informers, which the process starts. A resync of Foos reads the Deployments, too.
func newInformers(clients Clients, name *cache.InformerName, options *kit.Options) (
	fooinformersv1alpha1.TypedFooInformer, deploymentInformer) {
	samples := fooinformers.NewSharedInformerFactoryWithOptions(clients.Samples, options.Resync,
		fooinformers.WithTransform(plan.Trim), fooinformers.WithNamespace(options.Namespace),
		fooinformers.WithInformerName(name))
	kube := kubeinformers.NewSharedInformerFactoryWithOptions(clients.Kube, 0, kubeinformers.WithTransform(plan.Trim),
		kubeinformers.WithNamespace(options.Namespace), kubeinformers.WithInformerName(name))
	return samples.Samplecontroller().V1alpha1().Foos(),
		cache.NewTypedSharedIndexInformer[*plan.TrimmedDeployment](kube.Apps().V1().Deployments().Informer())
}

// newRecorder returns a recorder of events about Foos, which sends them until ctx ends.
func newRecorder(ctx context.Context, write kit.Connection) (*recorder.Recorder, error) {
	client, err := typedeventsv1.NewForConfigAndClient(write.Config, write.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.Install(scheme))
	return recorder.New(ctx, client, scheme, v1alpha1.GroupName+"/"+controllerName)
}

// hints returns what the log advises an administrator if the kind is missing, or a permission.
func hints(namespace string) preflight.Hints {
	permissions := "in the namespace foo-system: kubectl apply -f artifacts/deploy/rbac.yaml"
	if namespace != "" {
		permissions = "in the namespace default: kubectl apply -k artifacts/namespaced"
	}
	return preflight.Hints{
		Missing:   "install the CustomResourceDefinition with: kubectl apply -f artifacts/crd",
		Forbidden: "apply the permissions of this installation again; " + permissions,
	}
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
			kit.Allow(namespace, v1alpha1.GroupName, foosResource, "get", "list", "watch"),
			kit.Allow(namespace, v1alpha1.GroupName, foosResource+"/status", "patch"), // The status is sent as a JSON patch.
			// The plugin OwnerReferencesPermissionEnforcement demands it for an owner reference that blocks deletions.
			kit.Allow(namespace, v1alpha1.GroupName, foosResource+"/finalizers", "update"),
			kit.Allow(namespace, "apps", deploymentsResource, "get", "list", "watch", "create", "patch", "delete"),
			kit.Allow(namespace, "events.k8s.io", "events", "create", "patch"),
		),
	}
}
