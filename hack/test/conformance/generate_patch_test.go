package conformance

import (
	"slices"
	"strings"
)

const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// patch draws a patch of the spec or the metadata of an object.
func patch(t draw) operation {
	op := target(t, "patch", "PATCH")
	return patched(t, op, func() edit { return someEdit(t, op.kind) })
}

// patchMetadata draws patches that change the labels of an object, so that watches with selectors see them.
func patchMetadata(t draw) operation {
	op := target(t, "patch", "PATCH")
	return patched(t, op, func() edit { return metadataEdit(t) })
}

// patched completes an operation as a patch with edits from draw.
func patched(t draw, op operation, draw func() edit) operation {
	op.contentType = pick(t, "type", mergePatch, strategicPatch, jsonPatch)
	if op.kind.custom && op.contentType == strategicPatch && !seldom(t, 10) {
		op.contentType = mergePatch // Custom resources have no strategic merge patch.
	}
	if seldom(t, 40) {
		op.contentType = pick(t, "odd type", applyPatch, "application/json", "text/plain")
	}
	edits := []edit{draw()}
	if seldom(t, 3) {
		edits = append(edits, draw())
	}
	if pick(t, "conditions", 0, 0, 1) == 1 {
		edits = append(edits, versionEdits(t)...)
	}
	if seldom(t, 40) {
		edits = append(edits, pick(t, "oddity",
			edit{"metadata.name", "other"}, edit{"metadata.namespace", "elsewhere"}, edit{"kind", "Bogus"},
			edit{"apiVersion", "bogus/v9"}, edit{"metadata", nil}))
	}
	if op.kind.custom && op.sub == "status" {
		// A real server stores the version in the managed fields and otherwise ignores it.
		edits = slices.DeleteFunc(edits, func(e edit) bool { return e.path == "apiVersion" || e.path == "kind" })
	}
	op.verb = patchVerb(op)
	if op.contentType == jsonPatch {
		op.body = jsonPatchOf(t, op, edits)
		return op
	}
	op.body = mergePatchOf(edits)
	if seldom(t, 60) {
		op.body = pick(t, "malformed", `{"metadata":`, `[]`, `"x"`, ``)
	}
	return op
}

func patchVerb(op operation) string {
	name := strings.TrimSuffix(strings.TrimPrefix(op.contentType, "application/"), "-patch+json")
	return "patch " + strings.TrimSuffix(name, "-merge")
}

