package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// TestRivals has Foos and other owners that claim the same Deployment, with one controller.
func TestRivals(t *testing.T) {
	run := parts(t, servedCluster)

	run("the owner of the name keeps it, and one of those that wait gets it next", func(t *testing.T, e *env) {
		e.createReady(t, "holder", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		waiting := []string{"one", "two"}
		for _, name := range waiting {
			e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		}
		for _, name := range waiting {
			foo := e.waitForReason(t, name, v1alpha1.ReasonNameTaken)
			want := `Deployment "web" is controlled by Foo "holder". Set another ` +
				"spec.deploymentName on this Foo: kubectl -n " + e.namespace + " edit foo " + name
			if got := readyCondition(foo).Message; got != want {
				t.Errorf("Foo %s reports %q, want %q", name, got, want)
			}
			if events := e.events(t, name); len(events) != 1 || events[0].Reason != v1alpha1.EventResourceExists ||
				events[0].Type != corev1.EventTypeWarning {
				t.Errorf("events of Foo %s = %v, want one warning %s", name, events, v1alpha1.EventResourceExists)
			}
		}

		// Somebody deletes the Deployment. It does not become that of another Foo.
		former := e.deployment(t, "web")
		if err := e.deps().Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		e.waitForFoo(t, "holder", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && e.hasDeployments(t, "web") && e.deployment(t, "web").UID != former.UID
		})
		if dep := e.deployment(t, "web"); !plan.Owns(e.foo(t, "holder"), dep) {
			t.Errorf("the new Deployment belongs to %+v", dep.OwnerReferences)
		}

		before := e.countWrites(t, "create deployments/ "+e.namespace+"/web")
		e.deleteFoo(t, "holder", metav1.DeletePropagationBackground)
		for _, name := range waiting {
			e.waitForFoo(t, name, func(foo *v1alpha1.Foo) bool {
				return isReady(foo) || strings.Contains(readyCondition(foo).Message, `Foo "one"`) ||
					strings.Contains(readyCondition(foo).Message, `Foo "two"`)
			})
		}
		if got := e.countWrites(t, "create deployments/ "+e.namespace+"/web") - before; got < 1 || got > 2 {
			t.Errorf("%d creates for the free name, want one or two: each of those that wait may try once", got)
		}
		if isReady(e.foo(t, "two")) {
			waiting = []string{"two", "one"}
		}
		e.rename(t, waiting[0], "another") // When it has moved, it releases the name.
		e.waitForReason(t, waiting[1], v1alpha1.ReasonAvailable)
		e.waitForReason(t, waiting[0], v1alpha1.ReasonAvailable)
	})

	run("a Foo that is created again waits for the Deployment of the former one", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		former := e.deployment(t, "web")
		e.deleteFoo(t, "web", metav1.DeletePropagationBackground)
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		foo := e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
		if dep := e.deployment(t, "web"); dep.UID == former.UID || !plan.Owns(foo, dep) {
			t.Errorf("the Deployment is the former Foo's: %+v", dep.OwnerReferences)
		}
	})

	run("a foreign Deployment is handed over as described in docs/operations.md", func(t *testing.T, e *env) {
		dep := e.createDeployment(t, "web", nothing)
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2))})
		e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)

		kubectl := kubectlFunction(e.Kubectl("--namespace", e.namespace))
		playScenes(t, operationsPage, kubectl, scenesOf(t, operationsPage))
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
		if after := e.deployment(t, "web"); after.UID != dep.UID || *after.Spec.Replicas != 2 {
			t.Errorf("the Deployment is %s with %d replicas, want the same one, with 2", after.UID, *after.Spec.Replicas)
		}
	})
}

// TestTakeover starts the controller with the objects of the upstream sample: a Foo without conditions, and a
// Deployment without our labels. The namespace has no quota for a second Deployment.
func TestTakeover(t *testing.T) {
	e := newEnv(t, fullCluster)
	e.createFoo(t, "example-foo", v1alpha1.FooSpec{DeploymentName: "example-foo", Replicas: new(int32(2))})
	foo := e.foo(t, "example-foo")
	labels := map[string]string{"app": "nginx", "controller": "example-foo"}
	e.createDeployment(t, "example-foo", func(dep *appsv1.Deployment) {
		dep.Labels = nil
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)}
		dep.Spec.Replicas = new(int32(2))
		dep.Spec.Selector.MatchLabels, dep.Spec.Template.Labels = labels, labels
		dep.Spec.Template.Spec.Containers[0].Image = "nginx:latest"
	})
	until(t, "its pods are available", func(context.Context) (bool, error) { return e.rolledOut(t, "example-foo"), nil })
	e.quota(t, "count/deployments.apps=1")
	before := e.workload(t, "controller=example-foo")

	controller := e.controller(t)
	e.waitForReason(t, "example-foo", v1alpha1.ReasonAvailable)
	after := e.deployment(t, "example-foo")
	if diff := cmp.Diff(plan.Deployment(foo).Labels, after.Labels); diff != "" {
		t.Errorf("labels of the Deployment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, e.workload(t, "controller=example-foo")); diff != "" {
		t.Errorf("its ReplicaSets and pods (-before +after):\n%s", diff)
	}
	if got := e.countWrites(t, "patch deployments/"); got != 1 || e.countWrites(t, "create deployments/") != 0 {
		t.Errorf("%d patches, want 1 and no create: %v", got, e.writes(t, e.namespace))
	}

	// A Foo that was taken over can be renamed like any other.
	controller.stop(t)
	e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
	e.rename(t, "example-foo", "renamed")
	e.controller(t)
	e.waitForFoo(t, "example-foo", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "renamed") })
}

