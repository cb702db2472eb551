package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
		if err := e.kube.AppsV1().Deployments(e.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
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

	run("an owner reference that only resembles the Foo's is not the Foo's", func(t *testing.T, e *env) {
		bystander, err := e.kube.CoreV1().ConfigMaps(e.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*metav1.OwnerReference){
			"another-group":  func(ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1alpha1" },
			"not-controller": func(ref *metav1.OwnerReference) { ref.Controller = new(false) },
			"controller-nil": func(ref *metav1.OwnerReference) { ref.Controller = nil },
			"another-kind": func(ref *metav1.OwnerReference) {
				ref.APIVersion, ref.Kind, ref.Name, ref.UID = "v1", "ConfigMap", bystander.Name, bystander.UID
			},
		} {
			// The Foo is created before the Deployment, because the owner reference has its uid.
			e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Paused: true})
			ref := *metav1.NewControllerRef(e.foo(t, name), plan.FooKind.GroupVersionKind)
			change(&ref)
			dep := e.createDeployment(t, name,
				func(dep *appsv1.Deployment) { dep.OwnerReferences = []metav1.OwnerReference{ref} })
			e.editFoo(t, name, `{"spec":{"paused":false,"replicas":3}}`)
			e.waitForReason(t, name, v1alpha1.ReasonNotOwned)
			if after := e.deployment(t, name); after.UID != dep.UID || *after.Spec.Replicas != 1 {
				t.Errorf("%s: the Deployment was changed", name)
			}
		}
		if got := e.countWrites(t, "patch deployments/") + e.countWrites(t, "delete deployments/"); got != 0 {
			t.Errorf("%d writes to Deployments that are not ours", got)
		}
	})

	run("a foreign Deployment is handed over as described in docs/operations.md", func(t *testing.T, e *env) {
		dep := e.createDeployment(t, "web", func(*appsv1.Deployment) {})
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2))})
		e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)

		kubectl := kubectlFunction(e.Kubectl("--namespace", e.namespace))
		playScenes(t, operationsPage, kubectl, scenesOf(t, operationsPage))
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
		if after := e.deployment(t, "web"); after.UID != dep.UID || *after.Spec.Replicas != 2 {
			t.Errorf("the Deployment is %s with %d replicas, want the same one, with 2", after.UID, *after.Spec.Replicas)
		}
	})

	run("an owner with another uid does not exist: the garbage collector deletes the Deployment, and the name is free",
		func(t *testing.T, e *env) {
			e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Paused: true})
			ref := *metav1.NewControllerRef(e.foo(t, "web"), plan.FooKind.GroupVersionKind)
			ref.UID = "00000000-0000-0000-0000-000000000000"
			e.createDeployment(t, "web", func(dep *appsv1.Deployment) { dep.OwnerReferences = []metav1.OwnerReference{ref} })
			e.editFoo(t, "web", `{"spec":{"paused":false}}`)
			e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
		})
}

// TestTakeover starts the controller with the objects of the upstream sample: a Foo without conditions, and a
// Deployment without our labels. The namespace has no quota for a second Deployment.
func TestTakeover(t *testing.T) {
	e := newEnv(t, fullCluster)
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "example-foo"},
		Spec:       v1alpha1.FooSpec{DeploymentName: "example-foo", Replicas: new(int32(2))},
	}
	foo, err := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace).Create(t.Context(), foo, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "nginx", "controller": "example-foo"}
	e.createDeployment(t, "example-foo", func(dep *appsv1.Deployment) {
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)}
		dep.Spec.Replicas = new(int32(2))
		dep.Spec.Selector.MatchLabels, dep.Spec.Template.Labels = labels, labels
		dep.Spec.Template.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}
	})
	until(t, "its pods are available", func(context.Context) (bool, error) { return e.rolledOut(t, "example-foo"), nil })
	e.quota(t, corev1.ResourceList{"count/deployments.apps": resource.MustParse("1")})
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

	// A Deployment of ours that has lost its labels is the same case.
	e.kubectl(t, "", "label", "deployment/example-foo", "-n", e.namespace, v1alpha1.LabelMadeFor+"-",
		v1alpha1.LabelFooGeneration+"-", "app.kubernetes.io/managed-by-")
	until(t, "the labels are back", func(context.Context) (bool, error) {
		return cmp.Equal(plan.Deployment(foo).Labels, e.deployment(t, "example-foo").Labels), nil
	})
	if diff := cmp.Diff(before, e.workload(t, "controller=example-foo")); diff != "" {
		t.Errorf("its ReplicaSets and pods after it lost its labels (-before +after):\n%s", diff)
	}

	// A Foo that was taken over can be renamed like any other.
	controller.stop(t)
	e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
	e.rename(t, "example-foo", "renamed")
	e.controller(t)
	e.waitForFoo(t, "example-foo", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "renamed") })
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
