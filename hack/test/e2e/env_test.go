package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	typedv1alpha1 "example.com/foo-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

// This file has the helpers for one namespace of a control plane: Foos, Deployments, and the policies and quotas that
// are in their way.

// An env is a namespace of a cluster, for one test.
type env struct {
	*cluster
	namespace string
}

func newEnv(t *testing.T, s *shared) *env {
	t.Helper()
	return s.get(t).env(t)
}

// env creates a namespace of the cluster.
func (c *cluster) env(t *testing.T) *env {
	t.Helper()
	return &env{cluster: c, namespace: c.namespace(t)}
}

// foos is the client for the Foos of the namespace.
func (e *env) foos() typedv1alpha1.FooInterface {
	return e.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
}

// deps is the client for its Deployments.
func (e *env) deps() typedappsv1.DeploymentInterface { return e.kube.AppsV1().Deployments(e.namespace) }

// parts returns a function that runs a part of a test in an env of its own, in parallel with the others.
func parts(t *testing.T, s *shared) (run func(name string, part func(t *testing.T, e *env))) {
	t.Helper()
	s.get(t)
	return func(name string, part func(t *testing.T, e *env)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t, newEnv(t, s))
		})
	}
}

// controller starts the controller for the namespace of the test, and waits until it has started.
func (e *env) controller(t *testing.T, flags ...string) *process {
	t.Helper()
	p := e.start(t, nil, flags...)
	p.waitForLog(t, `"Started"`)
	return p
}

// start starts the controller for the namespace of the test, through the proxy unless it is nil.
func (e *env) start(t *testing.T, via *proxy, flags ...string) *process {
	t.Helper()
	flags = append([]string{"--kubeconfig", e.kubeconfig(t, via), "--namespace", e.namespace}, flags...)
	return startController(t, flags...)
}

// newDedicatedEnv returns an env on a cluster like s that no other test uses, with more flags of localcluster. The test
// runs in parallel with others.
func newDedicatedEnv(t *testing.T, s *shared, flags ...string) *env {
	t.Helper()
	waitForRoom(t)
	c, err := startCluster(s.components, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c.env(t)
}

func (e *env) createFoo(t *testing.T, name string, spec v1alpha1.FooSpec) {
	t.Helper()
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := e.foos().Create(t.Context(), foo, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createReady creates a Foo and waits until it is Ready.
func (e *env) createReady(t *testing.T, name string, spec v1alpha1.FooSpec) {
	t.Helper()
	e.createFoo(t, name, spec)
	e.waitForReason(t, name, v1alpha1.ReasonAvailable)
}

// editFoo applies a merge patch as a user would.
func (e *env) editFoo(t *testing.T, name, patch string) {
	t.Helper()
	_, err := e.foos().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (e *env) rename(t *testing.T, foo, deployment string) {
	t.Helper()
	e.editFoo(t, foo, fmt.Sprintf(`{"spec":{"deploymentName":%q}}`, deployment))
}

func (e *env) deleteFoo(t *testing.T, name string, propagation metav1.DeletionPropagation) {
	t.Helper()
	if err := e.foos().Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &propagation}); err != nil {
		t.Fatal(err)
	}
}

func (e *env) foo(t *testing.T, name string) *v1alpha1.Foo {
	t.Helper()
	foo, err := e.foos().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return foo
}

// waitForReason waits until the status of the Foo's latest generation has the reason, and returns the Foo.
func (e *env) waitForReason(t *testing.T, name, reason string) *v1alpha1.Foo {
	t.Helper()
	return e.waitForFoo(t, name, func(foo *v1alpha1.Foo) bool { return readyCondition(foo).Reason == reason })
}

// waitForFoo waits until the Foo has a status for its latest generation and condition is true.
func (e *env) waitForFoo(t *testing.T, name string, condition func(*v1alpha1.Foo) bool) *v1alpha1.Foo {
	t.Helper()
	var foo *v1alpha1.Foo
	until(t, "Foo "+name+" becomes as expected", func(context.Context) (bool, error) {
		foo = e.foo(t, name)
		return foo.Status.ObservedGeneration == foo.Generation && condition(foo), nil
	})
	return foo
}

func readyCondition(foo *v1alpha1.Foo) metav1.Condition {
	if cond := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady); cond != nil {
		return *cond
	}
	return metav1.Condition{}
}

func isReady(foo *v1alpha1.Foo) bool {
	return meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReady)
}

var settled atomic.Int64 // The number of Foos that settle has created.

// settle gives the controller time to handle all changes so far. It creates two Foos, one after the other, and waits
// for the status of each. That does not prove that all workers are idle.
func (e *env) settle(t *testing.T) {
	t.Helper()
	for range 2 {
		name := fmt.Sprintf("settle-%d", settled.Add(1))
		e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(0))})
		e.waitForFoo(t, name, func(*v1alpha1.Foo) bool { return true })
		e.deleteFoo(t, name, metav1.DeletePropagationBackground)
	}
}

