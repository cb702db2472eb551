package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The bodies of operations are trees of JSON in which some leaves are symbols. A player replaces them by values from
// earlier answers of its server.

// A symbol is a placeholder for a value that differs between servers.
type symbol struct {
	what symbolKind
	// name is the name of the object, if it is not the object of the operation.
	name string
	kind *kind // The kind of that object, if it is not that of the operation.
}

type symbolKind string

const (
	rvCurrent symbolKind = "current resourceVersion"
	rvOlder   symbolKind = "older resourceVersion"
	rvStart   symbolKind = "resourceVersion from the beginning"
	rvNewest  symbolKind = "newest resourceVersion of the kind"
	rvListed  symbolKind = "resourceVersion of the last list"
	uidNow    symbolKind = "uid"
	uidFormer symbolKind = "uid of its predecessor"
	nextPage  symbolKind = "continue token"

	// ownName is the name of an object as its player has it. See player.shared.
	ownName symbolKind = "name"
	// otherNumber is a number of replicas that the object does not have.
	otherNumber symbolKind = "another number"
	// newPrefix is a prefix that no name had before, so that generated names sort in the same order on all servers.
	newPrefix symbolKind = "a new prefix"
)

func (s symbol) String() string {
	if s.name != "" {
		return fmt.Sprintf("<%s of %s>", s.what, s.name)
	}
	return fmt.Sprintf("<%s>", s.what)
}

// MarshalJSON makes it possible to print bodies with symbols.
func (s symbol) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// The values of symbols that have no value yet.
const (
	noUID     = "00000000-0000-4000-8000-000000000000"
	noVersion = "1"
)

// A lastSeen is the object in the last answer of the server, or a fresh one before the first answer.
type lastSeen struct{ fresh map[string]any }

// An edited is a tree with edits.
type edited struct {
	base  any // A map or lastSeen.
	edits []edit
}

// An edit sets the value at a path. A nil value removes it.
type edit struct {
	path  string // With dots. Slashes are part of a name.
	value any
}

func (e edit) String() string {
	if e.value == nil {
		return "no " + e.path
	}
	return fmt.Sprintf("%s=%s", e.path, describe(e.value))
}

func (e edited) String() string {
	var b strings.Builder
	switch base := e.base.(type) {
	case lastSeen:
		b.WriteString("as last seen")
	default:
		b.WriteString(describe(base))
	}
	for _, edit := range e.edits {
		b.WriteString("; " + edit.String())
	}
	return b.String()
}

// describe renders a tree for people.
func describe(tree any) string {
	if tree, ok := tree.(fmt.Stringer); ok {
		return tree.String()
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return err.Error()
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(text))
}

// set makes an edit in a tree that nothing else uses. Numbers in a path are indexes.
func set(tree any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch node := tree.(type) {
	case []any:
		i := int(path[0][0] - '0')
		if i < len(node) {
			node[i] = set(node[i], path[1:], value)
		}
		return node
	case map[string]any:
		if len(path) == 1 && value == nil {
			delete(node, path[0])
			return node
		}
		node[path[0]] = set(node[path[0]], path[1:], value)
		return node
	}
	if value == nil {
		return tree
	}
	return map[string]any{path[0]: set(nil, path[1:], value)}
}

// clone copies a tree.
func clone(tree any) any {
	switch node := tree.(type) {
	case map[string]any:
		copied := make(map[string]any, len(node))
		for key, value := range node {
			copied[key] = clone(value)
		}
		return copied
	case []any:
		copied := make([]any, len(node))
		for i, value := range node {
			copied[i] = clone(value)
		}
		return copied
	}
	return tree
}

// valueAt returns the value at a path, or nil.
func valueAt(tree any, path ...string) any {
	for _, name := range path {
		node, _ := tree.(map[string]any)
		tree = node[name]
	}
	return tree
}

func text(tree any, path ...string) string {
	value, _ := valueAt(tree, path...).(string)
	return value
}

// A leaf is a place where two trees differ.
type leaf struct {
	path       string
	real, fake any
}

func (l leaf) String() string {
	return fmt.Sprintf("%s: real %s, simulated %s", l.path, shown(l.real), shown(l.fake))
}

func shown(value any) string {
	if value == nil {
		return "nothing"
	}
	return describe(value)
}

// compare returns all places where two trees differ, in the order of their paths.
func compare(path string, want, have any) []leaf {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(want)
		maps.Copy(keys, have)
		var leaves []leaf
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			leaves = append(leaves, compare(path+"."+key, want[key], have[key])...)
		}
		return leaves
	case []any:
		have, ok := have.([]any)
		if !ok {
			break
		}
		var leaves []leaf
		for i := range max(len(want), len(have)) {
			var w, h any
			if i < len(want) {
				w = want[i]
			}
			if i < len(have) {
				h = have[i]
			}
			leaves = append(leaves, compare(fmt.Sprintf("%s[%d]", path, i), w, h)...)
		}
		return leaves
	default:
		if want == have {
			return nil
		}
	}
	return []leaf{{path, want, have}}
}
