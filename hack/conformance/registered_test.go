package conformance

import (
	"os"
	"sync"
	"time"

	"example.com/foo-controller/pkg/footest"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/crd"
)

// foosOfTheirDefinition are Foos with the schema of their CustomResourceDefinition.
var foosOfTheirDefinition = sync.OnceValue(func() apiserver.Kind {
	return crd.MustLoad("../../artifacts/crd/samplecontroller.k8s.io_foos.yaml")
})

var gizmosOfTheirDefinition = sync.OnceValue(func() apiserver.Kind { return crd.MustLoad("testdata/crds/gizmos.yaml") })

// simulated returns a new simulated server with all kinds.
func simulated() server { return simulatedWith(foosOfTheirDefinition()) }

// simulatedOfGoTypes returns the same with the Go type of Foos, and rules in Go.
func simulatedOfGoTypes() server {
	foos := footest.FooKind()
	foos.Columns = foosOfTheirDefinition().Columns
	return simulatedWith(foos)
}

func simulatedWith(foos apiserver.Kind) server {
	s := apiserver.New(apiserver.Namespaces(), apiserver.Deployments(), apiserver.ConfigMaps(), apiserver.Leases(),
		foos, gizmosOfTheirDefinition(), withoutSchema("widgets"), withoutSchema("gadgets"))
	return server{url: "http://apiserver", transport: s, watchTimeout: 10 * time.Second}
}

// withoutSchema returns a kind of testdata/crds without its schema, which allows everything.
func withoutSchema(name string) apiserver.Kind {
	definition, err := os.ReadFile("testdata/crds/" + name + ".yaml")
	if err != nil {
		panic(err)
	}
	kind, err := apiserver.FromCRD(definition, "")
	if err != nil {
		panic(err)
	}
	return kind
}
