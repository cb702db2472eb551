package conformance

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// names are the names of the objects in a sequence. They are few, so that several operations use the same object.
var names = []string{"a", "b", "c"}

// A sequence of operations prints as a list. In the output of rapid it is only a number, because the sequence is
// shortened afterwards.
type sequence []operation

func (s sequence) GoString() string { return fmt.Sprintf("%d operations", len(s)) }

func (s sequence) String() string {
	var b strings.Builder
	for i, op := range s {
		fmt.Fprintf(&b, "\n%3d  %s", i+1, op)
	}
	return b.String()
}

// A draw has the source of random choices, and the kinds to choose from.
type draw struct {
	*rapid.T
	kinds []*kind
}

// sequences draws sequences of operations on kinds.
var sequences = sequencesOf(kinds)

// sequencesOf returns a generator of sequences. They begin with some objects, so that few operations are for objects
// that do not exist. About one in 2^lastBits operations is the last one.
func sequencesOf(kinds []*kind) *rapid.Generator[sequence] {
	return rapid.Custom(func(t *rapid.T) sequence { return drawSequence(draw{t, kinds}) })
}

func drawSequence(t draw) sequence {
	var s sequence
	for _, k := range t.kinds {
		for _, name := range names {
			if pick(t, "preexisting", false, true, true, true) {
				s = append(s, creation(k, edited{base: k.object(name)}))
			}
		}
	}
	operations := rapid.Custom(func(from *rapid.T) *operation { return drawOperation(draw{from, t.kinds}) })
	for next := operations.Draw(t.T, "next"); next != nil; next = operations.Draw(t.T, "next") {
		s = append(s, *next)
	}
	return s
}

const lastBits = 6

func creation(k *kind, object edited) operation {
	return operation{verb: "create", method: "POST", kind: k, contentType: "application/json", body: object}
}

// drawOperation returns one operation at a time, and nil after the last one.
func drawOperation(t draw) *operation {
	last := true
	for range lastBits {
		if rapid.Bool().Draw(t.T, "more") {
			last = false
			break
		}
	}
	if last {
		return nil
	}
	// The first ones are drawn more often, and rapid prefers them when it shrinks a failing sequence.
	make := pick(t, "verb", update, patch, create, patchStatus, watch, list, remove, update, patch, updateStatus,
		get, create, scale, patchMetadata, watch, patch, list, update, removeFinalizers, removeAll, updateStatus)
	op := make(t)
	if op.method != "GET" && (op.method != "DELETE" || op.body == nil) && seldom(t, 24) {
		op.query = append(op.query, parameter{dryRun, pick(t, "dry", "All", "All", "Bogus")})
	}
	if seldom(t, 12) {
		op.accept = pick(t, "accept", acceptable(op)...)
	}
	if strings.Contains(op.accept, tabular) && seldom(t, 2) {
		include := pick(t, "include", "Object", "Metadata", "None", "Bogus")
		op.query = append(op.query, parameter{"includeObject", include})
	}
	if seldom(t, 24) {
		misplace(&op)
	}
	return &op
}

// Media types for objects that are reduced to their metadata, as the metadata client accepts them, and in other ways,
// and for tables, as kubectl accepts them.
const (
	tabular      = ";as=Table;g=meta.k8s.io;v=v1"
	table        = plainJSON + tabular + "," + plainJSON + tabular + "beta1" + inAnyCase
	oneReduced   = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	manyReduced  = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	plainJSON    = "application/json"
	inAnyCase    = "," + plainJSON
	metadataOf   = binary + oneReduced + "," + plainJSON + oneReduced + inAnyCase
	metadataList = binary + manyReduced + "," + plainJSON + manyReduced + inAnyCase
)

// acceptable returns Accept headers for an operation.
func acceptable(op operation) []string {
	headers := []string{
		metadataOf, metadataOf, plainJSON + oneReduced, binary, "application/yaml", "application/yaml" + oneReduced,
		"text/plain", "*/*", plainJSON + ";as=Bogus;g=meta.k8s.io;v=v1", plainJSON + oneReduced + "beta1",
	}
	if op.sub != "scale" { // There are no simulated tables of scales.
		tables := []string{table, table, plainJSON + tabular + "beta1", "application/yaml" + tabular,
			binary + tabular + inAnyCase}
		headers = append(tables, headers...)
	}
	if op.watches() {
		return headers // A watch of lists has no events, and so would not end.
	}
	return append(headers, metadataList, metadataList, plainJSON+manyReduced, plainJSON+manyReduced+"beta1")
}

