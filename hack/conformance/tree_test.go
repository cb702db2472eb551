package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The bodies of operations are trees of JSON in which some leaves are symbols. A player puts in their place
// what its own server answered before.

// A symbol stands for something that differs from server to server.
type symbol struct {
	what symbolKind
	// name is of the object that is meant, when it is not the one that the operation is about.
	name string
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

	// otherNumber is one of replicas that the object does not have.
	otherNumber symbolKind = "another number"
	// newPrefix is one that no name has had, so that generated names sort the same everywhere.
	newPrefix symbolKind = "a new prefix"
)

func (s symbol) String() string {
	if s.name != "" {
		return fmt.Sprintf("<%s of %s>", s.what, s.name)
	}
	return fmt.Sprintf("<%s>", s.what)
}

// MarshalJSON lets bodies be printed with their symbols in them.
func (s symbol) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// What stands in for a symbol when there is nothing that it could mean yet.
const (
	noUID     = "00000000-0000-4000-8000-000000000000"
	noVersion = "1"
)

// A lastSeen is the object as the server answered it last, or a fresh one when it never did.
type lastSeen struct{ fresh map[string]any }

// An edited is a tree with changes made to it.
type edited struct {
	base  any // A map or lastSeen.
	edits []edit
}

// An edit sets what is at a path, or removes it when value is nil.
type edit struct {
	path  string // With dots; slashes are part of a name.
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

// words renders a tree for people.
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

// set makes an edit in a tree that is the caller's own. Numbers in a path are indexes.
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

// at returns what is at a path, nil if nothing is.
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

// A leaf is where two trees differ.
type leaf struct {
	path       string
	real, fake any
}

func (l leaf) String() string {
	return fmt.Sprintf("%s: real %s, apisim %s", l.path, shown(l.real), shown(l.fake))
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
