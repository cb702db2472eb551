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
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

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
			{"a Foo gets its Deployment, and a change of it is corrected", testPodCorrects},
			{"a Foo moves to another name", testPodRenames},
			{"a Foo is scaled to zero and back", testPodScales},
			{"a Deployment of somebody else is left alone and reported", testPodRefuses},
			{"the Deployment of a deleted Foo is deleted by the garbage collector", testPodGarbage},
			{"the metrics are served over TLS to those who may read them", testPodMetrics},
			{"kubectl logs shows the log of the container", testPodLogs},
			{"the token belongs to the pod", testPodToken},
			{"a wrong flag shows as CrashLoopBackOff, with the reason", testPodWrongFlag},
			{"an image that does not exist shows as ImagePullBackOff", testPodWithoutImage},
			{"a process that does not answer its liveness probe is killed and started again", testPodHangs},
			{"kubectl exec runs --explain in the pod", testPodExplains},
			{"an image is pulled from a registry with a password", testPodPullsWithPassword},
			{"a Foo whose image cannot be pulled reports it, and a rename waits", testFooWithoutImage},
			{"a Foo whose pods find no node reports it, and a rename waits", testFooUnschedulable},
			{"a Foo whose pods are killed for their memory reports it, and a rename waits", testFooOutOfMemory},
			{"a Foo whose pods fail their probe reports it, and a rename waits", testFooFailsProbe},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, &podEnv{env: e.cluster.env(t), registry: e.registry})
			})
		}
	})
	for _, test := range []podTest{
		{"a process that is killed is started again, and counted", testPodKilled},
		{"the standby takes over when the pod of the leader is deleted", testPodTakeover},
		{"a pod is not ready while a permission is missing", testPodPermission},
		{"an upgrade replaces the pods one after the other, and two are ready at all times", testPodUpgrade},
		{"a version that needs more memory than its limit takes no copy away", testPodOutOfMemory},
		{"objects with huge owners do not exceed the memory limit", testPodWithHugeOwners},
		{"a leader that is killed for its memory loses nothing", testLeaderOutOfMemory},
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

// standby returns a pod that does not lead.
func (e *podEnv) standby(t *testing.T) *corev1.Pod {
	t.Helper()
	pods, leader := e.controllerPods(t), e.leader(t, "")
	i := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.Name != leader })
	if i < 0 {
		t.Fatal("there is no standby")
	}
	return pods[i]
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
	for pid, program := range processes(t) {
		hostname, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/etc/hostname", pid))
		if program == "/foo-controller" && err == nil && strings.TrimSpace(string(hostname)) == pod {
			return pid
		}
	}
	return 0
}

// processes returns the programs of all processes of this machine.
func processes(t *testing.T) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[int]string{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		programs[pid] = commandOf(pid)[0]
	}
	return programs
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

func testPodCorrects(t *testing.T, e *podEnv) {
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2)), Image: workload})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.kubectl(t, "", "scale", "deployment/web", "--replicas=5", "-n", e.namespace)
	until(t, "the number of replicas is corrected", func(context.Context) (bool, error) {
		return *e.deployment(t, "web").Spec.Replicas == 2, nil
	})
	e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace)
	until(t, "the Deployment exists again", func(context.Context) (bool, error) { return e.exists(t, "web"), nil })
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}

func testPodRenames(t *testing.T, e *podEnv) {
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "blue", Replicas: new(int32(1)), Image: workload})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.rename(t, "web", "green")
	until(t, "only the new Deployment exists", func(context.Context) (bool, error) {
		return e.exists(t, "green") && !e.exists(t, "blue"), nil
	})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}

func testPodScales(t *testing.T, e *podEnv) {
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2)), Image: workload})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	for _, replicas := range []int32{0, 2} {
		e.kubectl(t, "", "scale", "foo/web", fmt.Sprintf("--replicas=%d", replicas), "-n", e.namespace)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && foo.Status.Replicas == replicas && foo.Status.AvailableReplicas == replicas
		})
	}
}

