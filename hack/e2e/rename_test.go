package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
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

// TestRename renames Foos in many ways, on one cluster and with one controller. While it does, it looks all the
// time at how many replicas are available: never fewer than were before, or than are wanted.
func TestRename(t *testing.T) {
	each := together(t, fullCluster)

	each("the old Deployment serves until the new one does", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old"})
		w.kubectl(t, "", "scale", "deployment/old", "--replicas=3", "-n", w.namespace) // The Foo says nothing of replicas.
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.AvailableReplicas == 3 })
		lowest := w.sampleAvailable(t)

		w.rename(t, "web", "new")
		foo := w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "new") })
		if foo.Status.AvailableReplicas != 3 || readyCondition(foo).Message != "3 of 3 replicas available" {
			t.Errorf("status = %+v, want the old Deployment's 3 replicas", foo.Status)
		}
		if n := lowest(); n < 3 {
			t.Errorf("%d replicas were available at one time, want 3 at all times", n)
		}
		want := map[string]int{"create deployments/": 2, "delete deployments/": 1, "patch deployments/": 0}
		got := map[string]int{}
		for prefix := range want {
			got[prefix] = w.countWrites(t, prefix)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})

	each("twice quickly: what was never available goes at once", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "a", Replicas: new(int32(2))})
		lowest := w.sampleAvailable(t)
		w.editFoo(t, "web", `{"spec":{"deploymentName":"b","image":"`+neverReadyImage+`"}}`)
		foo := w.becomesWith(t, "web", func(*v1alpha1.Foo) bool { return w.hasDeployments(t, "a", "b") })
		if foo.Status.AvailableReplicas != 0 {
			t.Errorf("%d replicas available, want those of the new Deployment, none", foo.Status.AvailableReplicas)
		}
		w.editFoo(t, "web", `{"spec":{"deploymentName":"c"}}`)
		w.becomesWith(t, "web", func(*v1alpha1.Foo) bool { return w.hasDeployments(t, "a", "c") })
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool {
			return strings.Contains(readyCondition(foo).Message, `Deployment "a" keeps serving with 2 until then`)
		})
		w.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "c") })
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want 2 at all times", n)
		}
	})

	each("back half-way: the old Deployment was never touched", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "a", Replicas: new(int32(2)), Image: "nginx:1.29"})
		before, pods := w.deployment(t, "a"), w.pods(t, w.foo(t, "web").Status.Selector)
		lowest := w.sampleAvailable(t)
		w.editFoo(t, "web", `{"spec":{"deploymentName":"b","image":"`+neverReadyImage+`"}}`)
		w.becomesWith(t, "web", func(*v1alpha1.Foo) bool { return w.hasDeployments(t, "a", "b") })
		w.editFoo(t, "web", `{"spec":{"deploymentName":"a","image":"nginx:1.29"}}`)
		foo := w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "a") })
		if after := w.deployment(t, "a"); after.UID != before.UID || after.Generation != before.Generation {
			t.Errorf("the Deployment was replaced or changed: %s generation %d, was %s generation %d", after.UID,
				after.Generation, before.UID, before.Generation)
		}
		if diff := cmp.Diff(sorted(pods), sorted(w.pods(t, foo.Status.Selector))); diff != "" {
			t.Errorf("pods were restarted (-before +after):\n%s", diff)
		}
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want 2 at all times", n)
		}
	})

	each("to a name that somebody else has: the old Deployment stays", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		w.createReady(t, "other", v1alpha1.FooSpec{DeploymentName: "taken", Replicas: new(int32(1))})
		w.createDeployment(t, "foreign", func(*appsv1.Deployment) {})
		for name, reason := range map[string]string{"taken": v1alpha1.ReasonNameTaken, "foreign": v1alpha1.ReasonNotOwned} {
			w.rename(t, "web", name)
			foo := w.becomes(t, "web", reason)
			if message := readyCondition(foo).Message; !strings.Contains(message,
				`. Previous Deployment "old" (1 available) is kept until its replacement is available`) {
				t.Errorf("message = %q, want it to tell of the old Deployment", message)
			}
		}
		w.settle(t)
		if !w.hasDeployments(t, "old", "taken", "foreign") {
			t.Error("Deployments were deleted or created")
		}
	})

	each("two swap names: both say so, and a free name for one is the way out", func(t *testing.T, w *world) {
		w.createReady(t, "one", v1alpha1.FooSpec{DeploymentName: "x", Replicas: new(int32(1))})
		w.createReady(t, "two", v1alpha1.FooSpec{DeploymentName: "y", Replicas: new(int32(1))})
		lowest := w.sampleAvailable(t)
		w.rename(t, "one", "y")
		w.rename(t, "two", "x")
		w.becomes(t, "one", v1alpha1.ReasonNameCycle)
		foo := w.becomes(t, "two", v1alpha1.ReasonNameCycle)
		if message := readyCondition(foo).Message; !strings.Contains(message,
			`Foo "two" waits for Deployment "x" of Foo "one"; Foo "one" waits for Deployment "y" of Foo "two"`) {
			t.Errorf("message = %q, want it to name the ring", message)
		}
		w.rename(t, "one", "z")
		w.becomesWith(t, "two", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "x", "z") })
		w.rename(t, "one", "y")
		w.becomesWith(t, "one", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "x", "y") })
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want one of each at all times", n)
		}
	})

	each("three in a ring: all of them report it", func(t *testing.T, w *world) {
		names := []string{"a", "b", "c"}
		for _, name := range names {
			w.createReady(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(1))})
		}
		for i, name := range names {
			w.rename(t, name, names[(i+1)%3])
		}
		for _, name := range names {
			w.becomes(t, name, v1alpha1.ReasonNameCycle)
		}
		w.deleteFoo(t, "a", metav1.DeletePropagationBackground)
		w.becomes(t, "b", v1alpha1.ReasonAvailable)
		w.becomes(t, "c", v1alpha1.ReasonAvailable)
	})

	each("a copy with our owner reference and labels is never deleted, and reported", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		kept := w.deployment(t, "old")
		copied := kept.DeepCopy()
		copied.ObjectMeta = metav1.ObjectMeta{Name: "copy", Labels: kept.Labels, OwnerReferences: kept.OwnerReferences}
		if _, err := w.kube.AppsV1().Deployments(w.namespace).Create(t.Context(), copied,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		reported := func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && strings.Contains(readyCondition(foo).Message, `Deployment "copy" has this Foo as its controller`)
		}
		w.becomesWith(t, "web", reported)
		w.rename(t, "web", "new")
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return reported(foo) && w.hasDeployments(t, "copy", "new") })
		w.settle(t)
		if !w.hasDeployments(t, "copy", "new") {
			t.Error("the copy is gone")
		}
	})

	each("the old Deployment is edited meanwhile: it is left so, and goes in the end", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(2)), Image: "nginx:1.29"})
		w.editFoo(t, "web", `{"spec":{"deploymentName":"new","image":"`+neverReadyImage+`"}}`)
		w.becomesWith(t, "web", func(*v1alpha1.Foo) bool { return w.hasDeployments(t, "old", "new") })
		w.kubectl(t, "", "scale", "deployment/old", "--replicas=3", "-n", w.namespace)
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool {
			return strings.Contains(readyCondition(foo).Message, `"old" keeps serving with 3 until then`)
		})
		if dep := w.deployment(t, "old"); *dep.Spec.Replicas != 3 {
			t.Errorf("the old Deployment was put back to %d replicas", *dep.Spec.Replicas)
		}
		lowest := w.sampleAvailable(t)
		w.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "new") })
		if n := lowest(); n < 2 {
			t.Errorf("%d replicas were available at one time, want the wanted 2 at all times", n)
		}
	})

	each("no quota for two Deployments: the old one stays until there is", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		w.quota(t, corev1.ResourceList{"count/deployments.apps": resource.MustParse("1")})
		lowest := w.sampleAvailable(t)
		w.rename(t, "web", "new")
		foo := w.becomes(t, "web", v1alpha1.ReasonRefused)
		if message := readyCondition(foo).Message; !strings.Contains(message, "exceeded quota") ||
			!strings.Contains(message, `Previous Deployment "old" (1 available) is kept`) {
			t.Errorf("message = %q, want the server's words and the old Deployment", message)
		}
		w.kubectl(t, "", "delete", "quota", "--all", "-n", w.namespace)
		w.rename(t, "web", "newer") // An edit acts at once.
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "newer") })
		if n := lowest(); n < 1 {
			t.Error("nothing was available at one time")
		}
	})

	each("no quota for the pods of two Deployments: Reconciling until the deadline, then Stalled",
		func(t *testing.T, w *world) {
			w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
			w.quota(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
			w.rename(t, "web", "new")
			foo := w.becomes(t, "web", v1alpha1.ReasonReplicaFailure)
			if !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReconciling) {
				t.Errorf("conditions = %+v, want Reconciling", foo.Status.Conditions)
			}
			w.kubectl(t, "", "patch", "deployment/new", "-n", w.namespace, "-p", `{"spec":{"progressDeadlineSeconds":2}}`)
			w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool {
				return meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) &&
					strings.Contains(readyCondition(foo).Message, `Previous Deployment "old" (1 available) is kept`)
			})
			if !w.hasDeployments(t, "old", "new") {
				t.Error("the old Deployment is gone")
			}
		})
}

