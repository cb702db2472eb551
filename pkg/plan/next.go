package plan

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// State is one sync of one Foo. Fill the exported fields, then alternate between Next and Record; Outcome ends it. The
// objects are shared with caches and never changed. One State is for one goroutine.
type State struct {
	// Observed: what the caches have. Live reads and writes of this sync replace it.

	// Foo is the Foo, which has no deletionTimestamp.
	Foo *v1alpha1.Foo
	// Deployment is the one that Foo names, or nil.
	Deployment *Observed
	// Owner is the Foo that controls Deployment, nil if no Foo does, or if the cache does not have it.
	Owner *v1alpha1.Foo
	// Previous are the other Deployments that Foo controls, in any order. Foo named them before, or somebody has copied
	// its Deployment.
	Previous []*Observed
	// Now is when this sync began. Jitter is the random part of its delays, in [0, 1).
	Now    time.Time
	Jitter float64

	// Remembered: what earlier syncs of the Foo have left, as Memory.For returned it. Keep it for the next one after
	// Outcome.

	Memory Memory

	// Learned: what Next and Record have found in this sync.

	// answeredAt is when the last answer came.
	answeredAt time.Time
	// fresh has the objects that were read live after the last write.
	fresh struct{ foo, deployment bool }
	// blocked are the operations that are needed but must wait for the end of their backoff. terminal means that only a
	// change of an object can help. The last call of Next has set both.
	blocked  []Op
	terminal bool
	// done are the writes that succeeded, failures the operations that failed.
	done     []Op
	failures []failure
	// readErr is the error of a live read. Nothing else is read then: each read may hang.
	readErr error
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
	// why returns the facts behind the answer of wants, which has returned these steps. It is for people, and may be nil.
	why func(s *State, steps []*Step) string
	// sends is the verb of its steps, "" for a situation.
	sends Verb
	// terminal means that only a change of an object, not a retry, can take the Foo beyond this rule.
	terminal bool
}

// rules are read from top to bottom, up to the first final one. A step that backs off is skipped. After the last step
// comes the status, unless the sync ends early.
var rules = []rule{
	{name: "paused", wants: (*State).paused, why: (*State).whyPaused},
	{name: "invalid", wants: (*State).invalid, why: (*State).whyInvalid, terminal: true},

	// No Deployment has the name.
	{name: "create", wants: (*State).create, why: (*State).whyCreate, sends: CreateDeployment},
	// One has it that is not the Foo's, or that is about to be gone.
	{name: "name conflict", wants: (*State).nameConflict, why: (*State).whyNameConflict, terminal: true},
	{name: "wait for deletion", wants: (*State).waitForDeletion, why: (*State).whyWaitForDeletion},
	// It is the Foo's.
	{name: "patch drift", wants: (*State).patchDrift, why: (*State).whyPatchDrift, sends: PatchDeployment},
	{name: "delete replaced", wants: (*State).deleteReplaced, why: (*State).whyDeleteReplaced, sends: DeleteDeployment},
}

// statusRule comes after rules, also after a final one.
var statusRule = rule{
	name: "update status", wants: (*State).updateStatus, why: (*State).whyUpdateStatus, sends: UpdateStatus,
}

// allRules are in the order in which they are asked.
var allRules = append(slices.Clip(rules), statusRule)

// Next returns the next request to send, nil when none is left. Send it and give the answer to Record before you call
// Next again. Each call begins with the first rule, and decides on the answers so far: after a live read the same write
// is wanted again, or no longer. Next also enters what it finds about backoffs into the State.
func (s *State) Next() *Step {
	if s.end != nil || s.reported {
		return nil
	}
	return s.decide(func(rule, []*Step, *Step, bool) {})
}

// decide asks the rules and returns the first request, or nil. It calls asked after each rule that it has asked, with
// its steps, and with its request or nil.
func (s *State) decide(asked func(r rule, steps []*Step, request *Step, final bool)) *Step {
	s.blocked, s.terminal = nil, false
	for _, r := range rules {
		steps, final := r.wants(s)
		request := s.firstRequest(r.name, steps)
		asked(r, steps, request, final)
		if request != nil || s.end != nil {
			return request
		}
		if final {
			s.terminal = r.terminal
			break
		}
	}
	steps, _ := statusRule.wants(s)
	request := s.firstRequest(statusRule.name, steps)
	asked(statusRule, steps, request, true)
	return request
}

