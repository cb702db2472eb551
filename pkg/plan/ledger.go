package plan

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
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

// A Memory is what is kept of a Foo from one sync to the next. It is a value: State has a copy of its own.
type Memory struct {
	// UID and Generation identify the Foo, and the version of its spec, that the rest is about.
	UID        types.UID
	Generation int64
	// Ledger has the operations that failed or were repeated.
	Ledger map[Op]Attempt
	// Wrote means that a write for this Foo was acknowledged, or may have been done.
	Wrote bool
	// Reported is the digest of the status that was written last, "" when none was.
	Reported string
}

// An Attempt is what the ledger has of one operation.
type Attempt struct {
	// Count is the number of failures, or of repetitions, in a row.
	Count int
	// Until is the end of the delay. The operation is not tried by a sync that begins earlier.
	Until time.Time
	// Expected means that the failure is normal work, such as a conflict: the status does not report it.
	Expected bool
	// Report is what the status reports meanwhile. Its zero value is no report.
	Report ConditionError
}

// For returns what remains of m for foo: nothing for a Foo with another uid, no ledger for another generation. Attempts
// whose delay ended long before now are dropped.
func (m Memory) For(foo *v1alpha1.Foo, now time.Time) Memory {
	if m.UID != foo.UID {
		m = Memory{}
	}
	if m.Generation != foo.Generation {
		m.Ledger = nil
	}
	m.UID, m.Generation = foo.UID, foo.Generation
	m.Ledger = maps.Clone(m.Ledger)
	maps.DeleteFunc(m.Ledger, func(_ Op, attempt Attempt) bool { return now.Sub(attempt.Until) > fadeTime })
	return m
}

// delayAfter returns the delay after a number of attempts: first, doubling to longestDelay, less a random part.
func delayAfter(first time.Duration, attempts int, random float64) time.Duration {
	delay := longestDelay
	if doubled := first << min(attempts-1, 20); doubled < longestDelay {
		delay = doubled
	}
	return delay - time.Duration(math.Round(jitter*random*float64(delay)))
}

// A failure is an operation that failed in this sync.
type failure struct {
	op       Op
	err      error
	expected bool
}

// fail enters a failure of op into the ledger. An operation fails at most once in a sync.
func (s *State) fail(op Op, err error, expected bool) Attempt {
	s.failures = append(s.failures, failure{op: op, err: err, expected: expected})
	attempt := s.attempt(op)
	attempt.Count++
	attempts := attempt.Count
	if isConflict(err) && !expected {
		attempts = max(attempts-freeConflicts, 1)
	}
	attempt.Until = s.latest().Add(delayAfter(firstDelayOf(err, expected), attempts, s.Jitter))
	attempt.Expected = expected
	attempt.Report = reportOf(err)
	s.enter(op, attempt)
	return attempt
}

// repeat enters into the ledger that op succeeded and was needed again because something else had undone it. The next
// time is delayed when limited is true; report is what the status reports until then.
func (s *State) repeat(op Op, limited bool, report ConditionError) {
	op = op.again()
	attempt := s.attempt(op)
	attempt.Count++
	attempt.Until, attempt.Report = s.Now, report
	if limited {
		attempt.Until = s.latest().Add(delayAfter(firstLongDelay, max(attempt.Count-freeRepeats, 1), s.Jitter))
	}
	s.enter(op, attempt)
}

// repeats returns how often op has been repeated.
func (s *State) repeats(op Op) int { return s.attempt(op.again()).Count }

func (s *State) attempt(op Op) Attempt { return s.Memory.Ledger[op] }

func (s *State) enter(op Op, attempt Attempt) {
	if s.Memory.Ledger == nil {
		s.Memory.Ledger = map[Op]Attempt{}
	}
	s.Memory.Ledger[op] = attempt
}

// backingOff returns the attempt whose delay keeps op from being tried in this sync, or nil: of several the one whose
// delay ends last. It compares with the time at which the sync began, so that nothing is tried twice in one sync.
func (s *State) backingOff(op Op) *Attempt {
	var last *Attempt
	for _, entry := range []Op{op, op.again()} {
		if entry.Again && op.Verb == UpdateStatus && !s.statusOverwritten() {
			continue // The status that we wrote last is still there: nobody is undoing it.
		}
		attempt, found := s.Memory.Ledger[entry]
		if found && attempt.Until.After(s.Now) && (last == nil || attempt.Until.After(last.Until)) {
			last = &attempt
		}
	}
	return last
}

// forgetUnwanted drops the failures of operations that were not wanted in this sync. Deletions of what is still owned
// stay: whether they are wanted may change with every pod.
func (s *State) forgetUnwanted() {
	kept := map[Op]bool{}
	for _, op := range s.waiting() {
		kept[op] = true
	}
	for _, dep := range s.Previous {
		kept[Op{Verb: DeleteDeployment, Name: dep.Name}] = true
	}
	maps.DeleteFunc(s.Memory.Ledger, func(op Op, _ Attempt) bool {
		return !op.Again && !kept[op] // A repetition fades with time: it is wanted only now and then.
	})
}

// waiting returns the operations that wait for a retry: those that were wanted and back off, and those that failed in
// this sync.
func (s *State) waiting() []Op {
	ops := slices.Clone(s.blocked)
	for _, f := range s.failures {
		ops = append(ops, f.op)
	}
	return ops
}

// statusOverwritten reports whether somebody else has replaced what the controller wrote of the status last, or has put
// there what cannot be read.
func (s *State) statusOverwritten() bool {
	return s.Memory.Reported != "" && (s.Memory.Reported != digest(&s.Foo.Status) || hasUnreadStatus(s.Foo))
}

// digest returns a few bytes that stand for the controller's part of status. The conditions of others are not in it.
func digest(status *v1alpha1.FooStatus) string {
	ours := *status
	ours.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
		return !slices.Contains(ownConditions, c.Type)
	})
	text, err := json.Marshal(ours)
	if err != nil {
		return "" // Not known.
	}
	hash := sha256.Sum256(text)
	return string(hash[:])
}

// firstDelayOf returns the first delay after err. A refusal lasts until somebody removes its cause.
func firstDelayOf(err error, expected bool) time.Duration {
	if expected || outcomeUnknown(err) {
		return firstDelay
	}
	return firstLongDelay
}
