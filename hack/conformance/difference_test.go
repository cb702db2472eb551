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

// A difference between apisim and the real server is accepted for a reason.
type difference struct {
	name, reason string
	// recognises says whether what differs at one place of two answers is this.
	recognises func(c comparison, l leaf) bool
}

// A comparison is of what two servers answered to the same operation.
type comparison struct {
	op         operation
	real, fake map[string]any // Normalised.
	leaves     []leaf         // Where they differ.
}

// accepted are all differences that are. None may go unused in a long run.
var accepted = []difference{
	{
		name: "zeros of a Go type",
		reason: "a Foo is registered as a Go type, and encoding it writes numbers without omitempty even when nobody " +
			"set them",
		recognises: func(c comparison, l leaf) bool {
			number := strings.HasSuffix(l.path, ".status.replicas") ||
				strings.HasSuffix(l.path, ".status.availableReplicas")
			return c.op.kind == foos && number && l.real == nil && l.fake == 0.0
		},
	},
	{
		name:   "server-side apply",
		reason: "is not simulated: it is refused as a media type that the server does not know",
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
		name: "a field of the wrong type in a custom resource",
		reason: "a Go type cannot hold it, so it is refused at once; a real server reads on, and may find something " +
			"else to refuse first or more to say about it",
		recognises: func(c comparison, l leaf) bool {
			causes, _ := at(c.fake, "body", "details", "causes").([]any)
			return c.op.kind.custom && refused(c) && len(causes) > 0 &&
				text(causes[0], "reason") == "FieldValueTypeInvalid"
		},
	},
	{
		name: "another kind or version in the body of a custom resource",
		reason: "a Go type is not decoded from it, so it is refused at once; a real server reads on, and may find " +
			"something else to refuse first",
		recognises: func(c comparison, l leaf) bool {
			body := words(c.op.body)
			return c.op.kind.custom && refused(c) &&
				(strings.Contains(body, `"Bogus"`) || strings.Contains(body, `"bogus/v9"`))
		},
	},
	{
		name: "the words for a scale that cannot be read",
		reason: "the server of custom resources stumbles over a Scale that cannot be decoded, and tells of its inner " +
			"life",
		recognises: func(c comparison, l leaf) bool {
			const stumble = `no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"`
			return l.path == ".body.message" && refused(c) && c.op.kind.custom && c.op.sub == "scale" &&
				l.real == stumble
		},
	},
	{
		name: "no deploymentName and no other field in a spec",
		reason: "in a Go type an empty spec and none are the same, so a Foo is told that it lacks a spec where a " +
			"real server tells that the spec lacks a deploymentName",
		recognises: func(c comparison, l leaf) bool {
			causes, _ := at(c.fake, "body", "details", "causes").([]any)
			real, _ := at(c.real, "body", "details", "causes").([]any)
			lacks := func(field string) func(any) bool {
				return func(cause any) bool {
					return text(cause, "field") == field && text(cause, "reason") == "FieldValueRequired"
				}
			}
			return c.op.kind == foos && refused(c) && slices.ContainsFunc(causes, lacks("spec")) &&
				slices.ContainsFunc(real, lacks("spec.deploymentName"))
		},
	},
	{
		name: "an owner reference without a uid",
		reason: "is found wanting in other words by the k8s.io/apimachinery that apisim is built with than by the " +
			"older one of the real server",
		recognises: func(c comparison, l leaf) bool {
			have, _ := at(c.fake, "body", "details", "causes").([]any)
			want, _ := at(c.real, "body", "details", "causes").([]any)
			inside := l.path == ".body.message" || strings.HasPrefix(l.path, ".body.details.causes[")
			return refused(c) && inside && len(have) > 0 && len(compare("", want, inOlderWords(have))) == 0
		},
	},
	{
		name:   "what is in a bookmark besides its version",
		reason: "a real server makes it from an empty object of its internal type, where a number cannot be absent",
		recognises: func(c comparison, l leaf) bool {
			return c.op.watches() && bookmark.MatchString(l.path) && l.real == 0.0 && l.fake == nil && isBookmark(c, l)
		},
	},
}

// inOlderWords returns causes as the apimachinery of the real server tells them.
func inOlderWords(causes []any) []any {
	older := clone(causes).([]any)
	for _, cause := range older {
		if text(cause, "field") == "metadata.ownerReferences[0].uid" {
			set(cause, []string{"field"}, "metadata.ownerReferences.uid")
			set(cause, []string{"reason"}, "FieldValueInvalid")
			set(cause, []string{"message"}, `Invalid value: "": must not be empty`)
		}
	}
	return older
}

// refused says whether both servers refused: then nothing can be different afterwards.
func refused(c comparison) bool {
	real, _ := c.real["code"].(float64)
	fake, _ := c.fake["code"].(float64)
	return real >= 400 && fake >= 400
}

var bookmark = regexp.MustCompile(`^\.events\[(\d+)\]\.object\.spec\.replicas$`)

func isBookmark(c comparison, l leaf) bool {
	i, err := strconv.Atoi(bookmark.FindStringSubmatch(l.path)[1])
	events, _ := c.fake["events"].([]any)
	return err == nil && i < len(events) && text(events[i], "type") == "BOOKMARK"
}

func without(message, part string) string { return strings.Replace(message, part, "", 1) }

// A tally counts what was compared.
type tally struct {
	seed       uint64
	mu         sync.Mutex
	sequences  int
	operations int
	repeated   int
	byKind     map[string]int
	byCode     map[string]int
	byEvent    map[string]int
	accepted   map[string]int
}

func newTally() *tally {
	return &tally{
		byKind: map[string]int{}, byCode: map[string]int{}, byEvent: map[string]int{}, accepted: map[string]int{},
	}
}

// compareRecords returns in words what is different in two records of one sequence and not accepted.
func compareRecords(sequence []operation, want, have record, t *tally) string {
	n, m := newNormaliser(want), newNormaliser(have)
	var b strings.Builder
	found := 0
	for _, i := range tellingFirst(want) {
		op := want.answers[i].op
		c := comparison{op: op, real: n.answer(want.answers[i]), fake: m.answer(have.answers[i])}
		c.leaves = compare("", c.real, c.fake)
		unexplained := slices.DeleteFunc(slices.Clone(c.leaves), func(l leaf) bool { return t.accepts(c, l) })
		if len(unexplained) == 0 {
			continue
		}
		if found++; found > 3 {
			break // The others follow from the first.
		}
		fmt.Fprintf(&b, "%s\n", op)
		for _, l := range unexplained[:min(len(unexplained), 12)] {
			fmt.Fprintf(&b, "\t%s\n", l)
		}
	}
	t.count(sequence, want)
	return b.String()
}

// tellingFirst returns the answers of a record in the order in which they tell what went wrong: watches, and
// among them those of the whole history, only see what other operations did.
func tellingFirst(r record) []int {
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

// accepts says whether a difference is accepted, and counts it then.
func (t *tally) accepts(c comparison, l leaf) bool {
	for _, d := range accepted {
		if d.recognises(c, l) {
			t.mu.Lock()
			t.accepted[d.name]++
			t.mu.Unlock()
			return true
		}
	}
	return false
}

// again counts a sequence that has to be played again.
func (t *tally) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repeated++
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
		for _, event := range a.events {
			t.byEvent[text(event, "type")]++
		}
	}
}
