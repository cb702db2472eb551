package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"example.com/foo-controller/hack/cluster/localcluster/child"
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
