package footest_test

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/footest"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooclient "example.com/foo-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// newServer returns a simulated API server with Foos, and a client.
func newServer(t *testing.T) (*apiserver.Server, fooclient.FooInterface, rest.Interface) {
	t.Helper()
	server := apiserver.New(footest.FooKind())
	client := clientset.NewForConfigOrDie(server.Config("user")).SamplecontrollerV1alpha1()
	return server, client.Foos("default"), client.RESTClient()
}

// raw returns a stored Foo as a client receives it.
func raw(t *testing.T, client rest.Interface) map[string]any {
	t.Helper()
	body, err := client.Get().Namespace("default").Resource("foos").Name("web").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var foo map[string]any
	if err := json.Unmarshal(body, &foo); err != nil {
		t.Fatal(err)
	}
	return foo
}

func paths(foo *v1alpha1.Foo) string {
	var all []string
	for _, field := range foo.Unread {
		all = append(all, field.Path)
	}
	return strings.Join(all, " ")
}

func TestTheSimulatedServerKeepsWhatTheGoTypeCannotHaveUntilItIsWritten(t *testing.T) {
	server, foos, client := newServer(t)
	kind := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos")
	err := server.LoadJSON(kind, []byte(`{"metadata":{"namespace":"default","name":"web","uid":"u","generation":1},
		"spec":{"deploymentName":"web","replicas":"three"},"status":{"replicas":"many","selector":"app=nginx"}}`))
	if err != nil {
		t.Fatal(err)
	}
	list, err := foos.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || paths(&list.Items[0]) != "spec.replicas status.replicas" {
		t.Fatalf("list: %v, %v", list, err)
	}
	watcher, err := foos.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	event := func(want string) {
		t.Helper()
		foo := (<-watcher.ResultChan()).Object.(*v1alpha1.Foo)
		if paths(foo) != want {
			t.Errorf("the watch has a Foo without %q, want without %q", paths(foo), want)
		}
	}

	label := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	foo := &list.Items[0]
	foo.Status.Replicas = 3
	if foo, err = foos.UpdateStatus(t.Context(), foo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	event("spec.replicas")
	have := raw(t, client)
	if spec := have["spec"].(map[string]any); spec["replicas"] != "three" || foo.Generation != 1 {
		t.Errorf("a write of the status has changed the spec: %v, generation %d", spec, foo.Generation)
	}
	if status := have["status"].(map[string]any); status["replicas"] != 3.0 || paths(foo) != "spec.replicas" {
		t.Errorf("the status was not written: %v", status)
	}

	spec := []byte(`{"spec":{"replicas":3}}`)
	if _, err = foos.Patch(t.Context(), "web", types.MergePatchType, spec, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	event("")
	if err := server.LoadJSON(kind, []byte(`{"metadata":{"namespace":"default","name":"web","uid":"u","generation":5},
		"spec":{"deploymentName":"web"},"status":{"conditions":5}}`)); err != nil {
		t.Fatal(err)
	}
	event("status.conditions")
	foo, err = foos.Patch(t.Context(), "web", types.MergePatchType, label, metav1.PatchOptions{})
	if err != nil || foo.Generation != 5 || paths(foo) != "status.conditions" {
		t.Errorf("a label: %v, generation %d, without %q", err, foo.Generation, paths(foo))
	}
	event("status.conditions")
	if err := foos.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	event("status.conditions")
}

func TestLoadingJSONThatIsNoObjectOfAKindIsAnError(t *testing.T) {
	server, _, _ := newServer(t)
	kind := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos")
	if err := server.LoadJSON(kind, []byte(`5`)); err == nil {
		t.Error("a number was stored")
	}
	if err := server.LoadJSON(kind.GroupVersion().WithResource("bars"), []byte(`{}`)); err == nil {
		t.Error("an object of an unknown kind was stored")
	}
}

// The Go type accepts what it cannot decode; a real server does not.
func TestTheSimulatedServerRefusesWhatTheGoTypeCannotHave(t *testing.T) {
	_, _, client := newServer(t)
	for _, spec := range []string{`{"deploymentName":"web","replicas":"three"}`, `"web"`, `{"deploymentName":5}`} {
		body := `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"web"},"spec":` + spec + `}`
		err := client.Post().Namespace("default").Resource("foos").Body([]byte(body)).Do(t.Context()).Error()
		if !apierrors.IsInvalid(err) {
			t.Errorf("create with spec %s: %v, want a refusal", spec, err)
		}
	}
	body := `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"web"},
		"spec":{"deploymentName":"web","bogus":1}}`
	err := client.Post().Namespace("default").Resource("foos").Param("fieldValidation", "Strict").Body([]byte(body)).
		Do(t.Context()).Error()
	if !apierrors.IsBadRequest(err) {
		t.Errorf("create with an unknown field: %v, want a refusal", err)
	}
}
