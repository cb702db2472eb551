package kit

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cliflag "k8s.io/component-base/cli/flag"

	"example.com/foo-controller/pkg/kit/leader"
	"example.com/foo-controller/pkg/kit/serving"
	"example.com/foo-controller/pkg/kit/telemetry"
	"example.com/foo-controller/pkg/kit/trim"
)

// A Program is what --help and --version print about a controller.
type Program struct {
	// Name is that of the controller: its user agent, and the beginning of the name of its Lease. With _ instead of -,
	// it begins the name of the metric NAME_build_info.
	Name string
	// Does completes the sentence that begins with the name, without a full stop.
	Does string
	// Kind is that of the objects which it reconciles, such as Foo. Kinds is the plural.
	Kind, Kinds string
	// ClusterScoped is true if these objects have no namespace. Then there is no flag --namespace.
	ClusterScoped bool
	// Version may be set by the linker. Without it, it is the version that Go recorded.
	Version string
	// Flags, unless nil, adds flags of this controller. --help prints them after those of all controllers.
	Flags func(*flag.FlagSet)
}

// Options are the values of the flags.
type Options struct {
	// Namespace is the only one whose objects are served; empty is all.
	Namespace string
	// Workers is the number of objects worked on at a time, at least 1.
	Workers int
	// Resync is the time after which every object is synced once more; 0 is never.
	Resync time.Duration

	program                                     Program
	kubeconfig, context, master                 string
	burst                                       int
	qps                                         float64
	leaderElect                                 bool
	leaseNamespace                              string
	leaseDuration, renewDeadline, retryPeriod   time.Duration
	healthAddress, metricsAddress, debugAddress string
	metricsCert, metricsKey                     string
	tlsVersion, tlsSuites                       string
	tls                                         serving.TLS // From tlsVersion and tlsSuites.
	version                                     bool
	// values has the flags as text, by name.
	values map[string]string
}

// flagOrder has the flags in the order in which --help prints them. Those of the controller follow.
var flagOrder = []string{
	"kubeconfig", "context", "master", "namespace",
	"workers", "resync", "kube-api-qps", "kube-api-burst",
	"leader-elect", "leader-elect-namespace", "leader-elect-lease-duration", "leader-elect-renew-deadline",
	"leader-elect-retry-period",
	"health-probe-bind-address", "metrics-bind-address", "metrics-cert-file", "metrics-key-file",
	"tls-min-version", "tls-cipher-suites", "debug-bind-address",
	"logging-format", "v", "vmodule",
	"version",
}

// Parse reads the flags of args, the arguments without the name of the program, and applies those for logging. It
// returns flag.ErrHelp when it has printed to stdout what --help or --version ask for: then the program has nothing
// left to do. Other errors are one line each, for the user. Call it once.
func Parse(program Program, args []string, stdout io.Writer) (*Options, error) {
	o := &Options{program: program}
	fs, applyLogging := o.flags()
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		o.printHelp(stdout, fs)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w; see --help", err)
	case o.version:
		fmt.Fprintln(stdout, program.Name, o.versionOf())
		return nil, flag.ErrHelp
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: all settings are flags, see --help", fs.Arg(0))
	case o.Namespace != "" && len(validation.ValidateNamespaceName(o.Namespace, false)) > 0:
		return nil, fmt.Errorf("--namespace=%s: this is not the name of a namespace", o.Namespace)
	case o.Workers < 1:
		return nil, fmt.Errorf("--workers=%d: at least 1 is needed", o.Workers)
	case o.Resync < 0:
		return nil, fmt.Errorf("--resync=%v: give a time, or 0 for no resync", o.Resync)
	case o.qps >= 0 && o.qps < 1: // All workers together would wait for longer than a sync may take.
		return nil, fmt.Errorf("--kube-api-qps=%v: give a rate of at least 1, or -1 for no limit", o.qps)
	}
	if o.tls.MinVersion, err = cliflag.TLSVersion(o.tlsVersion); err != nil {
		return nil, fmt.Errorf("--tls-min-version=%s: %w", o.tlsVersion, err)
	}
	if o.tlsSuites != "" {
		if o.tls.CipherSuites, err = cliflag.TLSCipherSuites(strings.Split(o.tlsSuites, ",")); err != nil {
			return nil, fmt.Errorf("--tls-cipher-suites=%s: %w", o.tlsSuites, err)
		}
	}
	if err := applyLogging(); err != nil {
		return nil, err
	}
	o.values = map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { o.values[f.Name] = redacted(f.Value.String()) })
	return o, nil
}

