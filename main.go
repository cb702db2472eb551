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
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/leader"
	"example.com/foo-controller/pkg/kit/logging"
	"example.com/foo-controller/pkg/kit/metrics"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/ratelimit"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/kit/serving"
	"example.com/foo-controller/pkg/kit/shallow"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/report"
)

const (
	// writeTimeout is how long a write may take. client-go sends it to the API server too, so that a write
	// that we have given up seldom lands later; where it does, preconditions make it harmless.
	writeTimeout = 10 * time.Second
	// stopTimeout is how long a stop may take. Syncs have 10 s, events 2 s, the Lease 5 s and open requests 5 s. By
	// default, the kubelet kills a process after 30 s.
	stopTimeout = 28 * time.Second
	// flushTimeout is how long a stop waits for events to be sent.
	flushTimeout = 2 * time.Second
)

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
	reporter := preflight.NewReporter(ctx, opts.hints())
	noticed := noticedConnection(config, reporter)
	elector, err := opts.elector(noticed)
	if err != nil {
		return err
	}
	conns, err := connect(config, reporter, elector)
	if err != nil {
		return err
	}
	caches, err := newCaches(conns.watch, opts, reporter)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.Install(scheme))
	recordCtx, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRecording()
	reportedBy := v1alpha1.GroupName + "/" + controllerName
	eventRecorder, err := recorder.New(recordCtx, conns.write.Kube.EventsV1(), scheme, reportedBy, ratelimit.New().Allow)
	if err != nil {
		return err
	}
	controller, err := New(ctx, conns.write, eventRecorder, caches.foos, caches.deployments, opts.workers)
	if err != nil {
		return err
	}
	controller.queue.Metrics = metrics.New("foo_controller", legacyregistry.MustRegister)
	controller.Reports.Register(legacyregistry.MustRegister)
	stopServing, err := serve(ctx, endpoints{
		opts: opts, config: noticed, reviews: conns.review, controller: controller, caches: caches, reporter: reporter,
		elector: elector,
	})
	if err != nil {
		return err
	}
	defer stopServing()

	logger.Info("Starting", "version", version(), "server", redacted(config.Host))
	defer logger.Info("Stopped")
	if reporter.Wait(ctx, caches.checks...) != nil {
		return nil // Asked to stop while waiting.
	}
	stopCaches := caches.start(ctx)
	defer stopCaches()
	if !caches.filled(ctx) { // A copy that could not work yet must not become the leader.
		return nil
	}
	return elector.Run(ctx, func(ctx context.Context) {
		context.AfterFunc(ctx, exitLater) // Also if the leadership is lost.
		controller.Run(ctx)
		eventRecorder.Flush(flushTimeout)
	})
}

// connections are the clients for three purposes. Those of watch have a network connection of their own, so that a
// burst of writes cannot delay events. write and review share one; review is without the gate, for a standby.
type connections struct {
	// watch is for the informers, write for writes and live reads, review for questions about permissions.
	watch, write, review Clients
}

func connect(config *rest.Config, reporter *preflight.Reporter, elector *leader.Elector) (c connections, err error) {
	if c.watch, err = newClients(watchConnection(config, reporter)); err != nil {
		return c, err
	}
	if c.write, err = newClients(writeConnection(config, reporter, elector)); err != nil {
		return c, err
	}
	c.review, err = newClients(reviewConnection(config))
	return c, err
}

// watchConnection returns the connection of the informers. It is one of its own, so that a burst of writes cannot delay
// what the caches hear.
func watchConnection(config *rest.Config, reporter *preflight.Reporter) *rest.Config {
	config = rest.CopyConfig(config)
	// client-go shares connections between equal configs, so this one gets a dialer of its own.
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	config.Wrap(reporter.Wrap)
	return config
}

// writeConnection returns the connection for writes and live reads. It refuses writes unless this process leads.
func writeConnection(config *rest.Config, reporter *preflight.Reporter, elector *leader.Elector) *rest.Config {
	config = noticedConnection(config, reporter)
	config.Timeout = writeTimeout
	config.Wrap(elector.Gate)
	return config
}

// noticedConnection returns how to reach the API server for what needs a permission to write: the Lease, reviews of who
// reads the metrics, and what the controller writes. When such a permission is revoked, /readyz shows it.
func noticedConnection(config *rest.Config, reporter *preflight.Reporter) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(reporter.WrapWrites)
	return config
}

// reviewConnection returns the connection with which a standby may ask for its permissions.
func reviewConnection(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Timeout = writeTimeout
	return config
}

