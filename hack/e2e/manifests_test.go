package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// This file tests the manifests in artifacts, and the script of `make deploy`. admission_test.go has the policies.

// deployScript does what `make deploy`, `make undeploy` and `make manifests` do.
const deployScript = "hack/deploy.sh"

// script runs deployScript for the cluster, and returns its output.
func (c *cluster) script(command string, env ...string) (string, error) {
	return scriptIn(".", c.Kubeconfig(), command, append(env, c.path())...)
}

// scriptIn is script for a kubeconfig, or "" for that of the tree's own cluster, and for a deployScript that may be in
// another directory than the repository, see newScriptTree.
func scriptIn(root, kubeconfig, command string, env ...string) (string, error) {
	cmd := exec.Command(filepath.Join(root, deployScript), command, kubeconfig)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The API server accepts all manifests, without a warning.
func TestTheAPIServerAcceptsTheManifests(t *testing.T) {
	c := apiCluster.get(t)
	install := filepath.Join("bin", "install.yaml")
	if out, err := c.script("manifests", "IMAGE=registry.example:5000/foo-controller:v1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"-k", "artifacts/crd"}, {"-k", manifests}, {"-f", install}, {"-f", manifests + "/rbac.yaml"},
		{"-k", "artifacts/namespaced"}, {"-f", restricted + "/namespace.yaml"}, {"-f", restricted + "/policy.yaml"},
		{"-f", "artifacts/examples/example-foo.yaml"},
	} {
		t.Run(args[1], func(t *testing.T) {
			if args[1] == restricted+"/policy.yaml" {
				c.needsMinor(t, 36, "MutatingAdmissionPolicy in v1")
			}
			apply := []string{"apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
				"--warnings-as-errors"}
			if out, err := c.try("", append(apply, args...)...); err != nil {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		})
	}
	file, err := os.ReadFile(install)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind: CustomResourceDefinition", "image: registry.example:5000/foo-controller:v1\n"} {
		if !bytes.Contains(file, []byte(want)) {
			t.Errorf("%s has no %q", install, want)
		}
	}
}

// The level "restricted" of Pod Security, which the namespace of the controller has, accepts its pods. It refuses them
// if one of the fields that it demands is missing.
func TestPodSecurityAcceptsTheController(t *testing.T) {
	e := newEnv(t, apiCluster)
	pods := e.kube.CoreV1().Pods("foo-system")
	create := func(edit func(*corev1.PodSpec)) error {
		template := read(t, manifests).deployment.Spec.Template
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: template.Spec}
		edit(&pod.Spec)
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	if err := create(func(*corev1.PodSpec) {}); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string]func(*corev1.PodSpec){
		"without runAsNonRoot":   func(spec *corev1.PodSpec) { spec.SecurityContext.RunAsNonRoot = nil },
		"without seccompProfile": func(spec *corev1.PodSpec) { spec.SecurityContext.SeccompProfile = nil },
		"without dropped capabilities": func(spec *corev1.PodSpec) {
			spec.Containers[0].SecurityContext.Capabilities.Drop = nil
		},
		"without allowPrivilegeEscalation": func(spec *corev1.PodSpec) {
			spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		},
	} {
		if err := create(edit); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

// deployed are the objects of a kustomization.
type deployed struct {
	all        []*unstructured.Unstructured
	deployment appsv1.Deployment
	service    corev1.Service
	budget     policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
}

// read returns the objects of a kustomization. It needs no cluster.
func read(t *testing.T, folder string) *deployed {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), nil, 0o600); err != nil { // localcluster demands one.
		t.Fatal(err)
	}
	out, err := exec.Command("bin/localcluster", "kubectl", "--dir", dir, "--", "kustomize", folder).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", folder, err)
	}
	d := &deployed{all: objectsIn(t, bytes.NewReader(out))}
	for _, object := range d.all {
		into := map[string]any{
			"Deployment": &d.deployment, "Service": &d.service, "PodDisruptionBudget": &d.budget, "NetworkPolicy": &d.network,
		}[object.GetKind()]
		if into == nil {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// objects returns the objects in a YAML file.
func objects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return objectsIn(t, f)
}

func objectsIn(t *testing.T, text io.Reader) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(text, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
}

// overlay writes a kustomization, and returns its folder. kustomize reads only relative paths, so the folder is in the
// repository. Paths in the kustomization begin with ../.., as those in docs/install.md.
func overlay(t *testing.T, kustomization string) string {
	t.Helper()
	dir, err := os.MkdirTemp("bin", "overlay-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A kustomization with another namespace moves everything, and the former name is nowhere. With a prefix of the names,
// each object still finds those that it names.
func TestAKustomizationMovesAndRenamesEverything(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	d := read(t, overlay(t, "resources: [../../"+manifests+"]\nnamespace: elsewhere\nnamePrefix: my-\n"))
	names := map[string]bool{"ClusterRole /system:auth-delegator": true} // Each cluster has this one.
	for _, object := range d.all {
		namespace := object.GetNamespace()
		if object.GetKind() == "ValidatingAdmissionPolicy" {
			namespace = "" // kustomize sets one, and the API server ignores it.
		}
		names[fmt.Sprintf("%s %s/%s", object.GetKind(), namespace, object.GetName())] = true
	}
	references := map[string]int{}
	for _, object := range d.all {
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("foo-system")) {
			t.Errorf("%s %s has the former namespace: %s", object.GetKind(), object.GetName(), text)
		}
		for _, reference := range referencesOf(t, object) {
			kind, _, _ := strings.Cut(reference, " ")
			references[object.GetKind()+" to "+kind]++
			if !names[reference] {
				t.Errorf("%s %s names %s, which does not exist", object.GetKind(), object.GetName(), reference)
			}
		}
	}
	want := map[string]int{
		"ClusterRoleBinding to ClusterRole": 2, "ClusterRoleBinding to ServiceAccount": 2,
		"RoleBinding to Role": 1, "RoleBinding to ServiceAccount": 1, "Deployment to ServiceAccount": 1,
		"ValidatingAdmissionPolicyBinding to ClusterRoleBinding":        3,
		"ValidatingAdmissionPolicyBinding to ValidatingAdmissionPolicy": 3,
	}
	if diff := cmp.Diff(want, references); diff != "" {
		t.Errorf("names of other objects (-want +have):\n%s", diff)
	}
}

// referencesOf returns the objects that an object names, each as its kind, its namespace or "", and its name.
func referencesOf(t *testing.T, object *unstructured.Unstructured) (references []string) {
	t.Helper()
	field := func(from map[string]any, path ...string) string {
		value, _, err := unstructured.NestedString(from, path...)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	add := func(kind, namespace, name string) {
		references = append(references, fmt.Sprintf("%s %s/%s", kind, namespace, name))
	}
	switch object.GetKind() {
	case "ClusterRoleBinding", "RoleBinding":
		add(field(object.Object, "roleRef", "kind"), object.GetNamespace(), field(object.Object, "roleRef", "name"))
		subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects")
		for _, subject := range subjects {
			subject := subject.(map[string]any)
			add(field(subject, "kind"), field(subject, "namespace"), field(subject, "name"))
		}
	case "ValidatingAdmissionPolicyBinding":
		add("ValidatingAdmissionPolicy", "", field(object.Object, "spec", "policyName"))
		add("ClusterRoleBinding", "", field(object.Object, "spec", "paramRef", "name"))
	case "Deployment":
		add("ServiceAccount", object.GetNamespace(),
			field(object.Object, "spec", "template", "spec", "serviceAccountName"))
	}
	return references
}

// The kustomizations in docs/install.md do what the page promises.
func TestTheKustomizationsInTheDocumentsWork(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	page, err := os.ReadFile("docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var built []*deployed
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		built = append(built, read(t, overlay(t, string(block[1]))))
	}
	if len(built) != 2 {
		t.Fatalf("%d kustomizations, want 2", len(built))
	}
	changed := built[0].deployment
	container := changed.Spec.Template.Spec.Containers[0]
	if changed.Namespace != "foos" || container.Image != "registry.example/me/foo-controller:v1.2.3" ||
		!slices.Contains(container.Args, "--logging-format=json") || container.Env[0].Value != "576MiB" {
		t.Errorf("the changed Deployment is %v", changed)
	}
	for _, object := range slices.Concat(built[0].all, built[1].all) {
		if object.GetKind() == "CustomResourceDefinition" {
			t.Error("kubectl delete -k would delete all Foos")
		}
	}
	for _, object := range built[1].all {
		if strings.Contains(object.GroupVersionKind().Group, "admissionregistration") {
			t.Errorf("%s %s is there without admission policies", object.GetKind(), object.GetName())
		}
	}
}

// Names, ports and times in the manifests are those of the program.
func TestTheManifestsFitTheProgram(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	d := read(t, manifests)
	pod := d.deployment.Spec.Template
	container := pod.Spec.Containers[0]
	if out, err := exec.Command(controllerBinary, append(container.Args, "--version")...).CombinedOutput(); err != nil {
		t.Errorf("the controller does not accept its arguments: %v\n%s", err, out)
	}
	if strings.Contains(strings.Join(container.Args, " "), "debug-bind-address") {
		t.Errorf("the arguments are %v: the debug pages must stay off, as they are by default", container.Args)
	}
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	for name, flag := range map[string]string{
		"health": "--health-probe-bind-address=:8081", "metrics": "--metrics-bind-address=:8443",
	} {
		if !slices.Contains(container.Args, flag) || !strings.HasSuffix(flag, fmt.Sprintf(":%d", ports[name])) {
			t.Errorf("the port %s is %d, the arguments are %v", name, ports[name], container.Args)
		}
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe.HTTPGet.Port.StrVal != "health" {
			t.Errorf("a probe has the port %v", probe.HTTPGet.Port)
		}
	}
	if got := d.service.Spec.Ports[0].TargetPort.StrVal; got != "metrics" {
		t.Errorf("the Service has the port %q", got)
	}
	if got := d.network.Spec.Ingress[0].Ports[0].Port.StrVal; got != "metrics" || len(d.network.Spec.Ingress) != 1 {
		t.Errorf("the NetworkPolicy allows %v", d.network.Spec.Ingress)
	}
	selectors := []*metav1.LabelSelector{
		d.deployment.Spec.Selector, d.budget.Spec.Selector, &d.network.Spec.PodSelector,
		{MatchLabels: d.service.Spec.Selector},
	}
	for _, selector := range selectors {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%v does not select the pods, which have %v: %v", selector, pod.Labels, err)
		}
	}
}

// The component adds its flag to those of artifacts/deploy, and the program accepts them.
func TestTheComponentForDebuggingFitsTheProgram(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	have := read(t, overlay(t, "resources: [../../"+manifests+"]\ncomponents: [../../artifacts/debug]\n")).
		deployment.Spec.Template.Spec.Containers[0].Args
	want := append(read(t, manifests).deployment.Spec.Template.Spec.Containers[0].Args,
		"--debug-bind-address=127.0.0.1:6060")
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the arguments (-want +have):\n%s", diff)
	}
	if out, err := exec.Command(controllerBinary, append(have, "--version")...).CombinedOutput(); err != nil {
		t.Errorf("the controller does not accept its arguments: %v\n%s", err, out)
	}
}

// The kubelet waits longer than the program needs to stop, and Go's limit for memory is below the container's.
func TestThePodHasTimeAndMemory(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	pod := read(t, manifests).deployment.Spec.Template.Spec
	program, err := os.ReadFile("pkg/kit/process.go")
	if err != nil {
		t.Fatal(err)
	}
	stop := regexp.MustCompile(`stopTimeout = (\d+) \* time\.Second`).FindSubmatch(program)
	if stop == nil {
		t.Fatal("pkg/kit/process.go has no stopTimeout")
	}
	stopTimeout, err := time.ParseDuration(string(stop[1]) + "s")
	if err != nil {
		t.Fatal(err)
	}
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < stopTimeout+5*time.Second {
		t.Errorf("the pod has %s to stop, and the program exits by itself after %s", grace, stopTimeout)
	}
	limit := pod.Containers[0].Resources.Limits.Memory().Value()
	goLimit, err := resource.ParseQuantity(strings.TrimSuffix(pod.Containers[0].Env[0].Value, "B"))
	if err != nil {
		t.Fatal(err)
	}
	if got := goLimit.Value(); got > limit*95/100 || got < limit*80/100 {
		t.Errorf("GOMEMLIMIT is %d bytes, the limit of the container %d", got, limit)
	}
}

func (e *env) runScript(t *testing.T, command string, env ...string) string {
	t.Helper()
	out, err := e.script(command, env...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", deployScript, command, err, out)
	}
	return out
}

// Without KUBECONFIG and without a local cluster, nothing is installed, also if there is a ~/.kube/config.
func TestDeployUsesNoOtherCluster(t *testing.T) {
	c := apiCluster.get(t)
	home := newScriptTree(t, deployScript) // The script searches for .cluster beside itself.
	config, err := os.ReadFile(c.Kubeconfig())
	if err := errors.Join(err, os.Mkdir(filepath.Join(home, ".kube"), 0o700),
		os.WriteFile(filepath.Join(home, ".kube/config"), config, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"deploy", "undeploy"} {
		cmd := exec.Command(filepath.Join(home, deployScript), command)
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "make cluster") {
			t.Errorf("%s: %v, want an error with what to do:\n%s", command, err, out)
		}
	}
}

// Many have an exported KUBECONFIG, of a cluster where others work. All clusters here have stopped: the script says
// which one it has tried.
func TestMakeDeployTakesAKubeconfigOnlyFromItsCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	tree := newScriptTree(t, deployScript, "Makefile")
	stopped := httptest.NewServer(nil)
	stopped.Close()
	config, err := os.ReadFile(kubeconfigFor(t, stopped))
	here, other := filepath.Join(tree, ".cluster/kubeconfig"), filepath.Join(tree, "other")
	if err := errors.Join(err, os.Mkdir(filepath.Dir(here), 0o700), os.WriteFile(here, config, 0o600),
		os.WriteFile(other, config, 0o600),
		os.WriteFile(filepath.Join(tree, "hack/build.sh"), []byte("#!/bin/sh\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	// run runs a command in the tree, as a person with this KUBECONFIG.
	run := func(exported, command string) string {
		cmd := exec.Command("bash", "-c", `unset MAKEFLAGS MFLAGS MAKELEVEL CLUSTER_DIR IMAGE; eval "$0"`, command)
		cmd.Dir, cmd.Env = tree, append(os.Environ(), "KUBECONFIG="+exported, "OTHER="+other)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s has not failed", command)
		}
		return string(out)
	}
	const useHere, useOther = "The cluster in .cluster/kubeconfig does not answer", "/other does not answer"
	for _, test := range []struct{ exported, command, want string }{
		{exported: "", command: "make deploy", want: useHere},
		{exported: here, command: "make undeploy", want: useHere}, // As after `source .cluster/env`.
		{exported: other, command: "make deploy KUBECONFIG=", want: useHere},
		{exported: here, command: `make deploy KUBECONFIG="$OTHER"`, want: useOther},
		{exported: other, command: "make deploy KUBECONFIG= IMAGE='x; touch pwned #'", want: "Installing x; touch pwned #"},
		{exported: other, command: "make deploy KUBECONFIG= VERSION='v1; touch pwned #'", want: "foo-controller:v1; touch"},
	} {
		if out := run(test.exported, test.command); !strings.Contains(out, test.want) {
			t.Errorf("%s, KUBECONFIG=%s: want %q:\n%s", test.command, test.exported, test.want, out)
		}
	}
	for _, command := range []string{"make deploy", "make undeploy"} {
		out := run(other, command)
		_, paste, _ := strings.Cut(out, "For that cluster, type: ")
		paste, _, _ = strings.Cut(paste, "\n")
		if lines := strings.Count(out, "deploy: "); lines != 1 || !strings.HasPrefix(paste, command+" KUBECONFIG=") {
			t.Errorf("%s: want one line with what to type:\n%s", command, out)
		} else if out := run(other, paste); !strings.Contains(out, useOther) {
			t.Errorf("%s: want %q:\n%s", paste, useOther, out)
		}
	}
	if _, err := os.Stat(filepath.Join(tree, "pwned")); err == nil {
		t.Error("a part of a value was executed")
	}
}