// misplace leaves the namespace out of the path of an operation, or adds one if the kind has none.
func misplace(op *operation) {
	op.misplaced, op.nowhere = true, false
	// Pages would depend on the objects of others.
	op.query = slices.DeleteFunc(op.query, func(p parameter) bool { return p.key == "limit" || p.key == "continue" })
}

func pick[T any](t draw, label string, from ...T) T {
	return from[rapid.SampledFrom(indexes(len(from))).Draw(t.T, label)]
}

// indexes returns the indexes of n values. They are drawn instead of values that cannot be printed.
func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// seldom is true in one of n cases.
func seldom(t draw, n int) bool {
	return pick(t, "seldom", indexes(n)...) == n-1
}

// target returns an operation on one object, without parameters and body.
func target(t draw, verb, method string, from ...*kind) operation {
	if len(from) == 0 {
		from = t.kinds
	}
	return operation{verb: verb, method: method, kind: pick(t, "kind", from...), name: pick(t, "name", names...)}
}

func withStatus(t draw) []*kind {
	return slices.DeleteFunc(slices.Clone(t.kinds), func(k *kind) bool { return !k.status })
}

func withScale(t draw) []*kind {
	return slices.DeleteFunc(slices.Clone(t.kinds), func(k *kind) bool { return !k.scale })
}

func create(t draw) operation {
	op := target(t, "create", "POST")
	object := edited{base: op.kind.object(op.name)}
	op.contentType = "application/json"
	for range pick(t, "edits", 0, 0, 0, 1, 2) {
		object.edits = append(object.edits, someEdit(t, op.kind))
	}
	if seldom(t, 4) {
		object.edits = append(object.edits, pick(t, "oddity",
			edit{"metadata.generateName", symbol{what: newPrefix}},
			edit{"metadata.uid", noUID},
			edit{"metadata.resourceVersion", "999999998"},
			edit{"metadata.deletionTimestamp", "2026-01-02T03:04:05Z"},
			edit{"metadata.creationTimestamp", "2026-01-02T03:04:05Z"},
			edit{"metadata.generation", 7},
			edit{"metadata.namespace", "elsewhere"},
			edit{"metadata.name", "Not A Name"},
			edit{"metadata.name", nil},
			edit{"metadata.selfLink", "/x"},
			edit{"kind", "Bogus"},
			edit{"apiVersion", "bogus/v9"},
			edit{"kind", nil},
			edit{"metadata.deletionGracePeriodSeconds", 5},
		))
	} else if seldom(t, 12) {
		object.edits = append(object.edits, edit{"metadata.generateName", symbol{what: newPrefix}},
			edit{"metadata.name", nil})
	} else if seldom(t, 40) {
		op.nowhere = true
	}
	op.name, op.body = "", object
	if seldom(t, 60) {
		op.body = pick(t, "malformed", `{"metadata":`, `[]`, ``, `{"metadata":{"name":5}}`)
	}
	return op
}

// someEdit draws what may be done to an object of this kind.
func someEdit(t draw, k *kind) edit {
	if pick(t, "part", 0, 1) == 0 {
		return pick(t, "edit", k.edits...)
	}
	return metadataEdit(t)
}

func metadataEdit(t draw) edit {
	return pick(t, "metadata",
		edit{"metadata.labels.app", "y"},
		edit{"metadata.annotations", map[string]any{"note": "1"}},
		edit{"metadata.finalizers", []any{"example.com/hold"}},
		edit{"metadata.labels", nil},
		edit{"metadata.finalizers", nil},
		edit{"metadata.annotations", nil},
		edit{"metadata.finalizers", []any{"example.com/hold", "example.com/more"}},
		edit{"metadata.ownerReferences", []any{owner(t, true)}},
		edit{"metadata.ownerReferences", []any{owner(t, true), ownerNamed("z", true)}},
		edit{"metadata.ownerReferences", nil},
		edit{"metadata.labels", map[string]any{"app": "x", "tier": "t", "gone": "1"}},
		edit{"metadata.labels.app", "not a value!"},
		edit{"metadata.labels", map[string]any{"not a key!": "x"}},
		edit{"metadata.annotations", map[string]any{"not a key!": "x"}},
		edit{"metadata.finalizers", []any{"bogus"}},
		edit{"metadata.finalizers", []any{"not a finalizer!"}},
		edit{"metadata.finalizers", []any{"orphan"}},
		edit{"metadata.finalizers", []any{"foregroundDeletion"}},
		edit{"metadata.ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}}},
		edit{"metadata.generation", 99},
		edit{"metadata.creationTimestamp", nil},
		edit{"metadata.generateName", symbol{what: newPrefix}},
	)
}

func owner(t draw, controller bool) map[string]any {
	return ownerNamed(pick(t, "owner", names...), controller)
}

func ownerNamed(name string, controller bool) map[string]any {
	return map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing", "name": name, "uid": "uid-of-" + name,
		"controller": controller, "blockOwnerDeletion": true,
	}
}

