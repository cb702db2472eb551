package e2e

import (
	"context"
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
	"text/template"

	"github.com/fluxcd/pkg/envsubst"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/foo-controller/hack/tools/pages"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests the ways to install the controller: the commands of docs/install.md, the manifests of docs/gitops.md,
// the chart with the real Helm, and the script of `make deploy`, `make undeploy` and `make manifests`.

const (
	installPage  = "docs/install.md"
	gitops       = "artifacts/gitops"
	chart        = "artifacts/chart"
	deployScript = "hack/deploy.sh"
	// inTime lets the script wait only for a moment, because nothing ends in a cluster without controllers.
	inTime = "TIMEOUT=2s"
)

// installKinds installs CustomResourceDefinitions of others: files in a Go module, of which nothing is compiled.
func (e *env) installKinds(t *testing.T, module, files string) {
	t.Helper()
	var found struct{ Dir string }
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err := errors.Join(err, json.Unmarshal(out, &found)); err != nil {
		t.Skipf("%s is not here, and cannot be downloaded: %v", module, err)
	}
	e.kubectl(t, "", "apply", "--server-side", "-f", filepath.Join(found.Dir, files))
	// kubectl wait fails if there is no condition yet.
	until(t, "the kinds are there", func(context.Context) (bool, error) {
		_, err := e.try("", "wait", "--for=condition=Established", "crds", "--all")
		return err == nil, nil
	})
}

// From the installation to the end of the last Foo. The pods of the controller are simulated, so a process does their
// work. The Foos move to the same cluster, after they were deleted.
func TestTheCommandsOfInstall(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	e.kubectl(t, "", "delete", "namespace", "foo-system") // Of newDedicatedEnv.
	startController(t, "--kubeconfig", e.Kubeconfig())
	home := t.TempDir()
	config, err := os.ReadFile(e.Kubeconfig())
	if err := errors.Join(err, os.Mkdir(filepath.Join(home, ".kube"), 0o700),
		os.WriteFile(filepath.Join(home, ".kube/config"), config, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove("bin/foos.yaml") })
	prelude := "export HOME='" + home + "'\n" +
		`make() { command make --no-print-directory --old-file=bin/localcluster "$@"; }` + "\n" +
		kubectlFunction(e.Kubectl())
	e = &env{cluster: e.cluster, namespace: "default"}
	var before *v1alpha1.Foo
	for _, scene := range scenesOf(t, installPage) {
		moves := strings.Contains(scene.Command, "bin/foos.yaml")
		if moves {
			e.kubectl(t, "", "label", "foo/example-foo", "team=1")
			before = e.foo(t, "example-foo")
			export, apply, _ := strings.Cut(scene.Command, "\nkubectl apply")
			scene.Command = export + "\nkubectl delete foos --all\nkubectl apply" + apply
		}
		playScenes(t, installPage, prelude, []pages.Scene{scene})
		if t.Failed() {
			return
		}
		if moves {
			e.waitForReason(t, "example-foo", v1alpha1.ReasonAvailable)
			after := e.foo(t, "example-foo")
			if diff := cmp.Diff(before.Spec, after.Spec); diff != "" || after.Labels["team"] != "1" || after.UID == before.UID {
				t.Errorf("the Foo has the labels %v and is another one: %t (-before +after):\n%s", after.Labels,
					after.UID != before.UID, diff)
			}
		}
	}
	until(t, "the Deployment is deleted", func(context.Context) (bool, error) { return !e.exists(t, "example-foo"), nil })
	e.checkNothingLeft(t)
}

// The API server accepts the manifests for both tools, by their own schemas. Both build the same controller for a
// cluster, with its values or with those of artifacts/deploy. The tools themselves do not run.
func TestTheManifestsForArgoCDAndFlux(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	e.installKinds(t, "github.com/argoproj/argo-cd/v3@v3.5.7", "manifests/crds/app*-crd.yaml")
	e.installKinds(t, "github.com/fluxcd/kustomize-controller@v1.9.6", "config/crd/bases/*.yaml")
	e.installKinds(t, "github.com/fluxcd/source-controller@v1.9.6", "config/crd/bases/*.yaml")
	e.kubectl(t, "", "create", "namespace", "argocd")
	e.kubectl(t, "", "create", "namespace", "flux-system")
	accept := func(input string, args ...string) {
		e.kubectl(t, input, append([]string{"apply", "--server-side", "--force-conflicts", "--dry-run=server",
			"--validate=strict", "--warnings-as-errors"}, args...)...)
	}
	accept("", "-f", gitops+"/argocd.yaml")
	accept("", "-k", gitops+"/clusters/west-1")

	installYAML := e.kubectl(t, "", "kustomize", overlay(t, "resources: [../../artifacts/crd, ../../"+manifests+"]\n"+
		"images: [{name: foo-controller, newName: registry.example/me/foo-controller, newTag: v1.2.3}]\n"))
	fleet := overlay(t, "")
	text, err := os.ReadFile(gitops + "/argocd.yaml")
	set, errParse := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"default": func(otherwise, value string) string { // Of sprig.
			if value == "" {
				return otherwise
			}
			return value
		},
	}).Parse(string(text))
	if err := errors.Join(err, errParse, os.CopyFS(filepath.Join(fleet, "fleet"), os.DirFS(gitops)), os.WriteFile(
		filepath.Join(fleet, "fleet/foo-controller/install.yaml"), []byte(installYAML), 0o600)); err != nil {
		t.Fatal(err)
	}
	// build builds the folder foo-controller with patches, as both tools do.
	build := func(object map[string]any, path ...string) string {
		patches, _, _ := unstructured.NestedSlice(object, path...)
		text, err := json.Marshal(map[string]any{"resources": []string{"../fleet/foo-controller"}, "patches": patches})
		dir, errDir := os.MkdirTemp(fleet, "")
		if err := errors.Join(err, errDir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600)); err != nil {
			t.Fatal(err)
		}
		return e.kubectl(t, "", "kustomize", dir)
	}
	west := byID(read(t, gitops+"/clusters/west-1").all)
	values, _, _ := unstructured.NestedStringMap(west["ConfigMap/foo-controller"], "data")
	// Otherwise Flux does what is below only if there is a value.
	strategy, _, _ := unstructured.NestedString(west["Kustomization/foo-controller"], "spec", "postBuild",
		"substituteStrategy")
	if strategy != "Always" {
		t.Error("a cluster without values has no memory limit")
	}
	defaults := map[string]string{"foo_memory": "256Mi", "foo_gomemlimit": "230MiB"} // As in artifacts/deploy.
	for _, test := range []struct{ values, want map[string]string }{{want: defaults}, {values, values}} {
		var out strings.Builder
		labels := map[string]string{"foo-memory": test.values["foo_memory"], "foo-gomemlimit": test.values["foo_gomemlimit"]}
		err := set.Execute(&out, map[string]any{"nameNormalized": "west-1", "server": "https://west-1.example",
			"metadata": map[string]any{"labels": labels}})
		if err != nil {
			t.Fatal(err)
		}
		accept(out.String(), "-f", "-")
		argo := build(objectsIn(t, strings.NewReader(out.String()))[0].Object, "spec", "template", "spec", "source",
			"kustomize", "patches")
		flux, err := envsubst.Eval(build(west["Kustomization/foo-controller"], "spec", "patches"),
			func(name string) (string, bool) { return test.values[name], true })
		if err != nil || flux != argo {
			t.Errorf("Flux has, %v:\n%s\nArgo CD has:\n%s", err, flux, argo)
		}
		accept(flux, "-f", "-")
		for _, want := range []string{"- --logging-format=json\n", "kind: CustomResourceDefinition\n",
			fmt.Sprintf("memory: %s\n", test.want["foo_memory"]), fmt.Sprintf("value: %s\n", test.want["foo_gomemlimit"]),
		} {
			if !strings.Contains(flux, want) {
				t.Errorf("the manifests lack %q:\n%s", want, flux)
			}
		}
	}
}

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

