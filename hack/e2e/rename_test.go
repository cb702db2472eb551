package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestRename renames Foos in many ways, with one controller. During a rename there must never be fewer replicas
// available than before, or than the Foo asks for.
func TestRename(t *testing.T) {
	run := parts(t, servedCluster)

	run("the old Deployment serves until the new one is available", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old"})
		e.kubectl(t, "", "scale", "deployment/old", "--replicas=3", "-n", e.namespace) // The Foo does not set replicas.
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.AvailableReplicas == 3 })
		lowest := e.sampleAvailable(t)

		e.rename(t, "web", "new")
		foo := e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "new") })
		if foo.Status.AvailableReplicas != 3 || readyCondition(foo).Message != "3 of 3 replicas available" {
			t.Errorf("status = %+v, want the old Deployment's 3 replicas", foo.Status)
		}
		if n := lowest(); n < 3 {
			t.Errorf("%d replicas were available at one time, want 3 at all times", n)
		}
		want := map[string]int{"create deployments/": 2, "delete deployments/": 1, "patch deployments/": 0}
		got := map[string]int{}
		for prefix := range want {
			got[prefix] = e.countWrites(t, prefix)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})

	run("twice quickly: nothing is deleted before the last one can take over", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "a", Replicas: new(int32(2))})
		lowest := e.sampleAvailable(t)
		e.editFoo(t, "web", `{"spec":{"deploymentName":"b","image":"`+neverReadyImage+`"}}`)
		foo := e.waitForFoo(t, "web", func(*v1alpha1.Foo) bool { return e.hasDeployments(t, "a", "b") })
		if foo.Status.AvailableReplicas != 0 {
			t.Errorf("%d replicas available, want those of the new Deployment, none", foo.Status.AvailableReplicas)
		}
		e.editFoo(t, "web", `{"spec":{"deploymentName":"c"}}`)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			message := readyCondition(foo).Message
			return strings.Contains(message, `Deployment "a" keeps serving with 2 until then`) &&
				strings.Contains(message, "you may delete it: kubectl -n "+e.namespace+" delete deployment b")
		})
		if !e.hasDeployments(t, "a", "b", "c") {
			t.Error("a Deployment was deleted before the new one is available")
		}
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "c") })
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want 2 at all times", n)
		}
	})

	run("reverted half-way: the old Deployment was never written", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "a", Replicas: new(int32(2)), Image: "nginx:1.29"})
		before, pods := e.deployment(t, "a"), e.pods(t, e.foo(t, "web").Status.Selector)
		lowest := e.sampleAvailable(t)
		e.editFoo(t, "web", `{"spec":{"deploymentName":"b","image":"`+neverReadyImage+`"}}`)
		e.waitForFoo(t, "web", func(*v1alpha1.Foo) bool { return e.hasDeployments(t, "a", "b") })
		e.editFoo(t, "web", `{"spec":{"deploymentName":"a","image":"nginx:1.29"}}`)
		foo := e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "a") })
		if after := e.deployment(t, "a"); after.UID != before.UID || after.Generation != before.Generation {
			t.Errorf("the Deployment was replaced or changed: %s generation %d, was %s generation %d", after.UID,
				after.Generation, before.UID, before.Generation)
		}
		if diff := cmp.Diff(sorted(pods), sorted(e.pods(t, foo.Status.Selector))); diff != "" {
			t.Errorf("pods were restarted (-before +after):\n%s", diff)
		}
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want 2 at all times", n)
		}
	})

	for image, outcome := range map[string]string{"nginx:1.28": "is good", neverReadyImage: "never becomes ready"} {
		run("back, with the strategy Recreate and an image that "+outcome, func(t *testing.T, e *env) {
			e.renameBack(t, image)
		})
	}

	run("to the name of a foreign Deployment: the old Deployment stays", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		e.createReady(t, "other", v1alpha1.FooSpec{DeploymentName: "taken", Replicas: new(int32(1))})
		e.createDeployment(t, "foreign", func(*appsv1.Deployment) {})
		for name, reason := range map[string]string{"taken": v1alpha1.ReasonNameTaken, "foreign": v1alpha1.ReasonNotOwned} {
			e.rename(t, "web", name)
			foo := e.waitForReason(t, "web", reason)
			if message := readyCondition(foo).Message; !strings.Contains(message,
				`. Previous Deployment "old" (1 available) is kept until its replacement is available`) {
				t.Errorf("message = %q, want the old Deployment in it", message)
			}
		}
		e.settle(t)
		if !e.hasDeployments(t, "old", "taken", "foreign") {
			t.Error("Deployments were deleted or created")
		}
	})

	run("two swap names: both report it, and a free name for one resolves it", func(t *testing.T, e *env) {
		e.createReady(t, "one", v1alpha1.FooSpec{DeploymentName: "x", Replicas: new(int32(1))})
		e.createReady(t, "two", v1alpha1.FooSpec{DeploymentName: "y", Replicas: new(int32(1))})
		lowest := e.sampleAvailable(t)
		e.rename(t, "one", "y")
		e.rename(t, "two", "x")
		e.waitForReason(t, "one", v1alpha1.ReasonNameCycle)
		foo := e.waitForReason(t, "two", v1alpha1.ReasonNameCycle)
		if message := readyCondition(foo).Message; !strings.Contains(message,
			`This Foo waits for Deployment "x" of Foo "one", which waits for Deployment "y" of this Foo`) {
			t.Errorf("message = %q, want the cycle in it", message)
		}
		e.rename(t, "one", "z")
		e.waitForFoo(t, "two", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "x", "z") })
		e.rename(t, "one", "y")
		e.waitForFoo(t, "one", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "x", "y") })
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want one of each at all times", n)
		}
	})

	run("a cycle of three: each reports for which one it waits", func(t *testing.T, e *env) {
		names := []string{"a", "b", "c"}
		for _, name := range names {
			e.createReady(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(1))})
		}
		for i, name := range names {
			e.rename(t, name, names[(i+1)%3])
		}
		for _, name := range names {
			e.waitForReason(t, name, v1alpha1.ReasonWaitingForName)
		}
		e.deleteFoo(t, "a", metav1.DeletePropagationBackground)
		e.waitForReason(t, "b", v1alpha1.ReasonAvailable)
		e.waitForReason(t, "c", v1alpha1.ReasonAvailable)
	})

	run("a copy with our owner reference and labels is never deleted, and reported", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		kept := e.deployment(t, "old")
		copied := kept.DeepCopy()
		copied.ObjectMeta = metav1.ObjectMeta{Name: "copy", Labels: kept.Labels, OwnerReferences: kept.OwnerReferences}
		if _, err := e.kube.AppsV1().Deployments(e.namespace).Create(t.Context(), copied,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		reported := func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && strings.Contains(readyCondition(foo).Message,
				`Deployment "copy" has an owner reference to this Foo`)
		}
		e.waitForFoo(t, "web", reported)
		e.rename(t, "web", "new")
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return reported(foo) && e.hasDeployments(t, "copy", "new") })
		e.settle(t)
		if !e.hasDeployments(t, "copy", "new") {
			t.Error("the copy was deleted")
		}
	})

	run("the old Deployment is edited meanwhile: it is not corrected, and deleted in the end", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(2)), Image: "nginx:1.29"})
		e.editFoo(t, "web", `{"spec":{"deploymentName":"new","image":"`+neverReadyImage+`"}}`)
		e.waitForFoo(t, "web", func(*v1alpha1.Foo) bool { return e.hasDeployments(t, "old", "new") })
		e.kubectl(t, "", "scale", "deployment/old", "--replicas=3", "-n", e.namespace)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return strings.Contains(readyCondition(foo).Message, `"old" keeps serving with 3 until then`)
		})
		if dep := e.deployment(t, "old"); *dep.Spec.Replicas != 3 {
			t.Errorf("the old Deployment was corrected to %d replicas", *dep.Spec.Replicas)
		}
		lowest := e.sampleAvailable(t)
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "new") })
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want the wanted 2 at all times", n)
		}
	})

	run("no quota for two Deployments: the old one stays until there is more", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		e.quota(t, corev1.ResourceList{"count/deployments.apps": resource.MustParse("1")})
		lowest := e.sampleAvailable(t)
		e.rename(t, "web", "new")
		foo := e.waitForReason(t, "web", v1alpha1.ReasonRefused)
		if message := readyCondition(foo).Message; !strings.Contains(message, "exceeded quota") ||
			!strings.Contains(message, `Previous Deployment "old" (1 available) is kept`) {
			t.Errorf("message = %q, want the server's message and the old Deployment in it", message)
		}
		e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
		e.rename(t, "web", "newer") // The edit ends the backoff.
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "newer") })
		if n := lowest(); n < 1 {
			t.Error("nothing was available at one time")
		}
	})

	run("no quota for the pods of two Deployments: Reconciling until the deadline, then Stalled",
		func(t *testing.T, e *env) {
			e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
			e.quota(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
			e.rename(t, "web", "new")
			foo := e.waitForReason(t, "web", v1alpha1.ReasonReplicaFailure)
			if !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReconciling) {
				t.Errorf("conditions = %+v, want Reconciling", foo.Status.Conditions)
			}
			e.kubectl(t, "", "patch", "deployment/new", "-n", e.namespace, "-p", `{"spec":{"progressDeadlineSeconds":2}}`)
			e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
				return meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) &&
					strings.Contains(readyCondition(foo).Message, `Previous Deployment "old" (1 available) is kept`)
			})
			if !e.hasDeployments(t, "old", "new") {
				t.Error("the old Deployment was deleted")
			}
		})
}

