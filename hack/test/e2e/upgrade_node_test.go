package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A user starts `make cluster`, runs a pod, and ends it with Ctrl-C. A second one is refused, with one line.
func TestMakeClusterRunsPodsAndLeavesNothingBehind(t *testing.T) {
	waitForRoom(t)
	skipWithoutRoot(t)
	cmd := exec.Command("hack/cluster.sh")
	cmd.Dir = newScriptTree(t, "hack/cluster.sh", "hack/run.sh", "hack/local.sh") // With a .cluster of its own.
	cmd.Env = append(os.Environ(), "CLUSTER_DIR=", "CLUSTER_UNTIL_READY=")
	out := playScript(t, cmd, "Ctrl-C stops everything and removes .cluster", func() {
		for _, script := range []string{"hack/cluster.sh", "hack/run.sh"} {
			second := exec.Command(script)
			second.Dir = cmd.Dir
			second.Env = append(os.Environ(), "CLUSTER_DIR=", "CLUSTER_UNTIL_READY=1", "RUN_UNTIL_READY=1")
			out, err := second.CombinedOutput()
			const want = "A cluster runs in .cluster already, or starts or stops."
			if err == nil || !strings.HasPrefix(string(out), want) || strings.Count(string(out), "\n") != 1 {
				t.Errorf("%s as a second one ended with %v:\n%s", script, err, out)
			}
		}
		startClusterPod(t, cmd.Dir)
	})
	for _, want := range []string{"make image deploy", "source .cluster/env\n", "Nothing is left behind."} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if !regexp.MustCompile(`(?m)^node-0 +Ready `).MatchString(out) {
		t.Error("the output does not show that the node is ready")
	}
	if _, err := os.Stat(filepath.Join(cmd.Dir, ".cluster")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files are left behind: %v", err)
	}
	until(t, "no process is left", func(context.Context) (bool, error) { // The kernel ends those of the pods.
		return len(processesWith(t, filepath.Dir(cmd.Dir))) == 0, nil
	})
}

// startClusterPod starts a pod in the cluster of a directory, and waits until it runs.
func startClusterPod(t *testing.T, dir string) {
	t.Helper()
	kubectl := func(args ...string) (string, error) {
		cmd := exec.Command("bin/localcluster", append([]string{"kubectl", "--dir", ".cluster", "--"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	until(t, "a pod is accepted", func(context.Context) (bool, error) { // Its ServiceAccount may not exist yet.
		out, err := kubectl("run", "real", "--image="+workload)
		if err != nil && !strings.Contains(out, "serviceaccount") {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return err == nil, nil
	})
	if out, err := kubectl("wait", "--for=condition=Ready", "pod/real", "--timeout="+eventually.String()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A madeRelease is what `make release` wrote and `make push` pushed.
type madeRelease struct{ dir, version, image string }

// newRelease makes a release of the working tree, with what is changed in it, for this machine's platform, and pushes
// it.
func newRelease(t *testing.T, registry, version string) *madeRelease {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	cmd := exec.Command("bash", "-c", `set -o errexit
		commit=$(git -c user.name=a -c user.email=a@example.com stash create)
		git clone -q . "$0" && cd "$0" && git checkout -q "${commit:-HEAD}"
		unset MAKEFLAGS MAKELEVEL
		make release VERSION="v$1" REGISTRY="$2" ARGS="--platforms linux/$3" && make push REGISTRY="$2"`,
		clone, version, registry, runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var layout struct{ Manifests []struct{ Digest string } }
	dir := filepath.Join(clone, "bin/release")
	index, err := os.ReadFile(filepath.Join(dir, "layout/index.json"))
	if err := errors.Join(err, json.Unmarshal(index, &layout)); err != nil {
		t.Fatal(err)
	}
	return &madeRelease{dir: dir, version: version, image: registry + "/foo-controller@" + layout.Manifests[0].Digest}
}

// testReleases installs two releases on nodes that pull them from a registry, in each way that docs/install.md has:
// then both copies run the image with the digest of the release. A Foo from before stays.
func testReleases(t *testing.T, e *podEnv) {
	e.registry.open.Store(true)
	registry := "127.0.0.1:" + e.registry.port + "/me"
	old, next := newRelease(t, registry, "0.0.1-rc.1"), newRelease(t, registry, "0.0.1-rc.2")
	name, digest, _ := strings.Cut(next.image, "@")
	kustomization := overlay(t, "resources: [../../artifacts/crd, ../../"+manifests+"]\n"+
		"images: [{name: foo-controller, newName: \""+name+"\", digest: \""+digest+"\"}]\n")
	for _, step := range []struct {
		running *madeRelease
		tool    func(t *testing.T, args ...string)
		command string
	}{
		{old, e.helm, "install foo-controller oci://" + registry + "/charts/foo-controller --plain-http --version=" +
			old.version + " --create-namespace --take-ownership --force-conflicts --wait"},
		{next, e.helm, "upgrade foo-controller oci://" + registry + "/charts/foo-controller --plain-http --version=" +
			next.version + " --wait"},
		{old, e.helm, "rollback foo-controller 1 --wait"},
		{nil, e.helm, "uninstall foo-controller --wait"},
		{next, e.apply, "-f " + next.dir + "/install.yaml"},
		{old, e.apply, "-f " + old.dir + "/install.yaml"},
		{next, e.apply, "-k " + kustomization},
	} {
		step.tool(t, strings.Fields(step.command)...)
		until(t, step.command, func(context.Context) (bool, error) {
			pods := e.controllerPods(t)
			for _, pod := range pods {
				if !isPodReady(pod) || containerOf(pod).ImageID != step.running.image {
					return false, nil
				}
			}
			return len(pods) == 2 || step.running == nil, nil
		})
		if foo := e.foo(t, keptFoo); foo.DeletionTimestamp != nil {
			t.Errorf("%s deletes a Foo", step.command)
		}
	}
	e.createReady(t, "released", v1alpha1.FooSpec{DeploymentName: "released", Image: workload})
}

func (e *podEnv) helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("bin/helm", append(args, "--namespace", systemNamespace, "--kubeconfig", e.Kubeconfig())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (e *podEnv) apply(t *testing.T, args ...string) {
	t.Helper()
	e.kubectl(t, "", append([]string{"apply"}, args...)...)
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

// testNodeDies kills a node with all that runs there at once. docs/operations.md promises another leader within 24 s.
func testNodeDies(t *testing.T, e *podEnv) {
	leader := e.leader(t, "")
	pod, err := e.kube.CoreV1().Pods(systemNamespace).Get(t.Context(), leader, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.kill(t, pod.Spec.NodeName)
	killed := time.Now()
	until(t, "its processes are gone", func(context.Context) (bool, error) { return e.processOf(t, leader) == 0, nil })
	e.createFoo(t, "late", v1alpha1.FooSpec{DeploymentName: "late", Image: workload})
	e.leader(t, leader)
	t.Logf("another pod leads after %s", time.Since(killed).Round(time.Second))
	until(t, "the Foo has a Deployment", func(context.Context) (bool, error) { return e.exists(t, "late"), nil })
	e.revive(t, pod.Spec.NodeName)
	e.waitForPod(t, systemNamespace, leader, "runs again", func(pod *corev1.Pod) bool {
		return isPodReady(pod) && containerOf(pod).RestartCount > 0
	})
	e.waitForReason(t, "late", v1alpha1.ReasonAvailable)
	e.checkDeploymentWrites(t, killed, "create deployments/ "+e.namespace+"/late: 201")
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
