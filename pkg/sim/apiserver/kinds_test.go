package apiserver_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/foo-controller/pkg/sim/apiserver"
)

const gadgetDefinition = `
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: gadgets, singular: gad, kind: Gadget, listKind: Gadgetry, shortNames: [gg], categories: [all]}
  versions:
  - {name: v1beta1, served: true, storage: false}
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: integer, format: int32, description: How many, jsonPath: .spec.size, priority: 1}
    selectableFields:
    - jsonPath: .spec.size
`

func TestAKindOfADefinitionHasItsNamesScopeSubresourcesColumnsAndFields(t *testing.T) {
	kind, err := apiserver.FromCRD([]byte(gadgetDefinition), "")
	if err != nil {
		t.Fatal(err)
	}
	selectable := kind.Fields["spec.size"]
	kind.Fields = nil
	want := apiserver.Kind{
		Resource: gadgets, Kind: "Gadget", Object: &unstructured.Unstructured{},
		ClusterScoped: true, Status: true,
		Scale: &apiserver.Scale{
			SpecReplicas: ".spec.size", StatusReplicas: ".status.size", Selector: ".status.selector",
		},
		Singular: "gad", ListKind: "Gadgetry", ShortNames: []string{"gg"}, Categories: []string{"all"},
		Columns: []apiserver.Column{{
			Name: "Size", Type: "integer", Format: "int32", Description: "How many", JSONPath: ".spec.size", Priority: 1,
		}},
	}
	if diff := cmp.Diff(want, kind); diff != "" {
		t.Errorf("kind (-want +got):\n%s", diff)
	}
	if selectable == nil {
		t.Fatal("the field spec.size cannot be selected")
	}
	for want, obj := range map[string]runtime.Object{
		"3": &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}},
		"2": &Widget{Spec: WidgetSpec{Size: new(int32(2))}}, // With the Go type of the kind.
		"":  &unstructured.Unstructured{Object: map[string]any{}},
	} {
		if got := selectable(obj); got != want {
			t.Errorf("spec.size of %v is selected as %q, want %q", obj, got, want)
		}
	}
}

func TestAKindOfADefinitionHasTheVersionThatIsAskedFor(t *testing.T) {
	kind, err := apiserver.FromCRD([]byte(gadgetDefinition), "v1beta1")
	if err != nil || kind.Resource.Version != "v1beta1" || kind.Status {
		t.Errorf("kind of v1beta1: %v, status %t, error %v", kind.Resource, kind.Status, err)
	}
	for name, wrong := range map[string][2]string{
		"a version that it lacks": {gadgetDefinition, "v2"},
		"one that is not served":  {strings.ReplaceAll(gadgetDefinition, "served: true", "served: false"), ""},
		"two definitions":         {gadgetDefinition + gadgetDefinition, ""},
		"another kind":            {"kind: ConfigMap", ""},
		"no YAML":                 {"\t", ""},
		"a field of a wrong type": {"kind: CustomResourceDefinition\nspec: 5", ""},
	} {
		if _, err := apiserver.FromCRD([]byte(wrong[0]), wrong[1]); err == nil {
			t.Errorf("FromCRD accepts %s", name)
		}
	}
}

// The clients of client-go are generated from the Go types, with their scope and subresources.
func TestBuiltInKindsHaveTheResourceScopeAndSubresourcesOfTheirClients(t *testing.T) {
	compared := 0
	for group := range reflect.TypeFor[kubernetes.Interface]().Methods() {
		if group.Type.NumOut() != 1 || group.Name == "Discovery" {
			continue
		}
		for resource := range group.Type.Out(0).Methods() {
			client := resource.Type.Out(0)
			get, found := client.MethodByName("Get")
			if !found || resource.Name == "RESTClient" {
				continue
			}
			obj := reflect.New(get.Type.Out(0).Elem()).Interface().(runtime.Object)
			kind := apiserver.KindOf(obj, scheme.Scheme)
			_, status := client.MethodByName("UpdateStatus")
			type traits struct {
				resource              string
				clusterScoped, status bool
			}
			have := traits{kind.Resource.Resource, kind.ClusterScoped, kind.Status}
			want := traits{strings.ToLower(resource.Name), resource.Type.NumIn() == 0, status}
			if have != want {
				t.Errorf("%T has %+v, want %+v", obj, have, want)
			}
			compared++
		}
	}
	if compared < 50 {
		t.Errorf("only %d kinds were compared", compared)
	}
}

