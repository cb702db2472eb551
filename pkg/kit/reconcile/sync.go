package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Plan is how the objects of a kind are reconciled. In, the Input, is a struct of what was observed of one object:
// the object, its children, and what else its rules read. The objects in it are shared with caches and never changed;
// its fields are replaced by answers.
type Plan[In any] struct {
	// Object refers to the field of the object, which is not nil.
	Object func(*In) Ref
	// ObservedGeneration returns that of the status of the object. 0 means that nothing was written for it yet, and a
	// negative number that something was, for an unknown generation.
	ObservedGeneration func(*In) int64
	// Clone, unless nil, copies the slices and maps of an Input, for those that play what may follow.
	Clone func(In) In
	// Describe, unless nil, returns what was observed and the status in one line each, for /debug/syncs.
	Describe func(*In) (observed, status string)
	// Rules are read from top to bottom, up to the first final answer. A step that backs off is skipped.
	Rules []Rule[In]
	// Status comes last, also after a final answer, unless the sync ends early. It returns nil if the status is as it must
	// be.
	Status func(*In, *Sync) *Step

	// checked means that New has returned the plan.
	checked bool
}

// New returns a plan that syncs can follow. Like regexp.MustCompile, it is for variables of a package: it panics when p
// lacks a function, or when a rule has no name of its own.
func New[In any](p Plan[In]) *Plan[In] {
	if p.Object == nil || p.ObservedGeneration == nil || p.Status == nil {
		panic("a plan needs Object, ObservedGeneration and Status")
	}
	names := map[string]bool{"": true, statusRule: true}
	for _, rule := range p.Rules {
		if names[rule.Name] || rule.Ask == nil {
			panic(fmt.Sprintf("the rule %q of a plan needs a name of its own, and Ask", rule.Name))
		}
		names[rule.Name] = true
	}
	p.checked = true
	return &p
}

// A Rule is a decision, named after what it does or, when it sends nothing, after the situation. It reads the Input and
// nothing else, and changes nothing.
type Rule[In any] struct {
	Name string
	Ask  func(*In) Answer
	// Terminal means that only a change of an object, not a retry, can take the object beyond a final answer.
	Terminal bool
}

// An Answer of a rule is the steps that it wants, in order, and why. Its zero value wants nothing.
type Answer struct {
	Steps []*Step
	// OnlyOne means that a sync sends one of the steps at most. Those that were refused come last.
	OnlyOne bool
	// Final means that the rules behind it do not count.
	Final bool
	// Why has the facts, for people.
	Why string
	// Problem, unless nil, is what the rule has for the status.
	Problem *Problem

	withObject func(a *Answer, object Ref) // Unless nil, it adds what depends on the object of the sync.
}

// maxRequests is how many requests a sync sends, besides requestsForStep for each step of the first answer of a rule: a
// rule that is never content with the answers must not send for ever.
const maxRequests, requestsForStep = 64, 3

// statusRule is the name of the last rule.
const statusRule = "update status"

// Sync returns a sync, which Begin begins.
func (p *Plan[In]) Sync(in *In) *Sync {
	if !p.checked {
		panic("make the plan with New")
	}
	bound := &planned[In]{Plan: p, in: in}
	return &Sync{plan: bound, object: p.Object(in).slot.get(), hadChildren: p.ObservedGeneration(in) != 0}
}

