package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// KindOf returns the kind of a Go type that scheme knows. The scheme of the package kubernetes of client-go knows the
// kinds of Kubernetes, that of generated clients knows others. KindOf panics if scheme does not know the type.
//
// The resource is the plural of the kind: ingresses for Ingress. Set another one if yours is irregular: shelves for
// Shelf. The kind has a status subresource if the type has a field Status. Built-in kinds have the scope that they have
// in a cluster; for a custom resource, set ClusterScoped if its objects have no namespace. Set Scale if a custom
// resource has that.
//
// KindOf returns the same as Namespaces, ConfigMaps, Deployments, Leases and Events for these types. All other kinds
// have no defaults and, except for the metadata, no validation: a Service gets no cluster IP, a Job no selector. But
// the stringData of a Secret moves to its data. ReplicationControllers have no scale.
func KindOf(obj runtime.Object, scheme *runtime.Scheme) Kind {
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		panic("apiserver: " + err.Error())
	}
	resource := resourceOf(kinds[0])
	for _, known := range []Kind{Namespaces(), ConfigMaps(), Deployments(), Leases(), Events()} {
		if known.Resource == resource {
			return known
		}
	}
	empty := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	kind := Kind{Resource: resource, Kind: kinds[0].Kind, Object: empty, Status: section(empty, "Status").IsValid()}
	if resource == corev1.SchemeGroupVersion.WithResource("secrets") {
		kind.Default = moveStringData
	}
	if builtIn(kind) {
		kind.ClusterScoped = clusterScoped.has(resource.GroupResource())
		if scalable.has(resource.GroupResource()) {
			kind.Scale = &Scale{
				SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".spec.selector",
			}
		}
	}
	return kind
}

// moveStringData moves what a client has written as strings to the data of a Secret.
func moveStringData(obj runtime.Object) {
	secret := obj.(*corev1.Secret)
	for key, value := range secret.StringData {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
}

// resourceOf returns the resource of a kind as most clients have it. Package meta guesses gatewaies and meshs.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	plural, singular := meta.UnsafeGuessKindToResource(kind)
	switch {
	case takesS.MatchString(singular.Resource):
		plural.Resource = singular.Resource + "s"
	case takesES.MatchString(singular.Resource):
		plural.Resource = singular.Resource + "es"
	}
	return plural
}

var takesS, takesES = regexp.MustCompile("[aeiou]y$"), regexp.MustCompile("([cs]h|[xz])$")

// The built-in kinds of Kubernetes 1.37 without namespaces, and with a scale subresource.
var (
	clusterScoped = resourcesOf(
		"componentstatuses", "namespaces", "nodes", "persistentvolumes",
		"*.admissionregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io",
		"apiservices.apiregistration.k8s.io", "priorityclasses.scheduling.k8s.io",
		"certificatesigningrequests.certificates.k8s.io", "clustertrustbundles.certificates.k8s.io",
		"*.flowcontrol.apiserver.k8s.io", "runtimeclasses.node.k8s.io",
		"storageversions.internal.apiserver.k8s.io",
		"ingressclasses.networking.k8s.io", "ipaddresses.networking.k8s.io", "servicecidrs.networking.k8s.io",
		"clusterrolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io",
		"deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io",
		"resourcepoolstatusrequests.resource.k8s.io", "resourceslices.resource.k8s.io",
		"csidrivers.storage.k8s.io", "csinodes.storage.k8s.io", "storageclasses.storage.k8s.io",
		"volumeattachments.storage.k8s.io", "volumeattributesclasses.storage.k8s.io",
		"storageversionmigrations.storagemigration.k8s.io",
	)
	scalable = resourcesOf("deployments.apps", "replicasets.apps", "statefulsets.apps")
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
