package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file tests what the script of `make deploy` and `make undeploy` does in a cluster that is not as it expects.
// manifests_test.go has what it does otherwise.

// All parts are about one cluster, which has no controllers: no pod starts or ends.
func TestDeployAndUndeployBreakNothingOfOthers(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	system := &env{cluster: e.cluster, namespace: systemNamespace}
	for _, part := range []struct {
		name string
		run  func(t *testing.T, e *env)
	}{
		{"a local cluster whose pods are simulated gets no controller", testSimulatedPods},
		{"an installation in another namespace keeps its permissions", testOtherNamespace},
		{"a namespace with a Secret of others is kept", testSecretOfOthers},
		{"a namespace is kept if its objects cannot be listed", testListThatFails},
		{"a pod that does not stop is named, and the rest is removed", testPodThatStays},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, system) })
	}
}

// inTime lets the script wait only for a moment, because nothing ends in this cluster.
const inTime = "TIMEOUT=2s"

func testOtherNamespace(t *testing.T, e *env) {
	e.kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-k",
		overlay(t, "resources: [../../"+manifests+"]\nnamespace: foos\n"))
	for _, command := range []string{"deploy", "undeploy"} {
		out, err := e.script(command, inTime)
		if want := "a controller in another namespace: foos\n"; err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want an error with %q:\n%s", command, err, want, out)
		}
	}
	subject := e.kubectl(t, "", "get", "clusterrolebinding", "foo-controller", "-o", "jsonpath={.subjects[*].namespace}")
	if subject != "foos" {
		t.Errorf("the ClusterRoleBinding is now for the namespace %s", subject)
	}
	e.kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-k", manifests)
}

func testPodThatStays(t *testing.T, e *env) {
	e.kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-k", manifests)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stays", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "foo-controller", UID: "1",
		}}},
		Spec: read(t, manifests).deployment.Spec.Template.Spec,
	}
	if _, err := e.kube.CoreV1().Pods(e.namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out, err := e.script("undeploy", inTime)
	if err != nil || !strings.Contains(out, "stays") || !strings.Contains(out, "These do not stop.") {
		t.Errorf("undeploy: %v\n%s", err, out)
	}
	left := e.kubectl(t, "", "get", "clusterroles,clusterrolebindings", "-o", "name", "-l", "app.kubernetes.io/name")
	if left != "" {
		t.Errorf("undeploy keeps %s", left)
	}
}

func testSecretOfOthers(t *testing.T, e *env) {
	e.kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-f", manifests+"/rbac.yaml")
	e.kubectl(t, "", "create", "secret", "generic", "passwords", "-n", e.namespace)
	out, err := e.script("undeploy", inTime)
	if want := "is kept, because of what else is in it: Secret/passwords\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("undeploy: %v, want %q:\n%s", err, want, out)
	}
	e.kubectl(t, "", "get", "secret", "passwords", "-n", e.namespace)
	e.kubectl(t, "", "delete", "secret", "passwords", "-n", e.namespace)
}

// The script runs with a kubectl that fails when it lists the kinds, as it does when the API server does not answer.
func testListThatFails(t *testing.T, e *env) {
	root := newScriptTree(t, deployScript)
	failing := fmt.Sprintf("#!/bin/bash\n[[ $* != *api-resources* ]] || exit 1\nexec env %s kubectl \"$@\"\n", e.path())
	if err := errors.Join(os.WriteFile(filepath.Join(root, "bin/kubectl"), []byte(failing), 0o700),
		os.CopyFS(filepath.Join(root, "artifacts"), os.DirFS("artifacts"))); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH")
	out, err := scriptIn(root, e.Kubeconfig(), "undeploy", inTime, path)
	if want := "is kept, because of what else is in it: not all kinds"; err != nil || !strings.Contains(out, want) {
		t.Errorf("undeploy: %v, want %q:\n%s", err, want, out)
	}
}

// After `make run`, a pod would be reported as ready without a process. KUBECONFIG may name that cluster, too: people
// source .cluster/env.
func testSimulatedPods(t *testing.T, e *env) {
	root := newScriptTree(t, deployScript)
	local := filepath.Join(root, ".cluster/kubeconfig")
	config, err := os.ReadFile(e.Kubeconfig())
	if err := errors.Join(err, os.Mkdir(filepath.Dir(local), 0o700), os.WriteFile(local, config, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, kubeconfig := range []string{"", local} {
		out, err := scriptIn(root, kubeconfig, "deploy", e.path())
		if err == nil || !strings.Contains(out, "are simulated.\n") || !strings.HasSuffix(out, "make cluster\n") {
			t.Errorf("with KUBECONFIG=%s: %v, want an error with what to do:\n%s", kubeconfig, err, out)
		}
	}
}
