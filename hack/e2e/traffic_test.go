package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestNewFooCostsTwoWrites(t *testing.T) {
	e := newEnv(t, apiCluster)
	e.controller(t)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2))})
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	e.settle(t)
	want := []string{
		fmt.Sprintf("create deployments/ %s/web: 201", e.namespace),
		fmt.Sprintf("patch foos/status %s/web: 200", e.namespace),
	}
	writes := slices.DeleteFunc(e.writes(t, e.namespace), func(write string) bool { return strings.Contains(write, "/settle-") })
	if diff := gocmp.Diff(want, writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if events := e.events(t, "web"); len(events) > 0 {
		t.Errorf("events of a Foo that is not Ready: %v", events)
	}
}

func TestEveryWriteHasATimeoutAFieldManagerAndPreconditions(t *testing.T) {
	e := newEnv(t, apiCluster)
	proxy := newProxy(t, e.cluster)
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
		if query.Get("timeout") != "10s" {
			t.Errorf("%s %s: want timeout=10s", r.Method, r.URL)
		}
		if strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "reviews") {
			return // client-go's recorder writes events, and a review is a question that is not stored.
		}
		seen[methodOf(r)]++
		if r.Method != http.MethodDelete && query.Get("fieldManager") != controllerName {
			t.Errorf("%s %s: want fieldManager=%s", r.Method, r.URL, controllerName)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch methodOf(r) {
		case http.MethodPost: // A create changes no existing object, so it has no preconditions.
		case http.MethodDelete:
			options := &metav1.DeleteOptions{}
			if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err != nil {
				t.Errorf("%s %s: %v", r.Method, r.URL, err)
			}
			of := cmp.Or(options.Preconditions, &metav1.Preconditions{})
			if *cmp.Or(of.UID, new(types.UID)) == "" || *cmp.Or(of.ResourceVersion, new(string)) == "" ||
				*cmp.Or(options.PropagationPolicy, new(metav1.DeletionPropagation)) != metav1.DeletePropagationBackground {
				t.Errorf("%s %s: want a uid, a resourceVersion and Background in %+v", r.Method, r.URL, options)
			}
		case "status":
			want := regexp.MustCompile(`^\[{"op":"replace","path":"/metadata/uid","value":"[^"]+"},` +
				`{"op":"replace","path":"/metadata/resourceVersion","value":"[^"]+"},{"op":"add","path":"/status","value":{.*}}\]$`)
			if !want.Match(body) {
				t.Errorf("%s %s: want a uid, a resourceVersion and a status in %s", r.Method, r.URL, body)
			}
		default:
			var object struct {
				Metadata struct{ UID, ResourceVersion string }
			}
			if err := json.Unmarshal(body, &object); err != nil || object.Metadata.UID == "" ||
				object.Metadata.ResourceVersion == "" {
				t.Errorf("%s %s: no uid or no resourceVersion in %s", r.Method, r.URL, body)
			}
		}
	}
	e.start(t, proxy)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	e.kubectl(t, "", "scale", "deployment/web", "--replicas=2", "-n", e.namespace)
	until(t, "the scale is corrected", func(context.Context) (bool, error) {
		return *e.deployment(t, "web").Spec.Replicas == 1, nil
	})
	e.rename(t, "web", "renamed")
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	e.reportAvailable(t, "renamed", 1)
	until(t, "the old Deployment is deleted", func(context.Context) (bool, error) {
		return e.hasDeployments(t, "renamed"), nil
	})

	mu.Lock()
	defer mu.Unlock()
	if seen[http.MethodPost] == 0 || seen[http.MethodPatch] == 0 || seen["status"] == 0 || seen[http.MethodDelete] == 0 {
		t.Errorf("writes by method: %v, want some of each of POST, PATCH and DELETE, and of the status", seen)
	}
	for address := range connections["watch"] {
		if connections["write"][address] || len(connections["watch"]) != 1 || len(connections["write"]) != 1 {
			t.Errorf("connections: %v, want one for watches and another for writes", connections)
		}
	}
}

// reportAvailable writes the status of a completed rollout, where no Deployment controller runs.
func (e *env) reportAvailable(t *testing.T, name string, replicas int) {
	t.Helper()
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,
		"replicas":%[2]d,"updatedReplicas":%[2]d,"readyReplicas":%[2]d,"availableReplicas":%[2]d}}`,
		e.deployment(t, name).Generation, replicas)
	if _, err := e.kube.AppsV1().Deployments(e.namespace).Patch(t.Context(), name, types.StrategicMergePatchType, status,
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}