// newClients returns the clients for a connection.
func newClients(config *rest.Config) (Clients, error) {
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return Clients{}, fmt.Errorf("make connection: %w", err)
	}
	kube, err := kubernetes.NewForConfigAndClient(config, connection)
	if err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	samples, err := clientset.NewForConfigAndClient(config, connection)
	if err != nil {
		return Clients{}, fmt.Errorf("make client: %w", err)
	}
	return Clients{Kube: kube, Samples: samples}, nil
}

// caches are the informers, of all namespaces or one.
type caches struct {
	kubeFactory    kubeinformers.SharedInformerFactory
	samplesFactory fooinformers.SharedInformerFactory
	foos           fooinformersv1alpha1.TypedFooInformer
	deployments    appsinformers.TypedDeploymentInformer
	// checks pass when the informers may list.
	checks []func(context.Context) error
}

func newCaches(clients Clients, opts *options, reporter *preflight.Reporter) (*caches, error) {
	name, err := cache.NewInformerName(controllerName)
	if err != nil {
		return nil, err
	}
	namespace := opts.namespace
	kubeFactory := kubeinformers.NewSharedInformerFactoryWithOptions(clients.Kube, 0,
		kubeinformers.WithTransform(plan.Trim), kubeinformers.WithNamespace(namespace), kubeinformers.WithInformerName(name))
	samplesFactory := fooinformers.NewSharedInformerFactoryWithOptions(clients.Samples, opts.resync,
		fooinformers.WithTransform(plan.Trim), fooinformers.WithNamespace(namespace), fooinformers.WithInformerName(name))
	c := &caches{
		kubeFactory: kubeFactory, samplesFactory: samplesFactory,
		foos: samplesFactory.Samplecontroller().V1alpha1().Foos(), deployments: kubeFactory.Apps().V1().Deployments(),
	}
	for _, informer := range []cache.SharedIndexInformer{c.foos.Informer(), c.deployments.Informer()} {
		if err := informer.SetWatchErrorHandlerWithContext(reporter.WatchErrorHandler); err != nil {
			return nil, err
		}
	}
	one := metav1.ListOptions{Limit: 1}
	c.checks = []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := clients.Samples.SamplecontrollerV1alpha1().Foos(namespace).List(ctx, one)
			return err
		},
		func(ctx context.Context) error {
			_, err := clients.Kube.AppsV1().Deployments(namespace).List(ctx, one)
			return err
		},
	}
	return c, nil
}

// start starts the informers, and returns a function that stops them and waits. Informers log the end of a watch as a
// warning. What an operator must know of watches, the reporter logs.
func (c *caches) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).V(2)))
	c.samplesFactory.StartWithContext(ctx)
	c.kubeFactory.StartWithContext(ctx)
	return func() {
		cancel() // The process also ends without a signal, when it has lost the leadership.
		c.kubeFactory.Shutdown()
		c.samplesFactory.Shutdown()
	}
}

// filled waits until the caches have all objects. It returns false if ctx ends before.
func (c *caches) filled(ctx context.Context) bool {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).V(2))
	return cache.WaitFor(ctx, "caches", c.foos.Informer().HasSyncedChecker(), c.deployments.Informer().HasSyncedChecker())
}

// endpoints are what the HTTP endpoints report about.
type endpoints struct {
	opts       *options
	config     *rest.Config
	reviews    Clients // Without the gate.
	controller *Controller
	caches     *caches
	reporter   *preflight.Reporter
	elector    *leader.Elector
}

