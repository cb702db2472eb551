package conformance

// foos have no edit to an empty image, because the Go type does not distinguish it from a missing one.
var foos = &kind{
	group: "samplecontroller.k8s.io", version: "v1alpha1", resource: "foos", kind: "Foo",
	custom: true, status: true, scale: true,
	fresh: func(name string) map[string]any {
		return map[string]any{"metadata": metadata(name), "spec": map[string]any{"deploymentName": "d", "replicas": 1}}
	},
	edits: []edit{
		{"spec.replicas", 2},
		{"spec.replicas", 0},
		{"spec.image", "nginx:1"},
		{"spec.replicas", nil},
		{"spec.paused", true},
		{"spec.deploymentName", "e"},
		{"spec.deploymentName", "Not A Name"},
		{"spec.deploymentName", nil},
		{"spec.replicas", -1},
		{"spec.image", "with space"},
		{"spec", nil},
		{"spec.replicas", "three"},
		{"spec.bogus", "b"},
		{"status.replicas", 7},
	},
	fieldSelectors: []string{"spec.deploymentName=d"},
	selected:       map[string]any{"deploymentName": "d"},
}