// deploymentOf returns a Deployment as users have them, after calling edit with it.
func deploymentOf(name string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": "test"}
	dep := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	dep.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	dep.Spec.Template.Labels = labels
	dep.Spec.Template.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:1"}}
	edit(dep)
	return dep
}

func nothing(*appsv1.Deployment) {}

// createDeployment creates a Deployment as a user, after calling edit with it.
func (e *env) createDeployment(t *testing.T, name string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	created, err := e.deps().Create(t.Context(), deploymentOf(name, edit), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (e *env) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	dep, err := e.deps().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return dep
}

// editDeployment applies a patch as a user who does not know about the Foo.
func (e *env) editDeployment(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := e.deps().Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reportAvailable writes the status of a completed rollout, where no Deployment controller runs.
func (e *env) reportAvailable(t *testing.T, name string, replicas int) {
	t.Helper()
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,
		"replicas":%[2]d,"updatedReplicas":%[2]d,"readyReplicas":%[2]d,"availableReplicas":%[2]d}}`,
		e.deployment(t, name).Generation, replicas)
	if _, err := e.deps().Patch(t.Context(), name, types.StrategicMergePatchType, status,
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// deployments returns the Deployments of the namespace, except those of settle.
func (e *env) deployments(t *testing.T) map[string]*appsv1.Deployment {
	t.Helper()
	list, err := e.deps().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*appsv1.Deployment{}
	for i := range list.Items {
		if name := list.Items[i].Name; !strings.HasPrefix(name, "settle-") {
			all[name] = &list.Items[i]
		}
	}
	return all
}

// hasDeployments reports whether these are the Deployments of the namespace.
func (e *env) hasDeployments(t *testing.T, names ...string) bool {
	t.Helper()
	return slices.Equal(slices.Sorted(maps.Keys(e.deployments(t))), slices.Sorted(slices.Values(names)))
}

func (e *env) exists(t *testing.T, deployment string) bool {
	t.Helper()
	_, err := e.deps().Get(t.Context(), deployment, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// rolledOut reports whether a Deployment has no old pods any more.
func (e *env) rolledOut(t *testing.T, name string) bool {
	t.Helper()
	dep := e.deployment(t, name)
	return dep.Status.ObservedGeneration == dep.Generation && dep.Status.Replicas == *dep.Spec.Replicas &&
		dep.Status.UpdatedReplicas == *dep.Spec.Replicas && dep.Status.AvailableReplicas == *dep.Spec.Replicas
}

// pods returns the uids of the pods that selector selects and that are not being deleted.
func (e *env) pods(t *testing.T, selector string) []types.UID {
	t.Helper()
	pods, err := e.kube.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	var uids []types.UID
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			uids = append(uids, pods.Items[i].UID)
		}
	}
	return uids
}

// workload returns the uids and template hashes of ReplicaSets and pods by name, which show whether any was replaced.
func (e *env) workload(t *testing.T, selector string) map[string]string {
	t.Helper()
	workload := map[string]string{}
	add := func(kind string, meta metav1.ObjectMeta) {
		workload[kind+" "+meta.Name] = fmt.Sprint(meta.UID, " ", meta.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
	}
	sets, err := e.kube.AppsV1().ReplicaSets(e.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for i := range sets.Items {
		add("ReplicaSet", sets.Items[i].ObjectMeta)
	}
	pods, err := e.kube.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		add("Pod", pods.Items[i].ObjectMeta)
	}
	if len(workload) < 2 {
		t.Fatalf("only %v: too little to compare", workload)
	}
	return workload
}

// sampleAvailableOf follows how many replicas are available of the Deployments whose names begin with prefix. The
// returned function ends that, and returns the lowest number. A watch misses no change.
func (e *env) sampleAvailableOf(t *testing.T, prefix string) func() int {
	t.Helper()
	list, err := e.deps().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := e.deps().Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	available := map[string]int{}
	for i := range list.Items {
		available[list.Items[i].Name] = int(list.Items[i].Status.AvailableReplicas)
	}
	sum := func() int {
		n := 0
		for name, count := range available {
			if strings.HasPrefix(name, prefix) {
				n += count
			}
		}
		return n
	}
	lowest := sum()
	var follow sync.WaitGroup
	follow.Go(func() {
		for event := range watcher.ResultChan() {
			dep, ok := event.Object.(*appsv1.Deployment)
			if !ok || strings.HasPrefix(dep.Name, "settle-") {
				continue
			}
			available[dep.Name] = int(dep.Status.AvailableReplicas)
			if event.Type == "DELETED" {
				delete(available, dep.Name)
			}
			lowest = min(lowest, sum())
		}
	})
	return func() int {
		watcher.Stop()
		follow.Wait()
		return lowest
	}
}

// events returns the events of a Foo.
func (e *env) events(t *testing.T, name string) []corev1.Event {
	t.Helper()
	e.settle(t)
	list, err := e.kube.CoreV1().Events(e.namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Foo,involvedObject.name=" + name,
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// countWrites returns how many successful writes of the controller in the namespace begin with prefix. Conflicts do not
// count: the Deployment controller may update a status meanwhile, and then the write is retried.
func (e *env) countWrites(t *testing.T, prefix string) int {
	t.Helper()
	n := 0
	for _, write := range e.writes(t, e.namespace) {
		if strings.HasPrefix(write, prefix) && !strings.HasSuffix(write, ": 409") {
			n++
		}
	}
	return n
}

// neverReadyImage is an image whose pods never become Ready on the local control plane.
const neverReadyImage = "nginx:never-ready"

var dryRun = []string{metav1.DryRunAll}

// policyProbe is the name of the Deployment that the helpers try to create to find out whether a policy is in force. It
// is never stored.
const policyProbe = "policy-probe"

// policy makes an admission policy for operations on the Deployments of this namespace. It ends with the test or when
// the returned function is called. kind is Validating or Mutating, and rules are fields of the spec.
func (e *env) policy(t *testing.T, kind, operations, rules string) (lift func()) {
	t.Helper()
	actions := ""
	if kind == "Validating" {
		actions = ", validationActions: [Deny]"
	}
	policy := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sAdmissionPolicy
metadata: {name: %[2]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [%[3]s]}]
%[4]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sAdmissionPolicyBinding
metadata: {name: %[2]s}
spec: {policyName: %[2]s%[5]s}
`, kind, e.namespace, operations, rules, actions)
	e.kubectl(t, policy, "create", "-f", "-")
	lift = func() {
		t.Helper()
		e.kubectl(t, policy, "delete", "--ignore-not-found", "-f", "-")
	}
	t.Cleanup(lift)
	return lift
}