// serve serves the endpoints, and checks what the controller needs of the cluster. It returns a function that stops
// that and waits.
func serve(ctx context.Context, e endpoints) (stop func(), err error) {
	why := func() string { return strings.Join(e.reporter.Problems(), "; ") }
	health, err := serving.NewHealth(ctx, serving.HealthConfig{
		Address: e.opts.healthAddress,
		Live:    []serving.Check{e.controller.queue.Check(), {Name: "lease", Do: e.elector.Healthy}},
		Ready: []serving.Check{
			serving.Until("foos", e.caches.foos.Informer().HasSyncedChecker().Done(), "not listed yet", why),
			serving.Until("deployments", e.caches.deployments.Informer().HasSyncedChecker().Done(), "not listed yet", why),
			{Name: "cluster", Do: e.noProblems},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	scrapes, err := serving.NewMetrics(ctx, serving.MetricsConfig{
		Address: e.opts.metricsAddress, Plain: e.opts.plainMetrics(), API: e.config, Handler: legacyregistry.Handler(),
		CertFile: e.opts.metricsCert, KeyFile: e.opts.metricsKey,
	})
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address: %w", err)
	}
	debugging, err := serving.NewDebug(ctx, serving.DebugConfig{
		Address: e.opts.debugAddress, Version: version(), Started: time.Now(), Flags: e.opts.values,
	})
	if err != nil {
		return nil, fmt.Errorf("--debug-bind-address: %w", err)
	}
	legacyregistry.CustomMustRegister(report.Count(v1alpha1.ReadyReasons, e.listFoos))
	return e.run(ctx, health, scrapes, debugging), nil
}

// run runs the servers and the checks of the cluster until stop is called: longer than ctx, so that a probe is answered
// while the process stops.
func (e endpoints) run(ctx context.Context, servers ...*serving.Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, server := range servers {
		running.Go(func() {
			if err := server.Run(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "An endpoint has ended") // The probes of the kubelet fail, if it is theirs.
			}
		})
	}
	running.Go(func() { e.reporter.Keep(ctx, e.clusterChecks()...) })
	return func() {
		cancel()
		running.Wait()
	}
}

// clusterChecks check what the controller needs of the cluster, apart from list and watch.
func (e endpoints) clusterChecks() []preflight.Check {
	hints := e.opts.hints()
	return []preflight.Check{
		preflight.Served(e.reviews.Kube.CoreV1().RESTClient(), plan.FooKind, "foos", hints.Missing,
			"conditions", "observedGeneration"),
		preflight.Permissions(e.reviews.Kube, hints.Forbidden, e.permissions()...),
	}
}

// permissions returns what the controller must be allowed to do. artifacts/deploy/rbac.yaml and artifacts/namespaced
// grant it.
func (e endpoints) permissions() []preflight.Permission {
	var permissions []preflight.Permission
	allow := func(p preflight.Permission, verbs ...string) {
		for _, p.Verb = range verbs {
			permissions = append(permissions, p)
		}
	}
	namespace := e.opts.namespace
	foos := preflight.Permission{Group: v1alpha1.GroupName, Resource: "foos", Namespace: namespace}
	allow(foos, "get", "list", "watch")
	foos.Subresource = "status"
	allow(foos, "update")
	foos.Subresource = "finalizers"
	allow(foos, "update")
	allow(preflight.Permission{Group: "apps", Resource: "deployments", Namespace: namespace},
		"get", "list", "watch", "create", "patch", "delete")
	allow(preflight.Permission{Group: "events.k8s.io", Resource: "events", Namespace: namespace}, "create", "patch")
	if leaseNamespace, name := e.elector.Lease(); name != "" {
		lease := preflight.Permission{Group: "coordination.k8s.io", Resource: "leases", Namespace: leaseNamespace}
		allow(lease, "create")
		lease.Name = name
		allow(lease, "get", "update")
	}
	if e.opts.metricsAddress != "0" && !e.opts.plainMetrics() {
		allow(preflight.Permission{Group: "authentication.k8s.io", Resource: "tokenreviews"}, "create")
		allow(preflight.Permission{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, "create")
	}
	return permissions
}

// noProblems returns an error with the problems that an administrator has to solve.
func (e endpoints) noProblems() error {
	if problems := e.reporter.Problems(); len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// listFoos returns the Foos in the cache.
func (e endpoints) listFoos() []*v1alpha1.Foo {
	foos, err := e.caches.foos.Lister().List(labels.Everything())
	utilruntime.Must(err) // A cache has no errors.
	return foos
}

// options are the values of the flags.
type options struct {
	kubeconfig, context, master, namespace      string
	workers, burst                              int
	resync                                      time.Duration
	qps                                         float64
	leaderElect                                 bool
	leaseNamespace                              string
	leaseDuration, renewDeadline, retryPeriod   time.Duration
	healthAddress, metricsAddress, debugAddress string
	metricsCert, metricsKey                     string
	version                                     bool
	// values has the flags as text, by name.
	values map[string]string
}

// flagOrder has the flags in the order in which --help prints them.
var flagOrder = []string{
	"kubeconfig", "context", "master", "namespace",
	"workers", "resync", "kube-api-qps", "kube-api-burst",
	"leader-elect", "leader-elect-namespace", "leader-elect-lease-duration", "leader-elect-renew-deadline",
	"leader-elect-retry-period",
	"health-probe-bind-address", "metrics-bind-address", "metrics-cert-file", "metrics-key-file", "debug-bind-address",
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
	fs.DurationVar(&o.resync, "resync", 10*time.Minute,
		"`time` after which every Foo is synced once more, from the caches, in case an event was lost; 0 turns that off")
	fs.Float64Var(&o.qps, "kube-api-qps", -1,
		"`requests` a second that each client may send; -1 leaves it to the API server's flow control")
	fs.IntVar(&o.burst, "kube-api-burst", 0,
		"`requests` that each client may send at once above --kube-api-qps; 0 is twice that")
	fs.StringVar(&o.namespace, "namespace", "", "`name` of the only namespace whose Foos are served; empty is all")
	o.leaderFlags(fs)
	o.servingFlags(fs)
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	return fs, logging.AddFlags(fs)
}

func (o *options) leaderFlags(fs *flag.FlagSet) {
	fs.BoolVar(&o.leaderElect, "leader-elect", false,
		"write only while this process holds a Lease; for several copies of the controller")
	fs.StringVar(&o.leaseNamespace, "leader-elect-namespace", "",
		"`name` of the namespace of the Lease; empty is that of the pod it runs in")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", leader.DefaultLeaseDuration,
		"`time` after which another copy may write, if this one does not renew the Lease; whole seconds, the same in all")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", leader.DefaultRenewDeadline,
		"`time` after which this process stops writing, if it could not renew the Lease; shorter than the lease duration")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", leader.DefaultRetryPeriod,
		"`time` between two attempts to renew or take the Lease")
}