// TestRenameEndsWellWhereverTheControllerIsKilled kills the controller at each request that every rename makes,
// once so that the request is lost and, if it is a write, once so that it is still done. Another controller then
// takes over. A moment is given by the methods of the requests up to it, others may come between: how often the
// status is written on the way depends on how fast the replicas come.
func TestRenameEndsWellWhereverTheControllerIsKilled(t *testing.T) {
	w := newWorld(t, fullCluster)
	for i, moment := range []string{
		"GET",      // The live look at the Foo, before there is a new Deployment.
		"POST",     // The new Deployment.
		"POST PUT", // What the status says of it, and then once more.
		"POST PUT PUT",
		"POST GET",        // The live look at the Foo, before the old Deployment goes.
		"POST GET GET",    // The live look at the new Deployment.
		"POST DELETE",     // The old Deployment.
		"POST DELETE PUT", // The last status.
	} {
		for _, lost := range []bool{true, false} {
			if !lost && strings.HasSuffix(moment, http.MethodGet) {
				continue // A look that is done is as good as one that is lost.
			}
			t.Run(fmt.Sprintf("%s lost=%t", moment, lost), func(t *testing.T) {
				w.renameAndKill(t, fmt.Sprintf("web-%d-%t", i, lost), strings.Fields(moment), lost)
			})
		}
	}
}