// denyDeployments makes the API server refuse an operation on Deployments of this namespace, for all users and with the
// message. It ends with the test or when the returned function is called. The subresources status and scale are not
// denied. The error is that of a ValidatingAdmissionPolicy: 422 Invalid.
func (e *env) denyDeployments(t *testing.T, message, operation string) (lift func()) {
	t.Helper()
	rules := fmt.Sprintf("  validations: [{message: %q, expression: 'request.operation != %q && request.name != %q'}]",
		message, operation, policyProbe)
	end := e.policy(t, "Validating", operation+", CREATE", rules) // CREATE is for the probe.
	isDenied := func(ctx context.Context) bool {
		_, err := e.probePolicies(ctx)
		return err != nil && strings.Contains(err.Error(), message)
	}
	until(t, "Deployments are denied", func(ctx context.Context) (bool, error) { return isDenied(ctx), nil })
	return func() {
		t.Helper()
		end()
		until(t, "Deployments are no longer denied", func(ctx context.Context) (bool, error) { return !isDenied(ctx), nil })
	}
}

// rewriteImages makes the API server replace the images of all Deployments of this namespace by the image to, until the
// test ends.
func (e *env) rewriteImages(t *testing.T, to string) {
	t.Helper()
	e.needsMinor(t, 36, "MutatingAdmissionPolicy in v1")
	e.policy(t, "Mutating", "CREATE, UPDATE", fmt.Sprintf(`
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
        containers: object.spec.template.spec.containers.map(c,
        Object.spec.template.spec.containers{name: c.name, image: %q})}}}}`, to))
	until(t, "images are rewritten", func(ctx context.Context) (bool, error) {
		dep, err := e.probePolicies(ctx)
		return err == nil && imageOf(dep) == to, nil
	})
}

// probePolicies returns the result of a dry run that creates a Deployment. Policies take effect up to a second after
// they are stored.
func (e *env) probePolicies(ctx context.Context) (*appsv1.Deployment, error) {
	return e.deps().Create(ctx, deploymentOf(policyProbe, nothing), metav1.CreateOptions{DryRun: dryRun})
}

// quota limits the namespace to hard, and returns when the limits are in force.
func (e *env) quota(t *testing.T, hard string) {
	t.Helper()
	// An additional limit, to test whether the quota is in force. A filled status only proves that the quota controller
	// has counted. Until the API server has seen that, it refuses all limited objects, with another message.
	e.kubectl(t, "", "create", "quota", "limits", "--hard="+hard+",count/podtemplates=0", "-n", e.namespace)
	until(t, "the quota is in force", func(ctx context.Context) (bool, error) {
		_, err := e.kube.CoreV1().PodTemplates(e.namespace).Create(ctx, &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: policyProbe},
			Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
			},
		}, metav1.CreateOptions{DryRun: dryRun})
		return err != nil && strings.Contains(err.Error(), "exceeded quota: limits"), nil
	})
}
