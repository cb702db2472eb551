// Command widget-controller keeps a ConfigMap and a Deployment for each Widget.
//
// This file constructs what lives as long as the process. What happens to a Widget is in controller.go, and what is
// decided about it in pkg/plan.
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
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	clientset "acme.example.com/widget-controller/pkg/generated/clientset/versioned"
	widgetinformers "acme.example.com/widget-controller/pkg/generated/informers/externalversions"
	"acme.example.com/widget-controller/pkg/plan"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/kit/telemetry"
)

// flushTimeout is how long a stop waits for events to be sent.
const flushTimeout = 2 * time.Second

// buildVersion is set by the linker, see the Makefile.
var buildVersion string

// hints are for the administrator who reads the log.
var hints = preflight.Hints{
	Missing:   "install the CustomResourceDefinition with: kubectl apply -f artifacts/crd",
	Forbidden: "apply the permissions again with: kubectl apply -f artifacts/deploy/rbac.yaml",
}

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
	question := &kit.Question{Kind: "Widget"}
	options, err := kit.Parse(kit.Program{
		Name: controllerName, Does: "keeps a ConfigMap and a Deployment for each Widget",
		Kind: "Widget", Kinds: "Widgets", Version: buildVersion, Flags: question.AddFlags,
	}, args, stdout)
	if err != nil {
		return err
	}
	switch asked, err := question.Check(options); {
	case err != nil:
		return err
	case asked:
		return explain(question, options, stdout)
	}
	ctx := kit.UntilSignal(context.Background())
	process, err := kit.NewProcess(ctx, options, hints)
	if err != nil {
		return err
	}
	// The informers have a network connection of their own. With --leader-elect, writes are refused
	// unless this process leads.
	reads, readErr := newClients(process.Watch)
	writes, writeErr := newClients(process.Write)
	if err := errors.Join(readErr, writeErr); err != nil {
		return err
	}
	name, err := cache.NewInformerName(controllerName) // For metrics.
	if err != nil {
		return err
	}
	caches := newCaches(reads, name, options)
	recordCtx, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRecording()
	events, err := newRecorder(recordCtx, writes)
	if err != nil {
		return err
	}
	controller := New(ctx, writes, caches, events, options.Workers)
	process.Show(controller.queue)
	controller.queue.Metrics = telemetry.NewMetrics("widget_controller", legacyregistry.MustRegister)
	legacyregistry.CustomMustRegister(telemetry.Problems("widget_controller", process.Problems))

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

// explain prints what the controller would do with a Widget. The connection refuses writes.
func explain(question *kit.Question, options *kit.Options, stdout io.Writer) error {
	connection, err := options.ReadOnly()
	if err != nil {
		return err
	}
	clients, err := newClients(connection)
	if err != nil {
		return err
	}
	ctx := kit.UntilSignal(context.Background())
	controller := New(ctx, clients, newCaches(clients, nil, options), nil, 1)
	defer controller.queue.ShutDown()
	return controller.Explain(ctx, question, controller.syncOf, stdout)
}

func newClients(c kit.Connection) (clients, error) {
	kube, kubeErr := kubernetes.NewForConfigAndClient(c.Config, c.HTTP)
	widgets, widgetsErr := clientset.NewForConfigAndClient(c.Config, c.HTTP)
	if err := errors.Join(kubeErr, widgetsErr); err != nil {
		return clients{}, fmt.Errorf("make client: %w", err)
	}
	return clients{kube: kube, widgets: widgets}, nil
}

// newCaches returns the caches of all namespaces or one, which their informers fill when the process runs them.
func newCaches(clients clients, name *cache.InformerName, options *kit.Options) caches {
	widgets := widgetinformers.NewSharedInformerFactoryWithOptions(clients.widgets, options.Resync,
		widgetinformers.WithTransform(plan.Trim), widgetinformers.WithNamespace(options.Namespace),
		widgetinformers.WithInformerName(name))
	kube := kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, 0, kubeinformers.WithTransform(plan.Trim),
		kubeinformers.WithNamespace(options.Namespace), kubeinformers.WithInformerName(name))
	return caches{
		widgets:     widgets.Acme().V1alpha1().Widgets(),
		configMaps:  kube.Core().V1().ConfigMaps(),
		deployments: kube.Apps().V1().Deployments(),
	}
}

// newRecorder returns a recorder of events about Widgets, which sends them until ctx ends.
func newRecorder(ctx context.Context, clients clients) (*recorder.Recorder, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.Install(scheme))
	return recorder.New(ctx, clients.kube.EventsV1(), scheme, v1alpha1.GroupName+"/"+controllerName)
}

// needs returns what the controller needs of a cluster. artifacts/deploy/rbac.yaml grants the permissions.
func needs(namespace string) kit.Needs {
	return kit.Needs{
		Served: []kit.Served{{
			Kind: plan.WidgetKind.GroupVersionKind, Resource: "widgets",
			StatusFields: []string{"conditions", "observedGeneration"},
		}},
		Permissions: slices.Concat(
			kit.Allow(namespace, v1alpha1.GroupName, "widgets", "get", "list", "watch"),
			kit.Allow(namespace, v1alpha1.GroupName, "widgets/status", "update"),
			kit.Allow(namespace, v1alpha1.GroupName, "widgets/finalizers", "update"),
			kit.Allow(namespace, "", "configmaps", "get", "list", "watch", "create", "patch"),
			kit.Allow(namespace, "apps", "deployments", "get", "list", "watch", "create", "patch"),
			kit.Allow(namespace, "events.k8s.io", "events", "create", "patch"),
		),
	}
}
