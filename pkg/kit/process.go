// Package kit has what the main.go and the worker loop of every controller repeat. It is five calls, and a queue:
//
//	options, err := kit.Parse(program, os.Args[1:], os.Stdout)   // Flags.
//	ctx := kit.UntilSignal(context.Background())                 // SIGTERM and Ctrl-C.
//	process, err := kit.NewProcess(ctx, options, hints)          // Connections and the election; sends nothing.
//	queue := kit.NewQueue(ctx, kit.QueueConfig{...})             // Calls a Sync for each key.
//	stop, err := process.Serve(ctx, needs, informers, queue.Check()) // /healthz, /readyz, /metrics, /debug.
//	err = process.Lead(ctx, informers, queue.Run)                // Fills the caches, waits for the Lease, runs, stops.
//
// A Sync may be any function. One that plays the rules of a plan, see package reconcile, is [Reconciler.Reconcile]: it
// sends the requests, and [Reconciler.Explain] answers what it would send.
//
// Between these calls a controller makes its clients and informers itself, with client-go, and registers handlers such
// as [Objects] and [Children]. The example of the package is a whole controller.
//
// There is no interface to implement and no registry: a controller calls functions and passes plain structs. Each call
// can be replaced by client-go's own parts, as the README of the package shows, and the packages below can be used
// without this one. They do not import each other, but reconcile uses state.
package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/leader"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/serving"
	"example.com/foo-controller/pkg/kit/syncs"
	"example.com/foo-controller/pkg/kit/telemetry"
)

const (
	// writeTimeout is how long a write may take. client-go sends it to the API server too, so that a write
	// that we have given up seldom lands later; where it does, preconditions make it harmless.
	writeTimeout = 10 * time.Second
	// stopTimeout is how long a stop may take. Syncs have 10 s, events 2 s, the Lease 5 s, and open requests 5 s, those of
	// webhooks 8 s. By default, the kubelet kills a process after 30 s.
	stopTimeout = 28 * time.Second
	// informerTimeout is how long a stop waits for the informers, which write nothing. After failures of the API server,
	// client-go's wait for up to 30 s without looking at their context.
	informerTimeout = 2 * time.Second
)

// A Connection is how to reach the API server. Clients that are made with both fields share one network connection:
//
//	kubernetes.NewForConfigAndClient(c.Config, c.HTTP)
type Connection struct {
	Config *rest.Config
	HTTP   *http.Client
}

func connect(config *rest.Config) (Connection, error) {
	_, _, addressErr := rest.DefaultServerUrlFor(config)
	client, clientErr := rest.HTTPClientFor(config)
	if err := cmp.Or(addressErr, clientErr); err != nil {
		return Connection{}, fmt.Errorf("make connection: %w", err)
	}
	return Connection{Config: config, HTTP: client}, nil
}

// A Process is what the process of a controller has, whatever its kind is: connections, an election and endpoints.
type Process struct {
	// Watch is for informers. It has a network connection of its own, so that a burst of writes cannot delay what the
	// caches hear. Write is for writes and live reads. It refuses writes unless this process leads.
	Watch, Write Connection

	options *Options
	hints   preflight.Hints
	host    string // Of the API server, for the log.
	// noticed is for what needs a permission to write: the Lease, and reviews of who reads the metrics. When such a
	// permission is revoked, /readyz shows it.
	noticed  *rest.Config
	review   kubernetes.Interface // For questions about permissions, which a standby may ask.
	lists    rest.Interface       // Over the connection of Watch, whose problems the reporter sees.
	reporter *preflight.Reporter
	elector  *leader.Elector
	syncs    *http.ServeMux // Nil if syncs are not recorded.
	// exitLater ends the process if the stop takes too long.
	exitLater func()
}

