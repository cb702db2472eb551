package conformance

import (
	"time"

	"example.com/foo-controller/pkg/sim/apisim"
	"example.com/foo-controller/pkg/sim/footest"
)

// simulated returns a new simulated server with all kinds.
func simulated() server {
	s := apisim.New(apisim.Namespaces(), apisim.Deployments(), apisim.ConfigMaps(), apisim.Leases(), footest.FooKind())
	return server{url: "http://apisim", transport: s, watchTimeout: 10 * time.Second}
}
