package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodeheartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

// simulatedNode is the annotation of the nodes that KWOK manages. It leaves other nodes and their pods alone.
const simulatedNode = "kwok.x-k8s.io/node"

// kwokConfig configures KWOK: it makes nodes and pods Ready, completes the pods of Jobs, and removes deleted
// pods. The heartbeat every ten minutes is KWOK's heartbeat for nodes with leases. It is frequent enough for
// our grace period, and an idle cluster stays quiet. With a configuration file KWOK has no defaults: without
// a parallelism it would refuse the value 0.
func kwokConfig() string {
	return strings.Join([]string{
		`apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  enableDebuggingHandlers: false # It serves only health checks.
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 1
  podsOnNodeSyncParallelism: 4
  enablePodsOnNodeSyncListPager: true
  enablePodsOnNodeSyncStreamWatch: false
`,
		nodefast.DefaultNodeInit,
		nodeheartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
		podfast.DefaultPodDelete,
		podNeverReady,
	}, "\n---\n")
}

// podNeverReady keeps pods waiting for an image that cannot be pulled, so that tests can have a rollout that
// does not progress. Its weight gives it priority over DefaultPodReady, which matches these pods too. KWOK
// applies it at each change of such a pod. It has no time, so that applying it again changes nothing.
const podNeverReady = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-never-ready
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: .metadata.deletionTimestamp
      operator: DoesNotExist
    - key: .status.phase
      operator: In
      values: [Pending]
    - key: .spec.containers.[].image | select(endswith(":never-ready"))
      operator: Exists
  weight: 1
  next:
    statusTemplate: |
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        imageID: ""
        name: {{ .name | Quote }}
        ready: false
        restartCount: 0
        started: false
        state:
          waiting:
            reason: ImagePullBackOff
            message: The tag never-ready stands for an image that cannot be pulled
      {{ end }}
`

// makeUsable creates the nodes, and returns when new Pods can run.
func (c *cluster) makeUsable(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.file("kubeconfig"))
	if err != nil {
		return fmt.Errorf("load our own kubeconfig: %w", err)
	}
	config.QPS = -1 // No limit, because the server has no other clients.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	simulated := c.count
	if len(c.nodes) > 0 {
		simulated = 0 // Kubelets create their nodes.
	}
	for i := range simulated {
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(nodeName(i)), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", nodeName(i), err)
		}
	}
	printLine("nodes: waiting for %d to become Ready", c.count)

	missing, err := await(ctx, "nodes", func() error { return podBlocker(ctx, client, c.count) })
	if missing != nil {
		return fmt.Errorf("no Pod could run after %s: %w; see the logs of %s and %s",
			startDeadline, missing, c.log(controllerManager), c.log(kwok))
	}
	if err != nil {
		return err
	}
	printLine("nodes: Ready")
	return nil
}

// podBlocker returns an error that describes why a new Pod could not run, or nil if it could.
func podBlocker(ctx context.Context, client kubernetes.Interface, nodes int) error {
	// The controller manager creates it. Admission refuses Pods until it exists.
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	for i := range nodes {
		node, err := client.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !isReady(node) {
			return fmt.Errorf("node %s is not Ready", node.Name)
		}
		// Admission taints each new node. The controller manager removes the taint.
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node %s has the taint %s", node.Name, node.Spec.Taints[0].Key)
		}
	}
	return nil
}

const nodePrefix = "node-"

func nodeName(i int) string { return fmt.Sprint(nodePrefix, i) }

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Annotations: map[string]string{simulatedNode: "fake"},
		Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64", // As KWOK reports it in the status of the node.
		},
	}}
}

func isReady(node *corev1.Node) bool {
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

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

// load gives an image a name on all nodes, in place of another one with this name. layout is the directory of an OCI
// layout.
func (c *cluster) load(ctx context.Context, layout, name string) error {
	if len(c.nodes) == 0 {
		return errors.New("this cluster has only simulated nodes, which need no images")
	}
	for _, node := range c.nodes {
		archive, err := archiveOf(layout)
		if err != nil {
			return err
		}
		if err := node.load(ctx, archive, name); err != nil {
			return err
		}
	}
	return nil
}

// archiveOf returns a layout as an archive.
func archiveOf(layout string) (io.ReadCloser, error) {
	if layout == pauseLayout {
		return pauseArchive()
	}
	reader, writer := io.Pipe()
	go func() {
		archive := tar.NewWriter(writer)
		writer.CloseWithError(errors.Join(archive.AddFS(os.DirFS(layout)), archive.Close()))
	}()
	return reader, nil
}

// load imports an archive, which is an OCI layout or what "docker save" writes.
func (n realNode) load(ctx context.Context, archive io.ReadCloser, name string) error {
	defer archive.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(isolatedPrograms, "ctr"), "--address", n.socket(),
		"--namespace", "k8s.io", "images", "import", "--local", "--snapshotter", "native", "--index-name", name, "-")
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load %s on %s: %w: %s", name, n.name(), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// serveLoad answers requests to load images.
func (c *cluster) serveLoad(w http.ResponseWriter, r *http.Request) {
	answer(w, c.load(r.Context(), r.FormValue("layout"), r.FormValue("name")))
}

// pauseLayout stands for the image of the pods themselves, in place of the directory of a layout.
const pauseLayout = "pause"

// pauseArchive returns the image of the program that holds the namespaces of a pod, as "docker save" would write it.
func pauseArchive() (io.ReadCloser, error) {
	program, err := os.ReadFile(filepath.Join(isolatedPrograms, "pause"))
	if err != nil {
		return nil, err
	}
	layer, err := tarOf(map[string][]byte{"pause": program})
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": []string{"/pause"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]object{{
		"Config": "config.json", "RepoTags": []string{pauseImage}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	archive, err := tarOf(map[string][]byte{"config.json": config, "layer.tar": layer, "manifest.json": manifest})
	return io.NopCloser(bytes.NewReader(archive)), err
}

func tarOf(files map[string][]byte) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	return buffer.Bytes(), w.Close()
}