// NewProcess returns the Process that the flags describe. It logs to the logger of ctx until ctx ends, and sends
// nothing yet. hints are for the administrator who reads the log. An error is one line, for the user.
func NewProcess(ctx context.Context, options *Options, hints preflight.Hints) (*Process, error) {
	config, err := options.restConfig()
	if err != nil {
		return nil, err
	}
	reporter := preflight.NewReporter(ctx, hints)
	noticed := rest.CopyConfig(config)
	noticed.Wrap(reporter.WrapWrites)
	elector, err := options.elector(noticed)
	if err != nil {
		return nil, err
	}
	watch, write, review := rest.CopyConfig(config), rest.CopyConfig(noticed), rest.CopyConfig(config)
	// client-go shares connections between equal configs, so this one gets a dialer of its own.
	watch.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	watch.Wrap(reporter.Wrap)
	write.Timeout, review.Timeout = writeTimeout, writeTimeout
	write.Wrap(elector.Gate)
	p := &Process{
		options: options, hints: hints, host: redacted(config.Host), noticed: noticed, reporter: reporter, elector: elector,
		exitLater: exitLater,
	}
	if p.Watch, err = connect(watch); err != nil {
		return nil, err
	}
	if p.Write, err = connect(write); err != nil {
		return nil, err
	}
	reads, err := kubernetes.NewForConfigAndClient(p.Watch.Config, p.Watch.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	p.lists = reads.CoreV1().RESTClient()
	if p.review, err = kubernetes.NewForConfig(review); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return p, nil
}

// An Informer is the informer of a resource, and how to list what it would have without running it.
type Informer struct {
	cache.SharedIndexInformer
	Resource schema.GroupVersionResource
	list     func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error)
}

// A Lister is what an Informer uses of a typed client of client-go.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
}

// NewInformer returns the Informer of a resource, such as the v1 configmaps, with a client of client-go for it, such as
// kubernetes.Interface.CoreV1().ConfigMaps.
func NewInformer[L runtime.Object, C Lister[L]](resource schema.GroupVersionResource,
	informer cache.SharedIndexInformer, client func(namespace string) C) Informer {
	return Informer{
		SharedIndexInformer: informer, Resource: resource,
		list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return client(namespace).List(ctx, options)
		},
	}
}

// each calls do with each object of a namespace, or of all. It lists small pages, so that large objects need little
// memory.
func (i Informer) each(ctx context.Context, namespace string, do func(runtime.Object) error) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return i.list(ctx, namespace, options)
	})
	pages.PageSize, pages.PageBufferSize = 100, 1
	return pages.EachListItem(ctx, metav1.ListOptions{}, do)
}

// Needs are what a controller needs of the cluster, apart from what its informers list.
type Needs struct {
	// Served are custom resources of which somebody may have installed another version.
	Served []Served
	// Permissions are those of the controller, without those for the Lease and the endpoints.
	Permissions []preflight.Permission
	// Ready are further checks for /readyz.
	Ready []serving.Check
}

// Served is a custom resource that the API server must serve, with a subresource status that has these fields.
type Served struct {
	Kind         schema.GroupVersionKind
	Resource     string
	StatusFields []string
}

// And returns what n and more need together.
func (n Needs) And(more Needs) Needs {
	return Needs{
		Served: slices.Concat(n.Served, more.Served), Permissions: slices.Concat(n.Permissions, more.Permissions),
		Ready: slices.Concat(n.Ready, more.Ready),
	}
}

// Show records the syncs of queue, and lets Serve show them at /debug/syncs, those of a second queue, of another kind,
// at /debug/syncs/KIND. Without a debug address it does nothing. Call it before Serve, and before the queue is used.
func (p *Process) Show(queue *Queue) {
	if p.options.debugAddress == "0" {
		return
	}
	queue.Syncs = syncs.New(queue.config.Kind, queue.state)
	queue.Syncs.Namespace = queue.config.Namespace
	path := "/debug/syncs/" + queue.config.Kind
	if p.syncs == nil {
		p.syncs, path = http.NewServeMux(), "/debug/syncs"
	}
	p.syncs.Handle(path, queue.Syncs)
}

