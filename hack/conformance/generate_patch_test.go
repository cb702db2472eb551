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
	var steps []any
	switch pick(t, "test", 0, 0, 1, 2, 3) {
	case 1:
		steps = append(steps, step("test", "/metadata/resourceVersion", symbol{what: rvCurrent}))
	case 2:
		steps = append(steps, step("test", "/metadata/resourceVersion", symbol{what: rvOlder}))
	case 3:
		steps = append(steps, step("test", "/metadata/labels/app", "x"))
	}
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
