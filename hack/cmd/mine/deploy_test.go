package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/foo-controller/hack/tools/controlplane"
)

// ofPrometheus is what `kubectl apply` needs of the kinds of prometheus-operator.
const ofPrometheus = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "PLURAL.monitoring.coreos.com"}, "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced",
		"names": {"kind": "KIND", "plural": "PLURAL"}, "versions": [{"name": "v1", "served": true, "storage": true,
			"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

// A manifested is a repository for an odd kind, as far as its manifests go: nothing is compiled. Its cluster has an API
// server and no controllers.
type manifested struct {
	*controlplane.ControlPlane
	dir string
}

// run runs a command in the repository, with an input. It returns what it prints, and whether it succeeded.
func (m *manifested) run(t *testing.T, cmd *exec.Cmd, input string) (string, bool) {
	t.Helper()
	cmd.Dir, cmd.Stdin = m.dir, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// apply applies objects, or with -k a kustomization.
func (m *manifested) apply(t *testing.T, input string, arguments ...string) {
	t.Helper()
	out, ok := m.run(t, m.Kubectl(append([]string{"apply", "--server-side"}, arguments...)...), input)
	if !ok {
		t.Fatalf("kubectl apply %q: %s", arguments, out)
	}
}

// newManifested writes the repository, and starts its cluster.
func newManifested(t *testing.T) *manifested {
	t.Helper()
	root, err := filepath.Abs(thisRoot)
	if err != nil {
		t.Fatal(err)
	}
	o := newTestOrder(t, root, "KIND=CacheIndex", "PLURAL=cacheindices", "GROUP=my-db.example.org",
		"MODULE=github.com/widget/index-controller", "DIR="+filepath.Join(t.TempDir(), "new"))
	w := &writing{order: o, dir: o.dir}
	if err := w.copyStarter(t.Context()); err != nil {
		t.Fatal(err)
	}
	names := o.starterNames() // The generator writes the same, but for the order of the names.
	crd := "artifacts/crd/" + starterGroup + "_widgets.yaml"
	if err := w.copy(filepath.Join(root, starter, crd), names.text(crd), names); err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.Start(root, "--components=api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	return &manifested{plane, o.dir}
}

// deploy is `make deploy`, with a KUBECONFIG in the environment and one on the command line.
func (m *manifested) deploy(t *testing.T, exported, given string) (string, bool) {
	t.Helper()
	cmd := exec.Command("make", "--no-print-directory", "deploy", "IMAGE=registry.example/index-controller:v1",
		"KUBECTL="+strings.Join(m.Kubectl().Args, " "))
	if given != "" {
		cmd.Args = append(cmd.Args, "KUBECONFIG="+given)
	}
	for _, variable := range os.Environ() {
		if !isOfMake(variable) && !strings.HasPrefix(variable, "KUBECONFIG=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+exported)
	return m.run(t, cmd, "")
}

const (
	owned = `"ownerReferences": [{"apiVersion": "my-db.example.org/v1alpha1", "kind": "CacheIndex", "name": "web",
		"uid": "the-uid", "controller": true}]`
	configMap  = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", OWNERS}}`
	deployment = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", OWNERS},
		"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
			"spec": {POD "containers": [{"name": "c", "image": "i"}]}}}}`
)

// TestTheManifests applies all manifests of a new repository to an API server: with `make deploy`, which needs a
// cluster on its command line, and with kustomize. Each policy refuses what the controller must not do, though a role
// permits it here, and accepts its work.
func TestTheManifests(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server; run without -short")
	}
	m := newManifested(t)
	const line = "Name the cluster: make deploy KUBECONTEXT=NAME, or KUBECONFIG=FILE\n"
	if out, ok := m.deploy(t, m.Kubeconfig(), ""); ok || !strings.HasPrefix(out, line) {
		t.Errorf("without a cluster, make deploy prints %q", out)
	}
	if out, ok := m.deploy(t, "/none", m.Kubeconfig()); !ok || !strings.Contains(out, "/cacheindex-controller ") {
		t.Fatalf("make deploy: %s", out)
	}
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		m.apply(t, strings.NewReplacer("PLURAL", strings.ToLower(kind)+"s", "KIND", kind).Replace(ofPrometheus), "-f", "-")
	}
	if out, ok := m.run(t, m.Kubectl("wait", "--for=condition=Established", "crds", "--all"), ""); !ok {
		t.Fatal(out)
	}
	for _, dir := range []string{"monitoring", "namespaced"} {
		m.apply(t, "", "-k", "artifacts/"+dir)
	}
	m.apply(t, "", "-f", "artifacts/examples")
	for operator, want := range map[string]string{"=": "cacheindex.my-db.example.org/example\n", "!=": ""} {
		selector := "--field-selector=spec.image" + operator + "registry.k8s.io/pause:3.10"
		if out, ok := m.run(t, m.Kubectl("get", "cacheindices", "-o", "name", selector), ""); !ok || out != want {
			t.Errorf("%s selects %q, want %q", selector, out, want)
		}
	}
	m.testPolicies(t)
}

func (m *manifested) testPolicies(t *testing.T) {
	const account = "cacheindex-system:cacheindex-controller"
	if out, ok := m.run(t, m.Kubectl("create", "clusterrolebinding", "all", "--clusterrole=cluster-admin",
		"--serviceaccount="+account), ""); !ok {
		t.Fatal(out)
	}
	asController := func(input string, arguments ...string) (string, bool) {
		as := []string{"--as=system:serviceaccount:" + account, "--dry-run=server"}
		return m.run(t, m.Kubectl(append(arguments, as...)...), input)
	}
	create := []string{"create", "-f", "-"}
	patch := func(body string) []string {
		return []string{"patch", "cacheindex", "example", "--type=merge", "--patch=" + body}
	}
	for _, test := range []struct {
		name, input string
		arguments   []string
		refused     string
	}{
		{name: "a ConfigMap of nobody", input: configMap, arguments: create, refused: "writes"},
		{name: "a Deployment of nobody", input: deployment, arguments: create, refused: "writes"},
		{name: "a ConfigMap of a CacheIndex", input: strings.Replace(configMap, "OWNERS", owned, 1), arguments: create},
		{
			name: "a Deployment in the network of the node", refused: "pods", arguments: create,
			input: strings.NewReplacer("OWNERS", owned, "POD", `"hostNetwork": true,`).Replace(deployment),
		},
		{name: "a Deployment of a CacheIndex", input: strings.Replace(deployment, "OWNERS", owned, 1), arguments: create},
		{name: "the spec of a CacheIndex", arguments: patch(`{"spec":{"replicas":9}}`), refused: "status"},
		{name: "a label of a CacheIndex", arguments: patch(`{"metadata":{"labels":{"a":"b"}}}`), refused: "status"},
		{name: "a CacheIndex", arguments: []string{"delete", "cacheindex", "example"}, refused: "status"},
		{name: "a finalizer", arguments: patch(`{"metadata":{"finalizers":["my-db.example.org/f"]}}`)},
		{name: "the status", arguments: append(patch(`{"status":{"observedGeneration":1}}`), "--subresource=status")},
	} {
		input, accepted := strings.NewReplacer(", OWNERS", "", "POD", "").Replace(test.input), test.refused == ""
		out, ok := asController(input, test.arguments...)
		for range 20 { // A policy takes effect up to a second after it is stored.
			if ok == accepted {
				break
			}
			time.Sleep(500 * time.Millisecond)
			out, ok = asController(input, test.arguments...)
		}
		want := "ValidatingAdmissionPolicy 'cacheindex-controller-" + test.refused + "'"
		if ok != accepted || !ok && !strings.Contains(out, want) {
			t.Errorf("%s: want it refused by %q, got: %s", test.name, test.refused, out)
		}
	}
}