// A Sync is a conversation about one object: Next returns the next request, and Record takes its answer, until Next
// returns nil. End ends it. A Sync is for one goroutine.
type Sync struct {
	plan planner
	// object is the object as the cache or the last live read has it.
	object metav1.Object
	// hadChildren means that children may have been created for the object before this sync.
	hadChildren bool

	// now is when this sync began, answeredAt when the last answer came. jitter is the random part of its delays.
	now, answeredAt time.Time
	jitter          float64
	memory          Memory

	// requests is how many were answered. asked is how many rules have answered, and steps how many steps their first
	// answers had.
	requests, asked, steps int
	// fresh has what was read live after the last write.
	fresh []Op
	// problems are those of the rules, and of the operations that are needed but must wait for the end of their backoff.
	// terminal means that only a change of an object can help. The last call of Next has set both.
	problems []found
	terminal bool
	// done are the writes that succeeded, failures the operations that failed.
	done     []doneWrite
	failures []failure
	// readErr is the error of a live read. Nothing else is read then: each read may hang.
	readErr error
	// reported means that the status was written.
	reported bool
	// end is set when the sync ends early, before all rules were considered.
	end *Outcome
}

// A planner is a Plan with an Input.
type planner interface {
	describe() (observed, status string)
	object() Ref
	observedGeneration() int64
	rules() int
	name(rule int) (name string, terminal bool)
	ask(rule int) Answer
	status(s *Sync) *Step
	clone() planner
}

type planned[In any] struct {
	*Plan[In]
	in *In
}

func (p *planned[In]) object() Ref               { return p.Object(p.in) }
func (p *planned[In]) observedGeneration() int64 { return p.ObservedGeneration(p.in) }
func (p *planned[In]) rules() int                { return len(p.Rules) }
func (p *planned[In]) name(rule int) (string, bool) {
	return p.Rules[rule].Name, p.Rules[rule].Terminal
}
func (p *planned[In]) ask(rule int) Answer {
	a := p.Rules[rule].Ask(p.in)
	if a.withObject == nil {
		return a
	}
	completed := new(a)
	a.withObject(completed, p.Object(p.in))
	return *completed
}
func (p *planned[In]) status(s *Sync) *Step { return p.Status(p.in, s) }

func (p *planned[In]) clone() planner {
	in := *p.in
	if p.Clone != nil {
		in = p.Clone(in)
	}
	return &planned[In]{Plan: p.Plan, in: &in}
}

func (p *planned[In]) describe() (observed, status string) {
	if p.Describe == nil {
		return "", ""
	}
	return p.Describe(p.in)
}

// A doneWrite is a write that has succeeded, and its rule.
type doneWrite struct {
	op   Op
	rule string
}

// found is a problem of a rule. If it is of an operation that backs off, until is when that ends.
type found struct {
	op    Op
	until time.Time
	*Problem
}

// Begin begins the sync. memory is what the last sync of the object has left, random is in [0, 1).
func (s *Sync) Begin(memory Memory, now time.Time, random float64) {
	s.memory, s.now, s.jitter = memory.Of(s.object, now), now, random
	s.hadChildren = s.hadChildren || s.memory.Wrote
}

// Object is the object as the cache or the last live read has it.
func (s *Sync) Object() metav1.Object { return s.object }

// Describe returns what was observed and the status in one line each.
func (s *Sync) Describe() (observed, status string) { return s.plan.describe() }

// Next returns the next request to send, nil when none is left. Send it and give the answer to Record before you call
// Next again. Each call begins with the first rule, and decides on the answers so far: after a live read the same write
// is wanted again, or no longer. Next may also end the sync, or note a failure: of a write that cannot be sent.
func (s *Sync) Next() *Step {
	if s.end != nil || s.reported {
		return nil
	}
	step := s.decide(nil)
	if step != nil && s.requests >= maxRequests+requestsForStep*s.steps {
		err := fmt.Errorf("rule %q wants %s after %d requests in one sync: it is never content with the answers",
			step.Rule, s.text(step.Op), s.requests)
		s.end = &Outcome{Kind: Retry, After: longestDelay, For: Backoff, Err: err}
		return nil
	}
	return step
}

