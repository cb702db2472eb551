package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"

	"example.com/foo-controller/hack/cmd/localcluster/child"
)

// Values of up's --components.
const (
	componentsAPI = "api"
	componentsAll = "all"
)

const (
	etcd              = "etcd"
	apiServer         = child.APIServer
	controllerManager = child.ControllerManager
	scheduler         = child.Scheduler
	kwok              = "kwok"
)

// A component is one program of the control plane.
type component struct {
	name string
	// args returns the arguments. It is called at each start, because ports are known only then.
	args func(c *cluster) []string
	// health is the path that answers 200 on the component's port when the component is ready. All
	// components serve TLS, so another process on the port cannot be mistaken for the component.
	health string
	// prepare, unless nil, is called before each start.
	prepare func(c *cluster) error
	// socket is where a component without a port listens.
	socket string
}

// allComponents is in the order of starting. They are stopped in the opposite order. Each component
// needs those before it, but the last three need only the API server.
var allComponents = []component{
	{name: etcd, args: etcdArgs, health: "/readyz"},
	{name: apiServer, args: apiServerArgs, health: "/readyz"},
	{name: controllerManager, args: controllerManagerArgs, health: "/healthz"},
	{name: scheduler, args: schedulerArgs, health: "/readyz"},
	{name: kwok, args: kwokArgs, health: "/healthz"},
}

func etcdArgs(c *cluster) []string {
	return []string{
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		fmt.Sprintf("--port=%d", c.port(etcd)),
		"--cert-file=" + c.pki.file("etcd-server.crt"),
		"--key-file=" + c.pki.file("etcd-server.key"),
		"--trusted-ca-file=" + c.pki.file("etcd-ca.crt"),
	}
}

