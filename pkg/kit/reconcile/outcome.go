package reconcile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/state"
)

// The values of Outcome.Kind. Logs and metrics have the same words, and the functions of the kit that make one the same
// names.
const (
	Done     = "done"     // Nothing is left to do, or a watch event will come when something is.
	Retry    = "retry"    // Something failed, and is tried again.
	Wait     = "wait"     // Time must pass, and perhaps no watch event will come. It does not end a series of failures.
	Terminal = "terminal" // No retry can help, only a change of an object.
)

// What a key waits for, see Outcome.For.
const (
	// CacheStale: a cache does not show what was written or read live.
	CacheStale = "the cache to catch up"
	// NextStep: the outcome of a write is unknown, or an object changed during the sync. The next sync sees more.
	NextStep = "the next step"
	// Backoff: an operation that is needed failed, or was undone by another client, a short time ago.
	Backoff = "the backoff to end"
)

// An Outcome is what a queue does with a key after a sync. What the status of the object reports is another question.
type Outcome struct {
	// Kind is Done, Retry, Wait or Terminal.
	Kind string
	// After is the delay of a retry or a wait. A limit that all keys share may make that of a retry longer.
	After time.Duration
	// For is what the key waits for, a constant. A wait for Backoff needs a token.
	For string
	// Err is why the key comes back, if that is known.
	Err error
	// Expected means that Err is part of normal work. It is not logged as an error, and its retry needs no token, unless
	// six in a row have failed.
	Expected bool
}

// WaitFor is the outcome of a sync after which the key waits for reason.
func WaitFor(reason string, after time.Duration) Outcome {
	return Outcome{Kind: Wait, After: after, For: reason}
}

// ComesBack reports whether the key comes back after a delay.
func (o *Outcome) ComesBack() bool { return o.Kind == Retry || o.Kind == Wait }

// End returns how the sync ended, and what to give to the next one of the object.
func (s *Sync) End() (Outcome, Memory) {
	if s.end != nil {
		return *s.end, s.memory
	}
	s.forgetUnwanted()
	first, waits := s.firstRetry()
	outcome := Outcome{Kind: Done}
	switch {
	case len(s.failures) > 0:
		// An expected failure has ended the sync early, so these are not expected.
		outcome = Outcome{Kind: Retry, After: s.left(first.Until), For: Backoff, Err: s.failure()}
	case waits:
		outcome = WaitFor(Backoff, s.left(first.Until))
		if first.Report != nil {
			outcome.Err = first.Report
		}
	case s.terminal:
		outcome = Outcome{Kind: Terminal}
	}
	return outcome, s.memory
}

// left returns how much is left of a delay: 0 when it has ended during this sync.
func (s *Sync) left(until time.Time) time.Duration { return max(until.Sub(s.Now()), 0) }

// firstRetry returns the attempt whose delay ends first: of those that keep something wanted from being done, and of
// those that the status may report because something keeps undoing them.
func (s *Sync) firstRetry() (first Attempt, found bool) {
	consider := func(attempt Attempt) {
		if attempt.Until.After(s.now) && (!found || attempt.Until.Before(first.Until)) {
			first, found = attempt, true
		}
	}
	for _, e := range s.memory.Ledger {
		if e.Repeated.Report != nil {
			consider(e.Repeated)
		}
	}
	for _, p := range s.problems {
		consider(Attempt{Until: p.until, Report: p.Problem})
	}
	for _, f := range s.failures {
		consider(s.memory.Ledger[f.op].Failed)
	}
	return first, found
}

// The reasons of problems that are not of a rule.
const (
	Refused       = "Refused"       // The API server refuses a request: a quota, a policy, a missing permission.
	RequestFailed = "RequestFailed" // The API server fails or does not answer, which may pass.
)

// A Problem is why an object is not as its spec asks, in the terms of its conditions. When Stalled is set a person must
// act; otherwise the object is Reconciling.
type Problem struct {
	Reason string
	// Message is the present state and its cause. Advice is what to do.
	Message, Advice string
	Stalled         bool
	// Failed means that the message is the cause of a failed request.
	Failed bool
}

func (p *Problem) Error() string { return p.Reason + ": " + p.Message }

// Report returns p for the conditions of an object.
func (p *Problem) Report() state.Report {
	report := state.Report{True: state.Reconciling, Reason: p.Reason, Message: p.Message}
	if p.Stalled {
		report.True = state.Stalled
	}
	if p.Advice != "" {
		report.Message += ". " + p.Advice
	}
	report.Message = Clip(report.Message, MessageLimit)
	return report
}