func byID(objects []*unstructured.Unstructured) map[string]map[string]any {
	byID := map[string]map[string]any{}
	for _, object := range objects {
		byID[idOf(object)] = object.Object
	}
	return byID
}

func TestTheChartIsTheManifests(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	rendered := func(chart, namespace, values string) map[string]map[string]any {
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
	maps.DeleteFunc(have, func(id string, object map[string]any) bool {
		unstructured.RemoveNestedField(object, "metadata", "labels")
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
	newer, home, scenes := t.TempDir(), t.TempDir(), scenesOf(t, installPage)
	otherVersion(t, newer)
	next := func(root, version string) { // Plays the next block of commands, in the tree of this or the newer version.
		t.Helper()
		prelude := fmt.Sprintf("unset KUBERC\nexport %q HOME=%q KUBECONFIG=%q\ncd %q", e.path(), home, e.Kubeconfig(), root)
		command := scenes[0].Command
		playScenes(t, installPage, prelude, scenes[:1])
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

// script runs deployScript for the cluster, and returns its output.
func (c *cluster) script(command string, env ...string) (string, error) {
	return scriptIn(".", c.Kubeconfig(), command, append(env, c.path())...)
}

// scriptIn is script for a kubeconfig, or "" for that of the tree's own cluster, and for a deployScript that may be in
// another directory than the repository, see newScriptTree.
func scriptIn(root, kubeconfig, command string, env ...string) (string, error) {
	cmd := exec.Command(filepath.Join(root, deployScript), command)
	if kubeconfig != "" {
		cmd.Args = append(cmd.Args, kubeconfig)
	}
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (e *env) runScript(t *testing.T, command string, env ...string) string {
	t.Helper()
	out, err := e.script(command, env...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", deployScript, command, err, out)
	}
	return out
}

// make deploy installs the controller in the cluster of KUBECONFIG and waits for its pods. make undeploy removes all
// that, and keeps the CustomResourceDefinition, the Foos and their Deployments.
func TestDeployAndUndeploy(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	e.kubectl(t, "", "delete", "namespace", "foo-system") // Of newDedicatedEnv.
	out := e.runScript(t, "deploy", "IMAGE=foo-controller:v1")
	dep := &env{cluster: e.cluster, namespace: "foo-system"}
	if image := dep.deployment(t, controllerName).Spec.Template.Spec.Containers[0].Image; image != "foo-controller:v1" {
		t.Errorf("the image is %q", image)
	}
	if !dep.rolledOut(t, controllerName) {
		t.Errorf("the Deployment is not rolled out:\n%s", out)
	}
	e.testRoles(t)

	// A version that never becomes ready: the script reports that, and both copies of the other version stay.
	out, err := e.script("deploy", "IMAGE=foo-controller:never-ready", "TIMEOUT=5s")
	for _, want := range []string{
		"the nodes do not have the image foo-controller:never-ready", "Copies of the old one that serve: 2.",
		" SuccessfulCreate ",
	} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v, want an error with %q:\n%s", err, want, out)
		}
	}

	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	e.createDeployment(t, "web", nothing)
	before := e.deployment(t, "web").UID
	dep.createDeployment(t, "other-app", nothing)
	e.kubectl(t, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"foo-controller"}}`,
		"create", "-n", "foo-system", "-f", "-") // As the controller does. The pods here are simulated.
	for _, kept := range []bool{true, false} {
		out = e.runScript(t, "undeploy")
		if !strings.Contains(out, "delete -k artifacts/crd") || !strings.Contains(out, "This deletes all Foos") {
			t.Errorf("no line about the CustomResourceDefinition:\n%s", out)
		}
		if strings.Contains(out, "Warning") {
			t.Errorf("a warning:\n%s", out)
		}
		if e.foo(t, "web"); e.deployment(t, "web").UID != before {
			t.Error("the Deployment of the Foo is another one")
		}
		if _, err := e.kube.CoreV1().Namespaces().Get(t.Context(), "foo-system", metav1.GetOptions{}); (err == nil) != kept {
			t.Errorf("a namespace with other objects is kept: %t, %v", kept, err)
		}
		e.checkNothingLeft(t)
		if kept {
			e.kubectl(t, "", "delete", "deployment", "other-app", "-n", "foo-system")
		}
	}
}

// otherVersion copies the manifests into a directory, with a policy more, and a field more of the pods.
func otherVersion(t *testing.T, dir string) {
	t.Helper()
	const script = `cp -R artifacts "$0" && cd "$0/artifacts/deploy" &&
sed -i 's/^ *serviceAccountName: .*/&\n      hostname: other/' deployment.yaml && cat >>admission.yaml <<EOT
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: foo-controller-more}
spec: {validations: [{expression: "true"}], matchConstraints: {resourceRules: [
  {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}}
EOT`
	if out, err := exec.Command("bash", "-c", script, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// checkVersion checks whether the cluster has what only otherVersion has.
func (e *env) checkVersion(t *testing.T, after string, other bool) {
	t.Helper()
	policy := e.kubectl(t, "", "get", "validatingadmissionpolicies", "foo-controller-more", "--ignore-not-found")
	system := &env{cluster: e.cluster, namespace: systemNamespace}
	field := system.deployment(t, controllerName).Spec.Template.Spec.Hostname
	if (policy != "") != other || (field != "") != other {
		t.Errorf("after %s, the cluster has of the other version the policy %q and the field %q, want them: %t",
			after, policy, field, other)
	}
}

// What another version has is removed when this one is installed: by make deploy, and by the command of
// docs/install.md.
func TestAnotherVersionLeavesNothing(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	other := newScriptTree(t, deployScript)
	otherVersion(t, other)
	inOther := func(command string) {
		t.Helper()
		if out, err := scriptIn(other, e.Kubeconfig(), command, "IMAGE=foo-controller:other", e.path()); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}

	// As make deploy once did it. kubectl has no record of the policy then, so it stays once, but the field goes.
	e.kubectl(t, "", "apply", "--server-side", "--force-conflicts", "--field-manager=foo-controller-deploy", "-k",
		filepath.Join(other, manifests))
	e.checkVersion(t, "a server-side apply of the other version", true)
	e.runScript(t, "deploy", "IMAGE=foo-controller:v1")
	e.kubectl(t, "", "delete", "validatingadmissionpolicies", "foo-controller-more")
	e.checkVersion(t, "make deploy in place of a server-side apply", false)

	inOther("deploy")
	e.checkVersion(t, "make deploy of the other version", true)
	e.runScript(t, "deploy", "IMAGE=foo-controller:v1")
	e.checkVersion(t, "make deploy", false)

	inOther("manifests")
	e.runScript(t, "manifests", "IMAGE=foo-controller:v1")
	for _, root := range []string{other, "."} {
		prelude := fmt.Sprintf("unset KUBERC\nexport %q\ncd %q/bin", e.path(), root)
		playScenes(t, installPage, prelude, scenesOf(t, installPage))
		e.checkVersion(t, "kubectl apply in "+root, root == other)
	}

	// A second installation with the labels of the first one would lose its permissions.
	e.kubectl(t, "", "apply", "-k", overlay(t, "{resources: [../../"+manifests+"], namespace: more, namePrefix: my-}"))
	out, err := e.script("deploy")
	if want := "Other installations have the label"; err == nil || !strings.Contains(out, want) {
		t.Errorf("with another installation: %v, want an error with %q:\n%s", err, want, out)
	}
}

// checkNothingLeft checks that none of the objects in the manifests exists, except for the namespace.
func (e *env) checkNothingLeft(t *testing.T) {
	t.Helper()
	for _, object := range read(t, manifests).all {
		if object.GetKind() == "Namespace" {
			continue
		}
		kind := object.GetKind() + "." + object.GroupVersionKind().Group
		args := []string{"get", kind, object.GetName(), "--ignore-not-found", "-o", "name", "-n", "foo-system"}
		if out := e.kubectl(t, "", args...); out != "" {
			t.Errorf("%s is left", out)
		}
	}
	if out := e.kubectl(t, "", "get", "leases", "-n", "foo-system", "-o", "name"); out != "" {
		t.Errorf("%s is left", out)
	}
}

// testRoles checks what the users of a namespace may do with Foos.
func (e *env) testRoles(t *testing.T) {
	for _, role := range []string{"view", "edit", "admin"} {
		e.kubectl(t, "", "create", "rolebinding", role, "--clusterrole="+role, "--user="+role, "-n", e.namespace)
	}
	until(t, "the roles are aggregated", func(ctx context.Context) (bool, error) {
		create := permission{verb: "create", group: sampleGroup, resource: "foos", namespace: e.namespace}
		return e.may(ctx, t, "admin", create), nil
	})
	for _, c := range []struct{ resource, verbs, may string }{
		{resource: "foos", verbs: "get list watch", may: "view edit admin"},
		{resource: "foos/scale", verbs: "get", may: "view edit admin"},
		{resource: "foos", verbs: "create update patch delete deletecollection", may: "edit admin"},
		{resource: "foos/scale", verbs: "update patch", may: "edit admin"},
		{resource: "foos/status", verbs: "update patch"},
		{resource: "foos/finalizers", verbs: "update patch"},
	} {
		resource, subresource, _ := strings.Cut(c.resource, "/")
		for _, verb := range strings.Fields(c.verbs) {
			p := permission{
				verb: verb, group: sampleGroup, resource: resource, subresource: subresource, namespace: e.namespace,
			}
			for _, role := range []string{"view", "edit", "admin"} {
				want := slices.Contains(strings.Fields(c.may), role)
				if got := e.may(t.Context(), t, role, p); got != want {
					t.Errorf("%s may %s: %t, want %t", role, p, got, want)
				}
			}
		}
	}
}

// The script does nothing to a cluster that it is not for, and keeps what others have. This cluster has no controllers:
// no pod starts or ends.
func TestDeployAndUndeployBreakNothingOfOthers(t *testing.T) {
	c := newDedicatedEnv(t, apiCluster).cluster
	e := &env{cluster: c, namespace: systemNamespace}
	root := newScriptTree(t, deployScript)
	local := filepath.Join(root, ".cluster/kubeconfig")
	config, err := os.ReadFile(e.Kubeconfig())
	if err := errors.Join(err, os.Mkdir(filepath.Dir(local), 0o700), os.WriteFile(local, config, 0o600)); err != nil {
		t.Fatal(err)
	}
	refuses := func(want, root, kubeconfig string, env ...string) {
		t.Helper()
		for _, command := range []string{"deploy", "undeploy"} {
			out, err := scriptIn(root, kubeconfig, command, append(env, e.path(), inTime)...)
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v, want an error with %q:\n%s", command, err, want, out)
			}
		}
	}
	refuses("/none is not a file.", ".", filepath.Join(t.TempDir(), "none"))
	// Many have an exported KUBECONFIG, of a cluster where others work.
	refuses("KUBECONFIG is only in the environment.", root, "", "KUBECONFIG="+e.Kubeconfig())
	for arg, want := range map[string]string{"VERSION=v1": "", "KUBECONFIG=/a-file": `"$KUBECONFIG"`} {
		cmd := exec.Command("make", "--no-print-directory", "--dry-run", "deploy", arg)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "KUBECONFIG=/exported")
		if out, err := cmd.Output(); err != nil || !strings.HasSuffix(string(out), "hack/deploy.sh deploy "+want+"\n") {
			t.Errorf("make deploy %s: %v, want the argument %q for the script:\n%s", arg, err, want, out)
		}
	}
	refuses("are simulated.\n", root, "", "KUBECONFIG=") // After make run, no pod has a process.

	apply := []string{"apply", "--server-side", "--force-conflicts", "-k"}
	e.kubectl(t, "", append(apply, overlay(t, "resources: [../../"+manifests+"]\nnamespace: foos\n"))...)
	refuses("a controller in another namespace: foos\n", ".", e.Kubeconfig())
	subject := e.kubectl(t, "", "get", "clusterrolebinding", "foo-controller", "-o", "jsonpath={.subjects[*].namespace}")
	if subject != "foos" {
		t.Errorf("the ClusterRoleBinding is now for the namespace %s", subject)
	}

	e.kubectl(t, "", append(apply, manifests)...)
	e.kubectl(t, "", "create", "secret", "generic", "passwords", "-n", e.namespace)
	out := e.runScript(t, "undeploy", inTime)
	if want := "is kept, because of what else is in it: Secret/passwords\n"; !strings.Contains(out, want) {
		t.Errorf("undeploy: want %q:\n%s", want, out)
	}
	e.kubectl(t, "", "get", "secret", "passwords", "-n", e.namespace)
}
