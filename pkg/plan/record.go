package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Record takes the answer to a step that Next returned. now is when the answer came: delays begin then.
func (s *State) Record(step *Step, answer Answer, now time.Time) {
	s.answeredAt = now
	switch {
	case step.isRead() && answer.Err != nil:
		s.recordFailedRead(step, answer.Err)
	case step.Verb == ReadFoo:
		s.recordFoo(answer.Foo)
	case step.Verb == ReadDeployment:
		s.recordDeployment(answer)
	default:
		s.recordWrite(step, answer)
	}
}

// recordFailedRead: a refused read counts as a failure of the write that needed it. When the API server does not answer
// at all, no other request would help either, so the whole sync backs off.
func (s *State) recordFailedRead(step *Step, err error) {
	if noAnswer(err) {
		attempt := s.fail(Op{Verb: WholeSync}, withContext(step.Op, err), true)
		s.end = &Outcome{Kind: Retry, After: s.left(&attempt), Reason: Backoff, Err: s.failure()}
		return
	}
	s.readErr, s.createRefused = withContext(step.Op, err), false
	s.fail(step.Prepares, s.readErr, false)
}

// recordFoo: a live Foo with the same spec replaces the cached one. With any other the sync ends: the cache lags, and
// the event that it lacks brings the key back.
func (s *State) recordFoo(live *v1alpha1.Foo) {
	if live == nil || live.UID != s.Foo.UID || live.DeletionTimestamp != nil || live.Generation != s.Foo.Generation {
		s.end = &Outcome{Kind: Done, Reason: CacheStale}
		if len(s.failures) > 0 {
			s.endEarly(NextStep, firstDelay)
		}
		return
	}
	s.Foo, s.fresh.foo = live, true
	s.clearStale()
}

// recordDeployment: what a live read found replaces what the cache has.
func (s *State) recordDeployment(answer Answer) {
	refused := s.createRefused
	s.Deployment, s.OwnerChain, s.fresh.deployment, s.createRefused = answer.Deployment, answer.OwnerChain, true, false
	s.clearStale()
	if refused {
		s.recordRefusedName()
	}
}

// clearStale: once both live reads are done, the cache's versions no longer matter to this sync.
func (s *State) clearStale() {
	if s.fresh.foo && (s.fresh.deployment || !validName(s.Foo)) {
		s.Memory.StaleFoo, s.Memory.StaleDeployment, s.CacheStale = false, false, false
	}
}

// recordRefusedName: a create was refused, and a live read has now found the Deployment of that name, or none.
func (s *State) recordRefusedName() {
	op := Op{Verb: CreateDeployment, Name: s.Foo.Spec.DeploymentName}
	switch {
	case s.Deployment == nil:
		s.endIfExpected(s.attempt(op))
	case Owns(s.Foo, s.Deployment): // The cache does not have it yet.
		s.end = new(WaitFor(CacheStale, firstDelay))
	default: // The create has failed: no event comes when that Deployment is deleted before the cache has it.
		s.Memory.StaleDeployment = false // The state has the live one.
		s.fail(op, s.nameConflictReport(), false)
	}
}

// recordWrite takes the answer to a write. A write ends the freshness of what was read before it.
func (s *State) recordWrite(step *Step, answer Answer) {
	s.fresh.foo, s.fresh.deployment = false, false
	s.countEvent(step.EventAfter(answer))
	switch err := answer.Err; {
	case err == nil && step.Verb == UpdateStatus && !isStored(step.Foo, answer.Foo):
		s.recordDroppedStatus(step)
	case err == nil, step.Verb == DeleteDeployment && isGone(err, step.Name):
		delete(s.Memory.Ledger, step.Op)
		s.recordDone(step, answer)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		s.end = &Outcome{Kind: Terminal} // The Foo is about to be deleted too.
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
		s.removePrevious(step.Deployment)
	case UpdateStatus:
		if s.statusOverwritten() {
			s.repeat(step.Op, s.repeats(step.Op) >= freeRepeats, ConditionError{})
		}
		s.Memory.Reported = digest(&answer.Foo.Status)
		s.reported = true
	}
	s.Memory.Wrote = true
	s.done = append(s.done, step.Op)
}

// recordCreated takes a new Deployment. Something may have changed it on its way in, or may keep deleting it.
func (s *State) recordCreated(op Op, created *appsv1.Deployment) {
	if s.hadDeployment() {
		limited := s.repeats(op) >= freeRepeats
		s.repeat(op, limited, s.recreatedReport(created.Name, limited))
	}
	s.Deployment, s.OwnerChain = created, nil
	if report := s.overriddenReport(nil); report.Reason != "" {
		s.repeat(Op{Verb: PatchDeployment, Name: created.Name}, true, report)
	}
}

// recordFailedWrite: after a conflict, or when the outcome is unknown, the sync ends without a report. After a
// refusal the rest is still done. A refused create is followed by a read of its name.
func (s *State) recordFailedWrite(step *Step, err error) {
	err = withContext(step.Op, err)
	unknown := outcomeUnknown(err)
	expected := isConflict(err) && s.attempt(step.Op).Count < freeConflicts
	attempt := s.fail(step.Op, err, expected)
	s.Memory.Wrote = s.Memory.Wrote || unknown
	if step.Verb == UpdateStatus {
		s.recordFailedStatus(err, attempt)
		return
	}
	if step.Verb != DeleteDeployment && (unknown || expected && attempt.Count > 1) { // The cache is not catching up.
		s.Memory.StaleDeployment = true
	}
	s.createRefused = step.Verb == CreateDeployment && nameMayExist(err)
	switch {
	case unknown:
		s.endEarly(NextStep, firstDelay)
	case !s.createRefused:
		s.endIfExpected(attempt)
	}
}

// recordFailedStatus: the Foo is read live before the next attempt when it may be gone, or the cache does not catch
// up. A status that is not found although the Foo exists cannot be stored at all.
func (s *State) recordFailedStatus(err error, attempt Attempt) {
	notFound := apierrors.IsNotFound(err)
	if outcomeUnknown(err) || notFound || attempt.Expected && attempt.Count > 1 {
		s.Memory.StaleFoo = true
	}
	if notFound && attempt.Count == freeConflicts+1 {
		s.warn(statusNotStored)
	}
	s.endIfExpected(attempt)
}

// recordDroppedStatus: the API server stored another status than it was sent. It would be written again in every sync.
func (s *State) recordDroppedStatus(step *Step) {
	attempt := s.fail(step.Op, withContext(step.Op, errors.New(statusNotStored.Note)), false)
	if attempt.Count == 1 {
		s.warn(statusNotStored)
	}
	s.reported, s.Memory.Wrote = true, true
}

// endIfExpected ends the sync without a report when attempt was a conflict.
func (s *State) endIfExpected(attempt Attempt) {
	if attempt.Expected {
		s.endEarly(Backoff, s.left(&attempt))
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
