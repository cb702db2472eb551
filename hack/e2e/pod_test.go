package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

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
// and the permissions in them. The pods really run, on the node of the pod runner (podrunner).

const (
	podRunnerBinary = "bin/podrunner"
	// testImage is what `make bin/image-native` builds: the image for this machine, in a layout of its own.
	testImage, testLayout = "foo-controller:e2e", "bin/image-native/layout"
	// podsRequired is an environment variable. If it is set, a machine that cannot run pods fails the test.
	podsRequired = "FOO_PODS_REQUIRED"
	// keptFoo is the Foo that no scenario changes.
	keptFoo         = "kept"
	systemNamespace = "foo-system"
)

// The scenarios share one control plane, and one Deployment of the controller with two pods. Those in a group run in
// parallel, because they only read the pods, or have a pod of their own. The others change the pods, one after the
// other. One Foo is there from the beginning, and must be there at the end.
func TestPods(t *testing.T) {
	e := newPodEnv(t)
	e.deployController(t)
	e.createReady(t, keptFoo, v1alpha1.FooSpec{DeploymentName: keptFoo})

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
			{"a pod that does not stop is killed when it is deleted with less time", testPodDeletedTwice},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, &podEnv{env: e.cluster.env(t), runner: e.runner})
			})
		}
	})
	for _, test := range []podTest{
		{"a process that is killed is started again, and counted", testPodKilled},
		{"the standby takes over when the pod of the leader is deleted", testPodTakeover},
		{"a pod is not ready while a permission is missing", testPodPermission},
		{"an upgrade replaces the pods one after the other, and two are ready at all times", testPodUpgrade},
		{"a node that is killed takes its processes with it, and starts them again", testNodeKilled},
		{"undeploy stops the pods and keeps the Foos", testUndeploy},
		{"a node that stops leaves no process and no mount", testNodeStops},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

// A podTest is a scenario.
type podTest struct {
	name string
	run  func(*testing.T, *podEnv)
}

// The pod runner needs no permissions of root. All other tests of pods run as the user who runs them.
func TestAnOrdinaryUserCanRunPods(t *testing.T) {
	skipWithoutPods(t)
	if os.Geteuid() != 0 {
		t.Skip("TestPods runs as an ordinary user already")
	}
	binary, err := os.Open(podRunnerBinary)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	cmd := exec.Command("/proc/self/fd/3", "check") // The user may not be permitted to read the directory.
	cmd.ExtraFiles, cmd.Dir = []*os.File{binary}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The user who starts the runner may have any umask.
func TestTheUmaskOfTheUserIsNotThatOfThePods(t *testing.T) {
	skipWithoutPods(t)
	out, err := exec.Command("bash", "-c", `umask 077; exec "$0" check`, podRunnerBinary).CombinedOutput()
	if err != nil {
		t.Errorf("with umask 077: %v: %s", err, out)
	}
}

// skipWithoutPods skips the test on a machine that cannot run pods.
func skipWithoutPods(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip(skipped)
	}
	out, err := exec.Command(podRunnerBinary, "check").CombinedOutput()
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.Fatalf("%v: `make %s` builds it", err, podRunnerBinary)
	case err != nil && os.Getenv(podsRequired) != "":
		t.Fatalf("%s is set, and this machine cannot run pods: %v: %s", podsRequired, err, out)
	case err != nil:
		t.Skipf("this machine cannot run pods, because it permits no user namespaces: %v: %s", err, out)
	}
}

// A podEnv is an env on a cluster with a node that runs pods.
type podEnv struct {
	*env
	runner *podRunner
}

// A podRunner is the process of the node.
type podRunner struct {
	dir string
	cmd *exec.Cmd
	log *syncBuffer
}

// newPodEnv starts a cluster with a node that runs pods. It skips the test on a machine that cannot run them.
func newPodEnv(t *testing.T) *podEnv {
	t.Helper()
	skipWithoutPods(t)
	if _, err := os.Stat(testLayout); err != nil {
		t.Fatalf("%v: `make bin/image-native` builds it", err)
	}
	e := &podEnv{env: newDedicatedEnv(t, fullCluster), runner: &podRunner{dir: t.TempDir(), log: &syncBuffer{}}}
	e.startNode(t)
	t.Cleanup(func() {
		e.stopNode(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of the pod runner:\n%s", e.runner.log)
			logs, _ := filepath.Glob(filepath.Join(e.runner.dir, "logs", "*"))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", filepath.Base(log), text)
			}
		}
	})
	return e
}