// decide asks the rules and returns the first request, or nil. If asked is not nil, it is called after each rule, with
// its answer, and with its request or nil.
func (s *Sync) decide(asked func(rule string, a Answer, request *Step)) *Step {
	s.problems, s.terminal = s.problems[:0], false
	for i := range s.plan.rules() {
		name, terminal := s.plan.name(i)
		a := s.plan.ask(i)
		if i == s.asked {
			s.asked, s.steps = i+1, s.steps+len(a.Steps)
		}
		request := s.firstRequest(name, &a)
		if asked != nil {
			asked(name, a, request)
		}
		if request != nil || s.end != nil {
			return request
		}
		if a.Final {
			s.terminal = terminal
			break
		}
	}
	a := Answer{Why: "the status is as it must be"}
	if step := s.plan.status(s); step != nil {
		a = Answer{Steps: []*Step{step}, Why: step.Why}
	}
	request := s.firstRequest(statusRule, &a)
	if asked != nil {
		asked(statusRule, a, request)
	}
	return request
}

// firstRequest returns the request for the first of the steps that does not back off, or nil. It is nil too when the
// sync has ended, see requestFor.
func (s *Sync) firstRequest(rule string, a *Answer) *Step {
	if a.Problem != nil {
		s.problems = append(s.problems, found{Problem: a.Problem})
	}
	steps := a.Steps
	for _, step := range steps {
		if step.Verb == Create { // Other steps have that of their object.
			step.Namespace = cmp.Or(step.Namespace, s.object.GetNamespace())
		}
	}
	if a.OnlyOne {
		steps = slices.SortedStableFunc(slices.Values(steps), func(a, b *Step) int { // Those that were refused come last.
			return cmp.Compare(s.memory.Ledger[a.Op].Failed.Count, s.memory.Ledger[b.Op].Failed.Count)
		})
	}
	tried := a.OnlyOne && s.tried(rule)
	for _, step := range steps {
		if tried && !s.failedNow(step.Op) {
			failed := s.memory.Ledger[step.Op].Failed // Empty unless it has failed before.
			s.problems = append(s.problems, found{op: step.Op, until: failed.Until, Problem: failed.Report})
			continue
		}
		step.Rule, step.Why = rule, cmp.Or(step.Why, a.Why)
		if request := s.requestFor(step); request != nil || s.end != nil {
			return request
		}
	}
	return nil
}

// tried reports whether a step of the rule was done in this sync, or has failed in it.
func (s *Sync) tried(rule string) bool {
	return slices.ContainsFunc(s.done, func(d doneWrite) bool { return d.rule == rule }) ||
		slices.ContainsFunc(s.failures, func(f failure) bool { return f.rule == rule })
}

// failedNow reports whether op has failed in this sync.
func (s *Sync) failedNow(op Op) bool {
	return slices.ContainsFunc(s.failures, func(f failure) bool { return f.op == op })
}

// requestFor returns the request to send for step: step itself, or a live read that it needs first. It returns nil and
// notes the problem when step backs off.
//
// It ends the sync when step backs off because of a conflict, or was done in this very sync and is needed again: a
// status that is written now could be wrong. The status itself may wait for its backoff.
func (s *Sync) requestFor(step *Step) *Step {
	if step.want != nil {
		step.Confirm = append(step.Confirm, s.plan.object())
		if s.plan.observedGeneration() != s.object.GetGeneration() || s.memory.Ledger[step.Op].Failed.Spec {
			step.Spec, step.Event = true, nil
		}
	}
	read := s.nextLiveRead(step)
	attempt, backsOff := s.backingOff(step)
	if err := s.obstacle(step, read); !backsOff && err != nil {
		attempt, backsOff = s.fail(step.Op, step.Rule, err, false), true
	}
	if backsOff {
		s.problems = append(s.problems, found{op: step.Op, until: attempt.Until, Problem: attempt.Report})
		if attempt.Expected && step.Verb != UpdateStatus {
			s.endEarly(Backoff, s.left(attempt.Until))
		}
		return nil
	}
	if slices.ContainsFunc(s.done, func(d doneWrite) bool { return d.op == step.Op }) {
		s.endEarly(NextStep, firstDelay)
		return nil
	}
	if read != nil {
		return read
	}
	again := s.memory.Ledger[step.Op].Repeated
	if step.Verb == Patch && (again.Report != nil || again.Count >= freeRepeats) {
		step.Event = nil // The status reports it.
	}
	return step
}

