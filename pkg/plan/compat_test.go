package plan

// This file gives the tests that were written for the plan before there was package reconcile the names that they use:
// State, Step, Answer, Memory and Outcome. It is an adapter, and decides nothing.

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

type (
	Verb           string
	Kind           string
	WaitReason     string
	Field          = reconcile.Field
	Event          = reconcile.Event
	Explanation    = reconcile.Explanation
	ConditionError = reconcile.Problem
)

const (
	ReadFoo          Verb = "get Foo"
	ReadDeployment   Verb = "get Deployment"
	CreateDeployment Verb = "create Deployment"
	PatchDeployment  Verb = "patch Deployment"
	DeleteDeployment Verb = "delete Deployment"
	UpdateStatus     Verb = "update status of Foo"

	Done, Retry, Wait, Terminal Kind = "done", "retry", "wait", "terminal"

	CacheStale WaitReason = reconcile.CacheStale
	NextStep   WaitReason = reconcile.NextStep
	Backoff    WaitReason = reconcile.Backoff
)

type Op struct {
	Verb  Verb
	Name  string
	Again bool
}

func (op Op) String() string { return string(op.Verb) + " " + op.Name }

var ops = []reconcile.Op{
	{Verb: reconcile.Get, Kind: FooKind.Kind}, {Verb: reconcile.Get, Kind: DeploymentKind.Kind},
	{Verb: reconcile.Create, Kind: DeploymentKind.Kind}, {Verb: reconcile.Patch, Kind: DeploymentKind.Kind},
	{Verb: reconcile.Delete, Kind: DeploymentKind.Kind}, {Verb: reconcile.Update, Kind: FooKind.Kind},
}

func (op Op) real() reconcile.Op {
	for _, real := range ops {
		if real.Request() == string(op.Verb) {
			real.Namespace, real.Name = "default", op.Name
			return real
		}
	}
	panic("no verb " + op.Verb)
}

func opOf(real reconcile.Op) Op {
	if real.Kind == "" {
		return Op{}
	}
	return Op{Verb: Verb(real.Request()), Name: real.Name}
}

type Attempt struct {
	Count    int
	Until    time.Time
	Expected bool
	Report   ConditionError
}

type Memory struct {
	UID        types.UID
	Generation int64
	Ledger     map[Op]Attempt
	Wrote      bool
	Reported   string
}

// For is also done when a sync begins.
func (m Memory) For(foo *v1alpha1.Foo, now time.Time) Memory { return memoryOf(m.real().Of(foo, now)) }

func (m Memory) real() reconcile.Memory {
	real := reconcile.Memory{UID: m.UID, Generation: m.Generation, Wrote: m.Wrote, Reported: m.Reported}
	for op, a := range m.Ledger {
		attempt := reconcile.Attempt{Count: a.Count, Until: a.Until, Expected: a.Expected}
		if a.Report.Reason != "" || a.Report.Message != "" {
			report := a.Report
			report.Failed = report.Reason == reconcile.Refused || report.Reason == reconcile.RequestFailed
			attempt.Report = &report
		}
		if real.Ledger == nil {
			real.Ledger = map[reconcile.Op]reconcile.Entry{}
		}
		e := real.Ledger[op.real()]
		if op.Again {
			e.Repeated = attempt
		} else {
			e.Failed = attempt
		}
		real.Ledger[op.real()] = e
	}
	return real
}

func memoryOf(real reconcile.Memory) Memory {
	m := Memory{UID: real.UID, Generation: real.Generation, Wrote: real.Wrote, Reported: real.Reported}
	add := func(op Op, a reconcile.Attempt) {
		if a == (reconcile.Attempt{}) {
			return
		}
		attempt := Attempt{Count: a.Count, Until: a.Until, Expected: a.Expected}
		if a.Report != nil {
			attempt.Report = *a.Report
			attempt.Report.Failed = false
		}
		if m.Ledger == nil {
			m.Ledger = map[Op]Attempt{}
		}
		m.Ledger[op] = attempt
	}
	for op, e := range real.Ledger {
		again := opOf(op)
		again.Again = true
		add(opOf(op), e.Failed)
		add(again, e.Repeated)
	}
	return m
}

