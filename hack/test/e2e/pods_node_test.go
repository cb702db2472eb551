package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests the controller as operators run it: in its image, in two pods, with the manifests of `make deploy`
// and the permissions in them. The pods run on two real nodes, each with a kubelet and containerd.

const (
	nodePrograms = "bin/node"
	// testImage is what `make bin/image-native` builds: the image for this machine, in a layout of its own.
	testImage, testLayout = "foo-controller:e2e", "bin/image-native/layout"
	// workload is the image of the Foos: one that only waits, in place of a program that the nodes cannot pull.
	workload = "nginx:1.29"
	// neverBuilt is an image that no registry has.
	neverBuilt = "foo-controller:never-built"
	// keptFoo is the Foo that no scenario changes.
	keptFoo         = "kept"
	systemNamespace = "foo-system"
)

// The scenarios share one control plane, and one Deployment of the controller with two pods. Those in a group run in
// parallel, because they only read the pods, or have a pod of their own. The others change the pods, one after the
// other. One Foo is there from the beginning, and must be there at the end.
func TestNodes(t *testing.T) {
	e := newPodEnv(t)
	e.deployController(t)
	e.createReady(t, keptFoo, v1alpha1.FooSpec{DeploymentName: keptFoo, Image: workload})

	t.Run("while two pods run", func(t *testing.T) {
		for _, test := range []podTest{
			{"the process is user 65532, has no capabilities, and cannot write to its root file system", testPodIsConfined},
			{"the metrics are served over TLS to those who may read them", testPodMetrics},
			{"kubectl exec runs --explain in the pod", testPodExplains},
			{"an image is pulled from a registry with a password", testPodPullsWithPassword},
			{"a Foo whose image cannot be pulled reports it, and a rename waits", testFooWithoutImage},
			{"a Foo whose pods fail their probe reports it, and a rename waits", testFooFailsProbe},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, &podEnv{env: e.cluster.env(t), registry: e.registry})
			})
		}
	})
	for _, test := range []podTest{
		{"the standby takes over when the pod of the leader is deleted", testPodTakeover},
		{"a pod is not ready while a permission is missing", testPodPermission},
		{"an upgrade replaces the pods one after the other, and two are ready at all times", testPodUpgrade},
		{"the standby takes over when the node of the leader dies, and nothing is written twice", testNodeDies},
		{"draining a node keeps a copy ready", testNodeIsDrained},
		{"undeploy stops the pods and keeps the Foos", testUndeploy},
		{"releases are installed from a registry and run the images that they name", testReleases},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

// A podTest is a scenario.
type podTest struct {
	name string
	run  func(*testing.T, *podEnv)
}

// A podEnv is an env on a cluster with nodes that run pods.
type podEnv struct {
	*env
	registry *passwordRegistry
}

// skipWithoutRoot skips the test for a user who cannot have nodes that run pods.
func skipWithoutRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("nodes that run pods need root")
	}
}

// newPodEnv starts a cluster with two real nodes.
func newPodEnv(t *testing.T) *podEnv {
	t.Helper()
	waitForRoom(t)
	skipWithoutRoot(t)
	registry := newPasswordRegistry(t)
	c, err := startCluster("all", "--nodes=2", "--node-programs="+nodePrograms, "--registry-port="+registry.port)
	if err != nil {
		t.Fatalf("%v: `make %s` builds the programs of a node", err, nodePrograms)
	}
	t.Cleanup(c.Stop)
	for name, layout := range map[string]string{testImage: testLayout, workload: "pause"} {
		if err := c.Load(layout, "docker.io/library/"+name); err != nil {
			t.Fatalf("%v: `make bin/image-native` builds the image", err)
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		out, _ := c.try("", "get", "nodes,pods,leases,events", "--all-namespaces")
		t.Logf("kubectl get:\n%s", out)
		logs, _ := filepath.Glob(filepath.Dir(c.Kubeconfig()) + "/nodes/*/logs/" + systemNamespace + "_*/*/*.log")
		for _, log := range logs { // Of containers that still exist.
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", log, text)
		}
	})
	return &podEnv{env: c.env(t), registry: registry}
}

// deployController installs the controller, and waits until both of its pods are ready. The first start takes longer
// until one of them leads.
func (e *podEnv) deployController(t *testing.T) {
	t.Helper()
	e.runScript(t, "deploy", "IMAGE="+testImage)
	pods := e.controllerPods(t)
	if len(pods) != 2 || !isPodReady(pods[0]) || !isPodReady(pods[1]) {
		t.Fatalf("two pods have to be ready: %s", e.kubectl(t, "", "get", "pods", "-n", systemNamespace))
	}
	for _, pod := range pods {
		if e.processOf(t, pod.Name) == 0 {
			t.Errorf("pod %s is reported as ready, and has no process", pod.Name)
		}
	}
	e.checkSpread(t)
}

