package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Record takes the answer to a step that Next returned. now is when the answer came: delays begin then.
func (s *State) Record(step *Step, answer Answer, now time.Time) {
	s.answeredAt = now
	switch {
	case step.isRead() && answer.Err != nil: // The write that it was for cannot be sent.
		s.readErr = withContext(step.Op, answer.Err)
		s.fail(step.For, s.readErr, false)
	case step.Verb == ReadFoo:
		s.recordFoo(answer.Foo)
	case step.Verb == ReadDeployment:
		s.Deployment, s.Owner, s.fresh.deployment = answer.Deployment, answer.Owner, true
	default:
		s.recordWrite(step, answer)
	}
}

// recordFoo: a live Foo with the same spec replaces the cached one. With any other the sync ends: the cache lags, and
// the key comes back when it has caught up. If the Foo is gone, nothing is left to do.
func (s *State) recordFoo(live *v1alpha1.Foo) {
	if live == nil || live.UID != s.Foo.UID || live.DeletionTimestamp != nil || live.Generation != s.Foo.Generation {
		s.end = &Outcome{Kind: Done, Reason: CacheStale}
		if len(s.failures) > 0 {
			s.endEarly(NextStep, firstDelay)
		}
		return
	}
	s.Foo, s.fresh.foo = live, true
}

// recordWrite takes the answer to a write. A write ends the freshness of what was read before it.
func (s *State) recordWrite(step *Step, answer Answer) {
	s.fresh.foo, s.fresh.deployment = false, false
	switch err := answer.Err; {
	case err == nil, step.Verb == DeleteDeployment && isGone(err, step.Name):
		delete(s.Memory.Ledger, step.Op)
		s.recordDone(step, answer)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The Foo is about to be deleted too. Or the namespace exists again, and this API server does not know that yet.
		s.endEarly(Backoff, longestDelay)
	default:
		s.recordFailedWrite(step, err)
	}
}

// recordDone takes the answer to a write that was done.
func (s *State) recordDone(step *Step, answer Answer) {
	switch step.Verb {
	case CreateDeployment:
		s.recordCreated(step.Op, answer.Deployment)
	case PatchDeployment:
		s.Deployment = answer.Deployment
		report := s.overriddenReport(step.Patch.Fields)
		s.repeat(step.Op, report.Reason != "", report)
	case DeleteDeployment:
		s.Previous = slices.DeleteFunc(slices.Clone(s.Previous), func(dep *Observed) bool {
			return dep.UID == step.Deployment.UID
		})
	case UpdateStatus:
		if s.statusOverwritten() {
			s.repeat(step.Op, s.repeats(step.Op) >= freeRepeats, ConditionError{})
		}
		// What was sent: if the API server stores something else, the status is overwritten from the beginning.
		s.Memory.Reported = digest(&step.Foo.Status)
		s.reported = true
	}
	s.Memory.Wrote = true
	s.done = append(s.done, step.Op)
}

// recordCreated takes a new Deployment. Something may have changed it on its way in, or may keep deleting it.
func (s *State) recordCreated(op Op, created *Observed) {
	if s.hadDeployment() {
		limited, report := s.repeats(op) >= freeRepeats, ConditionError{}
		if limited {
			report = recreatedReport(created.Name)
		}
		s.repeat(op, limited, report)
	}
	s.Deployment, s.Owner = created, s.Foo
	if report := s.overriddenReport(nil); report.Reason != "" {
		s.repeat(Op{Verb: PatchDeployment, Name: created.Name}, true, report)
	}
}

// recordFailedWrite: after a conflict the sync ends without a report. After a refusal the rest is still done. When the
// outcome of a write to a Deployment is unknown, the sync ends too, and the key comes back at once, however long the
// write backs off: the next sync reports what the caches then have.
func (s *State) recordFailedWrite(step *Step, err error) {
	err = withContext(step.Op, err)
	unknown := outcomeUnknown(err)
	attempt := s.fail(step.Op, err, isConflict(err) && s.attempt(step.Op).Count < freeConflicts)
	s.Memory.Wrote = s.Memory.Wrote || unknown
	switch {
	case attempt.Expected:
		s.endEarly(Backoff, s.left(&attempt))
	case unknown && step.Verb != UpdateStatus:
		s.endEarly(NextStep, firstDelay)
	}
}

// withContext adds to err which operation failed.
func withContext(op Op, err error) error { return fmt.Errorf("%s: %w", op, err) }

// failure returns the errors of this sync as one.
func (s *State) failure() error {
	var errs []error
	for _, f := range s.failures {
		errs = append(errs, f.err)
	}
	return errors.Join(errs...)
}

// allExpected reports whether all failures of this sync are normal work.
func (s *State) allExpected() bool {
	return !slices.ContainsFunc(s.failures, func(f failure) bool { return !f.expected })
}
