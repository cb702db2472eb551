package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests names of the maximum length, from which the names of labels, ReplicaSets, pods and events are
// derived. It also tests Foos with names and numbers that were stored before validation existed.

func TestFoosWithAllKindsOfNamesBecomeReadyAndShareNoPods(t *testing.T) {
	e := newEnv(t, servedCluster)
	long := func(length int, last string) string { return strings.Repeat("a", length-len(last)) + last }
	foos := map[string]string{ // The Deployment's name by the Foo's.
		"1":       "1",
		"0a-9":    "0a-9",
		"a.b.c":   "a.b.c",
		"0.1-2.3": "0.1-2.3",

		// Labels have at most 63 characters, so these names are shortened for them.
		long(63, ""):  long(63, ""),
		long(64, ""):  long(64, ""),
		long(64, "b"): long(64, "b"),
		long(64, "c"): "of-a-long-foo",
		"short":       long(64, "d"),

		// Names of ReplicaSets have at most 253 characters, so the name of the Deployment is shortened for them.
		long(253, ""):  long(253, ""),
		long(253, "b"): long(253, "b"),
		long(253, "c"): "of-a-longer-foo",
		"shorter":      long(253, "d"),
	}
	for foo, deployment := range foos {
		e.createFoo(t, foo, v1alpha1.FooSpec{DeploymentName: deployment, Replicas: new(int32(2))})
	}

	owner := map[types.UID]string{} // The Foo by the uid of a pod.
	for name, deployment := range foos {
		foo := e.waitForReason(t, name, v1alpha1.ReasonAvailable)
		if foo.Status.Replicas != 2 || foo.Status.AvailableReplicas != 2 {
			t.Errorf("Foo %s has %d replicas and %d available, want 2", name, foo.Status.Replicas, foo.Status.AvailableReplicas)
		}
		if !metav1.IsControlledBy(e.deployment(t, deployment), foo) {
			t.Errorf("Deployment %s is not controlled by Foo %s", deployment, name)
		}
		pods := e.pods(t, foo.Status.Selector)
		if len(pods) != 2 {
			t.Errorf("the selector of Foo %s selects %d pods, want its 2", name, len(pods))
		}
		for _, pod := range pods {
			if other := owner[pod]; other != "" {
				t.Errorf("Foos %s and %s select the same pod", name, other)
			}
			owner[pod] = name
		}
	}

	until(t, "there is an event about each Foo", func(ctx context.Context) (bool, error) {
		list, err := e.kube.CoreV1().Events(e.namespace).List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.kind=Foo,reason=" + v1alpha1.EventSynced})
		if err != nil {
			return false, err
		}
		about := map[string]bool{}
		for i := range list.Items {
			about[list.Items[i].InvolvedObject.Name] = true
		}
		return len(about) == len(foos), nil
	})
}

func TestAFooReportsThatItsDeploymentCannotCreateAReplicaSet(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createReady(t, "changed", v1alpha1.FooSpec{DeploymentName: "changed"})
	dotted := strings.Repeat("a.", 126) + "a" // Cut off behind a dot, it is no valid name of a ReplicaSet.
	e.createFoo(t, "dotted", v1alpha1.FooSpec{DeploymentName: dotted})
	e.quota(t, corev1.ResourceList{"count/replicasets.apps": resource.MustParse("1")})
	e.createFoo(t, "new", v1alpha1.FooSpec{DeploymentName: "new"})
	e.editFoo(t, "changed", `{"spec":{"image":"nginx:1.29"}}`)

	for _, name := range []string{"changed", "dotted", "new"} {
		foo := e.waitForReason(t, name, v1alpha1.ReasonReplicaFailure)
		stalled := meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled)
		if !stalled || !strings.Contains(readyCondition(foo).Message, ". Change the quota or the policy ") {
			t.Errorf("Foo %s: conditions = %v, want Stalled and a message with what to do", name, foo.Status.Conditions)
		}
	}
	e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
	e.rename(t, "dotted", "short")
	for _, name := range []string{"changed", "dotted", "new"} {
		e.waitForReason(t, name, v1alpha1.ReasonAvailable)
	}
	if e.exists(t, dotted) {
		t.Error("the Deployment whose name allows no ReplicaSet still exists")
	}
}
