package apiserver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

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
