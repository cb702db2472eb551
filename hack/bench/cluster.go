package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/foo-controller/hack/cluster/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// account is the ServiceAccount of all contenders: an administrator would be exempt from priority and fairness.
const account, accountNamespace = "foo-controller", "foo-system"

// A cluster is a control plane of its own for one run: etcd and an API server. Only the contender and the benchmark
// write Foos and Deployments.
type cluster struct {
	*controlplane.ControlPlane
	clients // Of an administrator.
	audit   auditLog
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
	if c.clients, err = newClients(config); err != nil {
		return err
	}
	if err := c.Install("artifacts/crd", "artifacts/deploy/rbac.yaml"); err != nil {
		return err
	}
	// The plain contender needs more permissions than foo-controller.
	if out, err := c.Kubectl("create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin",
		"--serviceaccount="+accountNamespace+":"+account).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	token, err := c.kube.CoreV1().ServiceAccounts(accountNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	kubeconfig, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		return err
	}
	user := kubeconfig.Contexts[kubeconfig.CurrentContext].AuthInfo
	kubeconfig.AuthInfos = map[string]*clientcmdapi.AuthInfo{user: {Token: token.Status.Token}}
	return clientcmd.WriteToFile(*kubeconfig, c.contenderKubeconfig())
}

// contenderKubeconfig is the kubeconfig of the account.
func (c *cluster) contenderKubeconfig() string { return c.Kubeconfig() + ".contender" }

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
		_, err := c.createFoo(ctx, namespaceName(i%namespaces), fmt.Sprintf("foo-%05d", i))
		return err
	})
}

func (c *cluster) createFoo(ctx context.Context, namespace, name string) (*v1alpha1.Foo, error) {
	return c.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(replicas)), Image: "nginx:1.29"},
	}, metav1.CreateOptions{})
}

// createUnrelated creates Deployments of which no Foo knows.
func (c *cluster) createUnrelated(ctx context.Context, deployments int) error {
	const namespace = "unrelated"
	if err := c.createNamespace(ctx, namespace); err != nil {
		return err
	}
	return inParallel(deployments, func(i int) error {
		dep := plan.Deployment(&v1alpha1.Foo{Spec: v1alpha1.FooSpec{DeploymentName: fmt.Sprint("other-", i)}})
		dep.OwnerReferences, dep.Labels = nil, map[string]string{"app": "other"}
		_, err := c.kube.AppsV1().Deployments(namespace).Create(ctx, dep, metav1.CreateOptions{})
		return err
	})
}

// check returns an error if foo-controller would still send something for one of the Foos, or if there are more
// Deployments than that and the others.
func (c *cluster) check(ctx context.Context, others int) error {
	deployments, err := c.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	foos, err := c.samples.SamplecontrollerV1alpha1().Foos("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(deployments.Items) != len(foos.Items)+others {
		return fmt.Errorf("%d Deployments for %d Foos", len(deployments.Items), len(foos.Items))
	}
	byName := map[string]*appsv1.Deployment{}
	for i, dep := range deployments.Items {
		byName[dep.Namespace+"/"+dep.Name] = &deployments.Items[i]
	}
	for i := range foos.Items {
		foo := &foos.Items[i]
		if missing := missingFor(foo, byName[foo.Namespace+"/"+foo.Spec.DeploymentName]); missing != nil {
			return fmt.Errorf("foo %s/%s: foo-controller would still %s, rule %s", foo.Namespace, foo.Name, missing.Verb,
				missing.Rule)
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

// A request is a line of the audit log.
type request struct {
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus struct{ Code int }
	// StageTimestamp is when the response was complete.
	StageTimestamp metav1.MicroTime
}

// is reports whether it was a request of this kind that was accepted.
func (r *request) is(verb, resource, subresource string) bool {
	return r.Verb == verb && r.ObjectRef.Resource == resource && r.ObjectRef.Subresource == subresource &&
		r.ResponseStatus.Code < 300
}

// An auditLog is the audit log of an API server, as far as it has been read.
type auditLog struct {
	path string
	read int64 // Bytes.
	// requests are those of the contender since the last reset, without watches, and writes those of them that ask to
	// change what is stored.
	requests, writes []*request
	// reported are the Foos of which it has written a status since then.
	reported map[string]bool
	// others are the requests of the benchmark.
	others []*request
}

// reset reads what is new, and forgets the requests of the contender.
func (a *auditLog) reset() error {
	err := a.update()
	a.requests, a.writes, a.reported = nil, nil, map[string]bool{}
	return err
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
		a.add(r)
	}
	return nil
}

func (a *auditLog) add(r *request) {
	switch {
	case r.Verb == "watch": // client-go renews it after some minutes. Its line comes when it ends.
		return
	case r.User.Username != "system:serviceaccount:"+accountNamespace+":"+account:
		a.others = append(a.others, r)
		return
	}
	a.requests = append(a.requests, r)
	if r.Verb != "get" && r.Verb != "list" && !strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
		a.writes = append(a.writes, r)
	}
	if r.is("update", "foos", "status") {
		a.reported[r.ObjectRef.Namespace+"/"+r.ObjectRef.Name] = true
	}
}

// latencies returns the seconds that the Foos of a namespace took whose names have a prefix, in ascending order: from
// the answer to the creation of the Foo to that of the Deployment, and from the status of the Deployment to the next
// one of the Foo.
func (a *auditLog) latencies(namespace, prefix string) (created, reported []float64) {
	begun, available := map[string]time.Time{}, map[string]time.Time{}
	since := func(r *request, times map[string]time.Time, seconds *[]float64) {
		if at, ok := times[r.ObjectRef.Name]; ok && r.StageTimestamp.After(at) && r.ObjectRef.Namespace == namespace {
			*seconds = append(*seconds, r.StageTimestamp.Sub(at).Seconds())
			delete(times, r.ObjectRef.Name)
		}
	}
	for _, r := range a.others {
		switch {
		case r.ObjectRef.Namespace != namespace || !strings.HasPrefix(r.ObjectRef.Name, prefix):
		case r.is("create", "foos", ""):
			begun[r.ObjectRef.Name] = r.StageTimestamp.Time
		case r.is("patch", "deployments", "status"):
			available[r.ObjectRef.Name] = r.StageTimestamp.Time
		}
	}
	for _, r := range a.writes {
		if r.is("create", "deployments", "") {
			since(r, begun, &created)
		} else if r.is("update", "foos", "status") {
			since(r, available, &reported)
		}
	}
	slices.Sort(created)
	slices.Sort(reported)
	return created, reported
}
