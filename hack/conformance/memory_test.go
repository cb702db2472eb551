package conformance

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

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
