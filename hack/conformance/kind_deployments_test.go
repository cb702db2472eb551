package conformance

// The first edits of deployments are valid, the others are not.
var deployments = &kind{
	group: "apps", version: "v1", resource: "deployments", kind: "Deployment",
	status: true, scale: true,
	fresh: func(name string) map[string]any {
		return map[string]any{
			"metadata": metadata(name),
			"spec": map[string]any{
				"replicas": 1,
				"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "x"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
				},
			},
		}
	},
	edits: []edit{
		{"spec.replicas", 2},
		{"spec.replicas", 0},
		{"spec.template.spec.containers.0.image", "j"},
		{"spec.template.metadata.labels", map[string]any{"app": "x", "more": "1"}},
		{"spec.template.metadata.annotations", map[string]any{"at": "1"}},
		{"spec.replicas", nil},
		{"spec.paused", true},
		{"spec.minReadySeconds", 5},
		{"spec.strategy", map[string]any{"type": "Recreate"}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": 0, "maxUnavailable": "30%"}}},
		{"spec.template.spec.containers.0.ports", []any{map[string]any{"containerPort": 80}}},
		{"spec.revisionHistoryLimit", 0},
		{"spec.strategy", map[string]any{"type": "Bogus"}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": 0, "maxUnavailable": "0%"}}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": "x%", "maxUnavailable": "150%"}}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": -1}}},
		{"spec.revisionHistoryLimit", -1},
		{"spec.template.spec.containers", []any{
			map[string]any{"name": "c", "image": "i"}, map[string]any{"name": "c", "image": "j"},
		}},
		{"spec.replicas", -1},
		{"spec.selector", nil},
		{"spec.selector.matchLabels", map[string]any{"app": "z"}},
		{"spec.selector.matchLabels", map[string]any{}},
		{"spec.template.metadata.labels", map[string]any{"app": "z"}},
		{"spec.template.spec.containers", []any{}},
		{"spec.template.spec.containers.0.image", ""},
		{"spec.template.spec.containers.0.name", "Not A Name"},
		{"spec.template.spec.restartPolicy", "Never"},
		{"spec.minReadySeconds", -5},
		{"spec.progressDeadlineSeconds", 30},
		{"spec.replicas", "three"},
		{"spec.bogus", "b"},
		{"spec", nil},
		{"status.replicas", 7},
	},
}
