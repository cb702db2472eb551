package plan

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// State is one sync of one Foo: what was observed, what is remembered of earlier syncs, and what this sync has
// learned so far. Fill the exported fields, then alternate between Next and Record; Outcome ends it. The objects are
// shared with caches and never changed. One State is for one goroutine.
type State struct {
	// Foo is the cached Foo, which has no deletionTimestamp. A live read replaces it.
	Foo *v1alpha1.Foo
	// Deployment is the one that Foo names, or nil. Live reads and writes replace it.
	Deployment *appsv1.Deployment
	// Previous are the other Deployments that Foo controls, in any order. Foo named them before, or somebody has copied
	// its Deployment. A sync considers MaxPrevious of them.
	Previous []*appsv1.Deployment
	// OwnerChain explains a naming conflict. Its first Foo controls Deployment. Each next Foo controls the Deployment that
	// the Foo before it names. If the last one is Foo itself, the Foos form a cycle. The chain is empty if Deployment is
	// Foo's own, or its owner is gone.
	OwnerChain []*v1alpha1.Foo
	// FirstClaimant is the first, by CompareAge, of the Foos that name the same Deployment and for which Claims is true.
	// It may be Foo itself, or nil.
	FirstClaimant *v1alpha1.Foo
	// CacheStale means that a cache lacks, for longer than a minute, a version that is known to exist. Live reads of the
	// Foo and its Deployment come before the first write.
	CacheStale bool
	// Now is when this sync began.
	Now time.Time
	// Jitter is the random part of the delays of this sync, in [0, 1).
	Jitter float64
	// Memory is what is remembered of the Foo, as Memory.For returned it. Keep it for the next sync after Outcome.
	Memory Memory

	// choice is what this sync considers of Previous. Ask considered for it.
	choice choice
	// answeredAt is when the last answer came.
	answeredAt time.Time
	// fresh has the objects that were read live after the last write.
	fresh struct{ foo, deployment bool }
	// blocked are the operations that are needed but must wait for the end of their backoff. terminal means that only a
	// change of an object can help. The last call of Next has set both.
	blocked  []Op
	terminal bool
	// failures are the operations that failed in this sync.
	failures []failure
	// readErr is the error of a live read that the API server refused. Nothing else is read then.
	readErr error
	// createRefused means that a create was refused, and that its name has not been read since.
	createRefused bool
	// warning is an event for a person who installed the controller, or nil.
	warning *Event
	// done are the writes of this sync that succeeded.
	done []Op
	// reported means that the status was written.
	reported bool
	// end is set when the sync ends early, before all rules were considered.
	end *Outcome
}

// A rule returns the steps that it wants, in order. When it is final, the rules behind it do not count. A rule is named
// after what it does or, when it sends nothing, after the situation.
type rule struct {
	name  string
	wants func(*State) (steps []*Step, final bool)
	// event, unless nil, returns the event of a step. Only the step that is sent needs one.
	event func(*State, *Step) *Event
	// terminal means that only a change of an object, not a retry, can take the Foo beyond this rule.
	terminal bool
}

// rules are read from top to bottom, up to the first final one. A step that backs off is skipped. After the last step
// comes the status, unless the sync ends early.
var rules = []rule{
	{name: "paused", wants: (*State).paused},
	{name: "invalid", wants: (*State).invalid, terminal: true},

	{name: "read refused name", wants: (*State).readRefusedName},
	{name: "delete not serving", wants: (*State).deleteNotServing, event: (*State).previousDeleted},

	// No Deployment has the name.
	{name: "name reserved", wants: (*State).nameReserved, terminal: true},
	{name: "create", wants: (*State).create},
	// One has it that is not the Foo's, or that is about to be gone.
	{name: "name conflict", wants: (*State).nameConflict, terminal: true},
	{name: "wait for deletion", wants: (*State).waitForDeletion},
	// It is the Foo's.
	{name: "patch drift", wants: (*State).patchDrift},
	{name: "delete replaced", wants: (*State).deleteReplaced, event: (*State).moved},
}

// Next returns the next request to send, nil when none is left. Send it and give the answer to Record before you call
// Next again: Next decides on the answers, and enters what it finds about backoffs into the State.
func (s *State) Next() *Step {
	if s.end != nil || s.reported {
		return nil
	}
	s.blocked, s.terminal = nil, false
	stopped := false
	for _, rule := range rules {
		steps, final := rule.wants(s)
		if step := s.firstRequest(&rule, steps); step != nil || s.end != nil {
			return step
		}
		if stopped = final; stopped {
			s.terminal = rule.terminal
			break
		}
	}
	if !stopped && len(s.blocked) == 0 {
		s.Memory.StaleDeployment = false // The Deployment needs no write: the one without an answer was done.
	}
	return s.firstRequest(&rule{name: "update status"}, s.updateStatus())
}