// firstRequest returns the request for the first of steps that does not back off, or nil. It is nil too when the sync
// has ended, see requestFor.
func (s *State) firstRequest(rule string, steps []*Step) *Step {
	for _, step := range steps {
		request := s.requestFor(step)
		if request != nil {
			request.Rule = rule
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

// nextLiveRead returns the live read that must come before step, or nil.
func (s *State) nextLiveRead(step *Step) *Step {
	foo, deployment := s.liveReadsNeeded(step)
	switch {
	case foo && !s.fresh.foo:
		return &Step{Op: Op{Verb: ReadFoo, Name: s.Foo.Name}, For: step.Op, Foo: s.Foo}
	case deployment && !s.fresh.deployment:
		return &Step{Op: Op{Verb: ReadDeployment, Name: s.Foo.Spec.DeploymentName}, For: step.Op, Foo: s.Foo}
	}
	return nil
}

// liveReadsNeeded reports which objects must be read live before step: those of which a stale version would do harm,
// and, if the write has failed before, the object that it writes. It may have been done, or the cache lags, or
// admission has answered before the API server has checked the name. Everything else rests on uid and
// resourceVersion, and may be repeated.
func (s *State) liveReadsNeeded(step *Step) (foo, deployment bool) {
	failed := s.attempt(step.Op).Count > 0
	switch step.Verb {
	case CreateDeployment:
		// If the Foo is gone, the garbage collector would delete what we create, and we would create it again, in a
		// loop. Only a Foo that never had a Deployment needs no read.
		return s.hadDeployment(), failed
	case PatchDeployment:
		// If the Deployment was written for a newer spec than the cached one, a patch would undo that. If the live Foo has
		// no newer spec, the label with the generation is wrong, and is patched. A correction undoes what somebody has
		// done by hand, perhaps after he has paused or changed the Foo, whose event may be late.
		return !step.Update || s.newestWrittenGeneration() > s.Foo.Generation, failed
	case DeleteDeployment:
		return true, true // The new Deployment may have lost replicas since it was cached.
	}
	return failed, false // A status.
}

// latest returns the time of the last answer, or of the beginning of the sync.
func (s *State) latest() time.Time {
	if s.answeredAt.After(s.Now) {
		return s.answeredAt
	}
	return s.Now
}

// A Verb is a kind of request. Logs and error messages use the same words.
type Verb string

const (
	// ReadFoo and ReadDeployment are live reads: they go to the API server, not to a cache.
	ReadFoo          Verb = "get Foo"
	ReadDeployment   Verb = "get Deployment"
	CreateDeployment Verb = "create Deployment"
	PatchDeployment  Verb = "patch Deployment"
	DeleteDeployment Verb = "delete Deployment"
	UpdateStatus     Verb = "update status of Foo"
)

// An Op is an operation on one object of the Foo's namespace: what backs off after a failure.
type Op struct {
	Verb Verb
	Name string
	// Again marks the second ledger entry of an operation. It counts how often the operation succeeded, and was needed
	// again later.
	Again bool
}

// again returns the op under which the ledger counts repetitions of op.
func (op Op) again() Op {
	op.Again = true
	return op
}

func (op Op) String() string { return string(op.Verb) + " " + op.Name }

// A Step is one request to the API server.
type Step struct {
	Op
	// Rule is the name of the rule that asked for the request, for the log.
	Rule string
	// For is the write that a live read comes before. When the read fails, that write has failed.
	For Op
	// Foo is the Foo of this sync. For UpdateStatus it is a copy with the status to write.
	Foo *v1alpha1.Foo
	// Create is the Deployment to create, Deployment the version of it to patch or delete.
	Create     *appsv1.Deployment
	Deployment *Observed
	// Patch is set for PatchDeployment only.
	Patch *Patch
	// Update means that the patch is for a new generation of the Foo, and not a correction of what somebody has changed.
	Update bool
	// Event, unless nil, is to be sent when the write has had its effect, see EventAfter.
	Event *Event
}

// EventAfter returns the event to send after the answer to step, or nil. An event is about something that has
// happened, and admission may have changed a Deployment on its way in.
func (step *Step) EventAfter(answer Answer) *Event {
	switch {
	case step.Event == nil, answer.Err != nil:
		return nil
	case step.Verb == PatchDeployment && Drift(answer.Deployment, step.Foo) != nil:
		return nil
	}
	return step.Event
}

// isRead reports whether step is a live read.
func (step *Step) isRead() bool { return step.Verb == ReadFoo || step.Verb == ReadDeployment }

// missingPrecondition returns an error unless the object that step writes to has the uid and resourceVersion that the
// request must carry.
func (step *Step) missingPrecondition() error {
	switch step.Verb {
	case PatchDeployment, DeleteDeployment:
		return CheckPreconditions("Deployment", step.Deployment)
	case UpdateStatus:
		return CheckPreconditions("Foo", step.Foo)
	}
	return nil
}

// An Answer is what the API server returned for a Step. Its objects are as Trim returns them.
type Answer struct {
	// Foo is the object that ReadFoo found, or that UpdateStatus wrote. It is nil when ReadFoo found nothing.
	Foo *v1alpha1.Foo
	// Deployment is the object that ReadDeployment found, or that a create or patch wrote. It is nil when
	// ReadDeployment found nothing.
	Deployment *Observed
	// Owner belongs to Deployment in the answer to ReadDeployment, see State.Owner.
	Owner *v1alpha1.Foo
	// Err is nil when the request was answered with success. A live read that finds nothing is a success.
	Err error
}
