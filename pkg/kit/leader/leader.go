// Package leader lets one of several processes write, and the others stand by. Two processes that use it never write
// at the same time, not even while the network fails.
//
// # What a lease is
//
// A Lease is a small object in the API server with the name of its holder. The processes, all with the same flags, try
// to become the holder. The holder renews the Lease every two seconds: it writes the Lease again, so that the others
// see a new resourceVersion. If the others have seen no change for 15 seconds, the holder is gone, and one of them
// takes the Lease. The resourceVersion in its update makes sure that it is only one.
//
// # Why this is not enough
//
// A process that lost its Lease may not know it yet. Its last renewal hangs, or the process was stopped and has just
// continued, and meanwhile another one leads. So an election alone does not prevent two writers. Kubernetes' own
// documentation of the election has the same warning. Therefore:
//
//   - The controller must be correct with two writers: its writes carry the uid and the resourceVersion of what they
//     change, so that the API server refuses those that rest on old data. Leadership saves work, conflicts and log
//     lines. It is not what makes writes safe.
//   - The gate, see below, stops the writes of a process before another one can take the Lease.
//
// # What the gate adds
//
// The gate is a part of the connection that the controller writes with. It refuses POST, PUT, PATCH and DELETE unless
// the process leads, and lets reads and watches pass, so that a standby has warm caches. A renewal keeps the gate open
// until the renew deadline, 10 seconds after the moment at which the request was sent, on the clock of this process.
// Nobody has to notice anything for the gate to close, and requests that are in flight then are cancelled. An update
// that has not changed the Lease does not count, because the others cannot see it. They take the Lease only when they
// have seen the renewal, which was after it was sent, and then no change for 15 seconds:
//
//	leader    sent |---------- gate open, 10 s ----------|
//	standby           seen |------------------- no change, 15 s -------------------| takes the Lease, opens its gate
//
// So the gates of two processes are never open at the same time, provided that their clocks run at about the same
// speed: the clock of a standby must not run more than 1.5 times as fast as that of the leader. The time of day does
// not matter. renewTime in the Lease is for people and is never read.
//
// A gate opens once and closes once. A process that lost the Lease must exit, and is restarted by the kubelet, with
// empty memory and new caches. The alternative is to stand by again in the same process, which means that every part
// of the program must be able to stop and start again, for an event that is rare.
//
// # What the lock refuses
//
// Election is client-go's LeaderElector. It works on a lock, which reads and writes the Lease, and the lock here has
// one rule of its own. It writes a Lease only if
//
//   - it has written this version of the Lease itself, as its holder, or
//   - the holder has released the Lease: no holder, and a duration of one second, as client-go does it, or
//   - it has seen this version for as long as the lease duration, its own or the one in the Lease, the longer one.
//
// This also covers what people do to Leases. If somebody deletes the Lease, clears the holder or enters another one,
// the leader stops when it sees that. Until then its gate is open, so the others wait for the lease duration. A Lease
// that does not exist is created without a holder, and taken after that time. So the first start in a cluster, and a
// start after somebody has deleted the Lease, waits for 15 seconds before it writes.
//
// # How it ends
//
// Run calls a function while the process leads. When the function has returned, because a signal has ended the context
// and the workers have finished, Run closes the gate, and only then releases the Lease, so that a standby can take it
// with its next read. It releases only a Lease of its own. While the workers finish, the Lease is still renewed.
//
// # Limits
//
//   - The gate closes between two instructions. A process that is stopped (SIGSTOP) after the gate has let a request
//     pass, and before the request is on the wire, sends it when it continues. Its precondition makes it harmless.
//   - Answers that take longer than (renew deadline - retry period) / 2, which is 4 seconds, renew nothing. So an
//     outage of more than that may cost the leadership. One of the renew deadline always does.
//   - Cancelling a request does not undo it. A server that has it already may still execute it. client-go sends the
//     timeout of a request to the server, so this is limited too.
//   - The monotonic clock of Linux does not count the time in which a machine is suspended, so the gate also reads the
//     time of day, and closes if either clock shows that the time is over. Setting the clock forward by ten seconds
//     therefore costs the leadership. If the machine is suspended and its clock is set back at the same time, no clock
//     shows it, nor perhaps if the host pauses a virtual machine. What the gate lets pass then, preconditions refuse.
//   - Who may write the Lease can break the rule, by writing a Lease that seems to be released. RBAC limits that.
package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
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
	leases, err := config.leaseClient()
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

// The durations that Kubernetes' own components use.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// namespaceFile has the namespace of the pod, wherever a ServiceAccount is mounted.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ErrNoNamespace means that no namespace was given, and the process does not run in a pod.
var ErrNoNamespace = errors.New("the process does not run in a pod, so there is no default for the namespace")

