package kit

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// A Sync brings one object in line with its spec. key has the name of the object, which may not exist any more. A Queue
// never calls it twice at once for one key. Running it again must change nothing. ctx ends 10 s after the stop of the
// process; its logger adds the key to each line.
type Sync func(ctx context.Context, key cache.ObjectName) Outcome

// The values of Outcome.Kind. Logs and metrics have the same words.
const done, retry, wait, terminal = "done", "retry", "wait", "terminal"

// An Outcome is what a Queue does with a key after a sync. Done, Retry, Wait and Terminal make one, whose fields may be
// changed. What the status of the object reports is another question.
type Outcome struct {
	// Kind is "done", "retry", "wait" or "terminal".
	Kind string
	// After is the delay of a retry or a wait. A limit that all keys share may make that of a retry longer. Backoff as the
	// delay of a retry is 5 ms, doubled with each failure in a row, up to a minute.
	After time.Duration
	// For is what the key waits for. It is a constant, for the log.
	For string
	// Err is why the key comes back, if that is known.
	Err error
	// Expected means that Err is part of normal work. It is not logged as an error, and its retry needs no token, unless
	// six in a row have failed.
	Expected bool
	// AfterFailure means that a wait is for the backoff of an earlier failure to end. Then the key needs a token.
	AfterFailure bool
}

// Backoff as Outcome.After lets the Queue choose the delay of a retry.
const Backoff time.Duration = -1

// Done is the outcome of a sync after which nothing is left to do, or a watch event will come when something is.
func Done() Outcome { return Outcome{Kind: done} }

// Retry is the outcome of a sync that failed. Its delay is Backoff. If IsConflict(err), the failure is an expected one.
func Retry(err error) Outcome {
	return Outcome{Kind: retry, After: Backoff, Err: err, Expected: IsConflict(err)}
}

// Wait is the outcome of a sync after which time must pass, and perhaps no watch event will come. It does not end a
// series of failures.
func Wait(after time.Duration) Outcome { return Outcome{Kind: wait, After: after} }

// Terminal is the outcome of a sync that no retry can help, only a change of an object.
func Terminal() Outcome { return Outcome{Kind: terminal} }

// comesBack reports whether the key comes back after a delay.
func (o *Outcome) comesBack() bool { return o.Kind == retry || o.Kind == wait }

// IsConflict reports whether err shows only that a cache lagged behind the API server: an answer of the API server
// itself that there is a conflict, or that a name is taken or not there. If err joins several errors, all of them must
// show that.
func IsConflict(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(one error) bool { return !IsConflict(one) })
	}
	var status apierrors.APIStatus // A webhook may refuse with such a code, too, but names no object.
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Name == "" {
		return false
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false // A page of a proxy. client-go adds the name, from the request.
	}
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
