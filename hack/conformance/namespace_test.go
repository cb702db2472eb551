package conformance

import "testing"

var namespaceKind = &kind{version: "v1", resource: "namespaces", kind: "Namespace", clusterScoped: true}

// TestATerminatingNamespace plays a fixed sequence that deletes its namespace. Random sequences cannot do that, because
// their watches end with a write, and nothing can be created in a terminating namespace. So this sequence has no
// watches. No controller deletes the contents of the namespace.
func TestATerminatingNamespace(t *testing.T) {
	t.Parallel()
	post := func(k *kind, name string, edits ...edit) operation {
		return creation(k, edited{base: k.object(name), edits: edits})
	}
	merge := func(k *kind, name string, patch map[string]any) operation {
		return operation{verb: "patch merge", method: "PATCH", kind: k, name: name, contentType: mergePatch,
			body: patch}
	}
	remove := func(k *kind, name string, options any) operation {
		return operation{
			verb: "delete", method: "DELETE", kind: k, name: name, contentType: "application/json", body: options,
		}
	}
	get := operation{verb: "get", method: "GET", kind: namespaceKind}
	conditions := func(of map[string]any) map[string]any { return map[string]any{"preconditions": of} }
	labels := func(value any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"by": value}}}
	}
	hold := edit{"metadata.finalizers", []any{"example.com/hold"}}
	sequence := []operation{
		post(configMaps, "a", hold), post(foos, "a"), post(deployments, "a"), post(leases, "a"),
		get,
		merge(namespaceKind, "", labels("user")),
		remove(namespaceKind, "", conditions(map[string]any{"uid": noUID})),
		remove(namespaceKind, "", conditions(map[string]any{"resourceVersion": "999999999"})),
		remove(namespaceKind, "", nil),
		get,
		remove(namespaceKind, "", nil),
		post(configMaps, "b"), post(foos, "b"), post(deployments, "b"), post(leases, "b"),
		post(configMaps, "a"), post(foos, "b", edit{"spec.replicas", -1}),
		post(configMaps, "b", edit{"metadata.generateName", symbol{what: newPrefix}}, edit{"metadata.name", nil}),
		{
			verb: "update", method: "PUT", kind: leases, name: "b", contentType: "application/json",
			body: edited{base: leases.object("b")},
		},
		merge(configMaps, "a", map[string]any{"data": map[string]any{"k": "w"}}),
		merge(foos, "a", map[string]any{"spec": map[string]any{"replicas": 3}}),
		remove(configMaps, "a", nil), remove(foos, "a", nil),
		merge(configMaps, "a", map[string]any{"metadata": map[string]any{"finalizers": nil}}),
		merge(namespaceKind, "", labels(nil)),
		get,
	}
	different, err := playBoth(t.Context(), againstRealServer(t), simulated(), sequence, newTally())
	if err != nil {
		t.Fatal(err)
	}
	if different != "" {
		t.Errorf("different answers:\n%s", different)
	}
}
