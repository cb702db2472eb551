package reconcile

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/kit/state"
)

const (
	// firstDelay is the backoff after a first failure. It doubles up to longestDelay.
	firstDelay = 5 * time.Millisecond
	// firstLongDelay takes its place where a retry helps only after somebody else has acted: after a refusal, and for what
	// something else keeps undoing.
	firstLongDelay = time.Second
	longestDelay   = time.Minute
	// jitter is the part of a delay that is random, so that keys which failed together do not come back together.
	jitter = 0.2
	// fadeTime is how long after its delay an attempt is forgotten.
	fadeTime = 10 * time.Minute

	// freeConflicts is how many conflicts in a row are normal work: a cache may lag, users may edit. One more
	// counts as a refusal, the first one.
	freeConflicts = 3
	// freeRepeats is how often an operation that another client has undone is repeated without a delay: people try things
	// out.
	freeRepeats = 3
)

// A Memory is what is kept of an object from one sync to the next. It is a value: a Sync has a copy of its own.
type Memory struct {
	// UID and Generation identify the object, and the version of its spec, that the rest is about.
	UID        types.UID
	Generation int64
	// Ledger has the operations that failed or were repeated.
	Ledger map[Op]Entry
	// Wrote means that a write for this object was acknowledged, or may have been done.
	Wrote bool
	// Reported is the digest of the status that was written last, "" when none was.
	Reported string
}

// An Entry is what the ledger has of one operation: of its failures, and of how often it has succeeded for this spec.
type Entry struct{ Failed, Repeated Attempt }

// An Attempt is what is known of the failures, or of the successes, of an operation.
type Attempt struct {
	// Count is the number of failures, or of successes, in a row.
	Count int
	// Until is the end of the delay. The operation is not tried by a sync that begins earlier.
	Until time.Time
	// Expected means that the failure is normal work, such as a conflict: the status does not report it.
	Expected bool
	// Spec means that the first failure was of a patch for a new spec: its repetition is no correction.
	Spec bool
	// Report is what the status reports meanwhile, or nil.
	Report *Problem
	// Wanted is a digest of what the writes were for, "" if that depends on the spec alone. Others are not counted.
	Wanted string
}

// Of returns what remains of m for an object: nothing for one with another uid, no ledger for another generation.
// Attempts whose delay ended long before now are dropped.
func (m Memory) Of(obj metav1.Object, now time.Time) Memory {
	if m.UID != obj.GetUID() {
		m = Memory{}
	}
	if m.Generation != obj.GetGeneration() {
		m.Ledger = nil
	}
	m.UID, m.Generation = obj.GetUID(), obj.GetGeneration()
	var ledger map[Op]Entry
	for op, e := range m.Ledger {
		for _, attempt := range []*Attempt{&e.Failed, &e.Repeated} {
			if now.Sub(attempt.Until) > fadeTime {
				*attempt = Attempt{}
			}
		}
		ledger = enter(ledger, op, e)
	}
	m.Ledger = ledger
	return m
}

// enter returns ledger with an entry, which is dropped if it is empty.
func enter(ledger map[Op]Entry, op Op, e Entry) map[Op]Entry {
	switch {
	case e == Entry{}:
		delete(ledger, op)
	case ledger == nil:
		ledger = map[Op]Entry{op: e}
	default:
		ledger[op] = e
	}
	return ledger
}

// delayAfter returns the delay after a number of attempts: first, doubling to longestDelay, less a random part.
func delayAfter(first time.Duration, attempts int, random float64) time.Duration {
	delay := longestDelay
	if doubled := first << min(attempts-1, 20); doubled < longestDelay {
		delay = doubled
	}
	return delay - time.Duration(math.Round(jitter*random*float64(delay)))
}

// A failure is an operation that failed in this sync, and the rule that wanted it.
type failure struct {
	op       Op
	rule     string
	err      error
	expected bool
}

// fail enters a failure of op into the ledger. An operation fails at most once in a sync.
func (s *Sync) fail(op Op, rule string, err error, expected bool) Attempt {
	s.failures = append(s.failures, failure{op: op, rule: rule, err: err, expected: expected})
	e := s.memory.Ledger[op]
	e.Failed.Count++
	attempts := e.Failed.Count
	if IsConflict(err) && !expected {
		attempts = max(attempts-freeConflicts, 1)
	}
	e.Failed.Until = s.Now().Add(delayAfter(firstDelayOf(err, expected), attempts, s.jitter))
	e.Failed.Expected, e.Failed.Report = expected, nil
	if !expected {
		e.Failed.Report = problemOf(err, s.kind())
	}
	s.memory.Ledger = enter(s.memory.Ledger, op, e)
	return e.Failed
}

// repeat enters into the ledger that op succeeded. If it is needed again for the same spec, something has undone it.
// The next time is delayed when limited is true; report is what the status reports until then.
func (s *Sync) repeat(op Op, limited bool, report *Problem) {
	e := s.memory.Ledger[op]
	e.Repeated.Count++
	e.Repeated.Until, e.Repeated.Report = s.now, report
	if limited {
		e.Repeated.Until = s.Now().Add(delayAfter(firstLongDelay, max(e.Repeated.Count-freeRepeats, 1), s.jitter))
	}
	s.memory.Ledger = enter(s.memory.Ledger, op, e)
}

