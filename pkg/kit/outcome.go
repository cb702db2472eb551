package kit

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// A Sync brings one object in line with its spec. key has the name of the object, which may not exist any more. A Queue
// never calls it twice at once for one key. Running it again must change nothing. ctx ends 10 s after the stop of the
// process; its logger adds the key to each line.
type Sync func(ctx context.Context, key cache.ObjectName) Outcome

// An Outcome is what a Queue does with a key after a sync. Done, Retry, Wait and Terminal make one, whose fields may be
// changed. What the status of the object reports is another question.
type Outcome = reconcile.Outcome

// chosenByQueue as Outcome.After is the delay of Retry.
const chosenByQueue time.Duration = -1

// Done is the outcome of a sync after which nothing is left to do, or a watch event will come when something is.
func Done() Outcome { return Outcome{Kind: reconcile.Done} }

// Retry is the outcome of a sync that failed. The Queue chooses its delay: 5 ms, doubled with each failure in a
// row, up to a minute. If reconcile.IsConflict(err), the failure is an expected one.
func Retry(err error) Outcome {
	return Outcome{Kind: reconcile.Retry, After: chosenByQueue, Err: err, Expected: reconcile.IsConflict(err)}
}

// Wait is the outcome of a sync after which time must pass, and perhaps no watch event will come. It does not end a
// series of failures.
func Wait(after time.Duration) Outcome { return Outcome{Kind: reconcile.Wait, After: after} }

// Terminal is the outcome of a sync that no retry can help, only a change of an object.
func Terminal() Outcome { return Outcome{Kind: reconcile.Terminal} }
