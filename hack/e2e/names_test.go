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

// The server stores Foos that it would refuse now; see storedFoos. The controller reports them, and continues when they
// are fixed.
func TestFoosStoredBeforeValidationAreInvalidUntilTheyAreFixed(t *testing.T) {
	c := newDedicatedEnv(t, apiCluster).cluster // Because the CRD is replaced.
	c.needsMinor(t, 33, "status update of what was stored before a rule of the CustomResourceDefinition")
	probe := c.foosIn(c.namespace(t))
	takes := func(everything bool) {
		t.Helper()
		until(t, "the server uses the new CRD", func(context.Context) (bool, error) {
			_, err := c.try(fooManifest("probe", `"spec":{"replicas":1}`),
				"create", "-n", probe.namespace, "--dry-run=server", "--validate=false", "-f", "-")
			return (err == nil) == everything, nil
		})
	}
	messages := map[string]string{ // The beginning of the message.
		"no-spec":           "spec.deploymentName is missing",
		"null-spec":         "spec.deploymentName is missing",
		"empty-spec":        "spec.deploymentName is missing",
		"no-name":           "spec.deploymentName is missing",
		"empty-name":        "spec.deploymentName is missing",
		"bad-name":          `spec.deploymentName is "Web_1", which is not a name`,
		"long-name":         `spec.deploymentName is "aaaa`,
		"image-with-spaces": "spec.image contains spaces",
		"image-too-long":    "spec.image is longer than 1024 characters",
		"negative-replicas": "spec.replicas is -1",
	}
	envs := map[string]*env{} // A namespace for each Foo, because most of them name the same Deployment.

	c.kubectl(t, noRules, "apply", "-f", "-")
	takes(true)
	for _, test := range storedFoos {
		e := c.env(t)
		envs[test.name] = e
		if err := c.foosIn(e.namespace).create(t.Context(), test.name, test.fields); err != nil {
			t.Fatal(err)
		}
	}
	c.kubectl(t, "", "apply", "-f", crdFile)
	takes(false)
	c.controller(t)

	for _, test := range storedFoos {
		e, message := envs[test.name], messages[test.name]
		if message != "" {
			foo := e.waitForReason(t, test.name, v1alpha1.ReasonInvalid)
			if !strings.HasPrefix(readyCondition(foo).Message, message) ||
				!meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
				t.Errorf("%s: conditions = %v, want Stalled and a message that begins with %q", test.name,
					foo.Status.Conditions, message)
			}
			if len(e.deployments(t)) > 0 {
				t.Errorf("%s: a Deployment was created", test.name)
			}
			e.editFoo(t, test.name, test.fix)
		}
		foo := e.waitForReason(t, test.name, v1alpha1.ReasonCreating)
		if !e.hasDeployments(t, "web") || meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
			t.Errorf("%s: conditions = %v, want a Deployment and not to be Stalled", test.name, foo.Status.Conditions)
		}
	}
}