func TestKindsOfGoTypes(t *testing.T) {
	types := runtime.NewScheme()
	types.AddKnownTypes(widgets.GroupVersion(), &Widget{})
	used := &Widget{Spec: WidgetSpec{Color: "red"}}
	want := apiserver.Kind{Resource: widgets, Kind: "Widget", Object: &Widget{}, Status: true}
	if diff := cmp.Diff(want, apiserver.KindOf(used, types)); diff != "" {
		t.Errorf("a custom resource (-want +got):\n%s", diff)
	}

	for kind, want := range map[string]string{
		"Gateway": "gateways", "Policy": "policies", "Mesh": "meshes", "Proxy": "proxies", "Box": "boxes", "Bus": "buses",
	} {
		types := runtime.NewScheme()
		types.AddKnownTypeWithName(widgets.GroupVersion().WithKind(kind), &Widget{})
		if got := apiserver.KindOf(used, types).Resource.Resource; got != want {
			t.Errorf("the resource of %s is %s", kind, got)
		}
	}

	if kind := apiserver.KindOf(&appsv1.StatefulSet{}, scheme.Scheme); kind.Scale == nil {
		t.Error("StatefulSets have no scale subresource")
	}
	if kind := apiserver.KindOf(&appsv1.Deployment{}, scheme.Scheme); kind.Default == nil {
		t.Error("Deployments are not those of Deployments()")
	}

	defer func() {
		if recover() == nil {
			t.Error("KindOf accepts a type that the scheme does not know")
		}
	}()
	apiserver.KindOf(&Widget{}, scheme.Scheme)
}

// The recorded selectors select nothing, because a real server would refuse these empty objects.
func TestTheFieldsOfBuiltInKindsCanBeSelected(t *testing.T) {
	for path, row := range map[string]struct {
		obj      runtime.Object
		selector string
	}{
		"/api/v1/pods": {&corev1.Pod{}, "spec.nodeName=,spec.restartPolicy=,spec.schedulerName=,spec.serviceAccountName=," +
			"spec.hostNetwork=false,status.phase=,status.podIP=,status.nominatedNodeName="},
		"/api/v1/nodes":                  {&corev1.Node{}, "spec.unschedulable=false"},
		"/api/v1/replicationcontrollers": {&corev1.ReplicationController{}, "status.replicas=0"},
		"/api/v1/secrets":                {&corev1.Secret{Type: "t"}, "type=t"},
		"/api/v1/services":               {&corev1.Service{}, "spec.clusterIP=,spec.type="},
		"/apis/batch/v1/jobs":            {&batchv1.Job{}, "status.successful=0"},
		"/apis/certificates.k8s.io/v1/certificatesigningrequests": {
			&certificatesv1.CertificateSigningRequest{}, "spec.signerName=",
		},
		"/apis/events.k8s.io/v1/events": {
			&eventsv1.Event{Type: "t", Regarding: corev1.ObjectReference{Kind: "k", APIVersion: "v1", Namespace: "n", Name: "a",
				UID: "u", ResourceVersion: "5", FieldPath: "f"}},
			"type=t,reason=,reportingController=,regarding.kind=k,regarding.apiVersion=v1,regarding.namespace=n," +
				"regarding.name=a,regarding.uid=u,regarding.resourceVersion=5,regarding.fieldPath=f",
		},
	} {
		kind := apiserver.KindOf(row.obj, scheme.Scheme)
		m := row.obj.(metav1.Object)
		if m.SetName("a"); !kind.ClusterScoped {
			m.SetNamespace("default")
		}
		server := apiserver.New(kind)
		if err := server.Load(row.obj); err != nil {
			t.Fatal(err)
		}
		_, list := (&requester{t: t, server: server}).do("GET " + path + "?fieldSelector=" + row.selector)
		if items, _ := list["items"].([]any); len(items) != 1 {
			t.Errorf("%s selects %v", row.selector, list)
		}
	}
}

func TestOtherBuiltInKindsHaveRulesOfTheirOwn(t *testing.T) {
	secrets, nodes := apiserver.KindOf(&corev1.Secret{}, scheme.Scheme), apiserver.KindOf(&corev1.Node{}, scheme.Scheme)
	r := &requester{t: t, server: apiserver.New(append(kinds(), secrets, nodes)...)}
	r.do(`POST jobs {"metadata":{"name":"j"}}`)
	for request, want := range map[string]string{ // Parts of the answers.
		`POST /api/v1/namespaces/default/secrets {"metadata":{"name":"a"},"stringData":{"k":"v"}}`: `"data":{"k":"dg=="}`,
		`POST /api/v1/nodes {"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready"}]}}`:  `"type":"Ready"`,
		`DELETE jobs/j`: `"finalizers":["orphan"]`,
	} {
		_, answer := r.do(request)
		if got := encode(t, answer); !strings.Contains(got, want) || strings.Contains(got, "stringData") {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}
