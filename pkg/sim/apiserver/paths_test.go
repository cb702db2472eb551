package apiserver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// The paths and methods that a real server does not have, with the errors of its two kinds of groups.
func TestPathsThatAreNotServed(t *testing.T) {
	const (
		none       = "404 NotFound: the server could not find the requested resource"
		notAllowed = "405 MethodNotAllowed: the server does not allow this method on the requested resource"
		nothing    = "404 <nil>: 404 page not found"
	)
	for _, test := range []struct{ when, want string }{
		{"GET configmaps/a/status", none},
		{"GET widgets/w/bogus", `404 NotFound: widgets.example.com "w" not found`},
		{"GET /api/v1/namespaces/default/bogus", none},
		{"GET /apis/apps/v9/deployments", none},
		{"GET /apis/example.com/v1/namespaces/default/bogus", nothing},
		{"GET /apis/nowhere", nothing},

		{"PUT configmaps {}", notAllowed},
		{"PUT widgets {$widget}", "400 BadRequest: name must be provided"},
		{"DELETE namespaces", notAllowed},

		// Objects in namespaces outside of a namespace.
		{"DELETE /api/v1/configmaps", notAllowed},
		{`POST /api/v1/configmaps {"metadata":{"name":"b"}}`, notAllowed},
		{"GET /api/v1/configmaps/a", none},
		{"DELETE /api/v1/configmaps/a", none},
		{"DELETE /apis/example.com/v1/widgets", nothing},
		{`POST /apis/example.com/v1/widgets {$widget,"metadata":{"name":"b"}}`, nothing},
		{"GET /apis/example.com/v1/widgets/w", nothing},
		{`MERGE /apis/example.com/v1/widgets/w {"spec":{"size":2}}`, nothing},

		// Cluster-scoped objects in a namespace.
		{"GET /api/v1/namespaces/x/namespaces/default", none},
		{"GET /apis/example.com/v1/namespaces/default/gadgets", nothing},
		{`POST /apis/example.com/v1/namespaces/default/gadgets {$gadget,"metadata":{"name":"g"}}`, nothing},
	} {
		t.Run(test.when, func(t *testing.T) {
			s := apiserver.New(kinds()...)
			r := &requester{t, s}
			r.do(aConfigMap)
			r.do(aWidget)
			before := s.Version()
			if diff := cmp.Diff(test.want, refusalWords(r.do(test.when))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.Version() != before {
				t.Error("it wrote something")
			}
		})
	}
}