func testPodRefuses(t *testing.T, e *podEnv) {
	e.kubectl(t, "", "create", "deployment", "web", "--image="+workload, "-n", e.namespace)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(3)), Image: workload})
	e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)
	if dep := e.deployment(t, "web"); *dep.Spec.Replicas != 1 || len(dep.OwnerReferences) != 0 {
		t.Errorf("the Deployment was changed: %d replicas, owners %v", *dep.Spec.Replicas, dep.OwnerReferences)
	}
}

func testPodGarbage(t *testing.T, e *podEnv) {
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: workload})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.deleteFoo(t, "web", metav1.DeletePropagationBackground)
	until(t, "the Deployment is deleted", func(context.Context) (bool, error) { return !e.exists(t, "web"), nil })
}

func testPodMetrics(t *testing.T, e *podEnv) {
	pod := e.anyPod(t)
	url := "https://" + e.forward(t, pod.Name, "8443") + "/metrics"
	if status, _ := fetch(t, url, ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want %d", status, http.StatusUnauthorized)
	}
	e.kubectl(t, "", "create", "serviceaccount", "reader", "-n", e.namespace)
	e.kubectl(t, "", "create", "clusterrolebinding", e.namespace, "--clusterrole=foo-controller-metrics-reader",
		"--serviceaccount="+e.namespace+":reader")
	token := strings.TrimSpace(e.kubectl(t, "", "create", "token", "reader", "-n", e.namespace))
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

func testPodLogs(t *testing.T, e *podEnv) {
	pod := e.anyPod(t).Name
	log := e.kubectl(t, "", "logs", pod, "-n", systemNamespace)
	if !strings.Contains(log, `"Starting" version="e2e"`) {
		t.Errorf("the log is\n%s", log)
	}
	if first := e.kubectl(t, "", "logs", pod, "-n", systemNamespace, "--limit-bytes=20"); first != log[:20] {
		t.Errorf("the first 20 bytes of the log are %q, want %q", first, log[:20])
	}
	if last := e.kubectl(t, "", "logs", pod, "-n", systemNamespace, "--tail=1"); strings.Count(last, "\n") != 1 {
		t.Errorf("with --tail=1, the log is\n%s", last)
	}
}

// testPodToken checks the token that the process has: its user and its pod.
func testPodToken(t *testing.T, e *podEnv) {
	pod := e.anyPod(t)
	file := fmt.Sprintf("/proc/%d/root/var/run/secrets/kubernetes.io/serviceaccount/", e.processOf(t, pod.Name))
	token, err := os.ReadFile(file + "token")
	if err != nil {
		t.Fatal(err)
	}
	review, err := e.kube.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(token)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := review.Status.User
	if got := user.Extra["authentication.kubernetes.io/pod-uid"]; user.Username != controllerUser || len(got) != 1 ||
		got[0] != string(pod.UID) {
		t.Errorf("the token is that of %s with %v, want %s and pod %s", user.Username, user.Extra, controllerUser, pod.UID)
	}
	namespace, err := os.ReadFile(file + "namespace")
	if err != nil || string(namespace) != systemNamespace {
		t.Errorf("the namespace is %q, %v", namespace, err)
	}
}

func testPodWrongFlag(t *testing.T, e *podEnv) {
	e.testPod(t, "wrong", "image: "+testImage, "args: [--no-such-flag]", "terminationMessagePolicy: FallbackToLogsOnError")
	pod := e.waitForPod(t, e.namespace, "wrong", "waits for its second restart", func(pod *corev1.Pod) bool {
		waiting := containerOf(pod).State.Waiting
		return waiting != nil && waiting.Reason == "CrashLoopBackOff" && containerOf(pod).RestartCount > 0
	})
	ended := containerOf(pod).LastTerminationState.Terminated
	if ended == nil || ended.ExitCode != 1 || !strings.Contains(ended.Message, "no-such-flag") {
		t.Errorf("the container ended with %+v, want 1 and the name of the flag", ended)
	}
	if isPodReady(pod) {
		t.Error("the pod is ready")
	}
}

func testPodWithoutImage(t *testing.T, e *podEnv) {
	e.testPod(t, "absent", "image: "+neverBuilt, "imagePullPolicy: IfNotPresent")
	e.waitForPod(t, e.namespace, "absent", "waits for its image", func(pod *corev1.Pod) bool {
		waiting := containerOf(pod).State.Waiting
		return waiting != nil && waiting.Reason == "ImagePullBackOff" && strings.Contains(waiting.Message, "never-built")
	})
}

// testPodHangs stops a process so that it answers nothing, and not SIGTERM either.
func testPodHangs(t *testing.T, e *podEnv) {
	e.testPod(t, "hangs", "image: "+testImage, "args: [--health-probe-bind-address=:8081]",
		"ports: [{name: health, containerPort: 8081}]",
		"livenessProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 1, failureThreshold: 2}")
	e.waitForPod(t, e.namespace, "hangs", "runs", isPodReady)
	if err := syscall.Kill(e.processOf(t, "hangs"), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pod := e.waitForPod(t, e.namespace, "hangs", "runs again", func(pod *corev1.Pod) bool {
		return containerOf(pod).RestartCount == 1 && containerOf(pod).State.Running != nil
	})
	if ended := containerOf(pod).LastTerminationState.Terminated; ended == nil || ended.ExitCode != 137 {
		t.Errorf("the container ended with %+v, want 137, that of SIGKILL", ended)
	}
	events := e.kubectl(t, "", "get", "events", "-n", e.namespace)
	if !strings.Contains(events, "failed liveness probe, will be restarted") {
		t.Errorf("the events are\n%s", events)
	}
}

func testPodKilled(t *testing.T, e *podEnv) {
	pod := e.standby(t)
	starts := containerOf(pod).RestartCount
	if err := syscall.Kill(e.processOf(t, pod.Name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pod = e.waitForPod(t, systemNamespace, pod.Name, "is ready again", func(pod *corev1.Pod) bool {
		return containerOf(pod).RestartCount == starts+1 && isPodReady(pod)
	})
	if ended := containerOf(pod).LastTerminationState.Terminated; ended == nil || ended.ExitCode != 137 {
		t.Errorf("the container ended with %+v, want 137", ended)
	}
}

// testPodTakeover also checks how the process of the deleted pod ends. The status of the pod has that before the object
// is deleted.
func testPodTakeover(t *testing.T, e *podEnv) {
	leader := e.leader(t, "")
	only := metav1.SingleObject(metav1.ObjectMeta{Name: leader})
	watcher, err := e.kube.CoreV1().Pods(systemNamespace).Watch(t.Context(), only)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	e.kubectl(t, "", "delete", "pod", leader, "-n", systemNamespace, "--wait=false")
	e.leader(t, leader)
	var ended *corev1.ContainerStateTerminated
	for event := range watcher.ResultChan() {
		if event.Type == "DELETED" {
			break
		}
		if pod, ok := event.Object.(*corev1.Pod); ok && containerOf(pod).State.Terminated != nil {
			ended = containerOf(pod).State.Terminated
		}
	}
	if ended == nil || ended.ExitCode != 0 || ended.Reason != "Completed" {
		t.Errorf("the container ended with %+v, want 0", ended)
	}
	e.createFoo(t, "after", v1alpha1.FooSpec{DeploymentName: "after", Image: workload})
	e.waitForReason(t, "after", v1alpha1.ReasonAvailable)
	e.waitForReadyPods(t)
}

// waitForReadyPods waits until both pods of the controller are ready.
func (e *podEnv) waitForReadyPods(t *testing.T) {
	t.Helper()
	e.kubectl(t, "", "rollout", "status", "deployment/foo-controller", "-n", systemNamespace,
		"--timeout="+eventually.String())
}

// testPodUpgrade changes a flag, which replaces the pods as another image does. All events about the pods are checked,
// so that no moment is missed.
func testPodUpgrade(t *testing.T, e *podEnv) {
	e.waitForReadyPods(t)
	pods := e.kube.CoreV1().Pods(systemNamespace)
	selector := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + controllerName}
	list, err := pods.List(t.Context(), selector)
	if err != nil {
		t.Fatal(err)
	}
	selector.ResourceVersion = list.ResourceVersion
	watcher, err := pods.Watch(t.Context(), selector)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	const flag, mark = "--workers=8", "rolled-out"
	e.kubectl(t, "", "patch", "deployment/foo-controller", "-n", systemNamespace, "--type=json", "-p",
		`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"`+flag+`"}]`)
	e.waitForReadyPods(t)
	upgraded := e.controllerPods(t)
	e.kubectl(t, "", "label", "pod", upgraded[0].Name, "-n", systemNamespace, mark+"=yes")

	ready, exists := sets.New[string](), sets.New[string]()
	observe := func(pod *corev1.Pod, deleted bool) {
		ready.Delete(pod.Name)
		exists.Delete(pod.Name)
		if deleted || pod.DeletionTimestamp != nil {
			return
		}
		exists.Insert(pod.Name)
		if isPodReady(pod) {
			ready.Insert(pod.Name)
		}
	}
	for i := range list.Items {
		observe(&list.Items[i], false)
	}
	fewest, most := len(list.Items), 0
	for marked := false; !marked; {
		event, open := <-watcher.ResultChan()
		pod, ok := event.Object.(*corev1.Pod)
		if !open || !ok {
			t.Fatalf("the watch ended with %v", event.Object)
		}
		observe(pod, event.Type == watch.Deleted)
		fewest, most = min(fewest, ready.Len()), max(most, exists.Len())
		marked = pod.Labels[mark] != ""
	}
	if fewest < 2 || most > 3 {
		t.Errorf("at one time, %d pods were ready, and %d existed; want at least two, and one more at most", fewest, most)
	}
	for i := range list.Items {
		if former := list.Items[i].Name; exists.Has(former) {
			t.Errorf("pod %s was not replaced", former)
		}
	}
	for _, pod := range upgraded {
		if command := commandOf(e.processOf(t, pod.Name)); !slices.Contains(command, flag) {
			t.Errorf("the process of pod %s is %q, want one with the other flag", pod.Name, command)
		}
	}
	e.createReady(t, "upgraded", v1alpha1.FooSpec{DeploymentName: "upgraded", Image: workload})
}

func testPodPermission(t *testing.T, e *podEnv) {
	leader := e.leader(t, "")
	binding, err := e.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), controllerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, "", "delete", "clusterrolebinding", controllerName)
	create := permission{verb: "create", group: "apps", resource: "deployments", namespace: e.namespace}
	until(t, "the permission is gone", func(ctx context.Context) (bool, error) {
		return !e.may(ctx, t, controllerUser, create), nil
	})
	e.createFoo(t, "refused", v1alpha1.FooSpec{DeploymentName: "refused", Image: workload})
	unready := e.waitForPod(t, systemNamespace, leader, "is not ready", func(pod *corev1.Pod) bool {
		return !isPodReady(pod) && containerOf(pod).State.Running != nil
	})
	binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}
	if _, err := e.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := e.waitForPod(t, systemNamespace, leader, "is ready again", isPodReady)
	if id := containerOf(pod).ContainerID; id != containerOf(unready).ContainerID {
		t.Errorf("the container was replaced by %s", id)
	}
	e.editFoo(t, "refused", `{"spec":{"replicas":2}}`) // An edit ends the backoff.
	e.waitForReason(t, "refused", v1alpha1.ReasonAvailable)
}