// Serve serves /healthz, /readyz, /metrics and /debug, at the addresses of the flags, and checks from time to time that
// the cluster has what the controller needs. /readyz waits for the caches of the informers, and /healthz has the live
// checks, such as Queue.Check. Of two checks with one name, as of two kinds with children of one type, the second one
// gets the number 2. Call stop last, so that a probe is answered while the process stops: ctx does not end it. An error
// is that of a flag.
func (p *Process) Serve(ctx context.Context, needs Needs, informers []Informer, live ...serving.Check) (
	stop func(), err error) {
	var ready []serving.Check
	for _, i := range informers {
		ready = append(ready, serving.Until(i.Resource.Resource, i.HasSyncedChecker().Done(), "not listed yet", p.problems))
	}
	o := p.options
	health, err := serving.NewHealth(ctx, serving.HealthConfig{
		Address: o.healthAddress,
		Live:    numbered(append(live, serving.Check{Name: "lease", Do: p.elector.Healthy})),
		Ready:   numbered(append(append(ready, needs.Ready...), serving.Check{Name: "cluster", Do: p.noProblems})),
	})
	if err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	// The error is that another Process of this program, as in tests, has registered the same.
	_ = telemetry.BuildInfo(strings.ReplaceAll(o.program.Name, "-", "_"), o.versionOf(), legacyregistry.Register)
	scrapes, err := serving.NewMetrics(ctx, serving.MetricsConfig{
		Address: o.metricsAddress, Plain: o.plainMetrics(), API: p.noticed, Handler: legacyregistry.Handler(),
		CertFile: o.metricsCert, KeyFile: o.metricsKey, TLS: o.tls,
	})
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address: %w", err)
	}
	var recorded http.Handler
	if p.syncs != nil {
		recorded = p.syncs
	}
	debugging, err := serving.NewDebug(ctx, serving.DebugConfig{
		Address: o.debugAddress, Version: o.versionOf(), Started: time.Now(), Flags: o.values, Syncs: recorded,
		SetLevel: func(level string) error {
			err := telemetry.SetLogLevel(level)
			if err == nil {
				klog.FromContext(ctx).Info("Set the level of the log", "level", level)
			}
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--debug-bind-address: %w", err)
	}
	return p.run(ctx, p.checks(needs), health, scrapes, debugging), nil
}

// numbered returns checks with names that differ.
func numbered(checks []serving.Check) (result []serving.Check) {
	times := map[string]int{}
	for _, check := range checks {
		times[check.Name]++
		if n := times[check.Name]; n > 1 {
			check.Name += fmt.Sprint("-", n)
		}
		result = append(result, check)
	}
	return result
}

// run runs the servers and the checks of the cluster until stop is called.
func (p *Process) run(ctx context.Context, checks []preflight.Check, servers ...*serving.Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, server := range servers {
		running.Go(func() {
			if err := server.Run(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "An endpoint has ended") // The probes of the kubelet fail, if it is theirs.
			}
		})
	}
	running.Go(func() { p.reporter.Keep(ctx, checks...) })
	return func() {
		cancel()
		running.Wait()
	}
}

// checks check what the controller needs of the cluster, apart from list and watch.
func (p *Process) checks(needs Needs) []preflight.Check {
	var checks []preflight.Check
	for _, s := range needs.Served {
		checks = append(checks, preflight.Served(p.review.CoreV1().RESTClient(), s.Kind, s.Resource, p.hints.Missing,
			s.StatusFields...))
	}
	return append(checks, preflight.Permissions(p.review, p.hints.Forbidden, p.Permissions(needs)...))
}

// Permissions returns all permissions that the process needs, each once: those of needs, and for the Lease and the
// endpoints. A test may compare them with the manifests.
func (p *Process) Permissions(needs Needs) []preflight.Permission {
	var permissions []preflight.Permission
	for _, permission := range needs.Permissions {
		if !slices.Contains(permissions, permission) {
			permissions = append(permissions, permission)
		}
	}
	if namespace, name := p.elector.Lease(); name != "" {
		for _, lease := range Allow(namespace, "coordination.k8s.io", "leases", "create", "get", "update") {
			if lease.Verb != "create" { // A create has no name to be compared.
				lease.Name = name
			}
			permissions = append(permissions, lease)
		}
	}
	if p.options.metricsAddress != "0" && !p.options.plainMetrics() {
		permissions = append(permissions, Allow("", "authentication.k8s.io", "tokenreviews", "create")...)
		permissions = append(permissions, Allow("", "authorization.k8s.io", "subjectaccessreviews", "create")...)
	}
	return permissions
}

