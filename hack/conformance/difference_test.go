package conformance

import (
	"cmp"
	"fmt"
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
				without(text(c.real, "body", "message"), also) == text(c.fake, "body", "message")
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
		reason: "a Go type does not distinguish an empty spec from a missing one, so the simulated server reports a missing " +
			"spec where a real server reports a missing deploymentName",
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

func without(message, part string) string { return strings.Replace(message, part, "", 1) }

// reducedKind finds the kinds of answers that do not have whole objects.
var reducedKind = regexp.MustCompile("^(Table|PartialObjectMetadata.*)$")

// A tally counts what was compared.
type tally struct {
	seed       uint64
	accept     []difference
	mu         sync.Mutex
	sequences  int
	operations int
	repeated   int
	passing    []string // Differences that did not occur again.
	byKind     map[string]int
	byCode     map[string]int
	byMedia    map[string]int
	byEvent    map[string]int
	accepted   map[string]int
}

func newTally() *tally {
	return &tally{
		accept: accepted,
		byKind: map[string]int{}, byCode: map[string]int{}, byMedia: map[string]int{}, byEvent: map[string]int{},
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
	t.count(sequence, want)
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

// countPassing counts a difference that did not occur when its sequence was played again. A real server that is busy has
// a cache that lags, and takes a write that changes nothing although its version is old.
func (t *tally) countPassing(words string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passing = append(t.passing, words)
}

func (t *tally) count(sequence []operation, r record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sequences++
	t.operations += len(sequence)
	for _, op := range sequence {
		t.byKind[op.kind.resource+" "+op.verb]++
	}
	for _, a := range r.answers[r.histories:][:len(sequence)] {
		t.byCode[fmt.Sprintf("%d %s", a.code, text(a.body, "reason"))]++
		t.byMedia[strings.TrimSpace(a.media+" "+reducedKind.FindString(text(a.body, "kind")))]++
		for _, event := range a.events {
			t.byEvent[text(event, "type")]++
		}
	}
}
