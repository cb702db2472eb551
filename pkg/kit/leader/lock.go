package leader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// releasedSeconds is the duration in a released Lease, as client-go writes it. A holder that somebody has cleared by
// hand leaves another one, so the two can be distinguished.
const releasedSeconds = 1

var (
	errCreated = errors.New("the Lease did not exist, was created, and can be taken later")
	errTooSoon = errors.New("the Lease may be in use")
	// errUnchanged is the error of an update that was accepted, but stored nothing.
	errUnchanged = errors.New("the update has not changed the Lease")
)

// A lock reads and writes the Lease for client-go's LeaderElector. The elector decides when, and the lock refuses what
// would be unsafe: see "What the lock refuses" in the package comment. It is used by one goroutine at a time.
//
// client-go's own LeaseLock does not fit. It hides the resourceVersion, and the record from which the elector sees that
// the Lease has changed has the time in seconds, so that two renewals within a second are one for it.
type lock struct {
	leases         coordinationv1client.LeaseInterface
	name, identity string
	describe       string        // Namespace and name, for logs.
	duration       time.Duration // How long a Lease of another process must not change before it is taken.
	gate           *gate
	log            *report

	lease *coordinationv1.Lease // As last read or written. Nil if it does not exist or was never read.
	seen  moment                // When this version was first seen.
	term  *term                 // The term that we have, or have last tried to begin. Nil before the first attempt.
}

// A term is the time from taking a Lease to losing it. Nobody else writes a Lease with this uid, this acquireTime and
// our identity. So we recognize it also if the answer to our write was lost.
type term struct {
	uid      types.UID
	acquired time.Time // As stored, in microseconds.
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.leases.Get(l.log.context(ctx), l.name, metav1.GetOptions{})
	if err == nil && lease.Name != l.name {
		err = errNoLease
	}
	if isMissing(err, l.name) {
		l.log.succeeded(reading)
		l.observe(nil)
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, l.log.failed(ctx, reading, err)
	}
	l.log.succeeded(reading)
	l.observe(lease)
	// The elector compares the second value to see whether the Lease has changed. Any write counts as a change.
	version := string(lease.UID) + "/" + lease.ResourceVersion
	return resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec), []byte(version), nil
}

// Create implements resourcelock.Interface. It creates a Lease without a holder and returns an error, so that the
// elector does not lead yet: the holder of a Lease that was deleted may still lead.
func (l *lock) Create(ctx context.Context, _ resourcelock.LeaderElectionRecord) error {
	if err := l.usable(); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.name}}
	lease, err := l.leases.Create(l.log.context(ctx), lease, metav1.CreateOptions{})
	if err != nil {
		return l.log.failed(ctx, writing, err)
	}
	l.log.succeeded(writing)
	l.log.created()
	l.observe(lease)
	return errCreated
}

// Update implements resourcelock.Interface. It takes or renews the Lease.
//
// Others must see a renewal, so it must change the Lease. The API server accepts an update that changes nothing, and
// stores nothing. The elector's record has the time at which it began, which may be that of an earlier attempt whose
// answer was lost. So the record gets the time of this attempt, and the answer must have another resourceVersion.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.usable(); err != nil {
		return err
	}
	if wait := l.mustWait(); wait > 0 {
		l.log.waiting(wait, l.duration)
		return errTooSoon
	}
	sent := l.gate.now() // Before it is sent: others may see the renewal long before we get the answer.
	record.RenewTime = metav1.NewTime(sent.wall)
	// The elector has added one, and the API server refuses a number that has become negative.
	record.LeaderTransitions = min(record.LeaderTransitions, math.MaxInt32)
	lease := l.lease.DeepCopy()
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	before := l.term
	l.term = &term{uid: lease.UID, acquired: acquired(lease)}
	lease, err := l.leases.Update(l.log.context(ctx), lease, metav1.UpdateOptions{})
	if isRefusal(err) {
		l.term = before
	}
	if err != nil {
		return l.log.failed(ctx, writing, err)
	}
	l.log.succeeded(writing)
	if lease.Name != l.name {
		return errNoLease
	}
	if lease.ResourceVersion == l.lease.ResourceVersion {
		return errUnchanged
	}
	l.observe(lease)
	if !l.gate.renewed(sent) {
		return l.gate.check()
	}
	l.log.leads()
	return nil
}

