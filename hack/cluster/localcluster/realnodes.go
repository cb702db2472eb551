package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const (
	containerd = "containerd"
	kubelet    = "kubelet"
	// serviceAddress is that of the Service "kubernetes".
	serviceAddress = "10.0.0.1"
	// pauseImage is what holds the namespaces of a pod.
	pauseImage = "localhost/pause:1"
)

// A realNode is a node with a kubelet and a containerd of its own. All nodes are in the namespaces of the cluster, see
// isolate, each with a bridge and a cgroup. There is no kube-proxy and no DNS: of the Services, only "kubernetes" has
// an address. Nothing enforces a NetworkPolicy.
type realNode struct {
	index  int
	cgroup string
}

func (n realNode) name() string    { return nodeName(n.index) }
func (n realNode) address() string { return fmt.Sprintf("10.244.%d.1", n.index) }
func (n realNode) bridge() string  { return fmt.Sprintf("cni%d", n.index) }
func (n realNode) socket() string  { return fmt.Sprintf("/run/%s/containerd.sock", n.name()) }
func (n realNode) dir() string     { return filepath.Join(isolatedDir, "nodes", n.name()) }

// cgroupOf returns the cgroup of a cluster.
func cgroupOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "/localcluster-" + hex.EncodeToString(sum[:6])
}

func (n realNode) components() []component {
	return []component{
		{name: containerd + "-" + n.name(), args: func(*cluster) []string {
			return []string{filepath.Join(isolatedPrograms, containerd), "--config", filepath.Join(n.dir(), "containerd.toml")}
		}, socket: n.socket()},
		{name: kubelet + "-" + n.name(), args: func(c *cluster) []string {
			return []string{
				filepath.Join(isolatedPrograms, kubelet), "--config", filepath.Join(n.dir(), "kubelet.yaml"),
				"--kubeconfig", c.file(n.name() + ".kubeconfig"), "--root-dir", filepath.Join(n.dir(), "kubelet"),
				"--hostname-override", n.name(), "--node-ip", n.address(),
			}
		}, prepare: n.writeKubeletConfig, health: "/healthz"},
	}
}

// start starts the node.
func (n realNode) start(ctx context.Context, c *cluster) error {
	if err := n.writeFiles(c); err != nil {
		return fmt.Errorf("%s: %w", n.name(), err)
	}
	if err := startBridge(n.bridge(), n.address()+"/24"); err != nil {
		return fmt.Errorf("the network of %s: %w", n.name(), err)
	}
	if err := makeCgroups(n.cgroup); err != nil {
		return fmt.Errorf("the cgroups of %s: %w", n.name(), err)
	}
	parts := n.components()
	if err := c.run(ctx, parts[0]); err != nil {
		return err
	}
	pause, err := pauseArchive()
	if err != nil {
		return err
	}
	if err := n.load(ctx, pause, pauseImage); err != nil {
		return err
	}
	return c.startOnFreePort(ctx, parts[1])
}

// kill ends the node as if its power failed: its components, and all processes of its containers.
func (n realNode) kill(c *cluster) error {
	for _, comp := range n.components() {
		if p := c.children.process(comp.name); p != nil {
			p.kill()
		}
	}
	killCgroup(n.cgroup, n.socket()) // The shims of containerd have its socket among their arguments.
	printLine("%s: killed, as asked", n.name())
	return nil
}

func (n realNode) writeFiles(c *cluster) error {
	for _, dir := range []string{"cni", "plugins", filepath.Dir(n.socket())} {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(n.dir(), dir)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	name := pkix.Name{CommonName: "system:node:" + n.name(), Organization: []string{"system:nodes"}}
	creds, err := c.pki.issue(c.pki.ca, n.name(), name, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	if err := c.writeKubeconfig(n.name()+".kubeconfig", name.CommonName, creds); err != nil {
		return err
	}
	for file, text := range map[string]string{
		"containerd.toml": containerdConfig, "cni/10-bridge.conflist": networkConfig,
	} {
		if err := n.write(c, file, text); err != nil {
			return err
		}
	}
	return nil
}

func (n realNode) writeKubeletConfig(c *cluster) error {
	return n.write(c, "kubelet.yaml", kubeletConfig)
}

func (n realNode) write(c *cluster, file, text string) error {
	text = strings.NewReplacer("DIR", n.dir(), "PROGRAMS", isolatedPrograms, "SOCKET", n.socket(), "ADDRESS", n.address(),
		"PAUSE", pauseImage, "BRIDGE", n.bridge(), "SUBNET", fmt.Sprintf("10.244.%d.0/24", n.index),
		"CGROUP", n.cgroup, "PKI", filepath.Join(isolatedDir, "pki"),
		"PORT", fmt.Sprint(c.port(kubelet+"-"+n.name()))).Replace(text)
	return writeFile(filepath.Join(n.dir(), file), []byte(text))
}

const containerdConfig = `version = 3
root = "DIR/containerd"
state = "/run/BRIDGE-containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
  address = "SOCKET"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
  use_local_image_pull = true
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "PAUSE"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "PROGRAMS/runc"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["PROGRAMS"]
    conf_dir = "DIR/cni"
`

const networkConfig = `{"cniVersion":"1.0.0","name":"BRIDGE","plugins":[
{"type":"bridge","bridge":"BRIDGE","isGateway":true,"ipMasq":false,
 "ipam":{"type":"host-local","dataDir":"DIR/ipam","ranges":[[{"subnet":"SUBNET"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://SOCKET
cgroupDriver: cgroupfs
cgroupRoot: CGROUP
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: PKI/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: PKI/server.crt
tlsPrivateKeyFile: PKI/server.key
address: 0.0.0.0
port: PORT
healthzPort: 0
readOnlyPort: 0
podLogsDir: DIR/logs
resolvConf: ""
volumePluginDir: DIR/plugins
evictionHard: {memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
# Otherwise an image that is loaded, and also pulled with a secret, is refused to pods without the secret.
imagePullCredentialsVerificationPolicy: NeverVerify
imageMinimumGCAge: 100h
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`

// dial returns nil if a process listens on the socket.
func dial(socket string) error {
	connection, err := net.Dial("unix", socket)
	if err == nil {
		err = connection.Close()
	}
	return err
}