func testUndeploy(t *testing.T, e *podEnv) {
	pods := e.controllerPods(t)
	out := e.runScript(t, "undeploy")
	if !strings.Contains(out, "deletes all Foos") {
		t.Errorf("undeploy does not warn about the CustomResourceDefinition:\n%s", out)
	}
	for _, pod := range pods {
		if pid := e.processOf(t, pod.Name); pid != 0 {
			t.Errorf("process %d of pod %s still runs", pid, pod.Name)
		}
	}
	if foo := e.foo(t, keptFoo); foo.DeletionTimestamp != nil {
		t.Error("a Foo is deleted")
	}
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

// testPodPullsWithPassword pushes the image with the code of crane, see docs/image.md.
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
	e.kubectl(t, "", "patch", "serviceaccount", "default", "-n", e.namespace, "-p", `{"imagePullSecrets":[{"name":"pull"}]}`)
	e.testPod(t, "permitted", "image: "+image, "args: [--health-probe-bind-address=:8081]")
	e.waitForPod(t, e.namespace, "permitted", "runs", func(pod *corev1.Pod) bool {
		return containerOf(pod).State.Running != nil
	})
}

func testFooWithoutImage(t *testing.T, e *podEnv) {
	e.testFailingPods(t, neverBuilt, "", "ImagePullBackOff")
}

