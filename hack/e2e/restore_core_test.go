package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// An administrator restores an older state of etcd while the controller runs. The resourceVersions go back, so the
// watches of all clients are silent until the cluster has made as many writes again, and their caches have objects that
// do not exist any more. A controller that is not restarted creates and deletes nothing because of them: it reads live
// before. But it may correct a restored Deployment to a later spec of the Foo, which its cache still has. After a
// restart, as docs/install.md advises, each Foo gets what its restored spec asks for.
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
	e.reportAvailable(t, "after", 1)
	until(t, "its former Deployment is deleted", func(context.Context) (bool, error) {
		return !e.exists(t, "before"), nil
	})
	e.createFoo(t, "lost", v1alpha1.FooSpec{DeploymentName: "lost", Replicas: new(int32(1))})
	e.waitForReplicas(t, "lost", 1)
	e.waitForReason(t, "lost", v1alpha1.ReasonCreating)

	// An API server refuses all requests until it has read the roles, and a watch that is refused begins again with a
	// list. So the process sleeps until then.
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) })
	e.stopEtcd(t)
	if err := os.RemoveAll(e.etcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(e.etcdDir(), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	e.startEtcd(t)
	until(t, "the API server has read the roles", func(ctx context.Context) (bool, error) {
		return e.may(ctx, t, controllerUser, permission{verb: "watch", group: "apps", resource: "deployments"}) &&
			e.may(ctx, t, controllerUser, permission{verb: "watch", group: sampleGroup, resource: "foos"}), nil
	})
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	e.resumeWatches(t)
	restored := e.uids(t)
	// The controller gets events about the restored Deployments before those about their Foos.
	for name := range restored {
		e.editDeployment(t, name, `{"metadata":{"annotations":{"touched":"yes"}}}`)
	}
	e.waitForReplicas(t, "kept", 5) // From the cache.
	e.settle(t)
	for _, name := range []string{"deleted", "renamed"} {
		e.editFoo(t, name, `{"metadata":{"annotations":{"touched":"yes"}}}`)
	}
	e.settle(t)
	if diff := cmp.Diff(restored, e.uids(t)); diff != "" || len(restored) != 3 {
		t.Errorf("the Deployments (-restored +now):\n%s", diff)
	}
	p.stop(t)
	startController(t, "--kubeconfig", e.kubeconfig(t, nil))
	e.createFoo(t, "new", v1alpha1.FooSpec{DeploymentName: "new", Replicas: new(int32(2))})
	e.waitForReplicas(t, "new", 2)
	for name := range restored {
		e.waitForReplicas(t, name, 1)
	}
	// Each restored Foo is still worked on: an edit of it and of its Deployment.
	for foo, deployment := range map[string]string{"kept": "kept", "deleted": "deleted", "renamed": "before"} {
		e.editFoo(t, foo, `{"spec":{"replicas":3}}`)
		e.waitForReplicas(t, deployment, 3)
	}
	if !e.hasDeployments(t, "kept", "deleted", "before", "new") {
		t.Errorf("there are other Deployments than those of the restored state and of a new Foo: %v", e.uids(t))
	}
}

// uids returns the uids of the Deployments of the namespace by name.
func (e *env) uids(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for name, dep := range e.deployments(t) {
		uids[name] = dep.UID
	}
	return uids
}

// resumeWatches makes writes until the watches of the controller have events again: it serves a new Foo, and corrects
// its Deployment.
func (e *env) resumeWatches(t *testing.T) {
	t.Helper()
	foos := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
	var served string
	until(t, "a new Foo is served", func(ctx context.Context) (bool, error) {
		name := fmt.Sprintf("settle-%d", settled.Add(1))
		e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(0))})
		list, err := foos.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, foo := range list.Items {
			if strings.HasPrefix(foo.Name, "settle-") && foo.Status.ObservedGeneration == foo.Generation {
				served = foo.Name
			}
		}
		return served != "", nil
	})
	e.editDeployment(t, served, `{"spec":{"replicas":9}}`)
	until(t, "its Deployment is corrected", func(context.Context) (bool, error) {
		n := settled.Add(1)
		e.editDeployment(t, served, fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, n))
		return *e.deployment(t, served).Spec.Replicas == 0, nil
	})
}

