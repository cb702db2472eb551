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
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

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
