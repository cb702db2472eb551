package plan

import (
	"errors"
	"time"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Kind is one of the four ways in which a sync can end; logs use the same words.
type Kind string

const (
	// Done: nothing is left to do, or a watch event will come when something is.
	Done Kind = "done"
	// Retry: something failed; the key comes back after a backoff.
	Retry Kind = "retry"
	// Wait: time must pass, and perhaps no watch event will come; the key comes back after Outcome.After.
	Wait Kind = "wait"
	// Terminal: no retry can help, only a change of an object.
	Terminal Kind = "terminal"
)

// A WaitReason is what a key waits for.
type WaitReason string

const (
	// CacheStale: a cache does not show what was written or read live.
	CacheStale WaitReason = "the cache to catch up"
	// NextStep: the outcome of a write is unknown, or an object changed during the sync. The next sync sees more.
	NextStep WaitReason = "the next step"
	// Backoff: an operation that is needed failed, or was undone by another client, a short time ago.
	Backoff WaitReason = "the backoff to end"
)

// An Outcome is what the queue does with a key after a sync. What the status reports has been written by then, or is
// written after the retry.
type Outcome struct {
	Kind Kind
	// After is the delay of Wait and Retry. A shared limit on retries may make that of Retry longer.
	After time.Duration
	// Reason is what the key waits for. Done has one when the sync ended early: a watch event brings the key back.
	Reason WaitReason
	// Err is why the key comes back, if that is known.
	Err error
	// Event is to be sent about the Foo, or nil. The events that go with a status are those of its Step.
	Event *Event
	// Expected means that Err is part of normal work, such as a conflict, and not logged as an error.
	Expected bool
}

// WaitFor returns the outcome of a sync that waits.
func WaitFor(reason WaitReason, after time.Duration) Outcome {
	return Outcome{Kind: Wait, After: after, Reason: reason}
}

// Outcome returns how the sync ended. It also drops from Memory what is no longer wanted, so keep Memory after it.
func (s *State) Outcome() Outcome {
	if s.end != nil {
		return *s.end
	}
	s.forgetUnwanted()
	next := s.firstRetry()
	switch {
	case len(s.failures) > 0:
		// An expected failure has ended the sync early, so these are not expected.
		return Outcome{Kind: Retry, After: s.left(next), Reason: Backoff, Err: s.failure(), Event: s.warning}
	case next != nil:
		return s.waitUntil(next)
	case s.terminal:
		return Outcome{Kind: Terminal}
	}
	return Outcome{Kind: Done}
}

// waitUntil returns the outcome of a sync that does not try an operation again yet.
func (s *State) waitUntil(attempt *Attempt) Outcome {
	outcome := WaitFor(Backoff, s.left(attempt))
	if attempt.Report.Reason != "" {
		outcome.Err = &attempt.Report
	}
	return outcome
}

// left returns how much is left of the delay of attempt, which may be nil: 0 when it has ended during this sync.
func (s *State) left(attempt *Attempt) time.Duration {
	if attempt == nil {
		return 0
	}
	return max(attempt.Until.Sub(s.latest()), 0)
}

// firstRetry returns the attempt whose delay ends first: of those that keep something wanted from being done, and of
// the one that the status reports. It may return nil.
func (s *State) firstRetry() *Attempt {
	first := s.overridden()
	if first == nil {
		first = s.keepsBeingDeleted()
	}
	for _, op := range s.waiting() {
		if attempt := s.backingOff(op); attempt != nil && (first == nil || attempt.Until.Before(first.Until)) {
			first = attempt
		}
	}
	return first
}

// reportOf returns what the status reports about err: a report of its own, or the cause, to which the status adds which
// operation failed.
func reportOf(err error) ConditionError {
	var report *ConditionError
	if errors.As(err, &report) {
		return *report
	}
	return ConditionError{Reason: v1alpha1.ReasonRefused, Message: causeOf(err), Advice: adviceOn(err)}
}