// firstRequest returns the request for the first of steps that does not back off, or nil. It is nil too when the sync
// has ended, see requestFor.
func (s *State) firstRequest(rule *rule, steps []*Step) *Step {
	for _, step := range steps {
		request := s.requestFor(step)
		if request != nil {
			request.Rule = rule.name
		}
		if request == step && rule.event != nil {
			request.Event = rule.event(s, step)
		}
		if request != nil || s.end != nil {
			return request
		}
	}
	return nil
}

// requestFor returns the request to send for step: step itself, or a live read that it needs first. It returns nil and
// notes step in blocked when step backs off.
//
// It ends the sync when step backs off because of a conflict, or was done in this very sync and is needed again: a
// status that is written now could be wrong. The status itself may wait for its backoff.
func (s *State) requestFor(step *Step) *Step {
	read := s.nextLiveRead(step)
	if attempt := s.obstacle(step, read); attempt != nil {
		s.blocked = append(s.blocked, step.Op)
		if attempt.Expected && step.Verb != UpdateStatus {
			s.endEarly(Backoff, s.left(attempt))
		}
		return nil
	}
	if slices.Contains(s.done, step.Op) {
		s.endEarly(NextStep, firstDelay)
		return nil
	}
	if read != nil {
		return read
	}
	return step
}

// endEarly ends the sync without a report. Its failures are still logged.
func (s *State) endEarly(reason WaitReason, after time.Duration) {
	if len(s.failures) == 0 {
		s.end = new(WaitFor(reason, after))
		return
	}
	s.end = &Outcome{Kind: Retry, After: after, Reason: reason, Err: s.failure(), Expected: s.allExpected()}
}

// obstacle returns the failed attempt that keeps step from being sent now, or nil. read is the live read that step
// needs first, or nil. A step that cannot be sent at all fails here.
func (s *State) obstacle(step, read *Step) *Attempt {
	if attempt := s.backingOff(step.Op); attempt != nil {
		return attempt
	}
	err := step.missingPrecondition()
	if err == nil && read != nil {
		err = s.readErr
	}
	if err == nil {
		return nil
	}
	attempt := s.fail(step.Op, err, false)
	return &attempt
}

// nextLiveRead returns the live read that must come before step, or nil. Steps that would do harm if the cache were
// stale need live reads.
func (s *State) nextLiveRead(step *Step) *Step {
	foo, deployment := s.liveReadsNeeded(step)
	switch {
	case foo && !s.fresh.foo:
		return &Step{Op: Op{Verb: ReadFoo, Name: s.Foo.Name}, Prepares: step.Op, Foo: s.Foo}
	case deployment && !s.fresh.deployment && validName(s.Foo): // No Deployment can have an invalid name.
		return &Step{Op: Op{Verb: ReadDeployment, Name: s.Foo.Spec.DeploymentName}, Prepares: step.Op, Foo: s.Foo}
	}
	return nil
}

// liveReadsNeeded reports which objects must be read live before step.
func (s *State) liveReadsNeeded(step *Step) (foo, deployment bool) {
	switch {
	case step.isRead():
		return false, false
	case s.CacheStale, s.Memory.StaleFoo, s.Memory.StaleDeployment:
		return true, step.Verb != UpdateStatus || s.readErr == nil // A status reports the read that failed.
	case step.Verb == DeleteDeployment:
		return true, s.Deployment != nil // The replacement may have lost replicas since it was cached.
	case step.Verb == CreateDeployment:
		// If the Foo is gone, the garbage collector would delete what we create, and we would create it again, in a
		// loop. Only a Foo that never had a Deployment needs no read.
		return s.hadDeployment(), false
	case step.Verb == PatchDeployment:
		// The Deployment was written for a newer spec than the cached one, and a patch would undo that. If the live
		// Foo has no newer spec, the label with the generation is wrong, and is patched.
		return max(generationOf(s.Deployment), s.newestWrittenGeneration()) > s.Foo.Generation, false
	}
	return false, false
}

// latest returns the time of the last answer, or of the beginning of the sync.
func (s *State) latest() time.Time {
	if s.answeredAt.After(s.Now) {
		return s.answeredAt
	}
	return s.Now
}

// validName reports whether a Deployment can have the name that foo gives it.
func validName(foo *v1alpha1.Foo) bool {
	return len(validation.IsDNS1123Subdomain(foo.Spec.DeploymentName)) == 0
}
