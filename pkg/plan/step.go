package plan

import (
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
	// WholeSync is no request. Under this verb the ledger has the failures that stop a whole sync: a live read got no
	// answer, or the sync panicked.
	WholeSync Verb = "sync"
)

// An Op is an operation on one object of the Foo's namespace: what backs off after a failure.
type Op struct {
	Verb Verb
	// Name is the name of the object, empty for WholeSync.
	Name string
	// Again marks the second ledger entry of an operation. It counts how often the operation succeeded and
	// something else undid it.
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
	// Prepares is the write that a live read prepares. When the read fails, that write has failed.
	Prepares Op
	// Foo is the Foo of this sync. For UpdateStatus it is a copy with the status to write.
	Foo *v1alpha1.Foo
	// Deployment is the one to create, or the version of it to patch or delete.
	Deployment *appsv1.Deployment
	// Patch is set for PatchDeployment only.
	Patch *Patch
	// Event, unless nil, is to be sent when the write has had its effect, see EventAfter.
	Event *Event
}

// EventAfter returns the event to send after the answer to step, or nil. An event is about something that has
// happened, and the API server may have stored something else than it was sent.
func (step *Step) EventAfter(answer Answer) *Event {
	switch {
	case step.Event == nil, answer.Err != nil:
		return nil
	case step.Verb == UpdateStatus && !isStored(step.Foo, answer.Foo):
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

// An Answer is what the API server returned for a Step.
type Answer struct {
	// Foo is the object that ReadFoo found, or that UpdateStatus wrote. It is nil when ReadFoo found nothing.
	Foo *v1alpha1.Foo
	// Deployment is the object that ReadDeployment found, or that a create or patch wrote. It is nil when
	// ReadDeployment found nothing.
	Deployment *appsv1.Deployment
	// OwnerChain belongs to Deployment in the answer to ReadDeployment, see State.OwnerChain.
	OwnerChain []*v1alpha1.Foo
	// Err is nil when the request was answered with success. A live read that finds nothing is a success.
	Err error
}
