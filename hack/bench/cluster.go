package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/hack/cluster/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// account is the ServiceAccount of access.yaml, as which all contenders act.
const account = "system:serviceaccount:bench:contender"

// A cluster is a control plane of its own for one run: etcd and an API server. Only the contender and the benchmark
// write Foos and Deployments.
type cluster struct {
	*controlplane.ControlPlane
	clients // Of an administrator.
	audit   auditLog
}

// startCluster starts a control plane that has Foos in namespaces. dir keeps what takes long to create.
func startCluster(ctx context.Context, foos, namespaces int, dir string) (*cluster, error) {
	plane, err := controlplane.Start(".", "--components=api", "--audit")
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane}
	if err = c.setUp(); err == nil && foos < 10_000 {
		err = c.createFoos(ctx, foos, namespaces)
	} else if err == nil {
		err = c.restoreFoos(ctx, foos, namespaces, dir)
	}
	if err != nil {
		c.Stop()
	}
	return c, err
}

// contenderKubeconfig is the kubeconfig of the contender.
func (c *cluster) contenderKubeconfig() string { return c.Kubeconfig() + ".contender" }

func (c *cluster) install() error { return c.Install("artifacts/crd", "hack/bench/access.yaml") }

func (c *cluster) setUp() error {
	err := c.install()
	kubeconfig, errLoad := clientcmd.LoadFromFile(c.Kubeconfig())
	config, errBuild := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	log, errOpen := os.Open(c.AuditLog())
	if err := errors.Join(err, errLoad, errBuild, errOpen); err != nil {
		return err
	}
	for _, user := range kubeconfig.AuthInfos {
		user.Impersonate = account
	}
	c.audit.file, c.clients = bufio.NewReader(log), newClients(config)
	return clientcmd.WriteToFile(*kubeconfig, c.contenderKubeconfig())
}

func (c *cluster) createNamespace(ctx context.Context, name string) error {
	_, err := c.kube.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func namespaceName(i int) string { return fmt.Sprint("bench-", i) }

// createFoos creates namespaces, and Foos in them by turns.
func (c *cluster) createFoos(ctx context.Context, foos, namespaces int) error {
	for i := range namespaces {
		if err := c.createNamespace(ctx, namespaceName(i)); err != nil {
			return err
		}
	}
	return inParallel(foos, func(i int) error {
		return c.createFoo(ctx, namespaceName(i%namespaces), fmt.Sprintf("foo-%05d", i))
	})
}

// restoreFoos gives etcd the data that it had when an earlier run had created the Foos. The first one creates them.
func (c *cluster) restoreFoos(ctx context.Context, foos, namespaces int, dir string) error {
	from := filepath.Join(dir, fmt.Sprintf("etcd-%d-in-%d", foos, namespaces))
	to := filepath.Join(filepath.Dir(c.Kubeconfig()), "etcd")
	if _, err := os.Stat(from); err != nil {
		if err := c.createFoos(ctx, foos, namespaces); err != nil {
			return err
		}
		from, to = to, from
	}
	const server, store = "kube-apiserver", "etcd"
	partial := to + ".partial"
	for _, step := range []func() error{
		func() error { return c.KillComponent(server) },
		func() error { return c.KillComponent(store) },
		func() error { return os.RemoveAll(partial) },
		func() error { return os.CopyFS(partial, os.DirFS(from)) },
		func() error { return os.RemoveAll(to) },
		func() error { return os.Rename(partial, to) },
		func() error { return c.StartComponent(store) },
		func() error { return c.StartComponent(server) },
		c.install, // The data may be of an earlier version.
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) createFoo(ctx context.Context, namespace, name string) error {
	_, err := c.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(replicas)), Image: "nginx:1.29"},
	}, metav1.CreateOptions{})
	return err
}

// check returns an error if foo-controller would still send something for one of the Foos, or if there are more
// Deployments than that and the unrelated ones.
func (c *cluster) check(ctx context.Context, unrelated int) error {
	deployments, err := c.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	foos, errFoos := c.samples.SamplecontrollerV1alpha1().Foos("").List(ctx, metav1.ListOptions{})
	if err := errors.Join(err, errFoos); err != nil {
		return err
	}
	if len(deployments.Items) != len(foos.Items)+unrelated {
		return fmt.Errorf("%d Deployments for %d Foos", len(deployments.Items), len(foos.Items))
	}
	byName := map[cache.ObjectName]*appsv1.Deployment{}
	for i := range deployments.Items {
		byName[cache.MetaObjectToName(&deployments.Items[i])] = &deployments.Items[i]
	}
	for i := range foos.Items {
		foo := &foos.Items[i]
		missing := missingFor(foo, byName[cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName)])
		if missing != nil {
			return fmt.Errorf("foo %s/%s: foo-controller would still %s", foo.Namespace, foo.Name, missing.Verb)
		}
	}
	return nil
}

// missingFor returns the request that foo-controller would send, or nil.
func missingFor(foo *v1alpha1.Foo, dep *appsv1.Deployment) *plan.Step {
	state := &plan.State{Foo: foo, Deployment: plan.TrimDeployment(dep), Now: time.Now()}
	if dep != nil && metav1.IsControlledBy(dep, foo) {
		state.Owner = foo
	}
	return state.Next()
}
