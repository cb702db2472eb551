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
	w := newWorld(t, fullCluster)
	w.controller(t)
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web-1", Replicas: new(int32(2)), Image: "nginx:1.29"})

	foo := w.becomes(t, "web", v1alpha1.ReasonAvailable)
	if got := foo.Status; got.AvailableReplicas != 2 || got.Replicas != 2 || got.ObservedGeneration != foo.Generation {
		t.Errorf("status = %+v, want 2 of 2 replicas of generation %d", got, foo.Generation)
	}
	before := w.pods(t, foo.Status.Selector)
	if len(before) != 2 {
		t.Fatalf("the status' selector %q selects %d pods, want 2", foo.Status.Selector, len(before))
	}
	w.kubectl(t, "", "wait", "--for=condition=Ready", "foo/web", "-n", w.namespace, "--timeout=30s")

	w.kubectl(t, "", "scale", "foo/web", "--replicas=4", "-n", w.namespace)
	foo = w.becomes(t, "web", v1alpha1.ReasonAvailable)
	after := w.pods(t, foo.Status.Selector)
	if foo.Status.AvailableReplicas != 4 || len(after) != 4 {
		t.Errorf("after scaling to 4: %d available, %d pods", foo.Status.AvailableReplicas, len(after))
	}
	for _, uid := range before {
		if !slices.Contains(after, uid) {
			t.Errorf("pod %s was restarted by a scale", uid)
		}
	}
	if events := w.events(t, "web"); len(events) != 2 || events[0].Reason != v1alpha1.EventSynced {
		t.Errorf("events = %v, want one %s for each of the two generations", events, v1alpha1.EventSynced)
	}
}

func TestDriftIsPutBackByOneWriteAndLeftAloneWhereTheFooSaysNothing(t *testing.T) {
	w := newWorld(t, fullCluster)
	w.controller(t)
	w.createFoo(t, "set", v1alpha1.FooSpec{DeploymentName: "set", Replicas: new(int32(2)), Image: "nginx:1.29"})
	w.createFoo(t, "free", v1alpha1.FooSpec{DeploymentName: "free"})
	w.becomes(t, "set", v1alpha1.ReasonAvailable)
	w.becomes(t, "free", v1alpha1.ReasonAvailable)
	edit := `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:edited"}]}}}}`

	before := w.countWrites(t, "patch deployments/")
	w.kubectl(t, "", "patch", "deployment/set", "-n", w.namespace, "-p", edit)
	until(t, "the edit is put back", func(context.Context) (bool, error) {
		dep := w.deployment(t, "set")
		return *dep.Spec.Replicas == 2 && dep.Spec.Template.Spec.Containers[0].Image == "nginx:1.29", nil
	})
	w.becomes(t, "set", v1alpha1.ReasonAvailable)
	if got := w.countWrites(t, "patch deployments/") - before; got != 1 {
		t.Errorf("putting back one edit took %d patches, want 1", got)
	}

	w.kubectl(t, "", "patch", "deployment/free", "-n", w.namespace, "-p", edit)
	until(t, "the Foo reports what others set", func(context.Context) (bool, error) {
		foo := w.foo(t, "free")
		return foo.Status.AvailableReplicas == 3 && isReady(foo), nil
	})
	w.settle(t)
	dep := w.deployment(t, "free")
	if *dep.Spec.Replicas != 3 || dep.Spec.Template.Spec.Containers[0].Image != "nginx:edited" {
		t.Errorf("fields that the Foo does not set were changed back: %d replicas of %s", *dep.Spec.Replicas,
			dep.Spec.Template.Spec.Containers[0].Image)
	}
	if got := w.countWrites(t, "patch deployments/") - before; got != 1 {
		t.Errorf("%d patches, want the first and no other", got)
	}
}