func testFooUnschedulable(t *testing.T, e *podEnv) {
	e.testFailingPods(t, workload, `, "resources": {"requests": {"cpu": "1k"}}`, "Insufficient cpu")
}

// The limit is too low for the image.
func testFooOutOfMemory(t *testing.T, e *podEnv) {
	e.testFailingPods(t, testImage, `, "resources": {"limits": {"memory": "6Mi"}}`, "OOMKilled")
}

func testFooFailsProbe(t *testing.T, e *podEnv) {
	e.testFailingPods(t, workload, `, "readinessProbe": {"tcpSocket": {"port": 9}, "periodSeconds": 1}`,
		"Readiness probe failed")
}

// testFailingPods renames a Foo to a Deployment whose pods do not become available, and back. Somebody adds fields to
// the container of that Deployment, which the controller leaves alone. Until then it has an image that cannot be pulled,
// or its pods would be available before. The command in the message of the Foo has to show the cause.
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

// testPodOutOfMemory gives a new version less memory than it needs to start.
func testPodOutOfMemory(t *testing.T, e *podEnv) {
	e.kubectl(t, "", "set", "resources", "deployment/foo-controller", "-n", systemNamespace,
		"--limits=memory=8Mi", "--requests=memory=8Mi")
	until(t, "a pod is killed for its memory", func(context.Context) (bool, error) { return e.outOfMemory(t), nil })
	e.createReady(t, "meanwhile", v1alpha1.FooSpec{DeploymentName: "meanwhile", Image: workload})
	e.kubectl(t, "", "rollout", "undo", "deployment/foo-controller", "-n", systemNamespace)
	e.waitForReadyPods(t)
}

