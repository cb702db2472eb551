package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestFooBecomesReadyAndScalesWithoutRestartingPods(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web-1", Replicas: new(int32(2)), Image: "nginx:1.29"})

	foo := e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	if got := foo.Status; got.AvailableReplicas != 2 || got.Replicas != 2 || got.ObservedGeneration != foo.Generation {
		t.Errorf("status = %+v, want 2 of 2 replicas of generation %d", got, foo.Generation)
	}
	before := e.pods(t, foo.Status.Selector)
	if len(before) != 2 {
		t.Fatalf("the status' selector %q selects %d pods, want 2", foo.Status.Selector, len(before))
	}
	e.kubectl(t, "", "wait", "--for=condition=Ready", "foo/web", "-n", e.namespace, "--timeout=30s")

	e.kubectl(t, "", "scale", "foo/web", "--replicas=4", "-n", e.namespace)
	foo = e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	after := e.pods(t, foo.Status.Selector)
	if foo.Status.AvailableReplicas != 4 || len(after) != 4 {
		t.Errorf("after scaling to 4: %d available, %d pods", foo.Status.AvailableReplicas, len(after))
	}
	for _, uid := range before {
		if !slices.Contains(after, uid) {
			t.Errorf("pod %s was restarted by a scale", uid)
		}
	}
	if events := e.events(t, "web"); len(events) != 2 || events[0].Reason != v1alpha1.EventSynced {
		t.Errorf("events = %v, want one %s for each of the two generations", events, v1alpha1.EventSynced)
	}
}

func TestDriftIsCorrectedByOneWriteAndOnlyInFieldsThatTheFooSets(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createFoo(t, "set", v1alpha1.FooSpec{DeploymentName: "set", Replicas: new(int32(2)), Image: "nginx:1.29"})
	e.createFoo(t, "free", v1alpha1.FooSpec{DeploymentName: "free"})
	e.waitForReason(t, "set", v1alpha1.ReasonAvailable)
	e.waitForReason(t, "free", v1alpha1.ReasonAvailable)
	edit := `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:edited"}]}}}}`

	before := e.countWrites(t, "patch deployments/")
	e.kubectl(t, "", "patch", "deployment/set", "-n", e.namespace, "-p", edit)
	until(t, "the drift is corrected", func(context.Context) (bool, error) {
		dep := e.deployment(t, "set")
		return *dep.Spec.Replicas == 2 && dep.Spec.Template.Spec.Containers[0].Image == "nginx:1.29", nil
	})
	e.waitForReason(t, "set", v1alpha1.ReasonAvailable)
	if got := e.countWrites(t, "patch deployments/") - before; got != 1 {
		t.Errorf("correcting one edit took %d patches, want 1", got)
	}

	e.kubectl(t, "", "patch", "deployment/free", "-n", e.namespace, "-p", edit)
	until(t, "the Foo reports the values that others set", func(context.Context) (bool, error) {
		foo := e.foo(t, "free")
		return foo.Status.AvailableReplicas == 3 && isReady(foo), nil
	})
	e.settle(t)
	dep := e.deployment(t, "free")
	if *dep.Spec.Replicas != 3 || dep.Spec.Template.Spec.Containers[0].Image != "nginx:edited" {
		t.Errorf("fields that the Foo does not set were changed back: %d replicas of %s", *dep.Spec.Replicas,
			dep.Spec.Template.Spec.Containers[0].Image)
	}
	if got := e.countWrites(t, "patch deployments/") - before; got != 1 {
		t.Errorf("%d patches, want only the first", got)
	}
}

func TestADeletedDeploymentIsCreatedAgain(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	first := e.deployment(t, "web").UID

	e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace, "--wait=false")
	until(t, "another Deployment exists", func(ctx context.Context) (bool, error) {
		dep, err := e.kube.AppsV1().Deployments(e.namespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && dep.UID != first, nil
	})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}