// flags returns the flags that set o, and the function that applies those for logging.
func (o *Options) flags() (fs *flag.FlagSet, applyLogging func() error) {
	kind, kinds := o.program.Kind, o.program.Kinds
	fs = flag.NewFlagSet(o.program.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // A mistake gets one line, from the caller.
	fs.Usage = func() {}     // Printed by Parse, and only when it is asked for.
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the address and credentials of the cluster")
	fs.StringVar(&o.context, "context", "", "`name` of the kubeconfig's context to use; empty is its current one")
	fs.StringVar(&o.master, "master", "", "`URL` of the API server; overrides the kubeconfig's")
	fs.IntVar(&o.Workers, "workers", 32,
		"`number` of "+kinds+" worked on at a time; one namespace gets at most half of them")
	fs.DurationVar(&o.Resync, "resync", 10*time.Minute,
		"`time` after which every "+kind+" is synced once more, from the caches, in case an event was lost; 0 turns that off")
	fs.Float64Var(&o.qps, "kube-api-qps", -1,
		"`requests` a second that each client may send; -1 leaves it to the API server's flow control")
	fs.IntVar(&o.burst, "kube-api-burst", 0,
		"`requests` that each client may send at once above --kube-api-qps; 0 is twice that")
	if !o.program.ClusterScoped {
		fs.StringVar(&o.Namespace, "namespace", "", "`name` of the only namespace whose "+kinds+" are served; empty is all")
	}
	o.leaderFlags(fs)
	o.servingFlags(fs)
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	if o.program.Flags != nil {
		o.program.Flags(fs)
	}
	return fs, telemetry.AddLogFlags(fs)
}

func (o *Options) leaderFlags(fs *flag.FlagSet) {
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

func (o *Options) servingFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.healthAddress, "health-probe-bind-address", "0", "`address` of /healthz and /readyz; 0 turns them off")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		"`address` of /metrics, with TLS and permissions, except on a loopback address without a certificate; 0 turns it off")
	fs.StringVar(&o.metricsCert, "metrics-cert-file", "",
		"`file` with the certificate of /metrics; it may change; without one, /metrics has a self-signed certificate")
	fs.StringVar(&o.metricsKey, "metrics-key-file", "", "`file` with the key of that certificate")
	fs.StringVar(&o.tlsVersion, "tls-min-version", "VersionTLS12",
		"`version` of TLS that a client needs at least, such as VersionTLS13")
	fs.StringVar(&o.tlsSuites, "tls-cipher-suites", "",
		"`names` of the cipher suites for TLS 1.2, separated by commas; empty is those of Go")
	fs.StringVar(&o.debugAddress, "debug-bind-address", "0",
		"loopback `address` of /debug/syncs, a page with each sync, and of /debug/config, /debug/flags/v and /debug/pprof; "+
			"0 turns them off")
}

// printHelp prints what --help asks for.
func (o *Options) printHelp(stdout io.Writer, fs *flag.FlagSet) {
	fmt.Fprintf(stdout, "%s %s.\n\n"+
		"The cluster is taken from the first of: --kubeconfig (or --master), $KUBECONFIG, the ServiceAccount of the\n"+
		"pod it runs in, ~/.kube/config. Flags take one dash or two.\n\n", o.program.Name, o.program.Does)
	names := slices.DeleteFunc(slices.Clone(flagOrder), func(name string) bool { return fs.Lookup(name) == nil })
	fs.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(flagOrder, f.Name) {
			names = append(names, f.Name)
		}
	})
	for _, name := range names {
		f := fs.Lookup(name)
		value, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(stdout, "  %s\n      %s\n", strings.TrimSpace("--"+name+" "+value), usage)
	}
}

// restConfig returns how to reach the API server.
func (o *Options) restConfig() (*rest.Config, error) {
	config, err := o.findConfig()
	if err != nil {
		return nil, err
	}
	config.WarningHandlerWithContext = &telemetry.Warnings{}
	config.Wrap(trim.Responses)
	config.UserAgent = fmt.Sprintf("%s/%s", o.program.Name, o.versionOf())
	config.QPS = float32(o.qps)
	config.Burst = cmp.Or(o.burst, int(math.Ceil(2*o.qps)))
	return config, nil
}

func (o *Options) findConfig() (*rest.Config, error) {
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

// elector returns the elector of this process, nil if there is no election. Only controllers of the same objects have
// the same name of the Lease.
func (o *Options) elector(config *rest.Config) (*leader.Elector, error) {
	if !o.leaderElect {
		return nil, nil
	}
	elector, err := leader.New(leader.Config{
		Connection: config, Namespace: o.leaseNamespace, Name: strings.TrimSuffix(o.program.Name+"-"+o.Namespace, "-"),
		LeaseDuration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod,
	})
	if errors.Is(err, leader.ErrNoNamespace) {
		return nil, fmt.Errorf("%w: give --leader-elect-namespace=NAME", err)
	}
	return elector, err
}

// plainMetrics reports whether /metrics is served without TLS and permissions: to this machine only.
func (o *Options) plainMetrics() bool {
	host, _, err := net.SplitHostPort(o.metricsAddress)
	isLoopback := host == "localhost" || net.ParseIP(host).IsLoopback()
	return err == nil && isLoopback && o.metricsCert == "" && o.metricsKey == ""
}

// redacted returns the value of a flag, without the password if it is a URL.
func redacted(value string) string {
	if u, err := url.Parse(value); err == nil && u.User != nil {
		return u.Redacted()
	}
	return value
}

// versionOf returns the version that was set at build time, or the one that Go recorded.
func (o *Options) versionOf() string {
	recorded := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		recorded = info.Main.Version
	}
	return cmp.Or(o.program.Version, recorded, "unknown")
}

// readTimeout is how long a read of a ReadOnly connection may take.
const readTimeout = time.Minute

// ReadOnly returns a connection that sends nothing but GET requests: any other request is an error. It is for a program
// that answers a question and exits, without a Process. An error is one line, for the user.
func (o *Options) ReadOnly() (Connection, error) {
	config, err := o.restConfig()
	if err != nil {
		return Connection{}, err
	}
	config.Timeout = readTimeout
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &readOnly{next: next} })
	return connect(config)
}

// readOnly is a transport that refuses every request but a GET.
type readOnly struct{ next http.RoundTripper }

// WrappedRoundTripper makes next known to client-go, which closes its idle connections.
func (t *readOnly) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return t.next.RoundTrip(req)
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, fmt.Errorf("%s %s was not sent: this connection only reads", req.Method, req.URL.Path)
}
