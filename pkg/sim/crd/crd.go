// Package crd makes kinds of the simulated API server from CustomResourceDefinitions: with the pruning, the defaults,
// the OpenAPI validation and the rules in CEL of a real API server, by the same packages.
//
//	server := apiserver.New(crd.MustLoad("config/crd/example.com_widgets.yaml"), apiserver.Namespaces())
//
// It is a module of its own, because these packages of k8s.io/apiextensions-apiserver need many others.
//
// The objects of such a kind are unstructured for the server. The generated clients of a Go type work with it as with a
// cluster, and Server.Load stores objects of a Go type that have their kind and apiVersion.
package crd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// MustLoad returns the kind of the CustomResourceDefinition in a file, in the version that is stored. It panics if
// there is an error.
func MustLoad(file string) apiserver.Kind {
	definition, err := os.ReadFile(file)
	if err != nil {
		panic("crd: " + err.Error())
	}
	kind, err := Kind(definition, "")
	if err != nil {
		panic(fmt.Sprintf("crd: %s: %v", file, err))
	}
	return kind
}

// Kind returns a kind from the YAML or JSON of its CustomResourceDefinition. An empty version is the one that is
// stored. A definition that a real server would refuse is an error.
//
// Converting between versions is not simulated, and neither are objects that were stored before the definition changed.
func Kind(definition []byte, version string) (apiserver.Kind, error) {
	kind, err := apiserver.FromCRD(definition, version)
	if err != nil {
		return kind, err
	}
	crd, err := read(definition)
	if err != nil {
		return kind, fmt.Errorf("the CustomResourceDefinition of a %s: %w", kind.Kind, err)
	}
	kind.Schema, err = newSchema(crd, kind)
	if err != nil {
		return kind, fmt.Errorf("the schema of a %s: %w", kind.Kind, err)
	}
	return kind, nil
}

// read decodes a definition and checks it as a server does that creates it.
func read(definition []byte) (*apiextensions.CustomResourceDefinition, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	crd := &apiextensions.CustomResourceDefinition{}
	if err := runtime.DecodeInto(codecs.UniversalDecoder(apiextensions.SchemeGroupVersion), definition, crd); err != nil {
		return nil, err
	}
	strategy, ctx := customresourcedefinition.NewStrategy(scheme), context.Background()
	strategy.PrepareForCreate(ctx, crd)
	if errs := strategy.Validate(ctx, crd); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return crd, nil
}

// A kindSchema is an apiserver.Schema that validates with the strategies of a real server.
type kindSchema struct {
	kind           schema.GroupKind
	structural     *structuralschema.Structural
	object, status strategy
}

type strategy interface {
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
}

// newSchema returns the schema of a kind, as the server of custom resources makes it.
func newSchema(crd *apiextensions.CustomResourceDefinition, kind apiserver.Kind) (apiserver.Schema, error) {
	version, gvk := kind.Resource.Version, kind.Resource.GroupVersion().WithKind(kind.Kind)
	defined, err := apiextensions.GetSchemaForVersion(crd, version)
	if err != nil {
		return nil, err
	}
	subresources, err := apiextensions.GetSubresourcesForVersion(crd, version)
	if err != nil {
		return nil, err
	}
	if defined == nil {
		return nil, errors.New("there is none")
	}
	structural, err := structuralschema.NewStructural(defined.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	structural = structural.DeepCopy()
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	whole, _, err := validation.NewSchemaValidator(defined.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	if subresources == nil {
		subresources = &apiextensions.CustomResourceSubresources{}
	}
	var ofStatus validation.SchemaValidator
	if status, found := defined.OpenAPIV3Schema.Properties["status"]; found && subresources.Status != nil {
		if ofStatus, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, err
		}
	}
	object := customresource.NewStrategy(nil, !kind.ClusterScoped, gvk, whole, ofStatus, structural,
		subresources.Status, subresources.Scale, nil)
	return &kindSchema{
		kind: gvk.GroupKind(), structural: structural,
		object: object, status: customresource.NewStatusStrategy(object),
	}, nil
}

// Prune does what the server of custom resources does when it decodes an object.
func (s *kindSchema) Prune(obj *unstructured.Unstructured) (unknown []string, err error) {
	if obj.GroupVersionKind().GroupKind() != s.kind {
		return nil, nil
	}
	track := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	unknown = pruning.PruneWithOptions(obj.Object, s.structural, true, track)
	defaulting.PruneNonNullableNullsWithoutDefaults(obj.Object, s.structural)
	invalid, embedded := objectmeta.CoerceWithOptions(nil, obj.Object, s.structural, false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if invalid != nil {
		return nil, invalid
	}
	return append(unknown, embedded...), nil
}

func (s *kindSchema) Default(obj *unstructured.Unstructured) {
	if obj.GroupVersionKind().GroupKind() == s.kind {
		defaulting.Default(obj.Object, s.structural)
	}
}

func (s *kindSchema) Validate(obj, old *unstructured.Unstructured, subresource string) field.ErrorList {
	switch {
	case old == nil:
		return s.object.Validate(context.Background(), obj)
	case subresource == "status":
		return s.status.ValidateUpdate(context.Background(), obj, old)
	}
	return s.object.ValidateUpdate(context.Background(), obj, old)
}