// problemOf returns what the status reports about err: a problem of its own, or the cause, to which the status adds
// which operation failed.
func problemOf(err error, kind string) *Problem {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem
	}
	reason := Refused
	if mayPass(err) {
		reason = RequestFailed
	}
	return &Problem{Reason: reason, Message: causeOf(err), Advice: adviceOn(err, kind), Failed: true}
}

// What follows sorts the errors that the API server answers with.

// nameIn returns the name of the object that err is about, as an API server has it, or "": a webhook may refuse with
// any code, but names no object. For an answer of somebody else, such as a proxy, client-go fills the name in.
func nameIn(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || isForeign(err) {
		return ""
	}
	return status.Status().Details.Name
}

// isForeign reports whether err is an answer that does not have the form of the API server's: something else, such as a
// proxy, an ingress or a load balancer, may have answered in its place. The API server's own 429 is plain text too, and
// with 5xx it does not matter who failed.
func isForeign(err error) bool {
	var status apierrors.APIStatus
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		!apierrors.IsTooManyRequests(err) && errors.As(err, &status) && status.Status().Code < 500
}

// isGone reports whether err is the API server's answer that the object of this name does not exist.
func isGone(err error, name string) bool { return apierrors.IsNotFound(err) && nameIn(err) == name }

// IsConflict reports whether err shows only that a cache lagged behind the API server: a conflict, or a name that is
// taken or not there. If err joins several errors, all of them must show that.
func IsConflict(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(one error) bool { return !IsConflict(one) })
	}
	conflict := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	return conflict && nameIn(err) != "" || anotherUID(err)
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
// answer, one that means that something broke on the way, or one that is not the API server's. What is outside of the
// cluster refuses with a Problem of the reason Refused.
func outcomeUnknown(err error) bool {
	var problem *Problem
	if errors.As(err, &problem) && problem.Reason == Refused {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || isForeign(err)
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
	case isForeign(err): // The message is client-go's, and names the API server.
		cause = fmt.Sprintf("an answer that does not seem to be the API server's, with code %d", status.Status().Code)
		message = ""
	case apierrors.IsConflict(err):
		cause = "the API server reports a conflict"
		message = versions.ReplaceAllString(message, "")
	}
	if message != "" {
		cause += ": " + message
	}
	return Clip(cause, MessageLimit)
}

// mayPass reports whether a write that failed with err may succeed later without anybody's help.
func mayPass(err error) bool {
	return outcomeUnknown(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err)
}

// TriesAgain is the end of messages about what the controller retries. The longest backoff is a minute. When
// thousands of objects fail, it takes longer.
const TriesAgain = "The controller tries again at least once a minute"

// adviceOn returns what to do about err, the answer to a write.
func adviceOn(err error, kind string) string {
	switch {
	case isForeign(err):
		return TriesAgain + ". If the failure lasts, check what is between the controller and the API server, such as a proxy"
	case mayPass(err):
		return TriesAgain + ". If the failure lasts, check the API server and its admission webhooks"
	case apierrors.IsUnauthorized(err):
		return "Ask an administrator of the cluster to renew the credentials of the controller. " + TriesAgain
	case apierrors.IsForbidden(err):
		return adviceOnForbidden(err.Error(), kind) + ". " + TriesAgain
	case apierrors.IsNotFound(err): // Such as the namespace of a child.
		return "Create what is missing. " + TriesAgain
	}
	return "Change this " + kind + ", or ask an administrator of the cluster to change the policy. " + TriesAgain
}

// adviceOnForbidden returns what to do about a 403. Four things cause it, and only the text of the API server shows
// which one. Nothing but the words of the advice depends on that text.
func adviceOnForbidden(text, kind string) string {
	const orAsk = ", or ask an administrator of the cluster to do it"
	switch {
	case strings.Contains(text, "exceeded quota"):
		return "Raise the quota or delete what uses it" + orAsk
	case strings.Contains(text, "being terminated"): // The namespace of a child.
		return "Create the namespace again when it is gone"
	case strings.Contains(text, "denied "): // Before the next: a policy has words of its own.
		return "Change this " + kind + " or the policy" + orAsk
	case strings.Contains(text, " cannot ") && strings.Contains(text, " resource "):
		return `Ask an administrator of the cluster to give the controller this permission. Its log has the command, as "fix"`
	}
	return "Change the quota, the policy or the permission of the controller" + orAsk
}

const (
	// MessageLimit is how many bytes a condition's message should have at most; its field would take eight times as many.
	MessageLimit = 4096
	// NoteLimit is how many bytes of the note of an event the API server takes.
	NoteLimit = 1024
)

// Clip shortens text to at most limit bytes of valid UTF-8. Other bytes, such as those of a proxy, would be stored as
// something else, and so differ for ever.
func Clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const dots = "..."
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots // The cut may be inside a character.
}
