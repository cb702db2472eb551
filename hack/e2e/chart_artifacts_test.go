package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests the chart, with the real Helm. TestAnotherVersionLeavesNothing has what is removed without Helm.

const chart = "artifacts/chart"

// render returns the objects of a chart in a namespace, as YAML.
func render(chart, namespace, values string) (string, error) {
	cmd := exec.Command("bin/helm", "template", "foo-controller", chart, "-n", namespace, "-f", "-")
	cmd.Stdin = strings.NewReader(values)
	out, err := cmd.Output()
	if exit, hasExited := errors.AsType[*exec.ExitError](err); hasExited {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return string(out), err
}

func byID(objects []*unstructured.Unstructured) map[string]any {
	byID := map[string]any{}
	for _, object := range objects {
		byID[idOf(object)] = object.Object
	}
	return byID
}

func TestTheChartIsTheManifests(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	rendered := func(chart, namespace, values string) map[string]any {
		out, err := render(chart, namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		return byID(objectsIn(t, strings.NewReader(out)))
	}
	want := byID(slices.Concat(read(t, manifests).all, read(t, "artifacts/crd").all))
	delete(want, "Namespace/foo-system") // Helm makes the namespace, and docs/install.md has its labels.
	dir := t.TempDir()
	out, err := exec.Command("bin/helm", "package", chart, "-d", dir, "--version=1.2.3").CombinedOutput()
	if err != nil {
		t.Fatalf("helm package: %v\n%s", err, out)
	}
	for _, chart := range []string{chart, filepath.Join(dir, "foo-controller-1.2.3.tgz")} {
		if diff := cmp.Diff(want, rendered(chart, "foo-system", "")); diff != "" {
			t.Errorf("%s with its default values (-manifests +chart):\n%s", chart, diff)
		}
	}
	have := rendered(chart, "default", "{namespaced: true, crds: false}")
	maps.DeleteFunc(have, func(id string, object any) bool {
		unstructured.RemoveNestedField(object.(map[string]any), "metadata", "labels")
		kind, _, _ := strings.Cut(id, "/")
		return slices.Contains(strings.Fields("Deployment PodDisruptionBudget NetworkPolicy Service"), kind)
	})
	if diff := cmp.Diff(byID(read(t, "artifacts/namespaced").all), have); diff != "" {
		t.Errorf("for one namespace, without labels (-manifests +chart):\n%s", diff)
	}
}

// Each value does what its description promises, and the API server accepts the result.
func TestTheChartFollowsItsValues(t *testing.T) {
	c := apiCluster.get(t)
	image := "registry.example:5000/foo@sha256:" + strings.Repeat("0a", 32)
	for _, test := range []struct{ values, with, without string }{
		{
			values: `{image: "` + image + `", pullSecrets: [a, b], replicas: 3, resources: {limits: {memory: 1Gi}},
flags: [--v=4], networkPolicy: {apiServer: {ports: [16443], cidrs: [10.0.0.1/32]}, dnsNamespace: dns},
prometheus: {namespace: prom}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable:
ScheduleAnyway}], priorityClassName: high, nodeSelector: {disk: ssd}, tolerations: [{operator: Exists}],
labels: {team: blue, app.kubernetes.io/name: mine}}`,
			with: "image: " + image + "|imagePullSecrets:|- name: a|- name: b|replicas: 3|memory: 1Gi|cpu: 50m|value: 921MiB|" +
				"- --v=4|port: 16443|cidr: 10.0.0.1/32|metadata.name: dns|priorityClassName: high|topologyKey: zone|" +
				"disk: ssd|- operator: Exists|team: blue|metadata.name: prom", without: "name: mine|port: 6443|230MiB",
		},
		{
			values: "{resources: {limits: null}, policies: false, crds: false, networkPolicy: {enabled: false}}",
			with:   "memory: 128Mi|kind: ClusterRole\n", without: "GOMEMLIMIT|ValidatingAdmission|Definition|NetworkPol",
		},
		{
			values: "{namespaced: true, flags: [--v=4]}", with: "--namespace=foo-system|reader-foo-system|namespace: foo-system",
			without: "-default\n|namespace: default|-foos\n|ValidatingAdmission",
		},
		{
			values: "{namespaced: true, prometheus: {serviceMonitor: true, alerts: true, namespace: prom, serviceAccount: sa}}",
			with: "kind: ServiceMonitor|kind: PrometheusRule|name: sa\n|namespace: prom\n|{{ with $labels.cluster }}|" +
				"name: foo-controller-metrics-reader-foo-system", without: "prometheus-k8s|metrics-reader\n",
		},
	} {
		out, err := render(chart, "foo-system", test.values)
		if err != nil {
			t.Fatalf("%s: %v", test.values, err)
		}
		for want := range strings.SplitSeq(test.with, "|") {
			if !strings.Contains(out, want) {
				t.Errorf("%s: nothing has %q", test.values, want)
			}
		}
		for other := range strings.SplitSeq(test.without, "|") {
			if strings.Contains(out, other) {
				t.Errorf("%s: something has %q", test.values, other)
			}
		}
		if !strings.Contains(out, "ServiceMonitor") { // That kind is not there.
			c.kubectl(t, out, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
		}
	}
	for _, refused := range []string{
		`image: ""`, "image: a b", "image: foo@sha256:1", "replicas: -1", "replicas: two", "policies: maybe", "imge: foo",
		"flags: [v]", "resources: {limits: {memory: 1000k}}", "pullSecrets: a", "prometheus: {alert: true}",
		"networkPolicy: {cidrs: []}", "networkPolicy: {apiServer: {ports: []}}", "networkPolicy: {apiServer: {cidrs: [10]}}",
		"networkPolicy: {apiServer: {ports: null}}", "networkPolicy: {dnsNamespace: null}",
	} {
		words := strings.Split(refused, ": ")
		name := strings.Trim(words[len(words)-2], "{")
		if _, err := render(chart, "foo-system", refused); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want a refusal that names it", refused, err)
		}
	}
}

// The table of values in the page of the chart is that of values.yaml and its schema.
func TestTheReadmeOfTheChartHasItsValues(t *testing.T) {
	type node struct {
		Description          string
		AdditionalProperties any
		Properties           map[string]node
	}
	var schema node
	var values map[string]any
	for file, into := range map[string]any{"values.schema.json": &schema, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join(chart, file))
		if err := errors.Join(err, yaml.Unmarshal(text, into)); err != nil {
			t.Fatal(err)
		}
	}
	delete(schema.Properties, "global") // Helm's own.
	table := "| value | default | meaning |\n| --- | --- | --- |\n"
	var add func(prefix string, properties map[string]node, values map[string]any)
	add = func(prefix string, properties map[string]node, values map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			property, value := properties[name], values[name]
			if property.AdditionalProperties == false {
				add(prefix+name+".", property.Properties, value.(map[string]any))
				continue
			}
			encoded, _ := json.Marshal(value)
			if value == nil || property.Description == "" {
				t.Errorf("%s has no default or no description", prefix+name)
			}
			table += fmt.Sprintf("| `%s` | `%s` | %s |\n", prefix+name, encoded, property.Description)
		}
	}
	add("", schema.Properties, values)
	checkTable(t, chart+"/README.md", "value", table)
}

