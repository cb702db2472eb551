package conformance

// leases can be created by an update, too.
var leases = &kind{
	group: "coordination.k8s.io", version: "v1", resource: "leases", kind: "Lease",
	fresh: func(name string) map[string]any {
		return map[string]any{
			"metadata": metadata(name),
			"spec":     map[string]any{"holderIdentity": "h", "leaseDurationSeconds": 15},
		}
	},
	edits: []edit{
		{"spec.holderIdentity", "i"},
		{"spec.leaseTransitions", 1},
		{"spec.renewTime", "2026-01-02T03:04:05.678901Z"},
		{"spec.leaseDurationSeconds", 0},
		{"spec.leaseTransitions", -1},
		{"spec", nil},
		{"spec.renewTime", "yesterday"},
	},
}