// Config describes an election. All processes that take part must have the same Name, Namespace and durations.
type Config struct {
	// Connection is how to reach the API server. New copies it, and opens a connection of its own for the Lease. So
	// it may be changed afterwards, and it must not have the gate.
	Connection *rest.Config
	// Name and Namespace are those of the Lease. Without a namespace it is that of the pod in which the process runs.
	Name, Namespace string
	// LeaseDuration is how long others wait after the last renewal that they have seen. Whole seconds, as in the Lease.
	LeaseDuration time.Duration
	// RenewDeadline is how long a renewal allows to write. The difference to LeaseDuration is the margin for clocks that
	// do not run at the same speed.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals, and at most 2.2 times of it is the time between two attempts of a
	// standby to take the Lease.
	RetryPeriod time.Duration
}

// complete returns the configuration with its default namespace, or what is wrong with it.
func (c Config) complete(namespaceFile string) (Config, error) {
	if c.Namespace == "" {
		var err error
		if c.Namespace, err = podNamespace(namespaceFile); err != nil {
			return c, err
		}
	}
	return c, errors.Join(c.checkNames(), c.checkDurations())
}

// PodNamespace returns the namespace of the pod in which the process runs, ErrNoNamespace outside of a pod, or an error
// if it cannot be read.
func PodNamespace() (string, error) { return podNamespace(namespaceFile) }

func podNamespace(file string) (string, error) {
	namespace, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", ErrNoNamespace
	case err != nil:
		return "", fmt.Errorf("read the namespace of the pod: %w", err)
	}
	return strings.TrimSpace(string(namespace)), nil
}

func (c Config) checkNames() error {
	if wrong := validation.NameIsDNSSubdomain(c.Name, false); len(wrong) > 0 {
		return fmt.Errorf("name of the Lease %q: %s", c.Name, strings.Join(wrong, "; "))
	}
	if wrong := validation.ValidateNamespaceName(c.Namespace, false); len(wrong) > 0 {
		return fmt.Errorf("namespace of the Lease %q: %s", c.Namespace, strings.Join(wrong, "; "))
	}
	return nil
}

// checkDurations has the rules of client-go, in words for people, and two of its own: a Lease has whole seconds, and
// client-go would cut the rest off, so that others wait for less time than they should.
func (c Config) checkDurations() error {
	const jitter = leaderelection.JitterFactor
	switch {
	case c.RetryPeriod <= 0:
		return fmt.Errorf("retry period %v: it must be positive", c.RetryPeriod)
	case c.LeaseDuration%time.Second != 0:
		return fmt.Errorf("lease duration %v: it must be a number of whole seconds", c.LeaseDuration)
	case c.LeaseDuration <= time.Second:
		return fmt.Errorf("lease duration %v: it must be longer than a second, which is the duration of a released Lease",
			c.LeaseDuration)
	case c.RenewDeadline >= c.LeaseDuration:
		return fmt.Errorf("renew deadline %v: it must be shorter than the lease duration, %v; the difference is how much "+
			"faster the clock of another machine may run", c.RenewDeadline, c.LeaseDuration)
	case float64(c.RenewDeadline) <= jitter*float64(c.RetryPeriod):
		return fmt.Errorf("renew deadline %v: it must be longer than %v times the retry period, %v, "+
			"to have time for a second attempt", c.RenewDeadline, jitter, c.RetryPeriod)
	}
	return nil
}

// requestTimeout returns how long a request for the Lease may take. A renewal is sent a retry period after the answer
// to the last one, and must be answered before the gate closes: two slow answers in a row fit. With slower ones, each
// copy would become leader for a moment, lose the leadership and exit, one after the other. With this limit nobody
// becomes leader then, and nobody exits. It also leaves time for a second attempt if a renewal hangs.
func (c Config) requestTimeout() time.Duration { return (c.RenewDeadline - c.RetryPeriod) / 2 }

// newIdentity returns a name for this process that no other process has or will have.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("identity for the election: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// leaseClient returns the client for the Lease. It has a connection of its own, on which nothing can delay a renewal,
// and which no gate closes.
func (c Config) leaseClient() (coordinationv1client.LeaseInterface, error) {
	config := rest.CopyConfig(c.Connection)
	config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent()) + "/leader-election"
	config.Timeout = c.requestTimeout()
	// HTTP/1.1 closes a connection on which a request has timed out, so that the second one uses another connection. With
	// HTTP/2, both would use the dead connection, which client-go notices only after 45 seconds. client-go shares
	// connections between configs that are equal, so this is also why the Lease has one of its own.
	config.NextProtos = []string{"http/1.1"}
	config.QPS, config.RateLimiter = -1, nil // One request every two seconds needs no limit, and must not wait for others.
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for the Lease: %w", err)
	}
	return client.Leases(c.Namespace), nil
}
