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

// This file is about names as long as they may be, from which labels, ReplicaSets, pods and events make names of
// their own, and about Foos whose names and numbers are from before there were rules for them.

func TestFoosOfAllNamesBecomeReadyAndNoneHasAnothersPods(t *testing.T) {
	w := newWorld(t, fullCluster)
	w.controller(t)
	long := func(length int, last string) string { return strings.Repeat("a", length-len(last)) + last }
	foos := map[string]string{ // The Deployment's name by the Foo's.
		"1":       "1",
		"0a-9":    "0a-9",
		"a.b.c":   "a.b.c",
		"0.1-2.3": "0.1-2.3",

		// Labels have 63 characters at most, so the names of these have to be shortened for them.
		long(63, ""):  long(63, ""),
		long(64, ""):  long(64, ""),
		long(64, "b"): long(64, "b"),
		long(64, "c"): "of-a-long-foo",
		"short":       long(64, "d"),

		// Those of ReplicaSets have 253, and the Deployment's name is shortened for them.
		long(253, ""):  long(253, ""),
		long(253, "b"): long(253, "b"),
		long(253, "c"): "of-a-longer-foo",
		"shorter":      long(253, "d"),
	}
	for foo, deployment := range foos {
		w.createFoo(t, foo, v1alpha1.FooSpec{DeploymentName: deployment, Replicas: new(int32(2))})
	}

	owner := map[types.UID]string{} // The Foo by the uid of a pod.
	for name, deployment := range foos {
		foo := w.becomes(t, name, v1alpha1.ReasonAvailable)
		if foo.Status.Replicas != 2 || foo.Status.AvailableReplicas != 2 {
			t.Errorf("Foo %s has %d replicas and %d available, want 2", name, foo.Status.Replicas, foo.Status.AvailableReplicas)
		}
		if !metav1.IsControlledBy(w.deployment(t, deployment), foo) {
			t.Errorf("Deployment %s is not Foo %s's", deployment, name)
		}
		pods := w.pods(t, foo.Status.Selector)
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
		list, err := w.kube.CoreV1().Events(w.namespace).List(ctx,
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

func TestFooWhoseDeploymentIsRefusedAReplicaSetSaysSoUntilItHasOne(t *testing.T) {
	w := newWorld(t, fullCluster)
	w.controller(t)
	w.createReady(t, "changed", v1alpha1.FooSpec{DeploymentName: "changed"})
	dotted := strings.Repeat("a.", 126) + "a" // Shortened behind a dot for its ReplicaSet, it is not a name any more.
	w.createFoo(t, "dotted", v1alpha1.FooSpec{DeploymentName: dotted})
	w.quota(t, corev1.ResourceList{"count/replicasets.apps": resource.MustParse("1")})
	w.createFoo(t, "new", v1alpha1.FooSpec{DeploymentName: "new"})
	w.editFoo(t, "changed", `{"spec":{"image":"nginx:1.29"}}`)

	for _, name := range []string{"changed", "dotted", "new"} {
		foo := w.becomes(t, name, v1alpha1.ReasonReplicaFailure)
		stalled := meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled)
		if !stalled || !strings.Contains(readyCondition(foo).Message, " describe deployment ") {
			t.Errorf("Foo %s: conditions = %v, want Stalled and a message that says where to look", name, foo.Status.Conditions)
		}
	}
	w.kubectl(t, "", "delete", "quota", "--all", "-n", w.namespace)
	w.rename(t, "dotted", "short")
	for _, name := range []string{"changed", "dotted", "new"} {
		w.becomes(t, name, v1alpha1.ReasonAvailable)
	}
	if w.exists(t, dotted) {
		t.Error("the Deployment with a name that gets no ReplicaSet is still there")
	}
}

// The server reads and writes Foos that it would not let in any more; see storedFoos. Here the controller reports on
// them, and goes on when they are fixed.
func TestFoosStoredBeforeTheRulesAreReportedInvalidUntilTheyAreFixed(t *testing.T) {
	c := newWorldOfItsOwn(t, apiCluster).cluster // Because the CRD is replaced.
	probe := c.foosIn(c.namespace(t))
	takes := func(everything bool) {
		t.Helper()
		until(t, "the server goes by the new CRD", func(context.Context) (bool, error) {
			_, err := c.try(fooManifest("probe", `"spec":{"replicas":1}`),
				"create", "-n", probe.namespace, "--dry-run=server", "--validate=false", "-f", "-")
			return (err == nil) == everything, nil
		})
	}
	says := map[string]string{ // What the message begins with.
		"no-spec":           "spec.deploymentName is missing",
		"null-spec":         "spec.deploymentName is missing",
		"empty-spec":        "spec.deploymentName is missing",
		"no-name":           "spec.deploymentName is missing",
		"empty-name":        "spec.deploymentName is missing",
		"bad-name":          "spec.deploymentName is not a name",
		"long-name":         "spec.deploymentName is not a name",
		"image-with-spaces": "spec.image contains spaces",
		"image-too-long":    "spec.image is longer than 1024 characters",
		"negative-replicas": "spec.replicas is negative",
	}
	worlds := map[string]*world{} // A namespace for each Foo, as most name the same Deployment.

	c.kubectl(t, noRules, "apply", "-f", "-")
	takes(true)
	for _, test := range storedFoos {
		w := &world{cluster: c, namespace: c.namespace(t)}
		worlds[test.name] = w
		if err := c.foosIn(w.namespace).create(t.Context(), test.name, test.fields); err != nil {
			t.Fatal(err)
		}
	}
	c.kubectl(t, "", "apply", "-f", crdFile)
	takes(false)
	c.controller(t)

	for _, test := range storedFoos {
		w, message := worlds[test.name], says[test.name]
		if message != "" {
			foo := w.becomes(t, test.name, v1alpha1.ReasonInvalid)
			if !strings.HasPrefix(readyCondition(foo).Message, message) ||
				!meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
				t.Errorf("%s: conditions = %v, want Stalled and a message that begins with %q", test.name,
					foo.Status.Conditions, message)
			}
			if len(w.deployments(t)) > 0 {
				t.Errorf("%s: a Deployment was created", test.name)
			}
			w.editFoo(t, test.name, test.fix)
		}
		foo := w.becomes(t, test.name, v1alpha1.ReasonCreating)
		if !w.hasDeployments(t, "web") || meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
			t.Errorf("%s: conditions = %v, want a Deployment and not to be Stalled", test.name, foo.Status.Conditions)
		}
	}
}
