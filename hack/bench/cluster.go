package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/foo-controller/hack/cluster/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/plan"
)

const (
	// account is the ServiceAccount of all contenders: an administrator would be exempt from priority and fairness.
	account          = "foo-controller"
	accountNamespace = "foo-system"
	user             = "system:serviceaccount:" + accountNamespace + ":" + account
)

// A cluster is a new control plane for one run: etcd and an API server. Nothing but a contender, and the benchmark
// itself, writes Foos or Deployments.
type cluster struct {
	*controlplane.ControlPlane
	kube    kubernetes.Interface // As an administrator.
	samples clientset.Interface
	audit   auditLog
	// token is a kubeconfig of the account.
	token string
}

func startCluster(ctx context.Context) (*cluster, error) {
	plane, err := controlplane.Start(".", "--components=api", "--audit")
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane, audit: auditLog{path: plane.AuditLog()}}
	if err := c.setUp(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("set up a control plane: %w", err)
	}
	return c, nil
}

func (c *cluster) setUp(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	w, err := newWriter(config)
	if err != nil {
		return err
	}
	c.kube, c.samples = w.kube, w.samples
	if err := c.Install("artifacts/crd", "artifacts/deploy/rbac.yaml"); err != nil {
		return err
	}
	if err := c.permitMore(ctx); err != nil {
		return err
	}
	if err := c.writeToken(ctx); err != nil {
		return err
	}
	return c.warmUp(ctx, w)
}

// permitMore gives the account what other contenders need and foo-controller does not.
func (c *cluster) permitMore(ctx context.Context) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"update"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bench"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: accountNamespace}},
	}
	_, err := c.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	_, err2 := c.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return errors.Join(err, err2)
}

func (c *cluster) writeToken(ctx context.Context) error {
	token, err := c.kube.CoreV1().ServiceAccounts(accountNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		return err
	}
	current := config.Contexts[config.CurrentContext]
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{current.AuthInfo: {Token: token.Status.Token}}
	c.token = c.Kubeconfig() + ".token"
	return clientcmd.WriteToFile(*config, c.token)
}

// warmUp lets the API server do once what it does in a run, so that the first requests of a contender cost no more than
// the others. Nothing of it is left.
func (c *cluster) warmUp(ctx context.Context, w writer) error {
	const namespace, foos = "warm-up", 100
	if err := c.createNamespace(ctx, namespace); err != nil {
		return err
	}
	err := inParallel(foos, func(i int) error {
		foo, err := c.createFoo(ctx, namespace, fmt.Sprint("foo-", i))
		if err != nil {
			return err
		}
		return w.write(ctx, foo)
	})
	all := metav1.ListOptions{}
	return errors.Join(err,
		c.samples.SamplecontrollerV1alpha1().Foos(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		c.kube.AppsV1().Deployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
}

func (c *cluster) createNamespace(ctx context.Context, name string) error {
	_, err := c.kube.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func namespaceName(i int) string { return fmt.Sprintf("bench-%02d", i) }

// createFoos creates namespaces, and Foos in them by turns.
func (c *cluster) createFoos(ctx context.Context, foos, namespaces int) error {
	for i := range namespaces {
		if err := c.createNamespace(ctx, namespaceName(i)); err != nil {
			return err
		}
	}
	return inParallel(foos, func(i int) error {
		_, err := c.createFoo(ctx, namespaceName(i%namespaces), fmt.Sprintf("foo-%05d", i))
		return err
	})
}

func (c *cluster) createFoo(ctx context.Context, namespace, name string) (*v1alpha1.Foo, error) {
	return c.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(2)), Image: "nginx:1.29"},
	}, metav1.CreateOptions{})
}

const unrelatedNamespace = "unrelated"

// createUnrelated creates Deployments of which no Foo knows.
func (c *cluster) createUnrelated(ctx context.Context, deployments int) error {
	if err := c.createNamespace(ctx, unrelatedNamespace); err != nil {
		return err
	}
	return inParallel(deployments, func(i int) error {
		dep := plan.Deployment(&v1alpha1.Foo{Spec: v1alpha1.FooSpec{DeploymentName: fmt.Sprintf("other-%05d", i)}})
		dep.OwnerReferences, dep.Labels = nil, map[string]string{"app": "other"}
		dep.Annotations = map[string]string{"example.com/notes": strings.Repeat("written by somebody else. ", 40)}
		_, err := c.kube.AppsV1().Deployments(unrelatedNamespace).Create(ctx, dep, metav1.CreateOptions{})
		return err
	})
}

