package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/fluxcd/pkg/envsubst"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const gitops = "artifacts/gitops"

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

	fleet := overlay(t, "")
	text, err := os.ReadFile(gitops + "/argocd.yaml")
	set, errParse := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"default": func(otherwise, value string) string { return cmp.Or(value, otherwise) }, // Of sprig.
	}).Parse(string(text))
	if err := errors.Join(err, errParse, os.CopyFS(filepath.Join(fleet, "fleet"), os.DirFS(gitops)), os.WriteFile(
		filepath.Join(fleet, "fleet/foo-controller/install.yaml"), []byte(e.installYAML(t)), 0o600)); err != nil {
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
	west := map[string]map[string]any{}
	for _, object := range read(t, gitops+"/clusters/west-1").all {
		west[object.GetKind()+"/"+object.GetName()] = object.Object
	}
	values, _, _ := unstructured.NestedStringMap(west["ConfigMap/foo-controller"], "data")
	// Otherwise Flux does what is below only if there is a value.
	strategy, _, _ := unstructured.NestedString(west["Kustomization/foo-controller"], "spec", "postBuild", "substituteStrategy")
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

// The command of docs/gitops.md adds our health check to the settings of Argo CD, and leaves the others alone.
func TestTheHealthCheckGetsIntoArgoCD(t *testing.T) {
	e := newEnv(t, apiCluster)
	e.kubectl(t, "", "create", "namespace", "argocd")
	e.kubectl(t, "", "create", "configmap", "argocd-cm", "-n", "argocd", "--from-literal=url=https://argocd.example")
	const page = "docs/gitops.md"
	playScenes(t, page, kubectlFunction(e.Kubectl()), scenesOf(t, page))
	script, err := os.ReadFile(healthScript)
	key := `{.data.url} {.data.resource\.customizations\.health\.samplecontroller\.k8s\.io_Foo}`
	have := e.kubectl(t, "", "get", "configmap", "argocd-cm", "-n", "argocd", "-o", "jsonpath="+key)
	if want := "https://argocd.example " + string(script); err != nil || have != want {
		t.Errorf("%v, the settings are:\n%s", err, have)
	}
}