func TestDeletedDeploymentComesBack(t *testing.T) {
	w := newWorld(t, fullCluster)
	w.controller(t)
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	w.becomes(t, "web", v1alpha1.ReasonAvailable)
	first := w.deployment(t, "web").UID

	w.kubectl(t, "", "delete", "deployment/web", "-n", w.namespace, "--wait=false")
	until(t, "there is another Deployment", func(ctx context.Context) (bool, error) {
		dep, err := w.kube.AppsV1().Deployments(w.namespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && dep.UID != first, nil
	})
	w.becomes(t, "web", v1alpha1.ReasonAvailable)
}

func TestDeletedFooTakesItsDeploymentAlongAndNoneIsCreatedMeanwhile(t *testing.T) {
	for _, propagation := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
	} {
		for _, lags := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s lagging=%t", propagation, lags), func(t *testing.T) {
				w := newWorld(t, fullCluster)
				proxy := newProxy(t, w.cluster)
				startController(t, "--kubeconfig", w.kubeconfig(t, proxy)).says(t, `"Started"`)
				w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
				w.becomes(t, "web", v1alpha1.ReasonAvailable)
				w.settle(t)
				created := w.watchDeployments(t)
				if lags {
					proxy.holdWatch("foos")
				}

				w.deleteFoo(t, "web", propagation)
				until(t, "the Deployment and the Foo are gone", func(ctx context.Context) (bool, error) {
					_, depErr := w.kube.AppsV1().Deployments(w.namespace).Get(ctx, "web", metav1.GetOptions{})
					_, fooErr := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace).Get(ctx, "web", metav1.GetOptions{})
					return apierrors.IsNotFound(depErr) && apierrors.IsNotFound(fooErr), nil
				})
				if lags {
					until(t, "the controller asks the API server itself for the Foo", func(context.Context) (bool, error) {
						return proxy.count(http.MethodGet, "/foos/web") > 0, nil
					})
					proxy.releaseWatch()
				}
				w.settle(t)
				if names := created(); len(names) > 0 {
					t.Errorf("Deployments created for a Foo that was being deleted: %v", names)
				}
			})
		}
	}
}

func TestDeploymentIsEqualBeforeAndAfterAScaleExceptForOwnedPaths(t *testing.T) {
	w := newWorld(t, fullCluster)
	w.controller(t)
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: "nginx:1.29"})
	w.becomes(t, "web", v1alpha1.ReasonAvailable)
	w.kubectl(t, "", "patch", "deployment/web", "-n", w.namespace, "-p", `{
		"metadata": {
			"annotations": {"example.com/note": "ours"}, "labels": {"team": "blue"}, "finalizers": ["example.com/hold"]},
		"spec": {"minReadySeconds": 1, "template": {"spec": {"containers": [{"name": "sidecar", "image": "envoy:1"}]}}}}`)
	t.Cleanup(func() {
		w.kubectl(t, "", "patch", "deployment/web", "-n", w.namespace, "-p", `{"metadata":{"finalizers":null}}`)
	})
	w.kubectl(t, "", "rollout", "restart", "deployment/web", "-n", w.namespace)
	w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.rolledOut(t, "web") })
	w.settle(t)
	before := w.content(t, "web")
	pods := w.pods(t, w.foo(t, "web").Status.Selector)

	w.kubectl(t, "", "scale", "foo/web", "--replicas=3", "-n", w.namespace)
	foo := w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool {
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
	if diff := cmp.Diff(want.Object, w.content(t, "web").Object); diff != "" {
		t.Errorf("the Deployment differs in more than the owned paths (-want +got):\n%s", diff)
	}
	for _, uid := range pods {
		if !slices.Contains(w.pods(t, foo.Status.Selector), uid) {
			t.Errorf("pod %s was restarted by a scale", uid)
		}
	}
}