// TestRefusals makes the API server refuse writes in many ways, with one controller.
func TestRefusals(t *testing.T) {
	run := parts(t, servedCluster)
	hasMessage := func(text string) func(*v1alpha1.Foo) bool {
		return func(foo *v1alpha1.Foo) bool {
			return readyCondition(foo).Reason == v1alpha1.ReasonRefused &&
				strings.Contains(readyCondition(foo).Message, text) &&
				meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReconciling)
		}
	}

	run("a quota: reported with its message, and an edit retries at once", func(t *testing.T, e *env) {
		e.quota(t, "count/deployments.apps=0")
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		e.waitForFoo(t, "web", hasMessage("exceeded quota"))
		e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
		e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	})

	run("a policy that denies creates, then updates", func(t *testing.T, e *env) {
		allowAgain := e.denyDeployments(t, "not on Fridays", "CREATE")
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		e.waitForFoo(t, "web", hasMessage("not on Fridays"))
		allowAgain()
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)

		allowAgain = e.denyDeployments(t, "change freeze", "UPDATE")
		e.editFoo(t, "web", `{"spec":{"replicas":3}}`)
		e.waitForFoo(t, "web", hasMessage("change freeze"))
		allowAgain()
		e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.AvailableReplicas == 2 })
	})

	run("a policy that denies deletes: a rename reports it, and completes when it is allowed", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		lift := e.denyDeployments(t, "nothing is deleted", "DELETE")
		e.rename(t, "web", "new")
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && strings.Contains(readyCondition(foo).Message,
				`Cannot delete previous Deployment "old": refused by the API server: deployments.apps "old" is forbidden`)
		})
		e.rename(t, "web", "newer") // It does not prevent other writes.
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && e.hasDeployments(t, "new", "newer", "old") &&
				strings.Contains(readyCondition(foo).Message, "Cannot delete previous Deployment")
		})
		lift()
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "newer") })
	})

	run("a policy that rewrites the image: reported with both values, and backs off", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: "nginx:1.29"})
		e.rewriteImages(t, "mirror.example.com/nginx:1")
		edited := time.Now()
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.30"}}`)
		foo := e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return readyCondition(foo).Reason == v1alpha1.ReasonFieldsOverridden && isReady(foo)
		})
		want := `An admission webhook or policy changes Deployment "web" when the controller writes it: ` +
			`spec.template.spec.containers[name=nginx].image was "mirror.example.com/nginx:1", must be "nginx:1.30"`
		if got := readyCondition(foo).Message; !strings.HasPrefix(got, want) {
			t.Errorf("message = %q, want it to begin with %q", got, want)
		}
		e.settle(t)
		var patches []time.Time
		for _, r := range e.requests(t, edited) {
			if strings.HasPrefix(r.String(), "patch deployments/ "+e.namespace+"/") && r.ResponseStatus.Code != 409 {
				patches = append(patches, r.RequestReceivedTimestamp.Time)
			}
		}
		if len(patches) == 0 {
			t.Error("no patch")
		}
		for i := 1; i < len(patches); i++ { // The first delays are a second each, less up to a fifth.
			if gap := patches[i].Sub(patches[i-1]); gap < 800*time.Millisecond {
				t.Errorf("a patch %v after another, want a backoff between them: %v", gap, patches)
			}
		}
		if events := e.events(t, "web"); len(events) == 0 || events[len(events)-1].Reason != v1alpha1.EventFieldsOverridden {
			t.Errorf("events = %v, want the last to be a warning %s", events, v1alpha1.EventFieldsOverridden)
		}
		e.editFoo(t, "web", `{"spec":{"image":"mirror.example.com/nginx:1"}}`)
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	})
}
