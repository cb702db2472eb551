package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This test takes a minute of real time, on a cluster of its own.
func TestIdleAndRestartedControllerWritesNothing(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	c := e.cluster
	first := c.controller(t)

	const foos = 29 // With the rival, as many as a namespace may have events at once.
	for i := range foos {
		name := fmt.Sprintf("foo-%d", i)
		e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(3)), Image: "nginx:1.29"})
	}
	e.createFoo(t, "rival", v1alpha1.FooSpec{DeploymentName: "foo-0"}) // It never becomes Ready.
	e.waitForReason(t, "rival", v1alpha1.ReasonNameTaken)
	for i := range foos {
		name := fmt.Sprintf("foo-%d", i)
		e.waitForReason(t, name, v1alpha1.ReasonCreating)
		e.reportAvailable(t, name, 3)
	}
	for i := range foos {
		e.waitForReason(t, fmt.Sprintf("foo-%d", i), v1alpha1.ReasonAvailable)
	}
	until(t, "all events are written", func(ctx context.Context) (bool, error) {
		list, err := c.kube.EventsV1().Events(e.namespace).List(ctx, metav1.ListOptions{})
		return len(list.Items) == foos+1, err
	})

	before := c.writes(t, "")
	events := 0
	for _, write := range before {
		if strings.HasPrefix(write, "create events/") {
			events++
		}
	}
	if events != foos+1 {
		t.Errorf("%d Foos until Ready took %d events, want one for each, and one for the rival", foos, events)
	}
	if len(before)-events != 3*foos+1 {
		refused := slices.DeleteFunc(slices.Clone(before), func(write string) bool {
			return strings.HasSuffix(write, ": 200") || strings.HasSuffix(write, ": 201")
		})
		t.Errorf("%d Foos until Ready took %d writes, want 3 for each, and one for the rival; refused were %v",
			foos, len(before)-events, refused)
	}
	select {
	case <-first.done:
		t.Fatal("the controller ended by itself")
	case <-time.After(time.Minute): // The test is about this minute of real time.
	}
	if after := c.writes(t, ""); len(after) != len(before) {
		t.Errorf("writes in an idle minute: %v", after[len(before):])
	}

	first.stop(t)
	c.controller(t).waitForLog(t, `"Started"`)
	e.createFoo(t, "last", v1alpha1.FooSpec{DeploymentName: "last"}) // Queued behind all others.
	e.waitForReason(t, "last", v1alpha1.ReasonCreating)
	want := []string{
		fmt.Sprintf("create deployments/ %s/last: 201", e.namespace),
		fmt.Sprintf("patch foos/status %s/last: 200", e.namespace),
	}
	if diff := gocmp.Diff(want, c.writes(t, "")[len(before):]); diff != "" {
		t.Errorf("writes after a restart, except those of a new Foo (-want +got):\n%s", diff)
	}
}
