package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Record takes the answer to a step that Next returned. now is when the answer came: delays begin then. It returns the
// event to send, or nil.
func (s *Sync) Record(step *Step, reply Reply, now time.Time) *Event {
	s.answeredAt = now
	s.requests++
	switch {
	case step.IsRead() && reply.Err != nil: // The write that it was for cannot be sent.
		s.readErr = s.withContext(step.Op, reply.Err)
		s.fail(step.For, step.Rule, s.readErr, false)
	case step.IsRead() && s.isAboutObject(step):
		s.recordObject(step, reply.Object)
	case step.IsRead():
		s.hadChildren = s.hadChildren || step.slot.get() != nil // Also if it is gone now.
		step.slot.set(reply.Object)
		s.fresh = append(s.fresh, step.Op)
	default:
		return s.recordWrite(step, reply)
	}
	return nil
}

// recordObject: a live object with the same spec replaces the cached one. With any other the sync ends: the cache lags,
// and the key comes back when it has caught up. An answer that brings no event, such as that of a proxy or of another
// cluster, must not be the last one: so the key comes back in any case.
func (s *Sync) recordObject(step *Step, live metav1.Object) {
	if live == nil || live.GetUID() != s.object.GetUID() || live.GetGeneration() != s.object.GetGeneration() ||
		(live.GetDeletionTimestamp() == nil) != (s.object.GetDeletionTimestamp() == nil) {
		s.end = new(WaitFor(CacheStale, longestDelay))
		if len(s.failures) > 0 {
			s.endEarly(NextStep, firstDelay)
		}
		return
	}
	step.slot.set(live)
	s.object, s.fresh = live, append(s.fresh, step.Op)
}

// recordWrite takes the answer to a write. A write ends the freshness of what was read before it.
func (s *Sync) recordWrite(step *Step, reply Reply) *Event {
	s.fresh = nil
	switch err := reply.Err; {
	case err == nil:
		s.succeeded(step.Op)
		return s.recordDone(step, reply.Object)
	case step.Verb == Delete && isGone(err, step.Name): // Somebody else has deleted it.
		s.succeeded(step.Op)
		s.recordDone(step, nil)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && step.Namespace == s.object.GetNamespace():
		// The object is about to be deleted too. If another API server has answered, which lags, it is not.
		after := longestDelay
		for _, f := range s.failures {
			after = min(after, s.left(s.memory.Ledger[f.op].Failed.Until))
		}
		s.endEarly(Backoff, after)
	default:
		s.recordFailedWrite(step, err)
	}
	return nil
}

// recordDone takes the answer to a write that was done. Something may have changed the object on its way in, or may
// keep undoing what was written.
func (s *Sync) recordDone(step *Step, obj metav1.Object) (event *Event) {
	event = step.Event
	if step.want != nil {
		s.countOnly(step.Op, digestOf(step.want))
	}
	repeats := s.memory.Ledger[step.Op].Repeated.Count
	switch step.Verb {
	case Create:
		step.slot.set(obj)
		if s.hadChildren {
			s.repeat(step.Op, repeats >= freeRepeats, undone(step, repeats))
		}
		if problem := differs(step); problem != nil {
			patch := step.Op
			patch.Verb = Patch
			s.repeat(patch, true, problem)
		}
	case Patch:
		step.slot.set(obj)
		if s.isAboutObject(step) {
			s.object = obj
		}
		problem := undone(step, repeats)
		if changed := differs(step); changed != nil { // The write has not had its effect.
			problem, event = changed, nil
		}
		s.repeat(step.Op, problem != nil, problem)
	case Delete:
		step.slot.set(nil)
	case UpdateStatus:
		body := digest(step.Body)
		if s.overwritten(step, body) {
			s.repeat(step.Op, repeats >= freeRepeats, nil)
		}
		// What was sent: if the API server stores something else, the status is overwritten from the beginning.
		s.memory.Reported, s.reported = body, true
	}
	s.memory.Wrote = true
	s.done = append(s.done, doneWrite{step.Op, step.Rule})
	return event
}

func differs(step *Step) *Problem {
	if step.Differs == nil {
		return nil
	}
	return step.Differs()
}

// undone returns what to report after a write that was needed again so often.
func undone(step *Step, repeats int) *Problem {
	if step.Undone == nil || repeats < freeRepeats {
		return nil
	}
	return step.Undone()
}

// recordFailedWrite: after a conflict the sync ends without a report. After a refusal the rest is still done. When the
// outcome of a write to another object is unknown, the sync ends too, and the key comes back at once, however long the
// write backs off: the next sync reports what the caches then have.
func (s *Sync) recordFailedWrite(step *Step, err error) {
	err = s.withContext(step.Op, err)
	unknown := outcomeUnknown(err)
	attempt := s.fail(step.Op, step.Rule, err, IsConflict(err) && s.memory.Ledger[step.Op].Failed.Count < freeConflicts)
	s.memory.Wrote = s.memory.Wrote || unknown
	if step.Spec {
		e := s.memory.Ledger[step.Op]
		e.Failed.Spec = true
		s.memory.Ledger[step.Op] = e
	}
	switch {
	case attempt.Expected:
		s.endEarly(Backoff, s.left(attempt.Until))
	case unknown && step.Verb != UpdateStatus:
		s.endEarly(NextStep, firstDelay)
	}
}

// endEarly ends the sync without a report. Its failures are still logged.
func (s *Sync) endEarly(reason string, after time.Duration) {
	if len(s.failures) == 0 {
		s.end = new(WaitFor(reason, after))
		return
	}
	s.end = &Outcome{Kind: Retry, After: after, For: reason, Err: s.failure(), Expected: s.allExpected()}
}

// withContext adds to err which operation failed.
func (s *Sync) withContext(op Op, err error) error { return fmt.Errorf("%s: %w", s.text(op), err) }

// failure returns the errors of this sync as one.
func (s *Sync) failure() error {
	var errs []error
	for _, f := range s.failures {
		errs = append(errs, f.err)
	}
	return errors.Join(errs...)
}

// allExpected reports whether all failures of this sync are normal work.
func (s *Sync) allExpected() bool {
	return !slices.ContainsFunc(s.failures, func(f failure) bool { return !f.expected })
}