func TestTheDeploymentOfADeletedFooIsDeletedAndNoneIsCreatedMeanwhile(t *testing.T) {
	inParallel(t) // Its parts use the cluster.
	for _, propagation := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
	} {
		for _, stale := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stale=%t", propagation, stale), func(t *testing.T) {
				e := newEnv(t, fullCluster)
				proxy := newProxy(t, e.cluster)
				e.start(t, proxy).waitForLog(t, `"Started"`)
				e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
				e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
				e.settle(t)
				created := e.watchDeployments(t)
				if stale {
					proxy.holdWatch("foos")
				}

				e.deleteFoo(t, "web", propagation)
				until(t, "the Deployment and the Foo are deleted", func(ctx context.Context) (bool, error) {
					_, depErr := e.kube.AppsV1().Deployments(e.namespace).Get(ctx, "web", metav1.GetOptions{})
					_, fooErr := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace).Get(ctx, "web", metav1.GetOptions{})
					return apierrors.IsNotFound(depErr) && apierrors.IsNotFound(fooErr), nil
				})
				if stale {
					until(t, "the controller reads the Foo live", func(context.Context) (bool, error) {
						return proxy.count(http.MethodGet, "/foos/web") > 0, nil
					})
					proxy.releaseWatch()
				}
				e.settle(t)
				if names := created(); len(names) > 0 {
					t.Errorf("Deployments created for a Foo that was being deleted: %v", names)
				}
			})
		}
	}
}

func TestDeploymentIsEqualBeforeAndAfterAScaleExceptForOwnedPaths(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: "nginx:1.29"})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.kubectl(t, "", "patch", "deployment/web", "-n", e.namespace, "-p", `{
		"metadata": {
			"annotations": {"example.com/note": "ours"}, "labels": {"team": "blue"}, "finalizers": ["example.com/hold"]},
		"spec": {"minReadySeconds": 1, "template": {"spec": {"containers": [{"name": "sidecar", "image": "envoy:1"}]}}}}`)
	t.Cleanup(func() {
		e.kubectl(t, "", "patch", "deployment/web", "-n", e.namespace, "-p", `{"metadata":{"finalizers":null}}`)
	})
	e.kubectl(t, "", "rollout", "restart", "deployment/web", "-n", e.namespace)
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.rolledOut(t, "web") })
	e.settle(t)
	before := e.content(t, "web")
	pods := e.pods(t, e.foo(t, "web").Status.Selector)

	e.kubectl(t, "", "scale", "foo/web", "--replicas=3", "-n", e.namespace)
	foo := e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
		return isReady(foo) && foo.Status.AvailableReplicas == 3
	})

	want := before.DeepCopy()
	set := func(value any, path ...string) {
		if err := unstructured.SetNestedField(want.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	set(int64(3), "spec", "replicas")
	set(strconv.FormatInt(foo.Generation, 10), "metadata", "labels", v1alpha1.LabelFooGeneration)
	if diff := cmp.Diff(want.Object, e.content(t, "web").Object); diff != "" {
		t.Errorf("the Deployment differs in more than the owned paths (-want +got):\n%s", diff)
	}
	for _, uid := range pods {
		if !slices.Contains(e.pods(t, foo.Status.Selector), uid) {
			t.Errorf("pod %s was restarted by a scale", uid)
		}
	}
}

func TestForeignDeploymentIsNeverWrittenAndReportedOnce(t *testing.T) {
	e := newEnv(t, apiCluster) // There is no Deployment controller that could change the resourceVersion.
	e.controller(t)
	foreign := e.createDeployment(t, "web", func(*appsv1.Deployment) {})

	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(5)), Image: "nginx:1.29"})
	foo := e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)
	if !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("conditions = %v, want Stalled", foo.Status.Conditions)
	}
	for range 3 { // Changes of either of them must not trigger a write.
		e.kubectl(t, "", "label", "foo/web", "-n", e.namespace, "touched=yes", "--overwrite")
		e.kubectl(t, "", "label", "foo/web", "-n", e.namespace, "touched-")
	}
	e.settle(t)
	if dep := e.deployment(t, "web"); dep.ResourceVersion != foreign.ResourceVersion || dep.UID != foreign.UID {
		t.Errorf("a foreign Deployment was changed: %+v", dep)
	}
	if events := e.events(t, "web"); len(events) != 1 || events[0].Reason != v1alpha1.EventResourceExists ||
		events[0].Type != corev1.EventTypeWarning {
		t.Errorf("events = %v, want one warning %s", events, v1alpha1.EventResourceExists)
	}

	e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	if dep := e.deployment(t, "web"); *dep.Spec.Replicas != 5 {
		t.Errorf("the name became free and the Deployment created has %d replicas, want 5", *dep.Spec.Replicas)
	}
}