// startNode starts the pod runner, and waits until its node is ready.
func (e *podEnv) startNode(t *testing.T) {
	t.Helper()
	r := e.runner
	starts := r.countReady() // A node that was killed has left the condition Ready.
	r.cmd = exec.Command(podRunnerBinary, "--kubeconfig", e.Kubeconfig(), "--layout", testLayout, "--dir", r.dir,
		"--stop-with-stdin")
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	_, err := r.cmd.StdinPipe() // It ends with this process, even if that is killed.
	if err := errors.Join(err, r.cmd.Start()); err != nil {
		t.Fatalf("%v: `make %s` builds it", err, podRunnerBinary)
	}
	until(t, "the node is ready", func(context.Context) (bool, error) { return r.countReady() > starts, nil })
}

// countReady returns how often a process of the node has reported that it is ready.
func (r *podRunner) countReady() int { return strings.Count("\n"+r.log.String(), "\nready\n") }

// stopNode sends the pod runner a signal, and waits until it has ended.
func (e *podEnv) stopNode(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if e.runner.cmd == nil {
		return
	}
	_ = e.runner.cmd.Process.Signal(signal)
	if err := e.runner.cmd.Wait(); err != nil && signal == syscall.SIGTERM {
		t.Errorf("the pod runner ended with %v", err)
	}
	e.runner.cmd = nil
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
		if pod.Spec.NodeName != "real-node" || e.processOf(t, pod.Name) == 0 {
			t.Errorf("pod %s is reported as ready, and has no process", pod.Name)
		}
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
  nodeSelector: {foo-controller.example/pods: run}
  tolerations: [{key: foo-controller.example/pods, value: run, effect: NoSchedule}]
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
	} {
		if status[name] != want {
			t.Errorf("%s = %s, want %s", name, status[name], want)
		}
	}
	ids, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
	if inside := strings.Fields(string(ids)); err != nil || len(inside) != 3 || inside[0] != "65532" || inside[2] != "1" {
		t.Errorf("the users of the container are %q, %v; want only 65532", ids, err)
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
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2)), Image: "nginx:1.29"})
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
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "blue", Replicas: new(int32(1))})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.rename(t, "web", "green")
	until(t, "only the new Deployment exists", func(context.Context) (bool, error) {
		return e.exists(t, "green") && !e.exists(t, "blue"), nil
	})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}

func testPodScales(t *testing.T, e *podEnv) {
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2))})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	for _, replicas := range []int32{0, 2} {
		e.kubectl(t, "", "scale", "foo/web", fmt.Sprintf("--replicas=%d", replicas), "-n", e.namespace)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && foo.Status.Replicas == replicas && foo.Status.AvailableReplicas == replicas
		})
	}
}

func testPodRefuses(t *testing.T, e *podEnv) {
	e.kubectl(t, "", "create", "deployment", "web", "--image=nginx:1.29", "-n", e.namespace)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(3))})
	e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)
	if dep := e.deployment(t, "web"); *dep.Spec.Replicas != 1 || len(dep.OwnerReferences) != 0 {
		t.Errorf("the Deployment was changed: %d replicas, owners %v", *dep.Spec.Replicas, dep.OwnerReferences)
	}
}

func testPodGarbage(t *testing.T, e *podEnv) {
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.deleteFoo(t, "web", metav1.DeletePropagationBackground)
	until(t, "the Deployment is deleted", func(context.Context) (bool, error) { return !e.exists(t, "web"), nil })
}

func testPodMetrics(t *testing.T, e *podEnv) {
	pod := e.anyPod(t)
	url := "https://" + outside(pod) + ":8443/metrics"
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

// outside returns the address of this machine at which the ports of a pod are.
func outside(pod *corev1.Pod) string {
	return strings.Replace(pod.Status.PodIP, "10.245.", "127.0.", 1)
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
		return waiting != nil && waiting.Reason == "CrashLoopBackOff" && containerOf(pod).RestartCount == 1
	})
	ended := containerOf(pod).LastTerminationState.Terminated
	if ended == nil || ended.ExitCode != 1 || !strings.Contains(ended.Message, "no-such-flag") {
		t.Errorf("the container ended with %+v, want 1 and the name of the flag", ended)
	}
	if out := e.kubectl(t, "", "get", "pods", "-n", e.namespace); !strings.Contains(out, "CrashLoopBackOff   1 (") {
		t.Errorf("kubectl get pods shows\n%s", out)
	}
	if isPodReady(pod) {
		t.Error("the pod is ready")
	}
}