// renameAndKill renames a Foo, kills the controller at the last of the requests with these methods, and expects
// another one to bring the rename to its end.
func (w *world) renameAndKill(t *testing.T, name string, methods []string, lost bool) {
	proxy := newProxy(t, w.cluster)
	controller := startController(t, "--kubeconfig", w.kubeconfig(t, proxy))
	w.createReady(t, name, v1alpha1.FooSpec{DeploymentName: name + "-old", Replicas: new(int32(2))})
	w.settle(t)

	var mu sync.Mutex // Requests come in goroutines of their own.
	proxy.mu.Lock()
	proxy.before = func(r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/deployments") && !strings.Contains(r.URL.Path, "s/"+name) {
			return // An event, or another Foo's.
		}
		mu.Lock()
		defer mu.Unlock()
		if len(methods) == 0 || r.Method != methods[0] || r.URL.Query().Get("watch") != "" {
			return
		}
		if methods = methods[1:]; len(methods) > 0 {
			return
		}
		controller.kill()
		if lost {
			panic(http.ErrAbortHandler)
		}
		*r = *r.WithContext(context.WithoutCancel(r.Context())) // Nobody waits for the answer.
	}
	proxy.mu.Unlock()

	lowest := w.sampleAvailableOf(t, name+"-")
	w.rename(t, name, name+"-new")
	until(t, "the controller is killed", func(context.Context) (bool, error) {
		select {
		case <-controller.done:
			return true, nil
		default:
			return false, nil
		}
	})
	w.controller(t)
	until(t, "the Foo is renamed", func(context.Context) (bool, error) {
		foo := w.foo(t, name)
		return foo.Status.ObservedGeneration == foo.Generation && isReady(foo) &&
			readyCondition(foo).Message == "2 of 2 replicas available" && !w.exists(t, name+"-old"), nil
	})
	if n := lowest(); n < 2 {
		t.Errorf("%d replicas were available at one time, want 2 at all times", n)
	}
}

// createReady creates a Foo and waits until it is Ready.
func (w *world) createReady(t *testing.T, name string, spec v1alpha1.FooSpec) {
	t.Helper()
	w.createFoo(t, name, spec)
	w.becomes(t, name, v1alpha1.ReasonAvailable)
}

// editFoo applies a merge patch as a user would.
func (w *world) editFoo(t *testing.T, name, patch string) {
	t.Helper()
	foos := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace)
	if _, err := foos.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) rename(t *testing.T, foo, deployment string) {
	t.Helper()
	w.editFoo(t, foo, fmt.Sprintf(`{"spec":{"deploymentName":%q}}`, deployment))
}

// deployments returns the Deployments of the namespace, except those of settle.
func (w *world) deployments(t *testing.T) map[string]*appsv1.Deployment {
	t.Helper()
	list, err := w.kube.AppsV1().Deployments(w.namespace).List(t.Context(), metav1.ListOptions{})
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
func (w *world) hasDeployments(t *testing.T, names ...string) bool {
	t.Helper()
	return slices.Equal(slices.Sorted(maps.Keys(w.deployments(t))), slices.Sorted(slices.Values(names)))
}

func (w *world) exists(t *testing.T, deployment string) bool {
	t.Helper()
	_, err := w.kube.AppsV1().Deployments(w.namespace).Get(t.Context(), deployment, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// sampleAvailable begins to look at how many replicas are available in the namespace, and returns a function
// that ends it and returns the lowest number seen.
func (w *world) sampleAvailable(t *testing.T) func() int {
	t.Helper()
	return w.sampleAvailableOf(t, "")
}

// sampleAvailableOf is sampleAvailable for the Deployments whose names begin with prefix. It follows a watch, so it
// misses nothing.
func (w *world) sampleAvailableOf(t *testing.T, prefix string) func() int {
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

// kill ends the process as a power cut would.
func (p *process) kill() {
	p.signalled, p.code = true, -1
	_ = p.cmd.Process.Kill() // It may have ended before.
}
