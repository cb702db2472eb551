package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
	lowest := dep.sampleAvailableOf(t, controllerName)
	e.runScript(t, "deploy", "IMAGE=foo-controller:v2")
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
	dep.checkOnlyNewPods(t, out)
	if n := lowest(); n < 2 {
		t.Errorf("%d copies were available at one time, want 2 at all times", n)
	}
	e.runScript(t, "deploy", "IMAGE=foo-controller:v2")

	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	e.createDeployment(t, "web", func(*appsv1.Deployment) {})
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

// What another version has is removed when this one is installed: by make deploy, which needs only kubectl, and by the
// command of docs/install.md.
func TestAnotherVersionLeavesNothing(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	other := newScriptTree(t, deployScript, "Makefile")
	otherVersion(t, other)
	// A tree without a bundled kubectl, where nothing can be built.
	if err := errors.Join(os.Remove(filepath.Join(other, "bin/localcluster")),
		os.WriteFile(filepath.Join(other, "hack/build.sh"), []byte("#!/bin/sh\nexit 1\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	makeInOther := func(args ...string) {
		t.Helper()
		cmd := exec.Command("make", append(args, "IMAGE=foo-controller:other")...)
		cmd.Dir, cmd.Env = other, append(os.Environ(), "MAKEFLAGS=", e.path())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %v: %v\n%s", args, err, out)
		}
	}

	// As make deploy once did it. kubectl has no record of the policy then, so it stays once, but the field goes.
	e.kubectl(t, "", "apply", "--server-side", "--force-conflicts", "--field-manager=foo-controller-deploy", "-k",
		filepath.Join(other, manifests))
	e.checkVersion(t, "a server-side apply of the other version", true)
	e.runScript(t, "deploy", "IMAGE=foo-controller:v1")
	e.kubectl(t, "", "delete", "validatingadmissionpolicies", "foo-controller-more")
	e.checkVersion(t, "make deploy in place of a server-side apply", false)

	makeInOther("deploy", "KUBECONFIG="+e.Kubeconfig())
	e.checkVersion(t, "make deploy of the other version", true)
	e.runScript(t, "deploy", "IMAGE=foo-controller:v1")
	e.checkVersion(t, "make deploy", false)

	makeInOther("manifests")
	e.runScript(t, "manifests", "IMAGE=foo-controller:v1")
	for _, root := range []string{other, "."} {
		prelude := fmt.Sprintf("unset KUBERC\nexport %q\ncd %q/bin", e.path(), root)
		playScenes(t, "docs/install.md", prelude, scenesOf(t, "docs/install.md"))
		e.checkVersion(t, "kubectl apply in "+root, root == other)
	}

	// A second installation with the labels of the first one would lose its permissions.
	e.kubectl(t, "", "apply", "-k", overlay(t, "{resources: [../../"+manifests+"], namespace: more, namePrefix: my-}"))
	out, err := e.script("deploy")
	if want := "Other installations have the label"; err == nil || !strings.Contains(out, want) {
		t.Errorf("with another installation: %v, want an error with %q:\n%s", err, want, out)
	}
}

// checkOnlyNewPods checks that the output names the new pod, with its state, its events and its log, and no other one.
func (e *env) checkOnlyNewPods(t *testing.T, out string) {
	t.Helper()
	pods, err := e.kube.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		isNew := strings.HasSuffix(pod.Spec.Containers[0].Image, ":never-ready")
		if n := strings.Count(out, pod.Name); isNew && n < 3 || !isNew && n > 0 {
			t.Errorf("%s, with the image %s, is %d times in the output:\n%s", pod.Name, pod.Spec.Containers[0].Image, n, out)
		}
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
		if _, err := e.kube.RbacV1().RoleBindings(e.namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
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
