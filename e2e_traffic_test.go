package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestNewFooCostsTwoWrites(t *testing.T) {
	w := newWorld(t, apiCluster)
	w.controller(t)
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2))})
	w.becomes(t, "web", v1alpha1.ReasonCreating)
	other := newWorld(t, apiCluster)
	other.settle(t)
	want := []string{
		fmt.Sprintf("create deployments/ %s/web: 201", w.namespace),
		fmt.Sprintf("update foos/status %s/web: 200", w.namespace),
	}
	if diff := cmp.Diff(want, w.writes(t, w.namespace)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestEveryWriteIsBoundedInTimeNamedAndConditional(t *testing.T) {
	w := newWorld(t, apiCluster)
	proxy := newProxy(t, w.cluster)
	var mu sync.Mutex
	connections := map[string]map[string]bool{"watch": {}, "write": {}} // The clients' addresses.
	seen := map[string]int{}
	proxy.before = func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		query := r.URL.Query()
		if r.Method == http.MethodGet {
			if query.Get("watch") != "" {
				connections["watch"][r.RemoteAddr] = true
			}
			return
		}
		connections["write"][r.RemoteAddr] = true
		seen[r.Method]++
		if query.Get("timeout") != "10s" || query.Get("fieldManager") != controllerName {
			t.Errorf("%s %s: want timeout=10s and fieldManager=%s", r.Method, r.URL, controllerName)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var object struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		if r.Method == http.MethodPost {
			return // There is nothing yet that it could hit.
		}
		if err := json.Unmarshal(body, &object); err != nil || object.Metadata.UID == "" || object.Metadata.ResourceVersion == "" {
			t.Errorf("%s %s: no uid or no resourceVersion in %s", r.Method, r.URL, body)
		}
	}
	startController(t, "--kubeconfig", w.kubeconfig(t, proxy))
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	w.becomes(t, "web", v1alpha1.ReasonCreating)
	w.kubectl(t, "", "scale", "deployment/web", "--replicas=2", "-n", w.namespace)
	until(t, "the scale is put back", func(context.Context) (bool, error) { return *w.deployment(t, "web").Spec.Replicas == 1, nil })

	mu.Lock()
	defer mu.Unlock()
	if seen[http.MethodPost] == 0 || seen[http.MethodPatch] == 0 || seen[http.MethodPut] == 0 {
		t.Errorf("writes by method: %v, want some of each of POST, PATCH and PUT", seen)
	}
	for address := range connections["watch"] {
		if connections["write"][address] || len(connections["watch"]) != 1 || len(connections["write"]) != 1 {
			t.Errorf("connections: %v, want one for watches and another for writes", connections)
		}
	}
}

// TestIdleAndRestartedControllerWritesNothing watches a real minute go by, on a cluster of its own.
func TestIdleAndRestartedControllerWritesNothing(t *testing.T) {
	w := newWorldOfItsOwn(t, apiCluster)
	c := w.cluster
	first := w.controller(t)

	const foos = 100
	for i := range foos {
		name := fmt.Sprintf("foo-%d", i)
		w.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(3)), Image: "nginx:1.29"})
	}
	w.createFoo(t, "rival", v1alpha1.FooSpec{DeploymentName: "foo-0"}) // One that cannot have what it wants.
	w.becomes(t, "rival", v1alpha1.ReasonNameTaken)
	for i := range foos {
		// No Deployment controller runs here: one Deployment is reported as the real one would.
		name := fmt.Sprintf("foo-%d", i)
		w.becomes(t, name, v1alpha1.ReasonCreating)
		status := []byte(`{"status":{"observedGeneration":1,"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3}}`)
		if _, err := c.kube.AppsV1().Deployments(w.namespace).Patch(t.Context(), name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range foos {
		w.becomes(t, fmt.Sprintf("foo-%d", i), v1alpha1.ReasonAvailable)
	}
	until(t, "all events are written", func(ctx context.Context) (bool, error) {
		list, err := c.kube.EventsV1().Events(w.namespace).List(ctx, metav1.ListOptions{})
		return len(list.Items) == foos+1, err
	})

	before := c.writes(t, "")
	if len(before) != 4*foos+2 {
		refused := slices.DeleteFunc(slices.Clone(before), func(write string) bool {
			return strings.HasSuffix(write, ": 200") || strings.HasSuffix(write, ": 201")
		})
		t.Errorf("%d Foos until Ready took %d writes, want 4 for each, and 2 for the one that cannot be; refused were %v", foos, len(before), refused)
	}
	select {
	case <-first.done:
		t.Fatal("the controller ended by itself")
	case <-time.After(time.Minute): // The minute is the subject of the test.
	}
	if after := c.writes(t, ""); len(after) != len(before) {
		t.Errorf("writes in an idle minute: %v", after[len(before):])
	}

	first.stop(t)
	w.controller(t).says(t, `"Done waiting" for="caches" instance="SharedIndexInformer *v1alpha1.Foo`)
	w.createFoo(t, "last", v1alpha1.FooSpec{DeploymentName: "last"}) // Queued behind all others.
	w.becomes(t, "last", v1alpha1.ReasonCreating)
	want := []string{
		fmt.Sprintf("create deployments/ %s/last: 201", w.namespace),
		fmt.Sprintf("update foos/status %s/last: 200", w.namespace),
	}
	if diff := cmp.Diff(want, c.writes(t, "")[len(before):]); diff != "" {
		t.Errorf("writes after a restart, but for those of a new Foo (-want +got):\n%s", diff)
	}
}