func TestForeignDeploymentIsNeverWrittenAndReportedOnce(t *testing.T) {
	w := newWorld(t, apiCluster) // Without a Deployment controller nobody but us could change its resourceVersion.
	w.controller(t)
	foreign := w.createDeployment(t, "web", func(*appsv1.Deployment) {})

	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(5)), Image: "nginx:1.29"})
	foo := w.becomes(t, "web", v1alpha1.ReasonNotOwned)
	if !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("conditions = %v, want Stalled", foo.Status.Conditions)
	}
	for range 3 { // What happens to either of them must not end in a write.
		w.kubectl(t, "", "label", "foo/web", "-n", w.namespace, "touched=yes", "--overwrite")
		w.kubectl(t, "", "label", "foo/web", "-n", w.namespace, "touched-")
	}
	w.settle(t)
	if dep := w.deployment(t, "web"); dep.ResourceVersion != foreign.ResourceVersion || dep.UID != foreign.UID {
		t.Errorf("a foreign Deployment was changed: %+v", dep)
	}
	if events := w.events(t, "web"); len(events) != 1 || events[0].Reason != v1alpha1.EventResourceExists ||
		events[0].Type != corev1.EventTypeWarning {
		t.Errorf("events = %v, want one warning %s", events, v1alpha1.EventResourceExists)
	}

	w.kubectl(t, "", "delete", "deployment/web", "-n", w.namespace)
	w.becomes(t, "web", v1alpha1.ReasonCreating)
	if dep := w.deployment(t, "web"); *dep.Spec.Replicas != 5 {
		t.Errorf("the name became free and the Deployment created has %d replicas, want 5", *dep.Spec.Replicas)
	}
}

func TestPausedFooIsReportedAndItsDeploymentLeftAlone(t *testing.T) {
	w := newWorld(t, fullCluster)
	w.controller(t)
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	w.becomes(t, "web", v1alpha1.ReasonAvailable)

	w.kubectl(t, "", "patch", "foo/web", "-n", w.namespace, "--type=merge", "-p", `{"spec":{"paused":true}}`)
	w.becomes(t, "web", v1alpha1.ReasonPaused)
	w.kubectl(t, "", "scale", "deployment/web", "--replicas=2", "-n", w.namespace)
	w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return foo.Status.AvailableReplicas == 2 })
	w.settle(t)
	if dep := w.deployment(t, "web"); *dep.Spec.Replicas != 2 {
		t.Errorf("a paused Foo's Deployment was put back to %d replicas", *dep.Spec.Replicas)
	}

	w.kubectl(t, "", "patch", "foo/web", "-n", w.namespace, "--type=merge", "-p", `{"spec":{"paused":false}}`)
	w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.Replicas == 1 })
}

func TestRefusedCreateIsReportedInTheServersWords(t *testing.T) {
	w := newWorld(t, fullCluster)
	w.controller(t)
	w.kubectl(t, "", "create", "quota", "none", "--hard=count/deployments.apps=0", "-n", w.namespace)
	until(t, "the quota is in force", func(context.Context) (bool, error) {
		hard := w.kubectl(t, "", "get", "quota", "none", "-n", w.namespace, "-o", "jsonpath={.status.hard}")
		return strings.Contains(hard, "deployments"), nil
	})
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	foo := w.becomes(t, "web", v1alpha1.ReasonRefused)
	if message := readyCondition(foo).Message; !strings.Contains(message, "exceeded quota: none") {
		t.Errorf("message = %q, want the server's words about the quota", message)
	}

	w.kubectl(t, "", "delete", "quota", "none", "-n", w.namespace)
	w.becomes(t, "web", v1alpha1.ReasonAvailable)
}

// A world is a namespace of a cluster, for one test.
type world struct {
	*cluster
	namespace string
}

func newWorld(t *testing.T, s *shared) *world {
	t.Helper()
	c := s.get(t)
	return &world{cluster: c, namespace: c.namespace(t)}
}

// together starts one controller on the cluster for several tests, and returns a function that runs one of them in
// a world of its own, beside the others.
func together(t *testing.T, s *shared) (each func(name string, test func(t *testing.T, w *world))) {
	t.Helper()
	c := s.get(t)
	c.controller(t)
	return func(name string, test func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &world{cluster: c, namespace: c.namespace(t)})
		})
	}
}

// newWorldOfItsOwn returns a world on a cluster like s that no other test uses. The test runs beside others.
func newWorldOfItsOwn(t *testing.T, s *shared) *world {
	t.Helper()
	if testing.Short() {
		t.Skip(skipped)
	}
	t.Parallel()
	c, err := startCluster(s.components)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return &world{cluster: c, namespace: c.namespace(t)}
}