func (o *options) servingFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.healthAddress, "health-probe-bind-address", "0", "`address` of /healthz and /readyz; 0 turns them off")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		"`address` of /metrics, with TLS and permissions, except on a loopback address without a certificate; 0 turns it off")
	fs.StringVar(&o.metricsCert, "metrics-cert-file", "",
		"`file` with the certificate of /metrics; it may change; without one, /metrics has a self-signed certificate")
	fs.StringVar(&o.metricsKey, "metrics-key-file", "", "`file` with the key of that certificate")
	fs.StringVar(&o.debugAddress, "debug-bind-address", "0",
		"loopback `address` of /debug/config and /debug/pprof; 0 turns them off")
}

// hints returns what an administrator can do about common problems.
func (o *options) hints() preflight.Hints {
	hints := preflight.Hints{
		Missing: "install the CustomResourceDefinition with: kubectl apply -f artifacts/crd",
		Forbidden: "apply the permissions of this installation again; in the namespace foo-system: " +
			"kubectl apply -f artifacts/deploy/rbac.yaml",
	}
	if o.namespace != "" {
		hints.Forbidden = "apply the permissions of this installation again; in the namespace default: " +
			"kubectl apply -k artifacts/namespaced"
	}
	return hints
}

// plainMetrics reports whether /metrics is served without TLS and permissions: to this machine only.
func (o *options) plainMetrics() bool {
	host, _, err := net.SplitHostPort(o.metricsAddress)
	isLoopback := host == "localhost" || net.ParseIP(host).IsLoopback()
	return err == nil && isLoopback && o.metricsCert == "" && o.metricsKey == ""
}

// elector returns the elector of this process, nil if there is no election.
func (o *options) elector(config *rest.Config) (*leader.Elector, error) {
	if !o.leaderElect {
		return nil, nil
	}
	elector, err := leader.New(leader.Config{
		Connection: config, Namespace: o.leaseNamespace, Name: o.leaseName(),
		LeaseDuration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod,
	})
	if errors.Is(err, leader.ErrNoNamespace) {
		return nil, fmt.Errorf("%w: give --leader-elect-namespace=NAME", err)
	}
	return elector, err
}

// leaseName returns a name that only controllers of the same Foos have.
func (o *options) leaseName() string {
	return strings.TrimSuffix(controllerName+"-"+o.namespace, "-")
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
	case opts.namespace != "" && len(validation.ValidateNamespaceName(opts.namespace, false)) > 0:
		return nil, fmt.Errorf("--namespace=%s: this is not the name of a namespace", opts.namespace)
	case opts.workers < 1:
		return nil, fmt.Errorf("--workers=%d: at least 1 is needed", opts.workers)
	case opts.resync < 0:
		return nil, fmt.Errorf("--resync=%v: give a time, or 0 for no resync", opts.resync)
	case opts.qps >= 0 && opts.qps < 1: // All workers together would wait for longer than a sync may take.
		return nil, fmt.Errorf("--kube-api-qps=%v: give a rate of at least 1, or -1 for no limit", opts.qps)
	}
	if err := applyLogging(); err != nil {
		return nil, err
	}
	opts.values = map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { opts.values[f.Name] = f.Value.String() })
	opts.values["master"] = redacted(opts.master)
	return opts, nil
}

// restConfig returns how to reach the API server.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := o.findConfig()
	if err != nil {
		return nil, err
	}
	config.WarningHandlerWithContext = &logging.Warnings{}
	config.Wrap(shallow.Wrap)
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
		exitLater()
		<-signals
		os.Exit(1)
	}()
	return ctx
}

// exitLater ends the process after stopTimeout. Some requests do not end with their context, for example while a
// credential plugin hangs.
func exitLater() {
	time.AfterFunc(stopTimeout, func() {
		klog.Background().Error(nil, "Did not stop in time, exiting", "timeout", stopTimeout)
		os.Exit(1)
	})
}

// redacted returns address without a password.
func redacted(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return address
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