type Outcome struct {
	Kind     Kind
	After    time.Duration
	Reason   WaitReason
	Err      error
	Expected bool
}

func WaitFor(reason WaitReason, after time.Duration) Outcome {
	return Outcome{Kind: Wait, After: after, Reason: reason}
}

type Step struct {
	Op
	Rule, Why  string
	For        Op
	Foo        *v1alpha1.Foo
	Create     *appsv1.Deployment
	Deployment *Observed
	Patch      *Patch
	Update     bool
	Event      *Event
	step       *reconcile.Step
}

func (step *Step) EventAfter(answer Answer) *Event {
	switch {
	case step.Event == nil, answer.Err != nil:
		return nil
	case step.Verb == PatchDeployment && Drift(answer.Deployment, step.Foo) != nil:
		return nil
	}
	return step.Event
}

type Answer struct {
	Foo        *v1alpha1.Foo
	Deployment *Observed
	Owner      *v1alpha1.Foo
	Err        error
}

type State struct {
	Foo        *v1alpha1.Foo
	Deployment *Observed
	Owner      *v1alpha1.Foo
	Previous   []*Observed
	Now        time.Time
	Jitter     float64
	Memory     Memory

	in   *Input
	sync *reconcile.Sync
}

func (s *State) begin() {
	if s.sync != nil {
		return
	}
	s.in = &Input{Foo: s.Foo, Deployment: s.Deployment, Previous: slices.Clone(s.Previous)}
	owner := s.Owner
	s.in.Owner = func(*Observed) *v1alpha1.Foo { return owner }
	s.sync = Foos.Sync(s.in)
	s.sync.Begin(s.Memory.real(), s.Now, s.Jitter)
}

func (s *State) Next() *Step {
	s.begin()
	real := s.sync.Next()
	if real == nil {
		return nil
	}
	step := &Step{
		Op: opOf(real.Op), Rule: real.Rule, Why: real.Why, For: opOf(real.For), Foo: s.in.Foo, Update: real.Spec,
		Event: real.Event, step: real,
	}
	switch real.Verb {
	case reconcile.Create:
		step.Create = real.Body.(*appsv1.Deployment)
	case reconcile.Patch:
		step.Patch = &Patch{Body: real.Patch, Fields: real.Fields}
		step.Deployment = real.Have().(*Observed)
	case reconcile.Delete:
		step.Deployment = real.Have().(*Observed)
	case reconcile.Update:
		step.Foo = real.Body.(*v1alpha1.Foo)
	}
	return step
}

func (s *State) Record(step *Step, answer Answer, now time.Time) {
	s.begin()
	if step.Verb == ReadDeployment && answer.Err == nil {
		owner := answer.Owner
		s.in.Owner = func(*Observed) *v1alpha1.Foo { return owner }
	}
	reply := reconcile.Reply{Err: answer.Err}
	switch {
	case answer.Foo != nil:
		reply.Object = answer.Foo
	case answer.Deployment != nil:
		reply.Object = answer.Deployment
	}
	real := step.step
	if real == nil {
		real = s.sync.Next()
	}
	s.sync.Record(real, reply, now)
	s.Foo, s.Deployment = s.in.Foo, s.in.Deployment
	s.Previous = byName(s.in.Previous)
}

func (s *State) Outcome() Outcome {
	s.begin()
	outcome, memory := s.sync.End()
	s.Memory = memoryOf(memory)
	return Outcome{
		Kind: Kind(outcome.Kind), After: outcome.After, Reason: WaitReason(outcome.For), Err: outcome.Err,
		Expected: outcome.Expected,
	}
}

func (s *State) Explain() []Explanation {
	s.begin()
	return s.sync.Explain()
}

var _ metav1.Object = (*Observed)(nil)
