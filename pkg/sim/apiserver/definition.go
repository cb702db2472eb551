package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// A definition has the fields of a CustomResourceDefinition that FromCRD reads.
type definition struct {
	Kind string
	Spec struct {
		Group, Scope string
		Names        struct {
			Plural, Singular, Kind, ListKind string
			ShortNames, Categories           []string
		}
		Versions []definedVersion
	}
}

type definedVersion struct {
	Name         string
	Storage      bool
	Subresources struct {
		Status *struct{}
		Scale  *struct{ SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string }
	}
	AdditionalPrinterColumns []Column
	SelectableFields         []struct{ JSONPath string }
}

// FromCRD returns a kind from the YAML or JSON of its CustomResourceDefinition: its names, its scope, its subresources,
// the columns of its tables and the fields of its selectors. It does not read the schema: package crd, a module of its
// own, does. An empty version is the one that is stored.
//
// Objects of the kind have any fields, unless Object is set to their Go type.
func FromCRD(crd []byte, version string) (Kind, error) {
	encoded, err := yaml.ToJSON(crd)
	if err != nil {
		return Kind{}, fmt.Errorf("read a CustomResourceDefinition: %w", err)
	}
	d := &definition{}
	if err := json.Unmarshal(encoded, d); err != nil {
		return Kind{}, fmt.Errorf("read a CustomResourceDefinition: %w", err)
	}
	if d.Kind != "CustomResourceDefinition" {
		return Kind{}, fmt.Errorf("read a CustomResourceDefinition: it is a %q", d.Kind)
	}
	for _, v := range d.Spec.Versions {
		if v.Name == version || version == "" && v.Storage {
			return d.kind(v), nil
		}
	}
	return Kind{}, fmt.Errorf("the CustomResourceDefinition of a %s has no version %q", d.Spec.Names.Kind, version)
}

func (d *definition) kind(v definedVersion) Kind {
	names := d.Spec.Names
	kind := Kind{
		Resource:      schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: names.Plural},
		Kind:          names.Kind,
		Object:        &unstructured.Unstructured{},
		ClusterScoped: d.Spec.Scope == "Cluster",
		Status:        v.Subresources.Status != nil,
		Singular:      names.Singular, ListKind: names.ListKind,
		ShortNames: names.ShortNames, Categories: names.Categories,
		Columns: v.AdditionalPrinterColumns,
	}
	if scale := v.Subresources.Scale; scale != nil {
		kind.Scale = &Scale{
			SpecReplicas: scale.SpecReplicasPath, StatusReplicas: scale.StatusReplicasPath,
			Selector: scale.LabelSelectorPath,
		}
	}
	for _, selectable := range v.SelectableFields {
		if kind.Fields == nil {
			kind.Fields = map[string]func(runtime.Object) string{}
		}
		path := fieldsOfPath(selectable.JSONPath)
		kind.Fields[strings.Join(path, ".")] = func(obj runtime.Object) string { return valueAt(obj, path) }
	}
	return kind
}

// valueAt returns the field of an object at a path as a field selector compares it, "" if there is none.
func valueAt(obj runtime.Object, path []string) string {
	fields, err := content(obj)
	if err != nil {
		return ""
	}
	value, found, err := unstructured.NestedFieldNoCopy(fields, path...)
	if !found || err != nil {
		return ""
	}
	return fmt.Sprint(value)
}
