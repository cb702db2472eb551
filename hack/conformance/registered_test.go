package conformance

import (
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/footest"
)

// simulated returns a new simulated server with all kinds.
func simulated() server {
	foos := footest.FooKind()
	foos.Columns = fooColumns()
	s := apiserver.New(apiserver.Namespaces(), apiserver.Deployments(), apiserver.ConfigMaps(), apiserver.Leases(),
		foos,
		apiserver.Kind{
			Resource: widgets.resourceName(), Kind: widgets.kind, Object: &unstructured.Unstructured{}, Status: true,
			Scale:    &apiserver.Scale{SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas"},
			Singular: "wid", ListKind: widgets.list, ShortNames: []string{"wd", "wg"}, Categories: []string{"gear"},
		},
		apiserver.Kind{
			Resource: gadgets.resourceName(), Kind: gadgets.kind, Object: &unstructured.Unstructured{}, Status: true,
			ClusterScoped: true,
		})
	return server{url: "http://apiserver", transport: s, watchTimeout: 10 * time.Second}
}

// fooColumns returns the columns of the CustomResourceDefinition of Foos.
var fooColumns = sync.OnceValue(func() []apiserver.Column {
	crd, err := os.ReadFile("../../artifacts/crd/samplecontroller.k8s.io_foos.yaml")
	if err != nil {
		panic(err)
	}
	kind, err := apiserver.FromCRD(crd, "")
	if err != nil {
		panic(err)
	}
	return kind.Columns
})

func (k *kind) resourceName() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.resource}
}
