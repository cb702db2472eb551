package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A normaliser replaces only the values of a record that must differ between servers. resourceVersions become their
// position among the writes of the sequence. Uids and generated names become the order in which they were generated.
// Times become a constant. Names of namespaces and managed fields are removed.
type normaliser struct {
	namespace string
	versions  []uint64          // Of all writes of the sequence, in order.
	names     map[string]string // Of uids and generated names.
	known     *strings.Replacer // The same, and the namespace.
}

// A revision is one write.
type revision struct {
	version   uint64
	uid, name string
}

// revisions returns all writes in a record, from events and from the answers to writes.
func (r record) revisions() []revision {
	var found []revision
	add := func(object any) {
		metadata := valueAt(object, "metadata")
		if uid := text(metadata, "uid"); uid != "" {
			found = append(found, revision{number(text(metadata, "resourceVersion")), uid, text(metadata, "name")})
		}
	}
	for _, a := range r.answers {
		if a.op.parameter(dryRun) == "" {
			add(a.body)
		}
		for _, event := range a.events {
			if isWrite(event) {
				add(valueAt(event, "object"))
			}
		}
	}
	slices.SortStableFunc(found, func(a, b revision) int { return cmp.Compare(a.version, b.version) })
	return found
}

// newNormaliser returns a normaliser for a record.
func newNormaliser(r record) *normaliser {
	n := &normaliser{namespace: r.namespace, names: map[string]string{}}
	replaced := []string{r.namespace, "NAMESPACE"}
	for _, o := range r.revisions() {
		if last := len(n.versions) - 1; last < 0 || n.versions[last] != o.version {
			n.versions = append(n.versions, o.version)
		}
		if n.names[o.uid] == "" {
			n.names[o.uid] = fmt.Sprintf("uid %d", len(n.names)+1)
			replaced = append(replaced, o.uid, n.names[o.uid])
		}
		if generated.MatchString(o.name) && n.names[o.name] == "" {
			n.names[o.name] = fmt.Sprintf("generated name %d", len(n.names)+1)
			replaced = append(replaced, o.name, n.names[o.name])
		}
	}
	n.known = strings.NewReplacer(replaced...)
	return n
}

// isWrite reports whether an event is about a write. A bookmark is not.
func isWrite(event any) bool {
	switch text(event, "type") {
	case "ADDED", "MODIFIED", "DELETED":
		return true
	}
	return false
}

var (
	uuid      = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	generated = regexp.MustCompile(`^gen-\d+-[a-z0-9]{5}$`)
	age       = regexp.MustCompile(`^(\d+[smh])+$`)
	unstored  = regexp.MustCompile(`(gen-\d+-)[a-z0-9]{5}`) // The name of an object that was never stored.
)

// place returns the position of a version among the writes: "3", or "after 3" for a write outside of the sequence.
func (n *normaliser) place(version string) string {
	v := number(version)
	if v == 0 || slices.Contains(madeUp, version) {
		return version
	}
	i, found := slices.BinarySearch(n.versions, v)
	if found {
		return fmt.Sprintf("version %d", i+1)
	}
	return fmt.Sprintf("after version %d", i)
}

// madeUp are versions that operations contain.
var madeUp = []string{tooLarge, "999999999", "999999998", noVersion}

// answer returns the normalised tree of an answer.
func (n *normaliser) answer(a answer) map[string]any {
	tree := map[string]any{"code": float64(a.code), "media": a.media}
	for i, warning := range a.warnings {
		tree[fmt.Sprintf("warning %d", i+1)] = n.text("message", warning)
	}
	if a.body != nil {
		tree["body"] = n.tree("", a.body)
	}
	if a.op.watches() && a.code == 200 {
		tree["events"] = n.events(a.events)
	}
	return tree
}

// events normalises events and drops periodic bookmarks.
func (n *normaliser) events(events []any) []any {
	var kept []any
	for _, event := range events {
		initial := text(event, "object", "metadata", "annotations", "k8s.io/initial-events-end")
		if text(event, "type") == "BOOKMARK" && initial == "" {
			continue
		}
		kept = append(kept, n.tree("", event))
	}
	return kept
}

// tree normalises the value of a key, and everything in it.
func (n *normaliser) tree(key string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key == "managedFields" {
				continue
			}
			result[key] = n.tree(key, value[key])
		}
		n.loosen(value, result)
		sortCauses(result)
		return result
	case []any:
		result := make([]any, len(value))
		for i, element := range value {
			result[i] = n.tree(key, element)
		}
		return result
	case string:
		return n.text(key, value)
	}
	return value
}

// loosen replaces the version of a list or bookmark by the last write of the sequence before it, because the version of
// a real server also counts writes outside of the sequence.
func (n *normaliser) loosen(value, result map[string]any) {
	switch kind := text(value, "kind"); {
	case strings.HasSuffix(kind, "List"), kind == widgets.list, kind == "Table":
	case text(value, "metadata", "annotations", "k8s.io/initial-events-end") != "":
	default:
		return
	}
	if metadata, ok := result["metadata"].(map[string]any); ok {
		if version, ok := metadata["resourceVersion"].(string); ok {
			metadata["resourceVersion"] = "after " + strings.TrimPrefix(version, "after ")
		}
	}
}

// sortCauses sorts the causes of an error, and removes them from its message, which repeats them. A real server has
// some of them in the random order of a map.
func sortCauses(status map[string]any) {
	causes, _ := valueAt(status, "details", "causes").([]any)
	if len(causes) < 2 {
		return
	}
	slices.SortFunc(causes, func(a, b any) int {
		return cmp.Or(
			cmp.Compare(text(a, "field"), text(b, "field")), cmp.Compare(text(a, "message"), text(b, "message")))
	})
	status["message"], _, _ = strings.Cut(text(status, "message"), ": [")
}

func (n *normaliser) text(key, value string) string {
	switch key {
	case "resourceVersion":
		return n.place(value)
	case "cells":
		if age.MatchString(value) {
			return "an age"
		}
	case "creationTimestamp", "deletionTimestamp":
		return "a time"
	case "uid":
		if uuid.MatchString(value) && n.names[value] == "" && value != noUID {
			return "a uid of a dry run"
		}
	case "continue":
		if value != "" {
			return "a token"
		}
	case "message":
		value = wholePatch.ReplaceAllString(value, "Invalid value: PATCH: ")
		value = wholeObject.ReplaceAllString(value, "Invalid value: OBJECT: ")
		value = currentVersion.ReplaceAllString(value, "current: VERSION")
		value = precondition.ReplaceAllStringFunc(value, func(match string) string {
			parts := precondition.FindStringSubmatch(match)
			return parts[1] + n.place(parts[2]) + parts[3]
		})
		value = oldVersion.ReplaceAllString(value, "too old resource version: VERSION (VERSION)")
	}
	return unstored.ReplaceAllString(n.known.Replace(value), "${1}NAME")
}

// Messages with versions, some of which count the writes of the whole server.
var (
	currentVersion = regexp.MustCompile(`current: \d+`)
	precondition   = regexp.MustCompile(`(ResourceVersion in ` +
		`(?:the precondition \(|record \(|object meta: ))(\d+)(\)?)`)
	wholeObject = regexp.MustCompile(`Invalid value: "\{.*\}": `)
	wholePatch  = regexp.MustCompile(`Invalid value: "map\[.*\]": `)
	oldVersion  = regexp.MustCompile(`too old resource version: \d+ \(\d+\)`)
)