func testPodWithoutImage(t *testing.T, e *podEnv) {
	e.testPod(t, "absent", "image: foo-controller:never-built", "imagePullPolicy: IfNotPresent")
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

// A second deletion leaves less time than the first one.
func testPodDeletedTwice(t *testing.T, e *podEnv) {
	e.testPod(t, "stays", "image: "+testImage, "args: [--health-probe-bind-address=:8081]")
	e.waitForPod(t, e.namespace, "stays", "runs", func(pod *corev1.Pod) bool {
		return containerOf(pod).State.Running != nil
	})
	// It does not react to SIGTERM any more.
	if err := syscall.Kill(e.processOf(t, "stays"), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, "", "delete", "pod", "stays", "-n", e.namespace, "--wait=false", "--grace-period=600")
	until(t, "it is asked to stop", func(context.Context) (bool, error) {
		return strings.Contains(e.runner.log.String(), "stays: Stopping container"), nil
	})
	e.kubectl(t, "", "delete", "pod", "stays", "-n", e.namespace, "--grace-period=1", "--timeout="+eventually.String())
}

func testPodKilled(t *testing.T, e *podEnv) {
	pod := e.standby(t)
	if err := syscall.Kill(e.processOf(t, pod.Name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pod = e.waitForPod(t, systemNamespace, pod.Name, "is ready again", func(pod *corev1.Pod) bool {
		return containerOf(pod).RestartCount == 1 && isPodReady(pod)
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
	e.createFoo(t, "after", v1alpha1.FooSpec{DeploymentName: "after"})
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
	e.createReady(t, "upgraded", v1alpha1.FooSpec{DeploymentName: "upgraded"})
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
	e.createFoo(t, "refused", v1alpha1.FooSpec{DeploymentName: "refused"})
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

func testNodeKilled(t *testing.T, e *podEnv) {
	pods := e.controllerPods(t)
	var pids []int
	restarts := map[types.UID]int32{}
	for _, pod := range pods {
		pids = append(pids, e.processOf(t, pod.Name))
		restarts[pod.UID] = containerOf(pod).RestartCount
	}
	e.stopNode(t, syscall.SIGKILL)
	until(t, "the processes have ended", func(context.Context) (bool, error) {
		return !slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil }), nil
	})
	e.startNode(t)
	for _, pod := range pods {
		e.waitForPod(t, systemNamespace, pod.Name, "runs again", func(pod *corev1.Pod) bool {
			return containerOf(pod).RestartCount == restarts[pod.UID]+1 && containerOf(pod).State.Running != nil
		})
	}
	e.waitForReadyPods(t)
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

// isOurs reports whether a process belongs to the pod runner of this test.
func (e *podEnv) isOurs(t *testing.T, pid int) bool {
	t.Helper()
	mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)) // It may have ended.
	return strings.Contains(string(mounts), e.runner.dir)
}

func testNodeStops(t *testing.T, e *podEnv) {
	e.testPod(t, "last", "image: "+testImage, "args: [--health-probe-bind-address=:8081]")
	e.waitForPod(t, e.namespace, "last", "runs", func(pod *corev1.Pod) bool {
		return containerOf(pod).State.Running != nil
	})
	pid := e.processOf(t, "last")
	if pid == 0 || !e.isOurs(t, pid) {
		t.Fatalf("process %d does not belong to this test", pid)
	}
	e.stopNode(t, syscall.SIGTERM)
	for pid := range processes(t) {
		if e.isOurs(t, pid) {
			t.Errorf("process %d has a mount below %s", pid, e.runner.dir)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), e.runner.dir) {
		t.Errorf("a mount is left, or %v:\n%s", err, mounts)
	}
	left, err := os.ReadDir(filepath.Join(e.runner.dir, "pods"))
	if err != nil || len(left) != 0 {
		t.Errorf("files of pods are left: %v, %v", left, err)
	}
}
