package e2e

import (
	"slices"
	"strings"
	"testing"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about Foos with stored values that the Go type cannot have. A list or watch of all Foos has them too.

// timeRule is what a write of such a time is refused with.
const timeRule = `must be a time such as "2026-01-31T12:00:00Z"`

// TestTheManagedFieldsOfOthersAreKept: the controller does not read managed fields, and must not remove them.
func TestTheManagedFieldsOfOthersAreKept(t *testing.T) {
	e := newEnv(t, apiCluster)
	e.controller(t)
	managers := func() (all []string) {
		for _, entry := range e.foo(t, "web").ManagedFields {
			all = append(all, entry.Manager+" "+entry.FieldsV1.String())
		}
		return all
	}
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Paused: true})
	e.waitForReason(t, "web", v1alpha1.ReasonPaused)
	e.kubectl(t, `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"web",
		"annotations":{"managedFields":"[]"}}}`, "apply", "--server-side", "-f", "-", "-n", e.namespace)
	before := managers()
	if len(before) != 3 {
		t.Fatalf("managed fields %v, want those of the client, of kubectl and of the controller", before)
	}

	e.editFoo(t, "web", `{"spec":{"paused":false}}`)
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	after := managers()
	for _, entry := range before {
		if !strings.HasPrefix(entry, controllerName) && !slices.Contains(after, entry) {
			t.Errorf("the entry %s is missing in %v", entry, after)
		}
	}
}
