package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A difference is an accepted difference between the simulated server and the real server, with the reason why it is
// accepted.
type difference struct {
	name, reason string
	// recognises reports whether a difference at one place of two answers is this one.
	recognises func(c comparison, l leaf) bool
}

// A comparison has the answers of two servers to the same operation.
type comparison struct {
	op         operation
	real, fake map[string]any // Normalised.
	leaves     []leaf         // The places where they differ.
}

// accepted are the accepted differences. In a long run each of them must occur.
var accepted = []difference{
	{
		name:   "server-side apply",
		reason: "it is not simulated: the simulated server refuses it as an unknown media type",
		recognises: func(c comparison, l leaf) bool {
			if c.op.contentType == applyPatch {
				return c.fake["code"] == 415.0 && refused(c)
			}
			const also = ", application/apply-patch+yaml"
			return l.path == ".body.message" && c.fake["code"] == 415.0 &&
				strings.Contains(text(c.real, "body", "message"), also) &&
				strings.Replace(text(c.real, "body", "message"), also, "", 1) == text(c.fake, "body", "message")
		},
	},
	{
		name:   "the message for a scale that cannot be decoded",
		reason: "the server of custom resources reports an internal error for a Scale that it cannot decode",
		recognises: func(c comparison, l leaf) bool {
			const stumble = `no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"`
			return l.path == ".body.message" && refused(c) && c.op.kind.custom && c.op.sub == "scale" &&
				l.real == stumble
		},
	},
	{
		name:   "the object of a bookmark, except its version",
		reason: "a real server encodes an empty object of its internal type, in which a number cannot be absent",
		recognises: func(c comparison, l leaf) bool {
			return c.op.watches() && bookmark.MatchString(l.path) && l.real == 0.0 && l.fake == nil && isBookmark(c, l)
		},
	},
}

// ofGoTypes are the accepted differences of Foos that are registered with their Go type.
var ofGoTypes = []difference{
	{
		name: "zeros of a Go type",
		reason: "a Foo is registered as a Go type, whose encoding has all numbers without omitempty, even if no client " +
			"has set them",
		recognises: func(c comparison, l leaf) bool {
			number := strings.HasSuffix(l.path, ".status.replicas") ||
				strings.HasSuffix(l.path, ".status.availableReplicas") || cell.MatchString(l.path)
			return c.op.kind == foos && number && l.real == nil && l.fake == 0.0
		},
	},
	{
		name: "a field of the wrong type in a custom resource",
		reason: "a Go type cannot hold it, so the simulated server refuses it at once; a real server continues, and may " +
			"report other errors first or more of them",
		recognises: func(c comparison, l leaf) bool {
			causes, _ := valueAt(c.fake, "body", "details", "causes").([]any)
			return c.op.kind.custom && refused(c) && len(causes) > 0 &&
				text(causes[0], "reason") == "FieldValueTypeInvalid"
		},
	},
	{
		name: "another kind or version in the body of a custom resource",
		reason: "a Go type is not decoded from it, so the simulated server refuses it at once; a real server continues, " +
			"and may report another error first",
		recognises: func(c comparison, l leaf) bool {
			body := describe(c.op.body)
			return c.op.kind.custom && refused(c) &&
				(strings.Contains(body, `"Bogus"`) || strings.Contains(body, `"bogus/v9"`))
		},
	},
	{
		name: "no deploymentName and no other field in a spec",
		reason: "a Go type does not distinguish an empty spec from a missing one, so the simulated server reports a " +
			"missing spec where a real server reports a missing deploymentName",
		recognises: func(c comparison, l leaf) bool {
			causes, _ := valueAt(c.fake, "body", "details", "causes").([]any)
			realCauses, _ := valueAt(c.real, "body", "details", "causes").([]any)
			lacks := func(field string) func(any) bool {
				return func(cause any) bool {
					return text(cause, "field") == field && text(cause, "reason") == "FieldValueRequired"
				}
			}
			return c.op.kind == foos && refused(c) && slices.ContainsFunc(causes, lacks("spec")) &&
				slices.ContainsFunc(realCauses, lacks("spec.deploymentName"))
		},
	},
}

// refused reports whether both servers refused the operation. Then their states cannot differ afterwards.
func refused(c comparison) bool {
	realCode, _ := c.real["code"].(float64)
	fakeCode, _ := c.fake["code"].(float64)
	return realCode >= 400 && fakeCode >= 400
}

var cell = regexp.MustCompile(`\.rows\[\d+\]\.cells\[\d+\]$`)

var bookmark = regexp.MustCompile(`^\.events\[(\d+)\]\.object\.spec\.replicas$`)

func isBookmark(c comparison, l leaf) bool {
	i, err := strconv.Atoi(bookmark.FindStringSubmatch(l.path)[1])
	events, _ := c.fake["events"].([]any)
	return err == nil && i < len(events) && text(events[i], "type") == "BOOKMARK"
}

// A tally counts what was compared.
type tally struct {
	seed       uint64
	accept     []difference
	mu         sync.Mutex
	sequences  int
	operations int
	repeated   int
	passing    []string // Differences that did not occur again.
	accepted   map[string]int
}

func newTally() *tally {
	return &tally{
		accept:   accepted,
		accepted: map[string]int{},
	}
}

// compareRecords describes the first difference between two records of one sequence that is not accepted.
func compareRecords(sequence []operation, want, have record, t *tally) string {
	n, m := newNormaliser(want), newNormaliser(have)
	var b strings.Builder
	found := 0
	for _, i := range byRelevance(want) {
		op := want.answers[i].op
		c := comparison{op: op, real: n.answer(want.answers[i]), fake: m.answer(have.answers[i])}
		c.leaves = compare("", c.real, c.fake)
		unexplained := slices.DeleteFunc(slices.Clone(c.leaves), func(l leaf) bool { return t.accepts(c, l) })
		if len(unexplained) == 0 {
			continue
		}
		if found++; found > 3 {
			break // Other differences are consequences of the first.
		}
		fmt.Fprintf(&b, "%s\n", op)
		for _, l := range unexplained[:min(len(unexplained), 12)] {
			fmt.Fprintf(&b, "\t%s\n", l)
		}
	}
	t.count(sequence)
	return b.String()
}

// byRelevance returns the answers of a record with the most relevant ones first. Watches come last, and among them
// those of the whole history, because they only show the effects of other operations.
func byRelevance(r record) []int {
	order := indexes(len(r.answers))
	rank := func(i int) int {
		switch {
		case i < r.histories:
			return 2
		case r.answers[i].op.watches():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	return order
}

// accepts reports whether a difference is accepted. It counts accepted ones.
func (t *tally) accepts(c comparison, l leaf) bool {
	for _, d := range t.accept {
		if d.recognises(c, l) {
			t.mu.Lock()
			t.accepted[d.name]++
			t.mu.Unlock()
			return true
		}
	}
	return false
}

// countReplay counts a sequence that must be played again.
func (t *tally) countReplay() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repeated++
}

// countPassing counts a difference that did not occur when its sequence was played again. A real server that is busy
// has a cache that lags, and takes a write that changes nothing although its version is old.
func (t *tally) countPassing(words string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passing = append(t.passing, words)
}

func (t *tally) count(sequence []operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sequences++
	t.operations += len(sequence)
}

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
