package conformance

// configMaps have no subresources and no generation.
var configMaps = &kind{
	version: "v1", resource: "configmaps", kind: "ConfigMap",
	fresh: func(name string) map[string]any {
		return map[string]any{"metadata": metadata(name), "data": map[string]any{"k": "v"}}
	},
	edits: []edit{
		{"data.k", "w"},
		{"data.l", "v"},
		{"data", nil},
		{"immutable", true},
		{"data.bad key", "v"},
		{"binaryData", map[string]any{"b": "AAEC"}},
		{"binaryData", map[string]any{"k": "AAEC"}},
		{"data.k", 5},
		{"bogus", "b"},
	},
}