func TestAPausedFooIsReportedAndItsDeploymentIsNotWritten(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)

	e.kubectl(t, "", "patch", "foo/web", "-n", e.namespace, "--type=merge", "-p", `{"spec":{"paused":true}}`)
	e.waitForReason(t, "web", v1alpha1.ReasonPaused)
	e.kubectl(t, "", "scale", "deployment/web", "--replicas=2", "-n", e.namespace)
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return foo.Status.AvailableReplicas == 2 })
	e.settle(t)
	if dep := e.deployment(t, "web"); *dep.Spec.Replicas != 2 {
		t.Errorf("the Deployment of a paused Foo was corrected to %d replicas", *dep.Spec.Replicas)
	}

	e.kubectl(t, "", "patch", "foo/web", "-n", e.namespace, "--type=merge", "-p", `{"spec":{"paused":false}}`)
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.Replicas == 1 })
}

func TestARefusedCreateIsReportedWithTheMessageOfTheServer(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.kubectl(t, "", "create", "quota", "none", "--hard=count/deployments.apps=0", "-n", e.namespace)
	until(t, "the quota is in force", func(context.Context) (bool, error) {
		hard := e.kubectl(t, "", "get", "quota", "none", "-n", e.namespace, "-o", "jsonpath={.status.hard}")
		return strings.Contains(hard, "deployments"), nil
	})
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	foo := e.waitForReason(t, "web", v1alpha1.ReasonRefused)
	if message := readyCondition(foo).Message; !strings.Contains(message, "exceeded quota: none") {
		t.Errorf("message = %q, want the server's message about the quota", message)
	}

	e.kubectl(t, "", "delete", "quota", "none", "-n", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}

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
	return startController(t, append([]string{"--kubeconfig", e.kubeconfig(t, via), "--namespace", e.namespace}, flags...)...)
}

// newDedicatedEnv returns an env on a cluster like s that no other test uses. The test runs in parallel with others.
func newDedicatedEnv(t *testing.T, s *shared) *env {
	t.Helper()
	waitForRoom(t)
	c, err := startCluster(s.components)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c.env(t)
}

func (e *env) createFoo(t *testing.T, name string, spec v1alpha1.FooSpec) {
	t.Helper()
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	foos := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
	if _, err := foos.Create(t.Context(), foo, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *env) deleteFoo(t *testing.T, name string, propagation metav1.DeletionPropagation) {
	t.Helper()
	foos := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
	if err := foos.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &propagation}); err != nil {
		t.Fatal(err)
	}
}

func (e *env) foo(t *testing.T, name string) *v1alpha1.Foo {
	t.Helper()
	foo, err := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return foo
}

// createDeployment creates a Deployment as a user, after calling edit with it.
func (e *env) createDeployment(t *testing.T, name string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"made-by": "somebody"}
	dep := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
			},
		},
	}
	edit(dep)
	created, err := e.kube.AppsV1().Deployments(e.namespace).Create(t.Context(), dep, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (e *env) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	dep, err := e.kube.AppsV1().Deployments(e.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return dep
}

// content returns a Deployment without its status and the fields that change with every write.
func (e *env) content(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	content := &unstructured.Unstructured{}
	out := e.kubectl(t, "", "get", "deployment/"+name, "-n", e.namespace, "-o", "json")
	if err := json.Unmarshal([]byte(out), content); err != nil {
		t.Fatal(err)
	}
	for _, path := range [][]string{
		{"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "managedFields"}, {"status"},
	} {
		unstructured.RemoveNestedField(content.Object, path...)
	}
	return content
}

// rolledOut reports whether a Deployment has no old pods any more.
func (e *env) rolledOut(t *testing.T, name string) bool {
	t.Helper()
	dep := e.deployment(t, name)
	return dep.Status.ObservedGeneration == dep.Generation && dep.Status.Replicas == *dep.Spec.Replicas &&
		dep.Status.UpdatedReplicas == *dep.Spec.Replicas && dep.Status.AvailableReplicas == *dep.Spec.Replicas
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

// watchDeployments returns a function that returns the names of the Deployments that were created since then, except
// those of settle.
func (e *env) watchDeployments(t *testing.T) func() []string {
	t.Helper()
	list, err := e.kube.AppsV1().Deployments(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := e.kube.AppsV1().Deployments(e.namespace).Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	return func() []string {
		end := e.createDeployment(t, "end-of-watch", func(*appsv1.Deployment) {})
		var names []string
		for event := range watcher.ResultChan() {
			dep, ok := event.Object.(*appsv1.Deployment)
			if !ok || event.Type != watch.Added || strings.HasPrefix(dep.Name, "settle-") {
				continue
			}
			if dep.UID == end.UID {
				break
			}
			names = append(names, dep.Name)
		}
		return names
	}
}