// check returns an error unless each Foo has its Deployment, as it asks for, and its status, and there is no other
// Deployment.
func (c *cluster) check(ctx context.Context, unrelated int) error {
	deployments, err := c.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	foos, err := c.samples.SamplecontrollerV1alpha1().Foos("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(deployments.Items) != len(foos.Items)+unrelated {
		return fmt.Errorf("%d Deployments for %d Foos", len(deployments.Items), len(foos.Items))
	}
	byName := map[string]*appsv1.Deployment{}
	for i := range deployments.Items {
		byName[deployments.Items[i].Namespace+"/"+deployments.Items[i].Name] = &deployments.Items[i]
	}
	for i := range foos.Items {
		foo := &foos.Items[i]
		dep := byName[foo.Namespace+"/"+foo.Spec.DeploymentName]
		if problem := problemOf(foo, dep); problem != "" {
			return fmt.Errorf("foo %s/%s: %s", foo.Namespace, foo.Name, problem)
		}
	}
	return nil
}

// problemOf returns what is wrong with the Deployment or the status of foo, or "".
func problemOf(foo *v1alpha1.Foo, dep *appsv1.Deployment) string {
	switch {
	case dep == nil:
		return "no Deployment"
	case !metav1.IsControlledBy(dep, foo):
		return "the Deployment has another owner"
	case plan.Drift(dep, foo) != nil:
		return fmt.Sprint("the Deployment differs: ", plan.Drift(dep, foo).Fields)
	case foo.Status.ObservedGeneration != foo.Generation:
		return "the status is not about this generation"
	}
	want := statusOf(foo, dep)
	if foo.Status.AvailableReplicas != want.AvailableReplicas || foo.Status.Replicas != want.Replicas {
		return "the status has other numbers than the Deployment"
	}
	have, _ := plan.ReadyReason(foo)
	if reason, _ := plan.ReadyReason(&v1alpha1.Foo{Status: want}); have != reason {
		return fmt.Sprintf("reason %s, want %s", have, reason)
	}
	return ""
}

// A request is a line of the audit log.
type request struct {
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus struct{ Code int }
	// StageTimestamp is when the response was complete.
	StageTimestamp metav1.MicroTime
}

// is reports whether it was a write of this kind that was accepted.
func (r *request) is(verb, resource, subresource string) bool {
	return r.Verb == verb && r.ObjectRef.Resource == resource && r.ObjectRef.Subresource == subresource &&
		r.ResponseStatus.Code < 300
}

// isWrite reports whether it asked to change what is stored. A review is only a question.
func (r *request) isWrite() bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && !strings.HasSuffix(r.ObjectRef.Resource, "reviews")
}

// An auditLog is the audit log of an API server, as far as it has been read.
type auditLog struct {
	path string
	read int64 // Bytes.
	// mine are the requests of the contender; that of a watch comes when it ends. others are what the benchmark created,
	// and the statuses that it wrote.
	mine, others []*request
}

// update reads what is new.
func (a *auditLog) update() error {
	file, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer file.Close()
	news, err := io.ReadAll(io.NewSectionReader(file, a.read, math.MaxInt64-a.read))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(news) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // The rest is not written yet.
		}
		a.read += int64(len(line))
		r := &request{}
		if err := json.Unmarshal(line, r); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		if r.User.Username == user {
			a.mine = append(a.mine, r)
		} else if r.Verb == "create" || r.ObjectRef.Subresource == "status" {
			a.others = append(a.others, r)
		}
	}
	return nil
}

// writesAfter returns the writes of the contender that were answered after a time.
func (a *auditLog) writesAfter(t time.Time) []*request {
	var writes []*request
	for _, r := range a.mine {
		if r.isWrite() && r.StageTimestamp.After(t) {
			writes = append(writes, r)
		}
	}
	return writes
}

// latencies returns, for the Foos of a namespace whose names have a prefix, the seconds from the answer to the creation
// of the Foo to that of the Deployment, and from the status of the Deployment to that of the Foo, in ascending order.
func (a *auditLog) latencies(namespace, prefix string) (created, reported []float64) {
	begun, available := map[string]time.Time{}, map[string]time.Time{}
	for _, r := range a.others {
		switch {
		case r.ObjectRef.Namespace != namespace || !strings.HasPrefix(r.ObjectRef.Name, prefix):
		case r.is("create", "foos", ""):
			begun[r.ObjectRef.Name] = r.StageTimestamp.Time
		case r.is("patch", "deployments", "status"):
			available[r.ObjectRef.Name] = r.StageTimestamp.Time
		}
	}
	for _, r := range a.mine {
		name := r.ObjectRef.Name
		if r.ObjectRef.Namespace != namespace {
			continue
		}
		if at, ok := begun[name]; ok && r.is("create", "deployments", "") {
			created = append(created, r.StageTimestamp.Sub(at).Seconds())
		}
		if at, ok := available[name]; ok && r.is("update", "foos", "status") && r.StageTimestamp.After(at) {
			reported = append(reported, r.StageTimestamp.Sub(at).Seconds())
			delete(available, name) // The first one counts.
		}
	}
	slices.Sort(created)
	slices.Sort(reported)
	return created, reported
}