// checkSpread checks that no node has both pods of the controller.
func (e *podEnv) checkSpread(t *testing.T) {
	t.Helper()
	if pods := e.controllerPods(t); len(pods) != 2 || pods[0].Spec.NodeName == pods[1].Spec.NodeName {
		t.Errorf("%d pods, the first one on %s: want two, each on a node of its own", len(pods), pods[0].Spec.NodeName)
	}
}

// anyPod returns one of the pods of the controller.
func (e *podEnv) anyPod(t *testing.T) *corev1.Pod {
	t.Helper()
	return e.controllerPods(t)[0]
}

// controllerPods returns the pods of the controller that are not being deleted.
func (e *podEnv) controllerPods(t *testing.T) []*corev1.Pod {
	t.Helper()
	list, err := e.kube.CoreV1().Pods(systemNamespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=foo-controller"})
	if err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// leader waits until a pod other than former leads, and returns its name. The pod may have been deleted since.
func (e *podEnv) leader(t *testing.T, former string) string {
	t.Helper()
	var leader string
	until(t, "a pod leads", func(context.Context) (bool, error) {
		leader = e.holder(t)
		return leader != "" && leader != former, nil
	})
	return leader
}

// holder returns the name of the pod that holds the Lease, or "".
func (e *podEnv) holder(t *testing.T) string {
	t.Helper()
	lease, err := e.kube.CoordinationV1().Leases(systemNamespace).Get(t.Context(), controllerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && lease.Spec.HolderIdentity == nil {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod
}

// waitForPod waits until condition is true for a pod, and returns it.
func (e *podEnv) waitForPod(t *testing.T, namespace, name, what string, condition func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	until(t, "pod "+name+" "+what, func(ctx context.Context) (bool, error) {
		var err error
		if pod, err = e.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		return len(pod.Status.ContainerStatuses) == 1 && condition(pod), nil
	})
	return pod
}

func containerOf(pod *corev1.Pod) corev1.ContainerStatus { return pod.Status.ContainerStatuses[0] }

// processOf returns the process of a pod as this machine numbers it, or 0. It is the entrypoint of the image, in a
// container with the host name of the pod.
func (e *podEnv) processOf(t *testing.T, pod string) int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		hostname, err := os.ReadFile(dir + "/root/etc/hostname")
		if commandOf(pid)[0] == "/foo-controller" && err == nil && strings.TrimSpace(string(hostname)) == pod {
			return pid
		}
	}
	return 0
}

// commandOf returns the program of a process and its arguments. The program is "" if the process has ended.
func commandOf(pid int) []string {
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(string(command), "\x00")
}

// testPod starts a pod in the namespace of the test. lines are fields of its container.
func (e *podEnv) testPod(t *testing.T, name string, lines ...string) {
	t.Helper()
	e.kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    %s
`, name, strings.Join(lines, "\n    ")), "apply", "-n", e.namespace, "-f", "-")
}

// statusLines returns the lines of /proc/PID/status by their names.
func statusLines(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		lines[name] = strings.Join(strings.Fields(value), " ")
	}
	return lines
}

// testPodIsConfined checks what the kernel has made of the manifest. The process has no capabilities because its user
// is not root. CapBnd and NoNewPrivs show that it cannot get any, which the manifest has to ask for.
func testPodIsConfined(t *testing.T, e *podEnv) {
	pid := e.processOf(t, e.anyPod(t).Name)
	status := statusLines(t, pid)
	for name, want := range map[string]string{
		"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1",
		"Uid": "65532 65532 65532 65532", "Seccomp": "2", // A filter.
	} {
		if status[name] != want {
			t.Errorf("%s = %s, want %s", name, status[name], want)
		}
	}
	if inside := strings.Fields(status["NSpid"]); inside[len(inside)-1] != "1" {
		t.Errorf("NSpid = %v, want process 1 in its container", inside)
	}
	// The mount itself is read-only, so not even root of the machine may write there.
	token := "/var/run/secrets/kubernetes.io/serviceaccount/token"
	for _, name := range []string{"/written", "/etc/passwd", token} {
		file, err := os.OpenFile(fmt.Sprintf("/proc/%d/root%s", pid, name), os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			file.Close()
			t.Errorf("%s can be written", name)
			continue
		}
		if !strings.Contains(err.Error(), syscall.EROFS.Error()) && os.Geteuid() == 0 {
			t.Errorf("%s: %v, want %v", name, err, syscall.EROFS)
		}
	}
}

func testPodMetrics(t *testing.T, e *podEnv) {
	pod := e.anyPod(t)
	url := "https://" + e.forward(t, pod.Name, "8443") + "/metrics"
	if status, _ := fetch(t, url, ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want %d", status, http.StatusUnauthorized)
	}
	e.readers(t)
	token := e.token(t, e.newAccount(t))
	until(t, "the metrics are served", func(context.Context) (bool, error) { // A refusal is cached for some seconds.
		status, body := fetch(t, url, token)
		return status == http.StatusOK && strings.Contains(body, "process_start_time_seconds"), nil
	})
}

// forward runs kubectl port-forward, and returns the address on this machine.
func (e *podEnv) forward(t *testing.T, pod, port string) string {
	t.Helper()
	out := &syncBuffer{}
	cmd := e.Kubectl("port-forward", "pod/"+pod, ":"+port, "-n", systemNamespace)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	until(t, "a port is forwarded", func(context.Context) (bool, error) { return address.MatchString(out.String()), nil })
	return address.FindString(out.String())
}

// testPodExplains runs a second process in the container of the controller, as operators do.
func testPodExplains(t *testing.T, e *podEnv) {
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Image: workload})
	out := e.kubectl(t, "", "exec", e.anyPod(t).Name, "-n", systemNamespace, "--", "/foo-controller",
		"--explain="+e.namespace+"/web")
	if !strings.Contains(out, "the controller would send nothing") {
		t.Errorf("--explain in the pod prints\n%s", out)
	}
}

// A passwordRegistry is a registry on loopback that asks for a password until it is open.
type passwordRegistry struct {
	port, user, password string
	open                 atomic.Bool
}

func newPasswordRegistry(t *testing.T) *passwordRegistry {
	t.Helper()
	r := &passwordRegistry{user: "reader", password: rand.Text()}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); !r.open.Load() && (user != r.user || password != r.password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	_, r.port, _ = net.SplitHostPort(server.Listener.Addr().String())
	return r
}

// testPodPullsWithPassword pushes the image with the code of crane, see docs/release.md.
func testPodPullsWithPassword(t *testing.T, e *podEnv) {
	server := "127.0.0.1:" + e.registry.port
	image := server + "/me/foo-controller:v1"
	index, err := layout.ImageIndexFromPath(testLayout)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	auth := remote.WithAuth(&authn.Basic{Username: e.registry.user, Password: e.registry.password})
	if err := remote.WriteIndex(tag, index, auth); err != nil {
		t.Fatal(err)
	}
	e.testPod(t, "refused", "image: "+image, "args: [--health-probe-bind-address=:8081]")
	e.waitForPod(t, e.namespace, "refused", "waits for its image", func(pod *corev1.Pod) bool {
		waiting := containerOf(pod).State.Waiting
		return waiting != nil && strings.Contains(waiting.Message, "authorization failed")
	})
	e.kubectl(t, "", "create", "secret", "docker-registry", "pull", "-n", e.namespace, "--docker-server="+server,
		"--docker-username="+e.registry.user, "--docker-password="+e.registry.password)
	e.kubectl(t, "", "patch", "serviceaccount", "default", "-n", e.namespace, "-p",
		`{"imagePullSecrets":[{"name":"pull"}]}`)
	e.testPod(t, "permitted", "image: "+image, "args: [--health-probe-bind-address=:8081]")
	e.waitForPod(t, e.namespace, "permitted", "runs", func(pod *corev1.Pod) bool {
		return containerOf(pod).State.Running != nil
	})
}

func testFooWithoutImage(t *testing.T, e *podEnv) {
	e.testFailingPods(t, neverBuilt, "", "ImagePullBackOff")
}

func testFooFailsProbe(t *testing.T, e *podEnv) {
	e.testFailingPods(t, workload, `, "readinessProbe": {"tcpSocket": {"port": 9}, "periodSeconds": 1}`,
		"Readiness probe failed")
}

// testFailingPods renames a Foo to a Deployment whose pods do not become available, and back. Somebody adds fields to
// the container of that Deployment, which the controller leaves alone. Until then it has an image that cannot be
// pulled, or its pods would be available before. The command in the message of the Foo has to show the cause.
func (e *podEnv) testFailingPods(t *testing.T, image, fields, cause string) {
	t.Helper()
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Image: workload})
	e.editFoo(t, "web", `{"spec":{"deploymentName":"next","image":"`+neverBuilt+`"}}`)
	until(t, "the new Deployment exists", func(context.Context) (bool, error) { return e.exists(t, "next"), nil })
	container := e.deployment(t, "next").Spec.Template.Spec.Containers[0].Name
	e.kubectl(t, "", "patch", "deployment", "next", "-n", e.namespace, "-p", `{"spec": {
		"progressDeadlineSeconds": 5, "minReadySeconds": 3,
		"template": {"spec": {"containers": [{"name": "`+container+`"`+fields+`}]}}}}`)
	e.editFoo(t, "web", `{"spec":{"image":"`+image+`"}}`)
	until(t, "the pods fail as expected", func(context.Context) (bool, error) {
		message := readyCondition(e.waitForReason(t, "web", v1alpha1.ReasonProgressDeadlineExceeded)).Message
		_, command, _ := strings.Cut(message, "To see why its pods do not become available: kubectl ")
		out := e.kubectl(t, "", strings.Fields(strings.ReplaceAll(command, "'", ""))...)
		return strings.Contains(out, cause), nil
	})
	if n := e.deployment(t, "web").Status.AvailableReplicas; n != 1 {
		t.Errorf("the former Deployment has %d available replicas, want the 1 that it had", n)
	}
	e.editFoo(t, "web", `{"spec":{"deploymentName":"web","image":"`+workload+`"}}`)
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}