func (w *world) createFoo(t *testing.T, name string, spec v1alpha1.FooSpec) {
	t.Helper()
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	foos := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace)
	if _, err := foos.Create(t.Context(), foo, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) deleteFoo(t *testing.T, name string, propagation metav1.DeletionPropagation) {
	t.Helper()
	foos := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace)
	if err := foos.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &propagation}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) foo(t *testing.T, name string) *v1alpha1.Foo {
	t.Helper()
	foo, err := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return foo
}

// createDeployment creates a Deployment that somebody else made, with what edit does to it.
func (w *world) createDeployment(t *testing.T, name string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
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
	created, err := w.kube.AppsV1().Deployments(w.namespace).Create(t.Context(), dep, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (w *world) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	dep, err := w.kube.AppsV1().Deployments(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return dep
}

// content returns all of a Deployment but what changes with every write, and its status.
func (w *world) content(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	content := &unstructured.Unstructured{}
	out := w.kubectl(t, "", "get", "deployment/"+name, "-n", w.namespace, "-o", "json")
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

// rolledOut reports whether no old pods of a Deployment are left.
func (w *world) rolledOut(t *testing.T, name string) bool {
	t.Helper()
	dep := w.deployment(t, name)
	return dep.Status.ObservedGeneration == dep.Generation && dep.Status.Replicas == *dep.Spec.Replicas &&
		dep.Status.UpdatedReplicas == *dep.Spec.Replicas && dep.Status.AvailableReplicas == *dep.Spec.Replicas
}

// becomes waits until the Foo's newest generation is reported with reason, and returns it.
func (w *world) becomes(t *testing.T, name, reason string) *v1alpha1.Foo {
	t.Helper()
	return w.becomesWith(t, name, func(foo *v1alpha1.Foo) bool { return readyCondition(foo).Reason == reason })
}

// becomesWith waits until the Foo's newest generation is reported and condition holds.
func (w *world) becomesWith(t *testing.T, name string, condition func(*v1alpha1.Foo) bool) *v1alpha1.Foo {
	t.Helper()
	var foo *v1alpha1.Foo
	until(t, "Foo "+name+" becomes as expected", func(context.Context) (bool, error) {
		foo = w.foo(t, name)
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

var settled atomic.Int64 // How many Foos settle has made.

// settle gives the controller the time to deal with what happened so far: it makes it work on two Foos, one
// after the other, from the watch event to the status. That does not prove that all workers are idle.
func (w *world) settle(t *testing.T) {
	t.Helper()
	for range 2 {
		name := fmt.Sprintf("settle-%d", settled.Add(1))
		w.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(0))})
		w.becomesWith(t, name, func(*v1alpha1.Foo) bool { return true })
		w.deleteFoo(t, name, metav1.DeletePropagationBackground)
	}
}

// pods returns the uids of the pods that selector selects and that are not on their way out.
func (w *world) pods(t *testing.T, selector string) []types.UID {
	t.Helper()
	pods, err := w.kube.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
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
func (w *world) events(t *testing.T, name string) []corev1.Event {
	t.Helper()
	w.settle(t)
	list, err := w.kube.CoreV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Foo,involvedObject.name=" + name,
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// countWrites returns how many writes of the controller in the namespace begin with prefix, and were done:
// some come too late, because the Deployment controller has just reported, and are tried again.
func (w *world) countWrites(t *testing.T, prefix string) int {
	t.Helper()
	n := 0
	for _, write := range w.writes(t, w.namespace) {
		if strings.HasPrefix(write, prefix) && !strings.HasSuffix(write, ": 409") {
			n++
		}
	}
	return n
}

// watchDeployments returns a function that returns the names of the Deployments created since, except
// those of settle.
func (w *world) watchDeployments(t *testing.T) func() []string {
	t.Helper()
	list, err := w.kube.AppsV1().Deployments(w.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := w.kube.AppsV1().Deployments(w.namespace).Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	return func() []string {
		end := w.createDeployment(t, "end-of-watch", func(*appsv1.Deployment) {})
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