func apiServerArgs(c *cluster) []string {
	services, advertised := "10.0.0.0/24", "192.0.2.1"
	if c.ipv6 {
		services, advertised = "fd00::/112", "2001:db8::1"
	}
	args := append(servingArgs(c, apiServer),
		"--etcd-servers="+c.url(etcd),
		"--etcd-cafile="+c.pki.file("etcd-ca.crt"),
		"--etcd-certfile="+c.pki.file("etcd-client.crt"),
		"--etcd-keyfile="+c.pki.file("etcd-client.key"),
		"--client-ca-file="+c.pki.file("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--kubelet-client-certificate="+c.pki.file("admin.crt"),
		"--kubelet-client-key="+c.pki.file("admin.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.pki.file("sa.pub"),
		"--service-account-signing-key-file="+c.pki.file("sa.key"),
		"--service-cluster-ip-range="+services,
		// A documentation address (RFC 5737, RFC 3849). Endpoints may not be loopback, so the default would be the
		// address of the host. On a host without a network, the API server would not start. Nothing uses the
		// endpoints, so there is no reconciler either.
		"--advertise-address="+advertised,
		"--endpoint-reconciler-type=none",
	)
	if len(c.admissionPlugins) > 0 {
		args = append(args, "--enable-admission-plugins="+strings.Join(c.admissionPlugins, ","))
	}
	if !c.audit {
		return args
	}
	return append(args,
		"--audit-policy-file="+c.file("audit-policy.yaml"),
		"--audit-log-path="+c.file("audit.log"),
		"--audit-log-mode=blocking", // A request is written before it is answered.
		"--audit-log-maxsize=0",     // No rotation, so that one file has all requests.
	)
}

// auditPolicy writes one line per request: the user, the request, and the response code. The line of a
// watch is written when the watch ends.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`

func controllerManagerArgs(c *cluster) []string {
	return append(controllerArgs(c, controllerManager),
		"--controllers=*",
		// Each controller uses its own ServiceAccount, with the same permissions as in other clusters. The
		// user system:kube-controller-manager alone has too few permissions.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.pki.file("sa.key"),
		"--root-ca-file="+c.pki.file("ca.crt"),
		"--cluster-signing-cert-file="+c.pki.file("ca.crt"),
		"--cluster-signing-key-file="+c.pki.file("ca.key"),
		// A new node loses its taints within a second instead of five.
		"--node-monitor-period=1s",
		// KWOK's nodes report every ten minutes. With the default of 50 s they would become NotReady, also
		// after an outage of the API server or the sleep of a laptop. The pods of such a node become not
		// Ready, and KWOK never sets a running pod to Ready again.
		"--node-monitor-grace-period="+c.gracePeriod(),
		// A HorizontalPodAutoscaler reads its metrics every second instead of every 15.
		"--horizontal-pod-autoscaler-sync-period=1s",
	)
}

// gracePeriod is how long a node may be silent.
func (c *cluster) gracePeriod() string {
	if len(c.nodes) > 0 {
		return "50s" // Kubernetes' default.
	}
	return "1h"
}

func schedulerArgs(c *cluster) []string {
	return controllerArgs(c, scheduler)
}

// controllerArgs are common to the controller manager and the scheduler.
func controllerArgs(c *cluster, name string) []string {
	return append(servingArgs(c, name),
		"--kubeconfig="+c.file(name+".kubeconfig"),
		"--leader-elect=false",              // Each runs once.
		"--authentication-skip-lookup=true", // They serve only health checks, which need no authentication.
		// The defaults protect an API server with many clients. Here they would only slow down tests.
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	)
}

func servingArgs(c *cluster, name string) []string {
	return []string{
		"--bind-address=" + c.host(name),
		fmt.Sprintf("--secure-port=%d", c.port(name)),
		"--tls-cert-file=" + c.pki.file("server.crt"),
		"--tls-private-key-file=" + c.pki.file("server.key"),
	}
}

func kwokArgs(c *cluster) []string {
	// This flag is a list in the format of CSV. Between quotes, a path may have commas.
	config := `"` + strings.ReplaceAll(c.file("kwok.yaml"), `"`, `""`) + `"`
	return []string{
		"--kubeconfig=" + c.file("kubeconfig"),
		"--config=" + config,
		// Only the nodes that "up" creates. A node of a kubelet reports for itself.
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=" + simulatedNode + "=fake",
		"--cidr=10.244.0.0/16", // The default is the range of the Services.
		fmt.Sprintf("--server-address=127.0.0.1:%d", c.port(kwok)),
		"--tls-cert-file=" + c.pki.file("server.crt"),
		"--tls-private-key-file=" + c.pki.file("server.key"),
	}
}

// programOf returns the file of a component, or "" for this binary.
func (c *cluster) programOf(comp component) string {
	switch comp.name {
	case apiServer, controllerManager, scheduler:
		return c.kubernetes
	}
	return ""
}

func componentNames(components []component) []string {
	var names []string
	for _, comp := range components {
		names = append(names, comp.name)
	}
	return names
}

func isComponent(components []component, name string) bool {
	return slices.Contains(componentNames(components), name)
}

// runComponent is the main function of a child process. It returns the exit code.
func runComponent(name string, args []string) int {
	child.ExitWithParent()
	if filepath.IsAbs(args[0]) { // A program of a node.
		return exitCode(syscall.Exec(args[0], args, os.Environ()))
	}
	// Components parse os.Args. Its first element becomes their user agent.
	os.Args = append([]string{name}, args...)
	switch name {
	case etcd:
		return exitCode(runEtcd(args))
	case kwok:
		return exitCode(runKwok())
	}
	return child.Run(name)
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "Error: %v\n", err)
	return 1
}

func runEtcd(args []string) error {
	flags := flag.NewFlagSet(etcd, flag.ContinueOnError)
	dir := flags.String("data-dir", "", "")
	port := flags.Int("port", 0, "")
	cert := flags.String("cert-file", "", "")
	key := flags.String("key-file", "", "")
	ca := flags.String("trusted-ca-file", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}

	cfg := embed.NewConfig()
	cfg.Dir = *dir
	client := url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", *port)}
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: *cert, KeyFile: *key, TrustedCAFile: *ca, ClientCertAuth: true}
	cfg.EnableGRPCGateway = false
	// A member without peers. It needs a peer URL as its identity, but does not listen on it.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// Do not wait for the disk. A killed etcd loses nothing. After a power failure the cluster may be lost,
	// but it is temporary anyway.
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"
	// With zero, etcd would warn about every request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close()
	select {
	case err := <-server.Err():
		return err
	case <-server.Server.StopNotify():
		return fmt.Errorf("etcd stopped by itself")
	case <-ctx.Done():
		return nil
	}
}

// runKwok does the same as kwok's own main. The configuration is passed in the context, and --config is a
// flag of the config package instead of the command.
func runKwok() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ = kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	cmd := kwokcmd.NewCommand(ctx)
	cmd.PersistentFlags().AddFlagSet(flags)
	cmd.Version = "" // Otherwise cobra adds a second --version to that of component-base.
	return cmd.ExecuteContext(ctx)
}

// runKubectl runs kubectl for the cluster in dir, as kubectl's own main does. It returns only on success.
func runKubectl(dir string, args []string) error {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if _, err := os.Stat(kubeconfig); err != nil {
		return fmt.Errorf("there is no cluster in %s: no kubeconfig (start one with: bin/localcluster up --dir %s; "+
			"make run, make cluster and make tutorial print the line for theirs)", dir, quoted(dir))
	}
	os.Setenv("KUBECONFIG", kubeconfig)
	// kubectl caches the kinds of the server at an address for hours. Another cluster may have had that
	// port.
	os.Setenv("KUBECACHEDIR", filepath.Join(dir, "kubectl-cache"))
	os.Args = append([]string{"kubectl"}, args...)
	cmd := kubectlcmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(cmd); err != nil {
		kubectlutil.CheckErr(err) // Prints as kubectl does, and exits with kubectl's code.
	}
	return nil
}