// countOnly drops the repetitions of op that were for something else.
func (s *Sync) countOnly(op Op, wanted string) {
	if e := s.memory.Ledger[op]; e.Repeated.Wanted != wanted {
		e.Repeated = Attempt{Wanted: wanted}
		s.memory.Ledger = enter(s.memory.Ledger, op, e)
	}
}

// succeeded drops the failures of op.
func (s *Sync) succeeded(op Op) {
	e := s.memory.Ledger[op]
	e.Failed = Attempt{}
	s.memory.Ledger = enter(s.memory.Ledger, op, e)
}

// backingOff returns the attempt whose delay keeps step from being tried in this sync, if there is one: of several the
// one whose delay ends last. It compares with the time at which the sync began, so that nothing is tried twice in one
// sync.
func (s *Sync) backingOff(step *Step) (last Attempt, backsOff bool) {
	e := s.memory.Ledger[step.Op]
	last = e.Failed
	// While the status that we wrote last is still there, nobody is undoing it.
	if e.Repeated.Until.After(last.Until) && (step.Verb != UpdateStatus || s.overwritten(step, digest(step.Body))) {
		last = e.Repeated
	}
	return last, last.Until.After(s.now)
}

// overwritten reports whether somebody else has replaced what was written of the status last: it is not there, or it is
// needed again. body is the digest of the status that step writes.
func (s *Sync) overwritten(step *Step, body string) bool {
	reported := s.memory.Reported
	return reported != "" && (reported == body || reported != digest(step.Have()))
}

// forgetUnwanted drops the failures of operations that were not wanted in this sync. Deletions stay until they fade:
// whether they are wanted may change with every pod. So do repetitions, which are wanted only now and then.
func (s *Sync) forgetUnwanted() {
	for op := range s.memory.Ledger {
		wanted := op.Verb == Delete ||
			slices.ContainsFunc(s.problems, func(p found) bool { return p.op == op }) ||
			slices.ContainsFunc(s.failures, func(f failure) bool { return f.op == op })
		if !wanted {
			s.succeeded(op)
		}
	}
}

// Problem returns what there is to report of an operation that has failed before, or nil.
func (s *Sync) Problem(op Op) *Problem { return s.memory.Ledger[op].Failed.Report }

// Undone returns what there is to report of an operation because something else keeps undoing it, while the next
// repetition is delayed, or nil.
func (s *Sync) Undone(op Op) *Problem {
	if repeated := s.memory.Ledger[op].Repeated; repeated.Until.After(s.now) {
		return repeated.Report
	}
	return nil
}

// Blocked calls yield with each operation that is needed, and backs off because it has failed, in the order of the
// rules, and with what there is to report of it.
func (s *Sync) Blocked(yield func(Op, *Problem) bool) {
	for _, p := range s.problems {
		if problem := s.Problem(p.op); problem != nil && !yield(p.op, problem) {
			return
		}
	}
}

// First returns the problem for the status, or nil: the first one of a rule, or of an operation that backs off, in the
// order of the rules. One that no retry ends comes before all others. What something else keeps undoing, and is not
// needed now, comes last.
func (s *Sync) First() *Problem {
	var first *Problem
	for _, p := range s.problems {
		problem := p.Problem
		if failed := s.Problem(p.op); failed != nil {
			problem = failed
		}
		if problem == nil || first != nil && (first.Stalled || !problem.Stalled) {
			continue
		}
		if first = problem; problem.Failed {
			first = new(*problem)
			first.Message = "Cannot " + s.text(p.op) + ": " + problem.Message
		}
	}
	if first != nil {
		return first
	}
	for op := range s.memory.Ledger {
		if undone := s.Undone(op); undone != nil && (first == nil || undone.Message < first.Message) {
			first = undone // In a fixed order.
		}
	}
	return first
}

// digest returns a few bytes that stand for the status of obj, without times, and without the conditions of others. It
// compares JSON as the API server stores it, with sorted keys. It returns "" if obj has no status.
func digest(obj metav1.Object) string {
	encoded, _ := json.Marshal(statusOf(obj)) // Without an encoding there is nothing to decode.
	var status map[string]any
	if json.Unmarshal(encoded, &status) != nil || status == nil {
		return ""
	}
	conditions, _ := status["conditions"].([]any)
	status["conditions"] = slices.DeleteFunc(conditions, func(element any) bool {
		condition, _ := element.(map[string]any)
		delete(condition, "lastTransitionTime")
		kind := condition["type"]
		return kind != state.Ready && kind != state.Reconciling && kind != state.Stalled
	})
	return digestOf(status)
}

// statusOf returns a pointer to the field Status of obj, a pointer to a struct. It returns nil if there is none.
func statusOf(obj metav1.Object) any {
	if field := reflect.ValueOf(obj).Elem().FieldByName("Status"); field.IsValid() {
		return field.Addr().Interface() // A type may have MarshalJSON for pointers only.
	}
	return nil
}

// digestOf returns a few bytes that stand for a value. All that cannot be encoded have the same: they cannot be sent.
func digestOf(value any) string {
	encoded, _ := json.Marshal(value)
	hash := sha256.Sum256(encoded)
	return string(hash[:16]) // That is enough, and it is kept for each object.
}

// firstDelayOf returns the first delay after err. A refusal lasts until somebody removes its cause.
func firstDelayOf(err error, expected bool) time.Duration {
	if expected || outcomeUnknown(err) {
		return firstDelay
	}
	return firstLongDelay
}
