package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A TerminalError cannot be mended by trying again: only a change of the Foo or of what it met helps,
// and a watch event tells of that. Reason and Message go into the Foo's conditions.
type TerminalError struct {
	Reason  string
	Message string
	// Unseen says that no watch event may ever tell of a change: the error rests on a live look, and what
	// that found may be gone before the cache has it. So it is looked at again.
	Unseen bool
	// Passing says that what stands in the way is going away by itself.
	Passing bool
}

func (e *TerminalError) Error() string { return e.Reason + ": " + e.Message }

// A WaitError says that time must pass and that no watch event will tell when it has.
type WaitError struct {
	// After is how long to wait.
	After time.Duration
	// For is what is waited for.
	For WaitReason
	// Err is what the status says meanwhile; nil leaves the status as it is.
	Err error
}

// A WaitReason is what a sync waits for, in words for the log.
type WaitReason string

const (
	// CacheBehind: a cache does not show yet what the controller wrote.
	CacheBehind WaitReason = "the caches to show our own writes"
	// CacheLacksDeployment: a create found the Foo's own Deployment, and the cache does not have it.
	CacheLacksDeployment WaitReason = "the cache to show the Deployment"
	// NextStep: there is more to do, and nothing but the controller itself brings the key back.
	NextStep WaitReason = "the next step"
	// Backoff: the last try failed.
	Backoff WaitReason = "another try"
	// CorrectionBackoff: something else keeps changing what the controller corrects.
	CorrectionBackoff WaitReason = "another correction"
	// CreationBackoff: something else keeps deleting what the controller creates.
	CreationBackoff WaitReason = "another creation"
	// DeletionBackoff: a Deployment that is not needed could not be deleted.
	DeletionBackoff WaitReason = "another deletion"
	// ReportBackoff: something else keeps writing the status.
	ReportBackoff WaitReason = "another report: something else writes this status too"
)

func (e *WaitError) Error() string {
	if e.Err == nil {
		return "wait for " + string(e.For)
	}
	return fmt.Sprintf("wait for %s: %v", e.For, e.Err)
}

func (e *WaitError) Unwrap() error { return e.Err }

// A WriteError says that the API server refused or failed a write to a Deployment.
type WriteError struct {
	// Verb is what was tried: create, patch or delete.
	Verb string
	// Deployment is the name of the Deployment.
	Deployment string
	Err        error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("%s Deployment %s: %v", e.Verb, e.Deployment, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// Kind is one of the four things that can become of a sync; logs and metrics use the same words.
type Kind string

const (
	// Done: nothing is left to do, or a watch event will say when there is.
	Done Kind = "done"
	// Retry: it may go away by itself; the key comes back after a growing pause.
	Retry Kind = "retry"
	// Wait: the key comes back after Outcome.After.
	Wait Kind = "wait"
	// Terminal: trying again cannot help.
	Terminal Kind = "terminal"
)

// Outcome is what the queue does with a key after a sync.
type Outcome struct {
	Kind Kind
	// After is the pause of a Wait.
	After time.Duration
	// Quiet says that the error is part of normal work: it is neither logged as an error nor told in
	// the status.
	Quiet bool
	// Told says that the status tells of the error. A key that failed so need not be left alone until the
	// next try: its status can follow what happens meanwhile.
	Told bool
}

// OutcomeOf decides what follows from the error of a sync; nil is an error that did not happen.
func OutcomeOf(err error) Outcome {
	var wait *WaitError
	var terminal *TerminalError
	var write *WriteError
	switch {
	case err == nil:
		return Outcome{Kind: Done}
	case errors.As(err, &wait):
		return Outcome{Kind: Wait, After: wait.After, Quiet: wait.Err == nil}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Outcome{Kind: Terminal, Quiet: true} // The Foo is about to be deleted too.
	case errors.As(err, &terminal) && !terminal.Unseen:
		return Outcome{Kind: Terminal}
	case stale(err):
		return Outcome{Kind: Retry, Quiet: true}
	default:
		return Outcome{Kind: Retry, Told: terminal != nil || errors.As(err, &write)}
	}
}

// stale reports whether err says that the caches were behind when the write was made. The next try sees
// more.
func stale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || anotherUID(err)
}

// anotherUID reports whether err is the API server's answer to a patch whose uid is not the object's:
// it takes the uid for a change of an immutable field, so the answer is 422 and not 409.
func anotherUID(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// NameMayBeTaken reports whether err, the answer to a create, leaves open that an object of that name
// exists: admission answers before the name is looked at, so a refusal says nothing about it. In a namespace that
// is being deleted that is no matter.
func NameMayBeTaken(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	return apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// Unanswered reports whether err leaves open whether the write that it is the answer to was done: there was
// no answer, or one that says that something broke on the way.
func Unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500
}

// words returns what an error says to the user of a Foo: the API server's own words when it gave an
// answer, and otherwise a constant, since addresses and ports change from try to try.
func words(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "the API server gave no answer"
	}
	return status.Status().Message
}