// renameBack renames a Foo from a to b, which a quota permits only in part, and back to a with another image. As soon as
// the Deployment controller has observed that image, it ends all pods of a, and until then it reports them as available.
func (e *env) renameBack(t *testing.T, image string) {
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "a", Replicas: new(int32(3)), Image: "nginx:1.29"})
	e.kubectl(t, "", "patch", "deployment/a", "-n", e.namespace, "-p",
		`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
	e.quota(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")})
	e.rename(t, "web", "b")
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return foo.Status.AvailableReplicas == 2 })

	lowest := e.sampleAvailable(t)
	e.editFoo(t, "web", `{"spec":{"deploymentName":"a","image":"`+image+`"}}`)
	if image == neverReadyImage {
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return foo.Status.AvailableReplicas == 0 &&
				strings.Contains(readyCondition(foo).Message, `Previous Deployment "b"`)
		})
		e.settle(t)
		if !e.hasDeployments(t, "a", "b") {
			t.Error("the only Deployment that serves was deleted")
		}
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
	}
	e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace) // The last pod of b may have taken the place of one of a.
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "a") })
	if n := lowest(); n < 2 {
		t.Errorf("%d replicas were available at one time, want 2 at all times", n)
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
	foos := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
	if _, err := foos.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *env) rename(t *testing.T, foo, deployment string) {
	t.Helper()
	e.editFoo(t, foo, fmt.Sprintf(`{"spec":{"deploymentName":%q}}`, deployment))
}

// deployments returns the Deployments of the namespace, except those of settle.
func (e *env) deployments(t *testing.T) map[string]*appsv1.Deployment {
	t.Helper()
	list, err := e.kube.AppsV1().Deployments(e.namespace).List(t.Context(), metav1.ListOptions{})
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
	_, err := e.kube.AppsV1().Deployments(e.namespace).Get(t.Context(), deployment, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// sampleAvailable starts watching the number of available replicas in the namespace. It returns a function that stops
// the watch and returns the lowest number.
func (e *env) sampleAvailable(t *testing.T) func() int {
	t.Helper()
	return e.sampleAvailableOf(t, "")
}

// sampleAvailableOf does the same for the Deployments whose names begin with prefix. It uses a watch, so it misses no
// change.
func (e *env) sampleAvailableOf(t *testing.T, prefix string) func() int {
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

func sorted(uids []types.UID) []types.UID { return slices.Sorted(slices.Values(uids)) }
