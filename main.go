// Command foo-controller runs a controller that maintains one Deployment for each Foo.
//
// It runs outside a cluster with --kubeconfig, or inside one with the ServiceAccount of its pod. This file
// reads the flags and constructs everything that lives as long as the process; what happens to a Foo is in
// controller.go, and what is decided about it in pkg/plan.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/logging"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/preflight"
	"example.com/foo-controller/pkg/recorder"
	"example.com/foo-controller/pkg/shallow"
)

const (
	// writeTimeout is how long a write may take. client-go sends it to the API server too, so that a write
	// that we have given up seldom lands later; where it does, preconditions make it harmless.
	writeTimeout = 10 * time.Second
	// flushTimeout is how long a stop waits for events to be sent.
	flushTimeout = 2 * time.Second
)

var hints = preflight.Hints{
	Missing:   "install the CustomResourceDefinition with: kubectl apply -f artifacts/crd",
	Forbidden: "grant it, for instance with: kubectl apply -f artifacts/deploy/rbac.yaml",
}

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "foo-controller:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	opts, err := parse(args, stdout)
	if err != nil || opts.version {
		return err
	}
	config, err := opts.restConfig()
	if err != nil {
		return err
	}
	logger := klog.Background()
	ctx := klog.NewContext(untilSignal(), logger)

	config.WarningHandlerWithContext = &logging.Warnings{}
	config.Wrap(shallow.Wrap) // Before the config is copied: it is for both connections.
	// Two connections: one for watches, so that a burst of writes cannot delay what the caches hear, and
	// one for everything else.
	reporter := preflight.NewReporter(ctx, hints)
	watchConfig := rest.CopyConfig(config)
	// client-go shares connections between equal configs, so this one gets a dialer of its own.
	watchConfig.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	watchConfig.Wrap(reporter.Wrap)
	config.Timeout = writeTimeout
	kubeWatch, samplesWatch, err := connect(watchConfig)
	if err != nil {
		return err
	}
	kube, samples, err := connect(config)
	if err != nil {
		return err
	}
	logger.Info("Starting", "version", version(), "server", config.Host)

	kubeFactory := kubeinformers.NewSharedInformerFactoryWithOptions(kubeWatch, 0, kubeinformers.WithTransform(plan.Trim))
	samplesFactory := fooinformers.NewSharedInformerFactory(samplesWatch, 0)
	deployments := kubeFactory.Apps().V1().Deployments()
	foos := samplesFactory.Samplecontroller().V1alpha1().Foos()
	for _, informer := range []cache.SharedIndexInformer{foos.Informer(), deployments.Informer()} {
		if err := informer.SetWatchErrorHandlerWithContext(reporter.WatchErrorHandler); err != nil {
			return err
		}
	}

	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.Install(scheme))
	recordCtx, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRecording()
	events, err := recorder.New(recordCtx, kube.EventsV1(), scheme, v1alpha1.GroupName+"/"+controllerName)
	if err != nil {
		return err
	}
	controller, err := New(ctx, Clients{Kube: kube, Samples: samples}, events, foos, deployments, opts.workers)
	if err != nil {
		return err
	}

	listFoos := func(ctx context.Context) error {
		_, err := samplesWatch.SamplecontrollerV1alpha1().Foos(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	listDeployments := func(ctx context.Context) error {
		_, err := kubeWatch.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	if reporter.Wait(ctx, listFoos, listDeployments) != nil {
		return nil // Asked to stop while waiting.
	}
	// Informers log the end of a watch as a warning. What an operator must know of watches, the reporter logs.
	informersCtx := klog.NewContext(ctx, logger.V(2))
	samplesFactory.StartWithContext(informersCtx)
	defer samplesFactory.Shutdown()
	kubeFactory.StartWithContext(informersCtx)
	defer kubeFactory.Shutdown()
	controller.Run(ctx)
	events.Flush(flushTimeout)
	logger.Info("Stopped")
	return nil
}

// connect returns the two clients for a connection.
func connect(config *rest.Config) (*kubernetes.Clientset, *clientset.Clientset, error) {
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make connection: %w", err)
	}
	kube, err := kubernetes.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	samples, err := clientset.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	return kube, samples, nil
}

// options are the values of the flags.
type options struct {
	kubeconfig, context, master string
	workers, burst              int
	qps                         float64
	version                     bool
}

// flagOrder has the flags in the order in which --help prints them.
var flagOrder = []string{
	"kubeconfig", "context", "master",
	"workers", "kube-api-qps", "kube-api-burst",
	"logging-format", "v", "vmodule",
	"version",
}

// flags returns the flags that set o, and the function that applies those for logging.
func (o *options) flags() (fs *flag.FlagSet, applyLogging func() error) {
	fs = flag.NewFlagSet("foo-controller", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // A mistake gets one line, from main.
	fs.Usage = func() {}     // Printed by parse, and only when it is asked for.
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the address and credentials of the cluster")
	fs.StringVar(&o.context, "context", "", "`name` of the kubeconfig's context to use; empty is its current one")
	fs.StringVar(&o.master, "master", "", "`URL` of the API server; overrides the kubeconfig's")
	fs.IntVar(&o.workers, "workers", 32, "`number` of Foos worked on at a time; one namespace gets at most half of them")
	fs.Float64Var(&o.qps, "kube-api-qps", -1,
		"`requests` a second that each client may send; -1 leaves it to the API server's flow control")
	fs.IntVar(&o.burst, "kube-api-burst", 0,
		"`requests` that each client may send at once above --kube-api-qps; 0 is twice that")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	return fs, logging.AddFlags(fs)
}

// printHelp prints what --help asks for.
func printHelp(stdout io.Writer, fs *flag.FlagSet) {
	fmt.Fprint(stdout, "foo-controller maintains one Deployment for each object of the kind Foo.\n\n"+
		"The cluster is taken from the first of: --kubeconfig (or --master), $KUBECONFIG, the ServiceAccount of the\n"+
		"pod it runs in, ~/.kube/config. Flags take one dash or two.\n\n")
	for _, name := range flagOrder {
		f := fs.Lookup(name)
		value, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(stdout, "  %s\n      %s\n", strings.TrimSpace("--"+name+" "+value), usage)
	}
}

// parse reads the flags, applies those for logging, and prints what --help and --version ask for.
func parse(args []string, stdout io.Writer) (*options, error) {
	opts := &options{}
	fs, applyLogging := opts.flags()
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printHelp(stdout, fs)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w; see --help", err)
	case opts.version:
		fmt.Fprintln(stdout, "foo-controller", version())
		return opts, nil
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: all settings are flags, see --help", fs.Arg(0))
	case opts.workers < 1:
		return nil, fmt.Errorf("--workers=%d: at least 1 is needed", opts.workers)
	case opts.qps == 0:
		return nil, errors.New("--kube-api-qps=0: give a rate above 0, or -1 for no limit")
	}
	if err := applyLogging(); err != nil {
		return nil, err
	}
	return opts, nil
}

// restConfig returns how to reach the API server.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := o.findConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = fmt.Sprintf("%s/%s", controllerName, version())
	config.QPS = float32(o.qps)
	config.Burst = o.burst
	if config.Burst == 0 {
		config.Burst = int(math.Ceil(2 * o.qps))
	}
	return config, nil
}

func (o *options) findConfig() (*rest.Config, error) {
	if o.kubeconfig == "" && o.master == "" && o.context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		config, err := rest.InClusterConfig()
		if !errors.Is(err, rest.ErrNotInCluster) {
			return config, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{
		CurrentContext: o.context, ClusterInfo: clientcmdapi.Cluster{Server: o.master},
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("no cluster to talk to in %q: give --kubeconfig=FILE, or set $KUBECONFIG to one",
			rules.Precedence)
	}
	return config, err
}

// untilSignal returns a context that the first SIGINT or SIGTERM ends. The second ends the process.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		received := <-signals
		klog.Background().Info("Stopping: finishing the running syncs; a second signal stops at once", "signal", received)
		cancel(fmt.Errorf("received %v", received))
		<-signals
		os.Exit(1)
	}()
	return ctx
}

// version returns the version that was set at build time, or the one that Go recorded.
func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// buildVersion is set by the linker, see the Makefile.
var buildVersion string
