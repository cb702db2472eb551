package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// ErrLost is the error of Run if the process has led and does not lead any more. It must exit: its gate never opens
// again.
var ErrLost = errors.New("lost the leadership")

// maxRelease is how long the release of the Lease may take.
const maxRelease = 5 * time.Second

// errStopped closes the gate after the work is done.
var errStopped = errors.New("the process stops")

// An Elector takes part in an election. Make it with New, put its Gate into the connection that the controller writes
// with, and call Run once. A nil *Elector is for a process that takes part in no election: it always leads.
type Elector struct {
	lock    *lock
	gate    *gate
	elector *leaderelection.LeaderElector
	config  Config
}

// New returns an Elector. It sends nothing. An error is a mistake in the configuration. The process needs permission to
// get, create and update the Lease.
func New(config Config) (*Elector, error) {
	return newElector(config, namespaceFile)
}

func newElector(config Config, namespaceFile string) (*Elector, error) {
	config, err := config.complete(namespaceFile)
	if err != nil {
		return nil, err
	}
	identity, err := newIdentity()
	if err != nil {
		return nil, err
	}
	leases, err := leaseClient(config.Connection, config)
	if err != nil {
		return nil, err
	}
	e := &Elector{gate: newGate(config.RenewDeadline), config: config}
	e.lock = &lock{
		leases: leases, name: config.Name, identity: identity, describe: config.Namespace + "/" + config.Name,
		duration: config.LeaseDuration, gate: e.gate, log: &report{identity: identity},
	}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, Name: config.Name,
		LeaseDuration: config.LeaseDuration, RenewDeadline: config.RenewDeadline, RetryPeriod: config.RetryPeriod,
		// The gate has both: it opens when the lock has taken the Lease.
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		// client-go would release when a renewal fails, before anything has stopped. Run releases after the work is done.
		ReleaseOnCancel: false,
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Gate returns a connection that refuses writes unless this process leads. It is a transport.WrapperFunc:
//
//	config.Wrap(elector.Gate)
//
// What a standby must write too, such as reviews of tokens and permissions, needs a connection without it.
func (e *Elector) Gate(next http.RoundTripper) http.RoundTripper {
	if e == nil {
		return next
	}
	return &gated{gate: e.gate, next: next}
}

// Healthy returns an error if the leadership was lost, but the process still runs after another renew deadline. It is
// for the liveness probe: the process should have exited.
func (e *Elector) Healthy() error {
	if e == nil {
		return nil
	}
	return e.gate.overdue()
}

// Lease returns where the Lease is. The name is empty if there is no election.
func (e *Elector) Lease() (namespace, name string) {
	if e == nil {
		return "", ""
	}
	return e.config.Namespace, e.config.Name
}

// Run waits until this process leads, and calls lead. The context of lead ends with ctx, or when the leadership is
// lost. While lead finishes its work, the Lease is renewed. When it has returned, Run closes the gate and releases the
// Lease. So lead must return only when nothing of it writes any more, and events have been sent.
//
// Run returns nil if it was asked to stop by ctx, or if lead has returned by itself. It returns an ErrLost if the
// leadership was lost. Then the process must exit, because the gate never opens again.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context)) error {
	if e == nil {
		lead(ctx)
		return nil
	}
	e.lock.log.logger = klog.FromContext(ctx).WithValues("lease", e.lock.describe)
	// Not ended by ctx, but when lead has returned.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.elector.Run(klog.NewContext(renewing, klog.New(nil))) // The lock logs what matters.
	}()
	e.lead(ctx, lead)
	e.gate.closeAndWait(errStopped)
	stop()
	<-stopped
	if reason := e.gate.why(); !errors.Is(reason, errStopped) {
		return fmt.Errorf("%w: %w", ErrLost, reason)
	}
	e.release(ctx)
	return nil
}

// lead calls f when the gate opens.
func (e *Elector) lead(ctx context.Context, f func(ctx context.Context)) {
	select {
	case <-e.gate.opened:
	case <-e.gate.closed: // The Lease was taken, but the answer came too late.
		return
	case <-ctx.Done():
		return
	}
	leading, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-e.gate.closed:
			if reason := e.gate.why(); !errors.Is(reason, errStopped) {
				e.lock.log.lost(reason)
			}
			end(ErrLost)
		case <-leading.Done():
		}
	}()
	f(leading)
}

// release releases the Lease. An error only costs time, so it is logged: the standbys wait for the lease duration.
func (e *Elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(maxRelease, e.config.RenewDeadline/2))
	defer cancel()
	if err := e.lock.release(ctx); err != nil {
		e.lock.log.logger.Error(err, "Did not release the Lease, others wait until it has expired")
	}
}