// testLeaderOutOfMemory lets the leader fill its memory while it works: Go collects no garbage.
func testLeaderOutOfMemory(t *testing.T, e *podEnv) {
	e.kubectl(t, "", "patch", "deployment/foo-controller", "-n", systemNamespace, "-p", `{"spec": {"template": {"spec":
		{"containers": [{"name": "foo-controller", "resources": {"limits": {"memory": "80Mi"}, "requests": {"memory": "80Mi"}},
			"env": [{"name": "GOMEMLIMIT", "value": "off"}, {"name": "GOGC", "value": "off"}]}]}}}}`)
	e.waitForReadyPods(t)
	work, leader, began := e.cluster.env(t), e.leader(t, ""), time.Now()
	var names, creates []string
	for !e.outOfMemory(t) {
		name := fmt.Sprint("web-", len(names))
		work.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(0))})
		if names = append(names, name); len(names) > 2000 {
			t.Fatalf("no pod was killed for its memory in %d Foos", len(names))
		}
	}
	t.Logf("killed for its memory after %d Foos", len(names))
	e.waitForPod(t, systemNamespace, leader, "is ready again", func(pod *corev1.Pod) bool {
		return isPodReady(pod) && containerOf(pod).RestartCount > 0
	})
	e.kubectl(t, "", "rollout", "undo", "deployment/foo-controller", "-n", systemNamespace)
	e.waitForReadyPods(t)
	for _, name := range names {
		work.waitForReason(t, name, v1alpha1.ReasonAvailable)
		creates = append(creates, createOf(work, name))
	}
	e.checkDeploymentWrites(t, began, creates...)
}

// createOf returns the request that creates a Deployment, as the audit log has it.
func createOf(e *env, name string) string {
	return "create deployments/ " + e.namespace + "/" + name + ": 201"
}