// Allow returns the permissions for some verbs on a resource, or on a subresource such as foos/status, of a group. An
// empty namespace is all of them.
func Allow(namespace, group, resource string, verbs ...string) []preflight.Permission {
	p := preflight.Permission{Group: group, Namespace: namespace}
	p.Resource, p.Subresource, _ = strings.Cut(resource, "/")
	var permissions []preflight.Permission
	for _, p.Verb = range verbs {
		permissions = append(permissions, p)
	}
	return permissions
}

// Ungated returns a connection for writes that each copy may send, whether or not it leads, such as the certificates of
// its webhooks.
func (p *Process) Ungated() (c Connection, err error) {
	config := rest.CopyConfig(p.noticed)
	config.Timeout = writeTimeout
	return connect(config)
}

// Name returns the name of the controller.
func (p *Process) Name() string { return p.options.program.Name }

// TLS returns what clients of the servers of the process may use.
func (p *Process) TLS() serving.TLS { return p.options.tls }

// Problems returns how many problems /readyz shows that an administrator has to solve. It is for a metric.
func (p *Process) Problems() int { return len(p.reporter.Problems()) }

// problems returns what an administrator has to solve, or nothing.
func (p *Process) problems() string { return strings.Join(p.reporter.Problems(), "; ") }

func (p *Process) noProblems() error {
	if problems := p.problems(); problems != "" {
		return errors.New(problems)
	}
	return nil
}

// Lead waits until the informers can list, runs them, fills their caches, and calls lead when this process leads, which
// without an election is at once. The context of lead ends with ctx, or when the leadership is lost. When lead returns,
// nothing of it may write any more, and events must have been sent: then Lead releases the Lease, stops the informers
// and returns. It returns an error if the leadership was lost. Then the process must exit. Call it once.
func (p *Process) Lead(ctx context.Context, informers []Informer, lead func(context.Context)) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", p.options.versionOf(), "server", p.host)
	defer logger.Info("Stopped")
	var lists []func(context.Context) error
	var filled []cache.DoneChecker
	for _, i := range informers {
		if err := i.SetWatchErrorHandlerWithContext(p.reporter.WatchErrorHandler); err != nil {
			return err
		}
		lists = append(lists, func(ctx context.Context) error { return p.list(ctx, i.Resource) })
		filled = append(filled, i.HasSyncedChecker())
	}
	if p.reporter.Wait(ctx, lists...) != nil {
		return nil // Asked to stop while waiting.
	}
	// Informers log the end of a watch as a warning. What an operator must know of watches, the reporter logs.
	quiet, stop := context.WithCancel(klog.NewContext(ctx, logger.V(4)))
	var running sync.WaitGroup
	defer waitAtMost(informerTimeout, &running)
	defer stop() // The process also ends without a signal, when it has lost the leadership.
	for _, i := range informers {
		running.Go(func() { i.RunWithContext(quiet) })
	}
	if !cache.WaitFor(quiet, "caches", filled...) { // A copy that could not work yet must not become the leader.
		return nil
	}
	return p.elector.Run(ctx, func(ctx context.Context) {
		context.AfterFunc(ctx, p.exitLater) // Also if the leadership is lost.
		lead(ctx)
	})
}

// list returns why the informer of a resource could not list it now, or nil. The answer is not decoded.
func (p *Process) list(ctx context.Context, resource schema.GroupVersionResource) error {
	root, namespace := "/apis/", p.options.Namespace
	if resource.Group == "" {
		root = "/api/"
	}
	return p.lists.Get().AbsPath(root+resource.GroupVersion().String()).NamespaceIfScoped(namespace, namespace != "").
		Resource(resource.Resource).Param("limit", "1").Do(ctx).Error()
}

// waitAtMost waits for running, at most for a time.
func waitAtMost(timeout time.Duration, running *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(timeout):
	}
}

// UntilSignal returns a context that ends with ctx or at the first SIGINT or SIGTERM. The second one ends the process,
// as does a stop that takes more than 28 s. Call it once.
func UntilSignal(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		received := <-signals
		klog.FromContext(ctx).Info("Stopping: finishing the running syncs; a second signal stops at once", "signal", received)
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