// Foos are restored from a backup together with their Deployments. The Foos have new uids, so the Deployments refer to
// owners that do not exist. The Foos wait until the garbage collector has deleted these, and get new ones.
func TestFoosThatAreRestoredWithTheirDeploymentsGetNewOnes(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster) // The garbage collector is stopped.
	e.controller(t)
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	former := e.foo(t, "web")
	deployment, foo := e.backup(t, "deployment/web"), e.backup(t, "foo/web")
	e.kubectl(t, "", "delete", "foo/web", "--cascade=orphan", "-n", e.namespace)
	if owners := e.deployment(t, "web").OwnerReferences; len(owners) != 0 {
		t.Errorf("the Deployment has the owners %v, want none", owners)
	}
	e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace)

	const collector = "kube-controller-manager" // It has the garbage collector.
	if err := e.KillComponent(collector); err != nil {
		t.Fatal(err)
	}
	start := sync.OnceValue(func() error { return e.StartComponent(collector) })
	t.Cleanup(func() { _ = start() }) // Other tests use this cluster too.
	e.kubectl(t, deployment, "create", "-f", "-")
	e.kubectl(t, foo, "create", "-f", "-")
	e.waitForReason(t, "web", v1alpha1.ReasonWaitingForName)
	restored := e.deployment(t, "web")
	if !metav1.IsControlledBy(restored, former) || restored.DeletionTimestamp != nil {
		t.Errorf("the restored Deployment has the owners %v, want the former Foo %s", restored.OwnerReferences, former.UID)
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	now := e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	if dep := e.deployment(t, "web"); dep.UID == restored.UID || !metav1.IsControlledBy(dep, now) {
		t.Errorf("the Deployment has the uid %s and the owners %v, want another one, of the new Foo", dep.UID,
			dep.OwnerReferences)
	}
}

// Velero restores without uids, owner references and status, and Deployments before Foos. The Deployment then belongs to
// nobody. The selector of docs/install.md leaves out all that is made for a Foo.
func TestFoosThatAreRestoredAsByVelero(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	page, err := os.ReadFile("docs/install.md")
	selector := regexp.MustCompile(`--selector '(.+)'`).FindSubmatch(page)
	if err != nil || selector == nil {
		t.Fatalf("docs/install.md has no selector: %v", err)
	}
	made := []string{"get", "deployments,replicasets,pods", "-n", e.namespace, "-o", "name", "-l"}
	if all := e.kubectl(t, "", append(made, "")...); strings.Count(all, "\n") != 3 {
		t.Errorf("for the Foo there are, want 3:\n%s", all)
	}
	if left := e.kubectl(t, "", append(made, string(selector[1]))...); left != "" {
		t.Errorf("the selector includes:\n%s", left)
	}
	var backups []string
	for _, object := range []string{"deployment/web", "foo/web"} {
		saved := objectOf(t, e.backup(t, object))
		saved.SetOwnerReferences(nil)
		unstructured.RemoveNestedField(saved.Object, "status")
		text, err := saved.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		backups = append(backups, string(text))
	}
	e.kubectl(t, "", "delete", "foo/web", "--cascade=foreground", "-n", e.namespace)
	for _, object := range backups {
		e.kubectl(t, object, "create", "-f", "-")
	}
	e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)
	e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}

// backup returns an object as JSON, without the fields that belong to the stored object.
func (e *env) backup(t *testing.T, object string) string {
	t.Helper()
	saved := objectOf(t, e.kubectl(t, "", "get", object, "-n", e.namespace, "-o", "json"))
	saved.SetUID("")
	saved.SetResourceVersion("")
	text, err := saved.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
