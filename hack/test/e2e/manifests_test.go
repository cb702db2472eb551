package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

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

// This file tests the manifests in artifacts. admission_artifacts_test.go has the policies.

// The API server accepts all manifests, without a warning.
func TestTheAPIServerAcceptsTheManifests(t *testing.T) {
	c := apiCluster.get(t)
	if out, err := c.script("manifests", "IMAGE=registry.example:5000/foo-controller:v1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	debug := overlay(t, "resources: [../../"+manifests+"]\ncomponents: [../../artifacts/debug]\n")
	for _, args := range [][]string{
		{"-k", "artifacts/crd"}, {"-k", manifests}, {"-f", "bin/install.yaml"}, {"-f", manifests + "/rbac.yaml"},
		{"-k", "artifacts/namespaced"}, {"-f", restricted + "/policy.yaml"},
		{"-f", "artifacts/examples/example-foo.yaml"}, {"-k", debug},
	} {
		t.Run(args[1], func(t *testing.T) {
			if args[1] == restricted+"/policy.yaml" {
				c.needsMinor(t, 36, "MutatingAdmissionPolicy in v1")
			}
			c.kubectl(t, "", append([]string{"apply", "--server-side", "--force-conflicts", "--dry-run=server",
				"--validate=strict", "--warnings-as-errors"}, args...)...)
		})
	}
}

// The level "restricted" of Pod Security, which the namespace of the controller has, accepts its pods.
func TestPodSecurityAcceptsTheController(t *testing.T) {
	e := newEnv(t, apiCluster)
	spec := read(t, manifests).deployment.Spec.Template.Spec
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: spec}
	pods := e.kube.CoreV1().Pods(systemNamespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun}); err != nil {
		t.Error(err)
	}
	pod.Spec.SecurityContext = nil
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun}); !apierrors.IsForbidden(err) {
		t.Errorf("without a security context: %v, want a refusal", err)
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
	seconds, _ := strconv.Atoi(string(stop[1]))
	if grace := *pod.TerminationGracePeriodSeconds; grace < int64(seconds)+5 {
		t.Errorf("the pod has %d s to stop, and the program exits by itself after %d s", grace, seconds)
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

// Otherwise the removal of one installation breaks the other.
func TestAControllerForOneNamespaceSharesNothingWithOneForAll(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	shared := map[string]bool{}
	for _, object := range objects(t, manifests+"/rbac.yaml") {
		shared[idOf(object)] = object.GetNamespace() == ""
	}
	for _, object := range objects(t, "artifacts/namespaced/rbac.yaml") {
		if object.GetNamespace() == "" && shared[idOf(object)] {
			t.Errorf("%s is in both", idOf(object))
		}
	}
}

func idOf(object *unstructured.Unstructured) string { return object.GetKind() + "/" + object.GetName() }
