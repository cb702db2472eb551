package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	Name            string
	Served, Storage bool
	Subresources    struct {
		Status *struct{}
		Scale  *struct{ SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string }
	}
	AdditionalPrinterColumns []Column
	SelectableFields         []struct{ JSONPath string }
}

// FromCRD returns a kind from the YAML or JSON of its CustomResourceDefinition: its names, its scope, its subresources,
// the columns of its tables and the fields of its selectors. It does not read the schema: package crd, a module of its
// own, does. An empty version is the one that is stored. It must be served, and crd must have no other object.
//
// Objects of the kind have any fields, unless Object is set to their Go type.
func FromCRD(crd []byte, version string) (Kind, error) {
	d, err := readDefinition(crd)
	if err != nil {
		return Kind{}, fmt.Errorf("read a CustomResourceDefinition: %w", err)
	}
	for _, v := range d.Spec.Versions {
		if v.Served && (v.Name == version || version == "" && v.Storage) {
			return d.kind(v), nil
		}
	}
	return Kind{}, fmt.Errorf("the CustomResourceDefinition of a %s serves no version %q", d.Spec.Names.Kind, version)
}

func readDefinition(crd []byte) (*definition, error) {
	var found *definition
	for documents := yaml.NewYAMLToJSONDecoder(bytes.NewReader(crd)); ; {
		d := &definition{}
		err := documents.Decode(d)
		switch {
		case errors.Is(err, io.EOF) && found != nil:
			return found, nil
		case err != nil:
			return nil, err
		case d.Kind == "": // Before the first ---.
		case d.Kind != "CustomResourceDefinition":
			return nil, fmt.Errorf("it is a %s", d.Kind)
		case found != nil:
			return nil, errors.New("there are two")
		default:
			found = d
		}
	}
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
