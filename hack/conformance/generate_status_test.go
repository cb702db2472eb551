package conformance

// statusEdit draws a change of a status. Servers must ignore its changes of the spec.
func statusEdit(t draw) edit {
	return pick(t, "status",
		edit{"status.replicas", 3},
		edit{"status.availableReplicas", 2},
		edit{"status.observedGeneration", 1},
		edit{"status.observedGeneration", 2},
		edit{"status.conditions", []any{condition("True")}},
		edit{"status.conditions", []any{condition("False")}},
		edit{"status.conditions", nil},
		edit{"status", map[string]any{"replicas": 1, "availableReplicas": 1}},
		edit{"spec.replicas", 9},
		edit{"metadata.labels.app", "y"},
		edit{"metadata.annotations", map[string]any{"by": "status"}},
		edit{"metadata.finalizers", []any{"example.com/status"}},
		edit{"status.observedGeneration", -1},
		edit{"status.replicas", -1},
		edit{"status.replicas", "three"},
		edit{"status.conditions", []any{condition("Perhaps")}},
		edit{"status.bogus", 1},
		edit{"status", nil},
	)
}

func condition(status string) map[string]any {
	return map[string]any{
		"type": "Ready", "status": status, "reason": "Because", "message": "it is so",
		"lastTransitionTime": "2026-01-02T03:04:05Z",
	}
}

func updateStatus(t draw) operation {
	op := target(t, "update status", "PUT", withStatus(t)...)
	op.sub, op.contentType = "status", "application/json"
	object := edited{base: lastSeen{op.kind.object(op.name)}}
	for range pick(t, "edits", 1, 0, 2) {
		object.edits = append(object.edits, statusEdit(t))
	}
	if pick(t, "conditions", 0, 1) == 1 {
		object.edits = append(object.edits, versionEdits(t)...)
	}
	op.body = object
	return op
}

func patchStatus(t draw) operation {
	op := target(t, "patch", "PATCH", withStatus(t)...)
	op.sub = "status"
	return patched(t, op, func() edit { return statusEdit(t) })
}

// scale draws operations on the scale subresource.
func scale(t draw) operation {
	if len(withScale(t)) == 0 {
		return get(t)
	}
	op := target(t, "get scale", pick(t, "method", "PUT", "PATCH", "GET"), withScale(t)...)
	op.sub = "scale"
	// The current number would change only the managed fields, which the simulated server does not have.
	replicas := pick[any](t, "replicas", symbol{what: otherNumber}, symbol{what: otherNumber}, -1)
	switch op.method {
	case "PUT":
		op.verb, op.contentType = "update scale", "application/json"
		object := edited{base: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale",
			"metadata": map[string]any{"name": op.name}, "spec": map[string]any{"replicas": replicas},
		}}
		if pick(t, "conditions", 0, 1) == 1 {
			object.edits = append(object.edits, versionEdits(t)...)
		}
		if seldom(t, 10) {
			object.edits = append(object.edits, pick(t, "oddity",
				edit{"metadata.name", "other"}, edit{"kind", "Bogus"}, edit{"spec.replicas", "three"},
				edit{"metadata.labels", map[string]any{"app": "y"}}, edit{"metadata.name", nil}))
		}
		op.body = object
	case "PATCH":
		op.verb, op.contentType = "patch scale", pick(t, "type", mergePatch, jsonPatch, strategicPatch)
		edits := []edit{{"spec.replicas", replicas}}
		if pick(t, "conditions", 0, 1) == 1 {
			edits = append(edits, versionEdits(t)...)
		}
		if op.contentType == jsonPatch {
			op.body = jsonPatchOf(t, op, edits)
		} else {
			op.body = mergePatchOf(edits)
		}
	}
	return op
}
