package leader

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// failureEvery is the time after which a failure that continues is logged again.
const failureEvery = 30 * time.Second

// A report logs one line for each change of the leader, and failures at once and then every 30 s. client-go's elector
// logs each failed attempt, and every start three times, so its own log is discarded. It is used by one goroutine at a
// time.
type report struct {
	logger   klog.Logger // With the name of the Lease.
	identity string

	leader    string    // That was last logged.
	waitingAt time.Time // When waiting was last logged.

	failing  operation // That failed last.
	failures int       // The failures of failing since it last succeeded.
	loggedAt time.Time // When one of them was last logged. Only valid if there are failures.
}

// An operation is what may fail: who may read the Lease may not always write it.
type operation string

const (
	reading operation = "read the Lease"
	writing operation = "write the Lease"
)

// context returns ctx with the logger of the process, so that client-go can log requests. The context of the elector
// has one that discards everything.
func (r *report) context(ctx context.Context) context.Context { return klog.NewContext(ctx, r.logger) }

// observed logs another process that leads now.
func (r *report) observed(lease *coordinationv1.Lease) {
	if lease == nil || holder(lease) == "" || holder(lease) == r.identity || holder(lease) == r.leader {
		return
	}
	r.leader = holder(lease)
	r.logger.Info("Standing by", "leader", r.leader)
}

// leads logs that this process leads now.
func (r *report) leads() {
	if r.leader != r.identity {
		r.leader = r.identity
		r.logger.Info("Became leader", "identity", r.identity)
	}
}

// waiting logs that the Lease cannot be taken for longer than this process would ever have to wait for a copy with its
// own durations: the Lease has a longer one. Nobody holds it, or its holder does not renew it any more.
func (r *report) waiting(remaining, duration time.Duration) {
	if remaining <= duration || time.Since(r.waitingAt) < failureEvery {
		return
	}
	r.waitingAt = time.Now()
	r.logger.Info("The Lease has a long duration, waiting for it", "remaining", remaining.Truncate(time.Second),
		"fix", "delete the Lease if no copy of the controller runs")
}

// lost logs that this process does not lead any more, although it was not asked to stop. It may be called concurrently
// with the other methods.
func (r *report) lost(reason error) {
	r.logger.Info("Lost the leadership", "reason", reason)
}

// created logs that there was no Lease.
func (r *report) created() {
	r.logger.Info("Created the Lease, waiting for its duration before taking it")
}

// released logs that this process has released the Lease.
func (r *report) released() {
	r.logger.Info("Released the Lease")
}

// succeeded logs that the operation is possible again, if it has failed.
func (r *report) succeeded(op operation) {
	if r.failures > 0 && r.failing == op {
		r.logger.Info("The Lease is available again", "failures", r.failures)
		r.failures = 0
	}
}

// failed logs that the Lease could not be read or written, and returns the error. A conflict is part of the election:
// another process was faster.
func (r *report) failed(ctx context.Context, op operation, err error) error {
	if ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return err
	}
	r.failing = op
	r.failures++
	if r.failures == 1 || time.Since(r.loggedAt) >= failureEvery {
		r.loggedAt = time.Now()
		r.logger.Error(fmt.Errorf("%s: %w", op, err), "Leader election failed, trying again", "failures", r.failures)
	}
	return err
}
