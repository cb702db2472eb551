package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// After is the delay of Wait and Retry. A limit that all Foos share may make that of Retry longer.
	After time.Duration
	// Reason is what the key waits for. Done has one if a live read of the Foo ended the sync: the caller waits until the
	// caches have what was read, unless the Foo was not found.
	Reason WaitReason
	// Err is why the key comes back, if that is known.
	Err error
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
		return Outcome{Kind: Retry, After: s.left(next), Reason: Backoff, Err: s.failure()}
	case next != nil:
		outcome := WaitFor(Backoff, s.left(next))
		if next.Report.Reason != "" {
			outcome.Err = &next.Report
		}
		return outcome
	case s.terminal:
		return Outcome{Kind: Terminal}
	}
	return Outcome{Kind: Done}
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
	first := s.undone(PatchDeployment)
	if first == nil {
		first = s.undone(CreateDeployment)
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
	reason := v1alpha1.ReasonRefused
	if mayPass(err) {
		reason = v1alpha1.ReasonRequestFailed
	}
	return ConditionError{Reason: reason, Message: causeOf(err), Advice: adviceOn(err)}
}

// What follows sorts the errors that the API server answers with.

// isConflict reports whether err means that the cache was behind when the write was made. The next sync sees more.
func isConflict(err error) bool {
	is := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	return is && !isForeignAnswer(err) || anotherUID(err)
}

// IsNotFound reports whether err is the API server's answer that something does not exist. A proxy, an ingress or a
// load balancer may answer with a 404 of its own.
func IsNotFound(err error) bool { return apierrors.IsNotFound(err) && !isForeignAnswer(err) }

// isForeignAnswer reports whether err is an answer that does not have the form of the API server's: something else may
// have answered in its place. The API server's own 429 is plain text too, and with 5xx it does not matter who failed.
func isForeignAnswer(err error) bool {
	var status apierrors.APIStatus
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		!apierrors.IsTooManyRequests(err) && errors.As(err, &status) && status.Status().Code < 500
}

// anotherUID reports whether err is the API server's answer to a patch whose uid is not the object's: it takes the uid
// for a change of an immutable field, so the answer is 422 and not 409.
func anotherUID(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// outcomeUnknown reports whether err leaves open whether the write that it is the answer to was done: there was no
// answer, one that means that something broke on the way, or one that is not the API server's.
func outcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || isForeignAnswer(err)
}

// isGone reports whether err is the API server's answer that there is no Deployment of this name. An admission webhook
// may answer 404 too, but does not name it.
func isGone(err error, name string) bool {
	var status apierrors.APIStatus
	if !IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Name == name
}

// versions are the resourceVersions in the message of a conflict. They are others at each try.
var versions = regexp.MustCompile(`\b: \d+\b`)

// ports are the addresses of the client's side of a connection. The port is another one at each try.
var ports = regexp.MustCompile(`(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.]+\]):\d+->`)

// causeOf returns what the status reports about err: the API server's own message when it gave an answer, and
// otherwise a constant, since addresses and ports change from try to try.
func causeOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "no answer from the API server"
	}
	cause := "refused by the API server"
	if status.Status().Code >= 500 {
		cause = "the API server failed"
	}
	message := ports.ReplaceAllString(strings.TrimRight(status.Status().Message, ". "), "")
	switch {
	case apierrors.IsTooManyRequests(err):
		cause = "the API server has too many requests"
	case isForeignAnswer(err): // The message is client-go's, and names the API server.
		cause = fmt.Sprintf("an answer that does not seem to be the API server's, with code %d", status.Status().Code)
		message = ""
	case apierrors.IsConflict(err):
		cause = "the API server reports a conflict"
		message = versions.ReplaceAllString(message, "")
	}
	if message != "" {
		cause += ": " + message
	}
	return clip(cause, messageLimit)
}

// mayPass reports whether a write that failed with err may succeed later without anybody's help.
func mayPass(err error) bool {
	return outcomeUnknown(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err)
}

// adviceOn returns what to do about err, the answer to a write.
func adviceOn(err error) string {
	switch {
	case isForeignAnswer(err):
		return triesAgain + ". If the failure lasts, check what is between the controller and the API server, such as a proxy"
	case mayPass(err):
		return triesAgain + ". If the failure lasts, check the API server and its admission webhooks"
	case apierrors.IsUnauthorized(err):
		return "Ask an administrator of the cluster to renew the credentials of the controller. " + triesAgain
	case apierrors.IsForbidden(err):
		return adviceOnForbidden(err.Error()) + ". " + triesAgain
	}
	return "Change this Foo, or ask an administrator of the cluster to change the policy. " + triesAgain
}

// adviceOnForbidden returns what to do about a 403. Three things cause it, and only the text of the API server shows
// which one. Nothing but the words of the advice depends on that text.
func adviceOnForbidden(text string) string {
	const orAsk = ", or ask an administrator of the cluster to do it"
	switch {
	case strings.Contains(text, "exceeded quota"):
		return "Raise the quota or delete what uses it" + orAsk
	case strings.Contains(text, "denied "): // Before the next: a policy has words of its own.
		return "Change this Foo or the policy" + orAsk
	case strings.Contains(text, " cannot ") && strings.Contains(text, " resource "):
		return `Ask an administrator of the cluster to give the controller this permission. Its log has the command, as "fix"`
	}
	return "Change the quota, the policy or the permission of the controller" + orAsk
}