// versionEdits draws preconditions as they are in the body of a write.
func versionEdits(t draw) []edit {
	var edits []edit
	switch pick(t, "version", 0, 1, 2, 3, 4, 5) {
	case 1:
		edits = append(edits, edit{"metadata.resourceVersion", symbol{what: rvOlder}})
	case 2:
		edits = append(edits, edit{"metadata.resourceVersion", nil})
	case 3:
		edits = append(edits, edit{"metadata.resourceVersion", ""})
	case 4:
		edits = append(edits, edit{"metadata.resourceVersion", pick(t, "wrong", "999999999", "0", "abc", "1")})
	case 5:
		edits = append(edits, edit{"metadata.resourceVersion", symbol{what: rvCurrent}})
	}
	uid := func(value any) []edit { return []edit{{"metadata.uid", value}} }
	return append(edits, pick(t, "uid", nil, nil, nil, uid(noUID), uid(nil), uid(symbol{what: uidFormer}),
		uid(symbol{what: uidNow}))...)
}

func update(t draw) operation {
	op := target(t, "update", "PUT")
	op.contentType = "application/json"
	object := edited{base: lastSeen{op.kind.object(op.name)}}
	if seldom(t, 6) {
		object.base = op.kind.object(op.name)
	}
	for range pick(t, "edits", 1, 0, 1, 2) {
		object.edits = append(object.edits, someEdit(t, op.kind))
	}
	if pick(t, "conditions", 0, 1) == 1 {
		object.edits = append(object.edits, versionEdits(t)...)
	}
	if seldom(t, 30) {
		object.edits = append(object.edits, pick(t, "oddity",
			edit{"metadata.name", "other"}, edit{"metadata.name", nil}, edit{"metadata.namespace", "elsewhere"},
			edit{"metadata.namespace", nil}, edit{"kind", "Bogus"}, edit{"apiVersion", "bogus/v9"}))
	}
	op.body = object
	return op
}

func removeFinalizers(t draw) operation {
	op := target(t, "patch merge", "PATCH")
	op.contentType = mergePatch
	op.body = map[string]any{"metadata": map[string]any{"finalizers": nil}}
	return op
}

// remove draws the deletion of one object.
func remove(t draw) operation {
	op := target(t, "delete", "DELETE")
	op.body, op.query = deleteOptions(t)
	if op.body != nil {
		op.contentType = "application/json"
	}
	return op
}

// removeAll draws the deletion of the objects that a selector selects.
func removeAll(t draw) operation {
	op := operation{verb: "deletecollection", method: "DELETE", kind: pick(t, "kind", t.kinds...)}
	op.query = selectors(t, op.kind)
	if seldom(t, 4) {
		op.body, _ = deleteOptions(t)
		op.contentType = "application/json"
	}
	if seldom(t, 20) {
		op.query = append(op.query, parameter{"limit", "1"})
	}
	return op
}

// deleteOptions draws the preconditions and the policy of a deletion, as a body or as parameters.
func deleteOptions(t draw) (any, []parameter) {
	options := map[string]any{}
	conditions := map[string]any{}
	uid := pick[any](t, "uid", nil, nil, nil, symbol{what: uidNow}, symbol{what: uidFormer}, noUID, "")
	if uid != nil {
		conditions["uid"] = uid
	}
	version := pick[any](t, "version", nil, nil, nil, symbol{what: rvCurrent}, symbol{what: rvOlder}, "999999999", "")
	if version != nil {
		conditions["resourceVersion"] = version
	}
	if len(conditions) > 0 {
		options["preconditions"] = conditions
	}
	policy := pick(t, "policy", "", "", "Background", "Foreground", "Orphan", "Foreground", "Bogus")
	if policy != "" {
		options["propagationPolicy"] = policy
	}
	if seldom(t, 16) {
		options["orphanDependents"] = pick(t, "orphan", true, false)
	}
	if seldom(t, 16) {
		options["gracePeriodSeconds"] = pick(t, "grace", 0, 5, -1)
	}
	if len(options) == 0 {
		return nil, nil
	}
	if policy != "" && len(conditions) == 0 && seldom(t, 4) {
		return nil, []parameter{{"propagationPolicy", policy}}
	}
	if seldom(t, 8) {
		options["apiVersion"], options["kind"] = "v1", "DeleteOptions"
	}
	return options, nil
}