// mergePatchOf converts edits to a merge patch, in which nil removes a field.
func mergePatchOf(edits []edit) any {
	patch := map[string]any{}
	for _, e := range edits {
		path := strings.Split(e.path, ".")
		at := patch
		for _, name := range path[:len(path)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		last := path[len(path)-1]
		at[last] = clone(e.value)
	}
	return listsOf(patch)
}

// listsOf converts maps with an index as their key to lists, for strategic merge patches of containers. Each list has
// one container, with its name as the merge key.
func listsOf(tree any) any {
	node, ok := tree.(map[string]any)
	if !ok {
		return tree
	}
	for key, value := range node {
		node[key] = listsOf(value)
	}
	element, ok := node["0"].(map[string]any)
	if !ok {
		return node
	}
	if element["name"] == nil {
		element["name"] = "c"
	}
	return []any{element}
}

// jsonPatchOf converts edits to operations of a JSON patch, some with a test before them.
func jsonPatchOf(t draw, op operation, edits []edit) any {
	steps := pick(t, "test", nil, nil,
		[]any{step("test", "/metadata/resourceVersion", symbol{what: rvCurrent})},
		[]any{step("test", "/metadata/resourceVersion", symbol{what: rvOlder})},
		[]any{step("test", "/metadata/labels/app", "x")})
	for _, e := range edits {
		path := "/" + strings.ReplaceAll(strings.ReplaceAll(e.path, "/", "~1"), ".", "/")
		if e.value == nil {
			steps = append(steps, map[string]any{"op": "remove", "path": path})
			continue
		}
		verb := pick(t, "op", "add", "replace")
		if op.kind.custom && strings.HasPrefix(path, "/status") {
			verb = "add" // A replace may fail on one server, because only the Go type of the simulated server has zeros.
		}
		steps = append(steps, step(verb, path, e.value))
	}
	if seldom(t, 20) {
		steps = append(steps, pick(t, "odd step",
			map[string]any{"op": "bogus", "path": "/metadata"},
			map[string]any{"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
			map[string]any{"op": "move", "from": "/metadata/nowhere", "path": "/metadata/annotations"},
			map[string]any{"op": "remove", "path": "/nowhere/at/all"}))
	}
	return steps
}

func step(op, path string, value any) map[string]any {
	return map[string]any{"op": op, "path": path, "value": clone(value)}
}

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

// tooLarge is a resourceVersion that no server reaches. The real server waits three seconds for it.
const tooLarge = "999999999999"

func get(t draw) operation {
	op := target(t, "get", "GET")
	version := pick[any](t, "version", nil, nil, nil, "0", symbol{what: rvOlder}, symbol{what: rvCurrent}, "abc")
	if version != nil {
		op.query = []parameter{{"resourceVersion", version}}
	}
	if op.kind.status && seldom(t, 4) {
		op.sub = "status"
	}
	if seldom(t, 30) {
		op.query = append(op.query, parameter{"watch", "true"})
	}
	if seldom(t, 60) {
		op.query = []parameter{{"resourceVersion", tooLarge}}
	}
	return op
}

// selectors draws selectors of objects of a kind. Most of them select every new object that has the right name. A few
// select nothing or are invalid.
func selectors(t draw, k *kind) []parameter {
	var query []parameter
	labels := pick(t, "labels", "", "", "app=x", "app in (x,y)", "tier", "app!=y", "!gone", "app=x,tier=t",
		"app notin (y)")
	if labels != "" {
		query = append(query, parameter{"labelSelector", labels})
	}
	fields := []string{
		"", "", "", "metadata.name=" + pick(t, "name", names...), "metadata.name!=a", "metadata.namespace!=elsewhere",
	}
	if field := pick(t, "fields", append(fields, k.fieldSelectors...)...); field != "" {
		query = append(query, parameter{"fieldSelector", field})
	}
	return query
}

// list draws a list, or one of its pages.
func list(t draw) operation {
	op := operation{verb: "list", method: "GET", kind: pick(t, "kind", t.kinds...)}
	op.query = selectors(t, op.kind)
	switch pick(t, "paging", 0, 0, 1, 2) {
	case 1:
		op.query = append(op.query, parameter{"limit", pick(t, "limit", "1", "2")})
	case 2:
		op.query = append(op.query, parameter{"limit", "1"}, parameter{"continue", symbol{what: nextPage}})
	}
	version := pick[any](t, "version", nil, nil, "0", symbol{what: rvNewest}, symbol{what: rvListed},
		symbol{what: rvStart}, symbol{what: rvCurrent, name: "a"}, symbol{what: rvOlder, name: "a"}, "abc", "")
	if version != nil {
		op.query = append(op.query, parameter{"resourceVersion", version})
	}
	match := pick(t, "match", "", "", "Exact", "NotOlderThan", "Bogus")
	if match != "" && (version != nil || seldom(t, 6)) {
		op.query = append(op.query, parameter{"resourceVersionMatch", match})
	}
	if seldom(t, 40) {
		op.query = append(op.query, pick(t, "oddity",
			parameter{"labelSelector", "not a selector!"}, parameter{"fieldSelector", "bogus=1"},
			parameter{"labelSelector", "app=none"}, parameter{"continue", "bogus"}, parameter{"limit", "many"},
			parameter{"sendInitialEvents", "true"}))
	}
	if seldom(t, 120) {
		op.query = []parameter{{"resourceVersion", tooLarge}}
	}
	return op
}

// watch draws a watch from a known version. It is read at the end of the sequence.
func watch(t draw) operation {
	op := operation{verb: "watch", method: "GET", kind: pick(t, "kind", t.kinds...)}
	op.query = append([]parameter{{"watch", "true"}}, selectors(t, op.kind)...)
	version := pick[any](t, "version", symbol{what: rvNewest}, symbol{what: rvStart}, symbol{what: rvListed}, nil, "0",
		symbol{what: rvOlder, name: "a"}, symbol{what: rvCurrent, name: "b"}, "")
	if version != nil {
		op.query = append(op.query, parameter{"resourceVersion", version})
	}
	switch pick(t, "initial", 0, 0, 0, 1, 1, 2, 3) {
	case 1:
		op.query = append(op.query, parameter{"sendInitialEvents", "true"},
			parameter{"resourceVersionMatch", "NotOlderThan"}, parameter{"allowWatchBookmarks", "true"})
	case 2:
		op.query = append(op.query, parameter{"allowWatchBookmarks", "true"})
	case 3:
		op.query = append(op.query, pick(t, "oddity",
			parameter{"sendInitialEvents", "true"}, parameter{"resourceVersionMatch", "NotOlderThan"},
			parameter{"resourceVersionMatch", "Exact"}, parameter{"limit", "1"}, parameter{"resourceVersion", "abc"},
			parameter{"labelSelector", "not a selector!"}, parameter{"fieldSelector", "bogus=1"},
			parameter{"sendInitialEvents", "false"}, parameter{"continue", "x"}))
	}
	return op
}
