package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// An operation is one request, in terms that are valid for any server.
type operation struct {
	verb   string // The name under which it is counted.
	method string
	kind   *kind
	name   string // Empty for all objects of the kind.
	sub    string // The subresource.
	// nowhere sends the request to a namespace that does not exist.
	nowhere bool
	// misplaced leaves the namespace out of the path, or adds one if the kind has none.
	misplaced   bool
	accept      string // The media types that the client accepts, if not those that it always does.
	query       []parameter
	contentType string
	body        any // A tree with symbols, or a string that is sent unchanged.
}

// A parameter is a parameter of the query. Its value is a string or a symbol.
type parameter struct {
	key   string
	value any
}

func (o operation) watches() bool { return o.verb == "watch" }

func (o operation) parameter(key string) string {
	for _, p := range o.query {
		if p.key == key {
			return fmt.Sprint(p.value)
		}
	}
	return ""
}

// String describes the operation in one line.
func (o operation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.method, o.kind)
	if o.nowhere {
		b.WriteString(" in no namespace")
	}
	if o.misplaced {
		b.WriteString(" misplaced")
	}
	if o.name != "" {
		b.WriteString("/" + o.name)
	}
	if o.sub != "" {
		b.WriteString("/" + o.sub)
	}
	separator := "?"
	for _, p := range o.query {
		fmt.Fprintf(&b, "%s%s=%v", separator, p.key, p.value)
		separator = "&"
	}
	if o.contentType != "" && o.contentType != "application/json" {
		b.WriteString(" " + strings.TrimPrefix(o.contentType, "application/"))
	}
	if o.accept != "" {
		b.WriteString(" accept " + o.accept)
	}
	if o.body != nil {
		b.WriteString(" " + describe(o.body))
	}
	return b.String()
}

// GoString is used when rapid prints a sequence that failed.
func (o operation) GoString() string { return o.String() }

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

// A memory has the objects and versions that a player has seen in answers. Two players with the same answers have the
// same memory.
type memory struct {
	start   string                // The resourceVersion before the first operation.
	objects map[string][]*version // By resource and name, older versions first.
	newest  map[string]string     // By resource, the newest resourceVersion of an object.
	listed  map[string]string     // By resource, the resourceVersion of the last list.
	next    map[string]string     // By resource, the last continue token.
	given   int                   // How many prefixes of names were used.
	prefix  string                // Of the names of objects without a namespace. See player.shared.
}

// A version is one version of an object.
type version struct {
	version, uid string
	replicas     float64
	body         map[string]any // Nil if only the scale was seen.
}

func newMemory(start string) *memory {
	return &memory{
		start: start, objects: map[string][]*version{},
		newest: map[string]string{}, listed: map[string]string{}, next: map[string]string{},
	}
}

// recordAnswer records an answer to an operation on objects of this kind.
func (m *memory) recordAnswer(k *kind, body any) {
	object, ok := body.(map[string]any)
	if !ok {
		return
	}
	switch text(object, "kind") {
	case k.kind:
		m.recordObject(k, object, object)
	case "Scale":
		m.recordObject(k, object, nil)
	case cmp.Or(k.list, k.kind+"List"):
		m.listed[k.resource] = text(object, "metadata", "resourceVersion")
		m.next[k.resource] = text(object, "metadata", "continue")
		items, _ := object["items"].([]any)
		for _, item := range items {
			if item, ok := clone(item).(map[string]any); ok {
				item["apiVersion"], item["kind"] = k.apiVersion(), k.kind
				m.recordObject(k, item, item)
			}
		}
	}
}

// ownName returns the name that an object has on the server.
func (m *memory) ownName(k *kind, name string) string {
	if k.clusterScoped {
		return m.prefix + name
	}
	return name
}

func (m *memory) recordObject(k *kind, object, body map[string]any) {
	if metadata, ok := body["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields") // Otherwise later operations would write the old ones.
	}
	key := k.resource + "/" + strings.TrimPrefix(text(object, "metadata", "name"), m.ownName(k, ""))
	metadata := func(name string) string { return text(object, "metadata", name) }
	s := &version{version: metadata("resourceVersion"), uid: metadata("uid"), body: body}
	s.replicas, _ = valueAt(object, "spec", "replicas").(float64)
	known := m.objects[key]
	if last := lastOf(known); last == nil || number(s.version) > number(last.version) {
		m.objects[key] = append(known, s)
	} else if s.version == last.version && last.body == nil {
		last.body = body
	}
	if number(s.version) > number(m.newest[k.resource]) {
		m.newest[k.resource] = s.version
	}
}

func lastOf(sightings []*version) *version {
	if len(sightings) == 0 {
		return nil
	}
	return sightings[len(sightings)-1]
}

// number converts a resourceVersion for comparisons with others of the same server. An invalid one is 0.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// resolve replaces the symbols in a tree by values of the server.
func (m *memory) resolve(op operation, tree any) any {
	switch node := tree.(type) {
	case symbol:
		return m.valueOf(op, node)
	case lastSeen:
		if body := m.body(op); body != nil {
			return clone(body)
		}
		return clone(node.fresh)
	case edited:
		result := clone(m.resolve(op, node.base))
		for _, e := range node.edits {
			result = set(result, strings.Split(e.path, "."), m.resolve(op, e.value))
		}
		return result
	case map[string]any:
		resolved := make(map[string]any, len(node))
		for key, value := range node {
			resolved[key] = m.resolve(op, value)
		}
		return resolved
	case []any:
		resolved := make([]any, len(node))
		for i, value := range node {
			resolved[i] = m.resolve(op, value)
		}
		return resolved
	}
	return tree
}

// body returns the object as it was last seen, or nil if it was never seen.
func (m *memory) body(op operation) map[string]any {
	known := m.objects[op.kind.resource+"/"+op.name]
	for i := len(known) - 1; i >= 0; i-- {
		if known[i].body != nil {
			return known[i].body
		}
	}
	return nil
}

// valueOf returns the current value of a symbol.
func (m *memory) valueOf(op operation, s symbol) any {
	of := cmp.Or(s.kind, op.kind)
	known := m.objects[of.resource+"/"+cmp.Or(s.name, op.name)]
	last := lastOf(known)
	switch s.what {
	case ownName:
		return m.ownName(of, s.name)
	case newPrefix:
		m.given++
		return fmt.Sprintf("gen-%03d-", m.given)
	case otherNumber:
		if last != nil && last.replicas == 1 {
			return 2
		}
		return 1
	case rvStart:
		return m.start
	case rvNewest:
		return cmp.Or(m.newest[op.kind.resource], m.start)
	case rvListed:
		return cmp.Or(m.listed[op.kind.resource], m.start)
	case nextPage:
		return m.next[op.kind.resource]
	case rvCurrent:
		if last != nil {
			return last.version
		}
		return m.versionOfMissing(op)
	case rvOlder:
		if len(known) > 1 {
			return known[len(known)-2].version
		}
		return m.versionOfMissing(op)
	case uidNow:
		if last != nil {
			return last.uid
		}
	case uidFormer:
		for i := len(known) - 1; i >= 0; i-- {
			if known[i].uid != last.uid {
				return known[i].uid
			}
		}
	}
	return noUID
}

// versionOfMissing returns a version for an object that was never seen. For a read it must be a version that the server
// still has.
func (m *memory) versionOfMissing(op operation) string {
	if op.method == "GET" {
		return m.start
	}
	return noVersion
}