// What docs/install.md does with Helm: the commands are those of the page. A hundred Foos notice nothing.
func TestHelm(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	dep := &env{cluster: e.cluster, namespace: systemNamespace}
	e.kubectl(t, "", "delete", "-f", manifests+"/rbac.yaml", "-f", "artifacts/crd") // Of newDedicatedEnv.
	newer, home, scenes := t.TempDir(), t.TempDir(), scenesOf(t, "docs/install.md")
	otherVersion(t, newer)
	next := func(root, version string) { // Plays the next block of commands, in the tree of this or the newer version.
		t.Helper()
		prelude := fmt.Sprintf("unset KUBERC\nexport %q HOME=%q KUBECONFIG=%q\ncd %q", e.path(), home, e.Kubeconfig(), root)
		command := scenes[0].Command
		playScenes(t, "docs/install.md", prelude, scenes[:1])
		if scenes = scenes[1:]; version == "" {
			return
		}
		e.checkVersion(t, command, root == newer)
		if image := imageOf(dep.deployment(t, controllerName)); !strings.HasSuffix(image, version) {
			t.Errorf("after %s, the image is %s, want %s", command, image, version)
		}
	}

	next(".", ":v1.2.3")
	first := e.controller(t) // In place of the pods, which are simulated.
	for i := range 100 {
		name := fmt.Sprintf("web-%d", i)
		e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(1))})
	}
	e.createReady(t, "last", v1alpha1.FooSpec{DeploymentName: "last"})
	still := func() map[string]string {
		objects := map[string]string{}
		for name, dep := range e.deployments(t) {
			objects[name] = fmt.Sprintf("Foo %s, Deployment %s of generation %d", e.foo(t, name).UID, dep.UID, dep.Generation)
		}
		return objects
	}
	before := still()

	next(newer, ":v1.2.4")
	second := e.controller(t)
	first.stop(t)
	e.editFoo(t, "last", `{"spec":{"paused":true}}`)
	e.waitForReason(t, "last", v1alpha1.ReasonPaused) // After a sync of all others.
	next(".", ":v1.2.3")
	second.stop(t)
	next(".", "")
	e.checkNothingLeft(t)
	e.runScript(t, "deploy", "IMAGE=foo-controller:v1")
	next(".", ":v1.2.3")
	e.controller(t)
	e.editFoo(t, "last", `{"spec":{"paused":false}}`)
	e.waitForReason(t, "last", v1alpha1.ReasonAvailable)
	if diff := cmp.Diff(before, still()); diff != "" {
		t.Errorf("Foos and their Deployments (-before +after):\n%s", diff)
	}
	if out, err := e.script("deploy"); err == nil || !strings.Contains(out, "is a release of Helm") {
		t.Errorf("make deploy over a release of Helm: %v\n%s", err, out)
	}
}