// obstacle returns why step cannot be sent at all, or nil. read is the live read that it needs first, or nil.
func (s *Sync) obstacle(step, read *Step) error {
	if err := step.missingPrecondition(); err != nil || read == nil {
		return err
	}
	return s.readErr
}

// nextLiveRead returns the live read that must come before step, or nil: of the objects that it names, of those of
// which a stale version would do harm, and, if the write has failed before, of what it writes. It may have been done,
// or the cache lags, or admission has answered before the API server has checked the name. Everything else rests on uid
// and resourceVersion, and may be repeated.
func (s *Sync) nextLiveRead(step *Step) *Step {
	if step.Verb == Delete ||
		step.Verb == Create && s.hadChildren && metav1.GetControllerOfNoCopy(step.Body) != nil {
		// If the object is gone, the garbage collector would delete what we create, and we would create it again, in a loop.
		// If it has changed, it may need what we delete.
		if read := s.readUnlessFresh(step, s.plan.object()); read != nil {
			return read
		}
	}
	for _, ref := range step.Confirm {
		if read := s.readUnlessFresh(step, ref); read != nil {
			return read
		}
	}
	failed := s.memory.Ledger[step.Op].Failed.Count > 0
	if failed && step.Verb != Delete && !step.Idempotent { // What is gone counts as deleted.
		read := step.Op
		read.Verb = Get
		return s.readUnlessFresh(step, Ref{read, step.slot})
	}
	return nil
}

// kind is that of the object.
func (s *Sync) kind() string { return s.plan.object().read.Kind }

// NameOf is the name of the object of op, with its namespace unless that is the one of the sync's own object.
func (s *Sync) NameOf(op Op) string { return op.nameFrom(s.object.GetNamespace()) }

// text is op for people.
func (s *Sync) text(op Op) string { return op.Request() + " " + s.NameOf(op) }

// isAboutObject reports whether the step reads or writes the object of the sync itself, and not a child.
func (s *Sync) isAboutObject(step *Step) bool {
	object := s.plan.object().read
	return step.Kind == object.Kind && step.Namespace == object.Namespace && step.Name == object.Name
}

func (s *Sync) readUnlessFresh(step *Step, ref Ref) *Step {
	if slices.Contains(s.fresh, ref.read) {
		return nil
	}
	return &Step{Op: ref.read, Rule: step.Rule, Why: step.Why, For: step.Op, slot: ref.slot}
}

// missingPrecondition returns an error unless the object that step writes to has the uid and resourceVersion that the
// request must carry: the API server takes an empty one as no precondition at all.
func (step *Step) missingPrecondition() error {
	if step.Verb == Create || step.UID != "" && step.ResourceVersion != "" {
		return nil
	}
	return &Problem{
		Reason:  Refused,
		Message: step.Kind + ` "` + step.Name + `" has no uid or no resourceVersion, and no write is sent without both`,
		Advice:  TriesAgain, Failed: true,
	}
}

// Now returns the time of the last answer, or of the beginning of the sync.
func (s *Sync) Now() time.Time {
	if s.answeredAt.After(s.now) {
		return s.answeredAt
	}
	return s.now
}

// Clone returns a copy of s that can go on by itself. The Input is copied too; what its fields point to is shared.
func (s *Sync) Clone() *Sync {
	c := *s
	c.plan = s.plan.clone()
	c.memory.Ledger = maps.Clone(s.memory.Ledger)
	c.fresh, c.problems, c.done, c.failures =
		slices.Clone(s.fresh), slices.Clone(s.problems), slices.Clone(s.done), slices.Clone(s.failures)
	return &c
}
