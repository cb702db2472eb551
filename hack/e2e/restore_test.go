package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// An administrator restores an older state of etcd while the controller runs. The resourceVersions go back, so the
// watches of all clients are silent until the cluster has made as many writes again, and their caches have what does
// not exist any more. A controller that is not restarted does no harm: its writes have preconditions. docs/install.md
// says to restart it. Then each Foo gets what its restored spec says.
func TestAfterAnOlderStateIsRestoredARestartIsEnough(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil))
	e.createFoo(t, "kept", v1alpha1.FooSpec{DeploymentName: "kept", Replicas: new(int32(1))})
	e.createFoo(t, "deleted", v1alpha1.FooSpec{DeploymentName: "deleted", Replicas: new(int32(1))})
	e.createFoo(t, "renamed", v1alpha1.FooSpec{DeploymentName: "before", Replicas: new(int32(1))})
	for name, deployment := range map[string]string{"kept": "kept", "deleted": "deleted", "renamed": "before"} {
		e.waitForReplicas(t, deployment, 1)
		e.waitForReason(t, name, v1alpha1.ReasonCreating)
	}
	backup := t.TempDir()
	e.stopEtcd(t)
	if err := os.CopyFS(backup, os.DirFS(e.etcdDir())); err != nil {
		t.Fatal(err)
	}
	e.startEtcd(t)

	e.editFoo(t, "kept", `{"spec":{"replicas":5}}`)
	e.waitForReplicas(t, "kept", 5)
	e.deleteFoo(t, "deleted", metav1.DeletePropagationBackground)
	e.editFoo(t, "renamed", `{"spec":{"deploymentName":"after"}}`)
	e.waitForReplicas(t, "after", 1)
	e.createFoo(t, "lost", v1alpha1.FooSpec{DeploymentName: "lost", Replicas: new(int32(1))})
	e.waitForReplicas(t, "lost", 1)

	e.stopEtcd(t)
	if err := os.RemoveAll(e.etcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(e.etcdDir(), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	e.startEtcd(t)
	p.waitForLog(t, `"Reached the API server"`)
	for _, name := range []string{"kept", "deleted", "before"} {
		if replicas := *e.deployment(t, name).Spec.Replicas; replicas != 1 {
			t.Errorf("the restored Deployment %s has %d replicas", name, replicas)
		}
	}
	p.stop(t)
	startController(t, "--kubeconfig", e.kubeconfig(t, nil))
	e.createFoo(t, "new", v1alpha1.FooSpec{DeploymentName: "new", Replicas: new(int32(2))})
	e.waitForReplicas(t, "new", 2)
	// Each restored Foo is still worked on: an edit of it and of its Deployment.
	for foo, deployment := range map[string]string{"kept": "kept", "deleted": "deleted", "renamed": "before"} {
		e.editFoo(t, foo, `{"spec":{"replicas":3}}`)
		e.waitForReplicas(t, deployment, 3)
	}
	for _, name := range []string{"lost", "after"} {
		_, err := e.kube.AppsV1().Deployments(e.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the Deployment %s, which the restored state does not have: %v", name, err)
		}
	}
}

// etcdDir returns the directory with the data of etcd.
func (e *env) etcdDir() string { return filepath.Join(filepath.Dir(e.Kubeconfig()), "etcd") }

func (e *env) stopEtcd(t *testing.T) {
	t.Helper()
	for _, component := range []string{"kube-apiserver", "etcd"} {
		if err := e.KillComponent(component); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *env) startEtcd(t *testing.T) {
	t.Helper()
	for _, component := range []string{"etcd", "kube-apiserver"} {
		if err := e.StartComponent(component); err != nil {
			t.Fatal(err)
		}
	}
}

// waitForReplicas waits until a Deployment exists and has that many replicas in its spec.
func (e *env) waitForReplicas(t *testing.T, name string, replicas int32) {
	t.Helper()
	until(t, "the Deployment "+name+" has the replicas of its Foo", func(ctx context.Context) (bool, error) {
		dep, err := e.kube.AppsV1().Deployments(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil // Not yet, or the API server has just started.
		}
		return dep.Spec.Replicas != nil && *dep.Spec.Replicas == replicas, nil
	})
}
