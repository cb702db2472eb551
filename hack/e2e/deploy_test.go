package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A cluster that is not there or too old is reported before anything is installed.
func TestDeployExplainsWhichClusterItNeeds(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"major": "1", "minor": "31+", "gitVersion": "v1.31.4-gke.1"}`)
	}))
	defer old.Close()
	stopped := httptest.NewServer(nil)
	stopped.Close()
	for _, test := range []struct{ name, kubeconfig, want string }{
		{name: "no file", kubeconfig: filepath.Join(t.TempDir(), "none"), want: "/none is not a file."},
		{name: "no API server", kubeconfig: kubeconfigFor(t, stopped), want: "does not answer: The connection to the server"},
		{name: "an older Kubernetes", kubeconfig: kubeconfigFor(t, old), want: "1.32 or newer is needed"},
	} {
		for _, command := range []string{"deploy", "undeploy"} {
			if out, err := scriptIn(".", test.kubeconfig, command); err == nil || !strings.Contains(out, test.want) {
				t.Errorf("%s: %s: %v, want an error with %q:\n%s", test.name, command, err, test.want, out)
			}
		}
	}
}

// kubeconfigFor writes a kubeconfig for a server, and returns its path.
func kubeconfigFor(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(path, fmt.Appendf(nil, "clusters: [{name: it, cluster: {server: %q}}]\n"+
		"contexts: [{name: it, context: {cluster: it}}]\ncurrent-context: it\n", server.URL), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
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

// docs/image.md has the command.
func TestAShellBesideTheControllerIsAccepted(t *testing.T) {
	e := newEnv(t, apiCluster)
	page, err := os.ReadFile("docs/image.md")
	if err != nil {
		t.Fatal(err)
	}
	const command = "kubectl debug -it POD -n foo-system --image=busybox --profile=restricted"
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), command) {
		t.Errorf("the page does not have %q", command)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "debugged"}, Spec: read(t, manifests).deployment.Spec.Template.Spec,
	}
	pods := e.kube.CoreV1().Pods(systemNamespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pods.Delete(context.Background(), pod.Name, *metav1.NewDeleteOptions(0)) }) // With the cluster.
	args := strings.Fields(strings.NewReplacer("kubectl ", "", "-it ", "", "POD", pod.Name).Replace(command))
	e.kubectl(t, "", append(args, "--attach=false", "--", "sh")...)
}
