package conformance

// widgets are unstructured for the simulated server, and have a schema that allows everything.
var widgets = &kind{
	group: "conformance.example.com", version: "v1", resource: "widgets", kind: "Widget", list: "Wids",
	custom: true, status: true, scale: true,
	fresh: func(name string) map[string]any {
		return map[string]any{"metadata": metadata(name), "spec": map[string]any{"replicas": 1}}
	},
	edits: looseEdits,
}

// gadgets are the same without namespaces.
var gadgets = &kind{
	group: "conformance.example.com", version: "v1", resource: "gadgets", kind: "Gadget",
	custom: true, status: true, clusterScoped: true,
	fresh: widgets.fresh,
	edits: looseEdits,
}

// looseEdits are edits of objects without a schema. Only metadata has types.
var looseEdits = []edit{
	{"spec.replicas", 2},
	{"spec.replicas", 0},
	{"spec.replicas", nil},
	{"spec.list", []any{1, "a", nil, map[string]any{"b": 1.5}}},
	{"anything", map[string]any{"a": "b"}},
	{"spec", nil},
	{"spec", 5},
	{"spec.replicas", -1},
	{"spec.replicas", "three"},
	{"status.replicas", 7},
	{"metadata.labels.app", 5},
	{"metadata.labels", "x"},
	{"metadata.annotations", map[string]any{"a": nil}},
	{"metadata.finalizers", "x"},
	{"metadata.finalizers", []any{1}},
	{"metadata.creationTimestamp", "yesterday"},
	{"metadata.unknown", 1},
	{"metadata.ownerReferences", []any{map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": "yes", "unknown": 1,
	}}},
}