// checkDeploymentWrites checks which requests of the controller have written Deployments, in any order.
func (e *podEnv) checkDeploymentWrites(t *testing.T, after time.Time, want ...string) {
	t.Helper()
	var got []string
	for _, r := range e.requests(t, after) {
		verb, of, _ := strings.Cut(r.String(), " ")
		if strings.HasPrefix(of, "deployments/") && !slices.Contains([]string{"get", "list", "watch"}, verb) {
			got = append(got, r.String())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Deployments were written by %v, want %v", got, want)
	}
}

// outOfMemory reports whether a pod of the controller was killed for its memory.
func (e *podEnv) outOfMemory(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(e.controllerPods(t), func(pod *corev1.Pod) bool {
		for _, status := range pod.Status.ContainerStatuses {
			for _, ended := range []*corev1.ContainerStateTerminated{
				status.State.Terminated, status.LastTerminationState.Terminated,
			} {
				if ended != nil && ended.Reason == "OOMKilled" {
					return true
				}
			}
		}
		return false
	})
}

// testPodWithHugeOwners creates Deployments with as much as etcd stores in the names of their owners, which anybody may
// who may create Deployments. A pod that starts lists them all.
func testPodWithHugeOwners(t *testing.T, e *podEnv) {
	huge := e.cluster.env(t)
	for i := range 40 {
		huge.createDeployment(t, fmt.Sprint("huge-", i), func(dep *appsv1.Deployment) {
			dep.Spec.Replicas = new(int32(0))
			dep.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Secret", UID: types.UID(fmt.Sprint(i)), Name: strings.Repeat("x", 1_200_000),
			}}
		})
	}
	e.kubectl(t, "", "rollout", "restart", "deployment/foo-controller", "-n", systemNamespace)
	e.waitForReadyPods(t)
	e.createReady(t, "beside", v1alpha1.FooSpec{DeploymentName: "beside", Image: workload})
	e.checkSpread(t)
	for _, pod := range e.controllerPods(t) {
		if n := containerOf(pod).RestartCount; n != 0 {
			t.Errorf("pod %s was started %d times more", pod.Name, n)
		}
		t.Logf("pod %s: %s", pod.Name, statusLines(t, e.processOf(t, pod.Name))["VmHWM"])
	}
	e.kubectl(t, "", "delete", "deployments", "--all", "-n", huge.namespace, "--wait=false")
}

// testNodeDies kills a node with all that runs there at once. docs/operations.md promises another leader within 24 s.
func testNodeDies(t *testing.T, e *podEnv) {
	leader := e.leader(t, "")
	pod, err := e.kube.CoreV1().Pods(systemNamespace).Get(t.Context(), leader, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.KillComponent(pod.Spec.NodeName); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	until(t, "its processes are gone", func(context.Context) (bool, error) { return e.processOf(t, leader) == 0, nil })
	e.createFoo(t, "late", v1alpha1.FooSpec{DeploymentName: "late", Image: workload})
	e.leader(t, leader)
	t.Logf("another pod leads after %s", time.Since(killed).Round(time.Second))
	until(t, "the Foo has a Deployment", func(context.Context) (bool, error) { return e.exists(t, "late"), nil })
	if err := e.StartComponent(pod.Spec.NodeName); err != nil {
		t.Fatal(err)
	}
	e.waitForPod(t, systemNamespace, leader, "runs again", func(pod *corev1.Pod) bool {
		return isPodReady(pod) && containerOf(pod).RestartCount > 0
	})
	e.waitForReason(t, "late", v1alpha1.ReasonAvailable)
	e.checkDeploymentWrites(t, killed, createOf(e.env, "late"))
}

// testNodeIsDrained drains a node as an administrator does before maintenance.
func testNodeIsDrained(t *testing.T, e *podEnv) {
	e.waitForReadyPods(t)
	node := e.anyPod(t).Spec.NodeName
	lowest := (&env{cluster: e.cluster, namespace: systemNamespace}).sampleAvailableOf(t, controllerName)
	e.kubectl(t, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
		"--timeout="+eventually.String())
	e.waitForReadyPods(t)
	if n := lowest(); n < 1 {
		t.Errorf("%d copies were available at one time, want 1 at all times", n)
	}
	for _, pod := range e.controllerPods(t) {
		if pod.Spec.NodeName == node {
			t.Errorf("pod %s is still on %s", pod.Name, node)
		}
	}
	e.kubectl(t, "", "uncordon", node)
}
