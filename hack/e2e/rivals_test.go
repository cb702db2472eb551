package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// TestRivals lets Foos, and others, want one Deployment, on one cluster and with one controller.
func TestRivals(t *testing.T) {
	each := together(t, fullCluster)

	each("who has the name keeps it, and the oldest of those who wait gets it next", func(t *testing.T, w *world) {
		w.createReady(t, "holder", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		w.createFoo(t, "z-older", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		older := w.foo(t, "z-older")
		until(t, "a second has passed: the API server counts in seconds", func(context.Context) (bool, error) {
			return time.Since(older.CreationTimestamp.Time) >= time.Second, nil
		})
		w.createFoo(t, "a-younger", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		for _, name := range []string{"z-older", "a-younger"} {
			foo := w.becomes(t, name, v1alpha1.ReasonNameTaken)
			want := `Deployment "web" is controlled by Foo "holder", which also names it. Set another ` +
				"spec.deploymentName on one of the two Foos, or delete one. See: kubectl -n " + w.namespace +
				" describe foo holder"
			if got := readyCondition(foo).Message; got != want {
				t.Errorf("Foo %s says %q, want %q", name, got, want)
			}
			if events := w.events(t, name); len(events) != 1 || events[0].Reason != v1alpha1.EventResourceExists ||
				events[0].Type != corev1.EventTypeWarning {
				t.Errorf("events of Foo %s = %v, want one warning %s", name, events, v1alpha1.EventResourceExists)
			}
		}

		before := w.countWrites(t, "create deployments/ "+w.namespace+"/web")
		w.deleteFoo(t, "holder", metav1.DeletePropagationBackground)
		w.becomes(t, "z-older", v1alpha1.ReasonAvailable)
		younger := w.becomesWith(t, "a-younger", func(foo *v1alpha1.Foo) bool {
			return strings.Contains(readyCondition(foo).Message, `Foo "z-older"`)
		})
		if reason := readyCondition(younger).Reason; reason != v1alpha1.ReasonNameTaken {
			t.Errorf("reason = %s, want %s", reason, v1alpha1.ReasonNameTaken)
		}
		if got := w.countWrites(t, "create deployments/ "+w.namespace+"/web") - before; got != 1 {
			t.Errorf("the free name was tried for %d times, want once", got)
		}

		w.rename(t, "z-older", "another") // A holder that moves away frees the name too, when it has moved.
		w.becomes(t, "a-younger", v1alpha1.ReasonAvailable)
		w.becomes(t, "z-older", v1alpha1.ReasonAvailable)
	})

	each("a Foo of the same name, created again, waits for what the former one had", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		former := w.deployment(t, "web")
		w.deleteFoo(t, "web", metav1.DeletePropagationBackground)
		w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		foo := w.becomes(t, "web", v1alpha1.ReasonAvailable)
		if dep := w.deployment(t, "web"); dep.UID == former.UID || !plan.Owns(foo, dep) {
			t.Errorf("the Deployment is the former Foo's: %+v", dep.OwnerReferences)
		}
	})

	each("an owner that only looks like the Foo does not make it the Foo's", func(t *testing.T, w *world) {
		bystander, err := w.kube.CoreV1().ConfigMaps(w.namespace).Create(t.Context(),
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
			// The Foo exists before the Deployment, so that the reference can name it.
			w.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Paused: true})
			ref := *metav1.NewControllerRef(w.foo(t, name), plan.FooKind)
			change(&ref)
			dep := w.createDeployment(t, name,
				func(dep *appsv1.Deployment) { dep.OwnerReferences = []metav1.OwnerReference{ref} })
			w.editFoo(t, name, `{"spec":{"paused":false,"replicas":3}}`)
			w.becomes(t, name, v1alpha1.ReasonNotOwned)
			if after := w.deployment(t, name); after.UID != dep.UID || *after.Spec.Replicas != 1 {
				t.Errorf("%s: the Deployment was changed", name)
			}
		}
		if got := w.countWrites(t, "patch deployments/") + w.countWrites(t, "delete deployments/"); got != 0 {
			t.Errorf("%d writes to Deployments that are not ours", got)
		}
	})

	each("somebody's Deployment is handed over as docs/operations.md says", func(t *testing.T, w *world) {
		dep := w.createDeployment(t, "web", func(*appsv1.Deployment) {})
		w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2))})
		w.becomes(t, "web", v1alpha1.ReasonNotOwned)

		text, err := os.ReadFile("docs/operations.md")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "To hand a Deployment over")
		_, after, _ = strings.Cut(after, "```\n")
		commands, _, found := strings.Cut(after, "```")
		if !found {
			t.Fatal("docs/operations.md has no commands for it")
		}
		kubectl := strings.Join(w.Kubectl("--namespace", w.namespace).Args, " ")
		script := fmt.Sprintf("kubectl() { %s \"$@\"; }\n%s", kubectl, commands)
		if out, err := exec.Command("bash", "-o", "errexit", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}

		w.becomes(t, "web", v1alpha1.ReasonAvailable)
		if after := w.deployment(t, "web"); after.UID != dep.UID || *after.Spec.Replicas != 2 {
			t.Errorf("the Deployment is %s with %d replicas, want the same one, with 2", after.UID, *after.Spec.Replicas)
		}
	})

	each("an owner of another uid is nobody: the garbage collector removes the Deployment, and the name is free",
		func(t *testing.T, w *world) {
			w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Paused: true})
			ref := *metav1.NewControllerRef(w.foo(t, "web"), plan.FooKind)
			ref.UID = "00000000-0000-0000-0000-000000000000"
			w.createDeployment(t, "web", func(dep *appsv1.Deployment) { dep.OwnerReferences = []metav1.OwnerReference{ref} })
			w.editFoo(t, "web", `{"spec":{"paused":false}}`)
			w.becomes(t, "web", v1alpha1.ReasonAvailable)
		})
}