// release gives the Lease up, so that a standby can take it at once. The gate must be closed and the elector must have
// returned. Nothing is written if the Lease is not ours, and nothing is sent if we never tried to take it.
func (l *lock) release(ctx context.Context) error {
	if l.term == nil {
		return nil
	}
	for {
		lease, err := l.leases.Get(ctx, l.name, metav1.GetOptions{})
		if isMissing(err, l.name) || err == nil && !l.ours(lease) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the Lease: %w", err)
		}
		lease.Spec = released(transitions(lease))
		_, err = l.leases.Update(ctx, lease, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			continue // A renewal was cancelled, and the server had it already. Or somebody else has written: read again.
		}
		if err != nil {
			return fmt.Errorf("write the Lease: %w", err)
		}
		l.log.released()
		return nil
	}
}

// released returns a Lease that was released.
func released(transitions int32) coordinationv1.LeaseSpec {
	at := metav1.Now()
	return resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: releasedSeconds, LeaderTransitions: int(transitions), AcquireTime: at, RenewTime: at,
	})
}

// observe notes the state of the Lease, nil if it does not exist. A leader whose Lease is not its own any more closes
// its gate.
func (l *lock) observe(lease *coordinationv1.Lease) {
	if lease == nil || l.lease == nil || lease.UID != l.lease.UID || lease.ResourceVersion != l.lease.ResourceVersion {
		l.seen = l.gate.now()
	}
	l.lease = lease
	if l.gate.open() && !l.ours(lease) {
		l.gate.close(notOurs(lease))
		return
	}
	l.log.observed(lease)
}

// notOurs describes why a Lease is not ours.
func notOurs(lease *coordinationv1.Lease) error {
	if lease == nil {
		return errors.New("the Lease was deleted")
	}
	return fmt.Errorf("another client wrote the Lease: holder %q, acquired at %v", holder(lease), acquired(lease).UTC())
}

// usable returns an error when this process may not write the Lease any more.
func (l *lock) usable() error {
	if l.gate.why() != nil {
		return l.gate.check()
	}
	return nil
}

// mustWait returns how long the Lease may not be written yet, if it does not change. The caller sends its
// resourceVersion, so the answer holds for what is stored then.
func (l *lock) mustWait() time.Duration {
	switch {
	case l.lease == nil:
		return l.duration
	case l.ours(l.lease), isReleased(l.lease):
		return 0
	}
	wait := max(l.duration, time.Duration(seconds(l.lease))*time.Second)
	return max(0, wait-l.gate.now().waited(l.seen))
}

// ours reports whether we have written the holder of this Lease, in the term that we have or have tried to begin.
func (l *lock) ours(lease *coordinationv1.Lease) bool {
	return lease != nil && l.term != nil && holder(lease) == l.identity && lease.UID == l.term.uid &&
		acquired(lease).Equal(l.term.acquired)
}

// isReleased reports whether the last holder has released the Lease.
func isReleased(lease *coordinationv1.Lease) bool {
	return holder(lease) == "" && seconds(lease) == releasedSeconds
}

func holder(lease *coordinationv1.Lease) string     { return value(lease.Spec.HolderIdentity) }
func seconds(lease *coordinationv1.Lease) int32     { return value(lease.Spec.LeaseDurationSeconds) }
func transitions(lease *coordinationv1.Lease) int32 { return value(lease.Spec.LeaseTransitions) }

// acquired returns when a Lease was taken, in microseconds as it is stored.
func acquired(lease *coordinationv1.Lease) time.Time {
	return value(lease.Spec.AcquireTime).Truncate(time.Microsecond)
}

// isRefusal reports whether an error is the answer to a request that was not executed. Without an answer, or if the
// server has failed, it may have been.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError
}

// errNoLease is the error of an answer that has no Lease, such as "{}".
var errNoLease = errors.New("the answer has no Lease, so it is not from the API server")

// isMissing reports whether err is the API server's own answer that there is no object of this name.
func isMissing(err error, name string) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name
}

// value returns the value of an optional field, zero if it is absent.
func value[T any](field *T) T {
	if field == nil {
		var zero T
		return zero
	}
	return *field
}

// RecordEvent implements resourcelock.Interface. Changes of the leader are logged, and the Lease has its holder.
func (l *lock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *lock) Describe() string { return l.describe }

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
