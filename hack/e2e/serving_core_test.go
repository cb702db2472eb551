package e2e

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestReadinessShowsWhatIsMissing(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	kubeconfig := e.cluster.kubeconfig(t, nil)
	e.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	p := startController(t, "--kubeconfig", kubeconfig, "--health-probe-bind-address=127.0.0.1:0")
	url := "http://" + p.address(t, "health")
	shows := func(what string, want int, texts ...string) {
		t.Helper()
		until(t, what, func(context.Context) (bool, error) {
			status, body := fetch(t, url+"/readyz?verbose", "")
			for _, text := range texts {
				if !strings.Contains(body, text) {
					return false, nil
				}
			}
			return status == want, nil
		})
		_, body := fetch(t, url+"/readyz?verbose", "")
		t.Logf("%s:\n%s", what, body)
		if status, body := fetch(t, url+"/healthz?verbose", ""); status != http.StatusOK {
			t.Errorf("%s: /healthz: %d %s", what, status, body)
		}
	}
	shows("the CRD is missing", 500,
		"[-]foos failed: not listed yet", "kubectl apply -f artifacts/crd", "[-]cluster failed")
	definition, err := os.ReadFile("artifacts/crd/samplecontroller.k8s.io_foos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, strings.ReplaceAll(string(definition), "name: v1alpha1", "name: v1beta1"), "apply", "-f", "-")
	shows("the CRD is of another version", 500,
		"is installed in another version", `installed="v1beta1"`, `needed="v1alpha1"`)
	e.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	if err := e.Install("artifacts/crd"); err != nil {
		t.Fatal(err)
	}
	shows("it works", 200, "[+]foos ok", "[+]deployments ok", "[+]cluster ok")

	e.kubectl(t, "", "patch", "clusterrole", "foo-controller", "--type=json", "-p",
		`[{"op":"replace","path":"/rules/3/verbs","value":["get","list","watch"]}]`)
	e.kubectl(t, `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"web"},
		"spec":{"deploymentName":"web","replicas":1}}`, "create", "-n", e.namespace, "-f", "-")
	shows("a permission was revoked", 500, "[+]foos ok",
		`permission="create deployments.apps"`,
		"kubectl auth can-i create deployments.apps --all-namespaces --as="+controllerUser)
	e.kubectl(t, "", "apply", "-f", "artifacts/deploy/rbac.yaml")
	shows("it was granted again", 200, "[+]cluster ok")

	e.kubectl(t, "", "patch", "crd", "foos.samplecontroller.k8s.io", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/subresources"}]`)
	e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
	shows("the CRD has no status", 500, "has no subresource status")
	e.kubectl(t, "", "apply", "-f", "artifacts/crd")
	shows("the CRD is complete", 200, "[+]cluster ok")

	if err := e.KillComponent("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	shows("the API server is down", 500, "Cannot reach the API server")
	if err := e.StartComponent("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	shows("it is up again", 200, "[+]cluster ok")
}

// Nothing is refused, so only the check at the start finds it.
func TestADefinitionWithoutConditionsIsShown(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	e.kubectl(t, "", "patch", "crd", "foos.samplecontroller.k8s.io", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions"}]`)
	until(t, "the API server publishes that schema", func(context.Context) (bool, error) {
		schema, err := e.try("", "get", "--raw", "/openapi/v3/apis/samplecontroller.k8s.io/v1alpha1")
		return err == nil && !strings.Contains(schema, "lastTransitionTime"), nil
	})
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--health-probe-bind-address=127.0.0.1:0")
	readyz := "http://" + p.address(t, "health") + "/readyz?verbose"
	shows := func(what string, want int, text string) {
		t.Helper()
		until(t, what, func(context.Context) (bool, error) {
			status, body := fetch(t, readyz, "")
			return status == want && strings.Contains(body, text), nil
		})
	}
	shows("the CRD has no conditions", 500,
		`The CustomResourceDefinition drops fields of the status name="foos.samplecontroller.k8s.io"`)
	shows("it names the field", 500, `fields="conditions"`)
	e.kubectl(t, "", "apply", "-f", "artifacts/crd")
	shows("the CRD has conditions again", 200, "[+]cluster ok")
}

// The reviews go over a connection of their own. A missing permission for them is noticed too.
func TestARevokedPermissionForReviewsIsShown(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--metrics-bind-address=0.0.0.0:0",
		"--health-probe-bind-address=127.0.0.1:0")
	p.waitForLog(t, `"Started"`)
	_, port, _ := strings.Cut(p.address(t, "metrics"), "]:")
	readyz := "http://" + p.address(t, "health") + "/readyz?verbose"
	shows := func(what string, want int, text string) {
		t.Helper()
		until(t, what, func(context.Context) (bool, error) {
			fetch(t, "https://127.0.0.1:"+port+"/metrics", "unknown") // Asks for a review.
			status, body := fetch(t, readyz, "")
			return status == want && strings.Contains(body, text), nil
		})
	}
	shows("it works", 200, "[+]cluster ok")
	e.kubectl(t, "", "delete", "clusterrolebinding", "foo-controller-auth-delegator")
	shows("no reviews", 500, `permission="create tokenreviews.authentication.k8s.io"`)
	e.kubectl(t, "", "apply", "-f", "artifacts/deploy/rbac.yaml")
	shows("reviews again", 200, "[+]cluster ok")
}