// TestTakeover gives the controller what the sample that it descends from left behind: a Foo without status
// conditions, and a Deployment without our labels, in a namespace that has no room for a second Deployment.
func TestTakeover(t *testing.T) {
	w := newWorld(t, fullCluster)
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "example-foo"},
		Spec:       v1alpha1.FooSpec{DeploymentName: "example-foo", Replicas: new(int32(2))},
	}
	foo, err := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace).Create(t.Context(), foo, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "nginx", "controller": "example-foo"}
	w.createDeployment(t, "example-foo", func(dep *appsv1.Deployment) {
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(foo, plan.FooKind)}
		dep.Spec.Replicas = new(int32(2))
		dep.Spec.Selector.MatchLabels, dep.Spec.Template.Labels = labels, labels
		dep.Spec.Template.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}
	})
	until(t, "its pods are available", func(context.Context) (bool, error) { return w.rolledOut(t, "example-foo"), nil })
	w.quota(t, corev1.ResourceList{"count/deployments.apps": resource.MustParse("1")})
	before := w.workload(t, "controller=example-foo")

	controller := w.controller(t)
	w.becomes(t, "example-foo", v1alpha1.ReasonAvailable)
	after := w.deployment(t, "example-foo")
	if diff := cmp.Diff(plan.Deployment(foo).Labels, after.Labels); diff != "" {
		t.Errorf("labels of the Deployment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, w.workload(t, "controller=example-foo")); diff != "" {
		t.Errorf("its ReplicaSets and pods (-before +after):\n%s", diff)
	}
	if got := w.countWrites(t, "patch deployments/"); got != 1 || w.countWrites(t, "create deployments/") != 0 {
		t.Errorf("%d patches, want 1 and no create: %v", got, w.writes(t, w.namespace))
	}

	// A Deployment of ours that has lost its labels is the same case.
	w.kubectl(t, "", "label", "deployment/example-foo", "-n", w.namespace, v1alpha1.LabelMadeFor+"-",
		v1alpha1.LabelFooGeneration+"-", "app.kubernetes.io/managed-by-")
	until(t, "the labels are back", func(context.Context) (bool, error) {
		return cmp.Equal(plan.Deployment(foo).Labels, w.deployment(t, "example-foo").Labels), nil
	})
	if diff := cmp.Diff(before, w.workload(t, "controller=example-foo")); diff != "" {
		t.Errorf("its ReplicaSets and pods after it lost its labels (-before +after):\n%s", diff)
	}

	// What was taken over can be renamed like any other.
	controller.stop(t)
	w.kubectl(t, "", "delete", "quota", "--all", "-n", w.namespace)
	w.rename(t, "example-foo", "renamed")
	w.controller(t)
	w.becomesWith(t, "example-foo", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "renamed") })
}

// workload returns what makes a pod the same pod: by name, the uids of ReplicaSets and pods and their template
// hashes.
func (w *world) workload(t *testing.T, selector string) map[string]string {
	t.Helper()
	workload := map[string]string{}
	add := func(kind string, meta metav1.ObjectMeta) {
		workload[kind+" "+meta.Name] = fmt.Sprint(meta.UID, " ", meta.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
	}
	sets, err := w.kube.AppsV1().ReplicaSets(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for i := range sets.Items {
		add("ReplicaSet", sets.Items[i].ObjectMeta)
	}
	pods, err := w.kube.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
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
