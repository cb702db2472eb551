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
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
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
	asked, err := question.Check(options)
	if err != nil {
		return err
	}
	if asked {
		return explain(question, options, stdout)
	}
	ctx := kit.UntilSignal(context.Background())
	process, err := kit.NewProcess(ctx, options, hints)
	if err != nil {
		return err
	}
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
	controller.queue.Metrics = telemetry.NewMetrics("widget_controller", legacyregistry.MustRegister)
	legacyregistry.CustomMustRegister(telemetry.Problems("widget_controller", process.Problems))

	needs, informers := needs(options.Namespace), controller.Informers()
	stopServing, err := process.Serve(ctx, needs, informers, controller.queue.Check())
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
	ctx := kit.UntilSignal(context.Background())
	controller, err := newController(ctx, connection, connection, options, nil)
	if err != nil {
		return err
	}
	defer controller.queue.ShutDown()
	return controller.Explain(ctx, question, controller.syncOf, stdout)
}

// newRecorder returns a recorder of events about Widgets, which sends them until ctx ends.
func newRecorder(ctx context.Context, writes kit.Connection) (*recorder.Recorder, error) {
	client, err := typedeventsv1.NewForConfigAndClient(writes.Config, writes.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.Install(scheme))
	return recorder.New(ctx, client, scheme, v1alpha1.GroupName+"/"+controllerName)
}
