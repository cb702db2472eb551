package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// reader returns the kubeconfig of a ServiceAccount that may only list Foos, and list and get Deployments of the namespace.
func (e *env) reader(t *testing.T) (kubeconfig string) {
	t.Helper()
	ctx, create, meta := t.Context(), metav1.CreateOptions{}, metav1.ObjectMeta{Name: controllerName}
	if _, err := e.kube.CoreV1().ServiceAccounts(e.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: meta}, create); err != nil {
		t.Fatal(err)
	}
	if _, err := e.kube.RbacV1().Roles(e.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{sampleGroup}, Resources: []string{"foos"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"list", "get"}},
	}}, create); err != nil {
		t.Fatal(err)
	}
	if _, err := e.kube.RbacV1().RoleBindings(e.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: controllerName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: e.namespace, Name: controllerName}},
	}, create); err != nil {
		t.Fatal(err)
	}
	return e.kubeconfigOf(t, e.namespace, nil)
}

// explain runs the controller with --explain and returns what it prints, and the exit code.
func explain(t *testing.T, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(controllerBinary, flags...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// The binary explains a Foo with three permissions to read, and its exit code is for scripts. A write would be refused,
// and the exit code would be that of an error.
func TestExplain(t *testing.T) {
	e := newEnv(t, apiCluster)
	flags := []string{"--kubeconfig", e.reader(t), "--explain=" + e.namespace + "/web"}

	out, problem, code := explain(t, flags...)
	if code != 1 || out != "" || strings.Count(problem, "\n") != 1 || !strings.Contains(problem, "/web does not exist") {
		t.Errorf("no such Foo: exit code %d, output %q and %q", code, out, problem)
	}

	e.createFoo(t, "web", fooSpec("web"))
	out, problem, code = explain(t, flags...)
	if code != 2 || problem != "" || !strings.Contains(out, "the controller would send create Deployment web\n") {
		t.Errorf("a new Foo: exit code %d, output\n%s%s", code, out, problem)
	}
	if e.exists(t, "web") {
		t.Error("the Deployment was created")
	}
	out, problem, code = explain(t, append(flags, "--explain="+e.namespace+"/*")...)
	if code != 2 || problem != "" || !strings.HasPrefix(out, "Foo "+e.namespace+"/web: create Deployment web: ") ||
		!strings.HasSuffix(out, "\n1 foos: 1 would be written, 0 could not be explained\n") {
		t.Errorf("all Foos of the namespace: exit code %d, output\n%s%s", code, out, problem)
	}

	e.editFoo(t, "web", `{"spec":{"paused":true}}`)
	controller := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--namespace", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonPaused)
	controller.stop(t)
	out, problem, code = explain(t, append(flags, "--explain-format=json")...)
	var report struct{ WouldSend bool }
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.WouldSend || problem != "" {
		t.Errorf("a Foo with nothing to do: exit code %d, %v, output\n%s%s", code, err, out, problem)
	}
}
