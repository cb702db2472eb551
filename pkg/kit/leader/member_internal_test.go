package leader

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/sim/apiserver"
)

var leasesResource = coordinationv1.SchemeGroupVersion.WithResource("leases")

// defaultSettings are those of an election with the durations of Kubernetes' own components.
var defaultSettings = Config{
	Namespace: testNamespace, Name: testLease,
	LeaseDuration: DefaultLeaseDuration, RenewDeadline: DefaultRenewDeadline, RetryPeriod: DefaultRetryPeriod,
}

// newServer returns a server with a Lease that was released, so that the first process takes it at once.
func newServer(t *testing.T) *apiserver.Server {
	t.Helper()
	s := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps(), apiserver.Leases())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: testLease, UID: "first"}, Spec: released(7),
	}
	if err := s.Load(lease); err != nil {
		t.Fatal(err)
	}
	return s
}

// A member is a process that takes part in the election of a test.
type member struct {
	*process
	elector *Elector
	stop    context.CancelFunc // As a signal does.
	log     ktesting.Buffer
	logged  int // How many lines of the log were read.

	leading chan struct{} // Closed when the member leads.
	ended   chan struct{} // Closed when Run has returned.
	err     error         // Of Run. Valid when it has ended.
	cause   error         // Why the context of the work ended. Valid when Run has ended.
}

// start starts a member. The work of its leadership is to wait for the end.
func start(t *testing.T, p *process, c Config) *member {
	t.Helper()
	c.Connection = p.config()
	elector, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	elector.gate.now = p.now
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	m := &member{
		process: p, elector: elector, stop: stop, log: logger.GetSink().(ktesting.Underlier).GetBuffer(),
		leading: make(chan struct{}), ended: make(chan struct{}),
	}
	go func() {
		defer close(m.ended)
		m.err = elector.Run(ctx, func(ctx context.Context) {
			close(m.leading)
			<-ctx.Done()
			m.cause = context.Cause(ctx)
		})
	}()
	return m
}

// elect starts a leader and a standby. It plays test in virtual time, and stops all in the end.
func elect(t *testing.T, c Config, test func(t *testing.T, s *apiserver.Server, leader, standby *member)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, newProcess(s, "a"), c)
		within(t, a.leading)
		b := start(t, newProcess(s, "b"), c)
		test(t, s, a, b)
		finish(a, b)
	})
}

// finish stops members and waits for them.
func finish(members ...*member) {
	for _, m := range members {
		m.stop()
		m.heal()
	}
	for _, m := range members {
		<-m.ended
	}
}

// expectLog compares the messages since the last call. It waits until nothing runs: a gate opens before the line about
// it is logged.
func (m *member) expectLog(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, entry := range m.log.Data()[m.logged:] {
		got = append(got, entry.Message)
		m.logged++
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: the log is %q, want %q", when, got, want)
	}
}

// lost waits until Run has returned, and returns its error, which must be that the leadership was lost.
func (m *member) lost(t *testing.T) error {
	t.Helper()
	within(t, m.ended)
	if !errors.Is(m.err, ErrLost) || !errors.Is(m.cause, ErrLost) {
		t.Errorf("Run returned %v, and the context of the work ended because of %v, want %v", m.err, m.cause, ErrLost)
	}
	return m.err
}

// leads reports whether the member leads at this moment.
func (m *member) leads() bool { return m.elector.gate.open() }

// hasEnded reports whether Run has returned.
func (m *member) hasEnded() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// storedLease returns the Lease, which must exist.
func storedLease(s *apiserver.Server) *coordinationv1.Lease {
	return s.Object(leasesResource, testNamespace, testLease).(*coordinationv1.Lease)
}

// lastWrite returns when the Lease was last written.
func lastWrite(s *apiserver.Server) time.Time {
	history := s.History(leasesResource)
	return history[len(history)-1].Time
}

// admin returns a client for people who edit the Lease.
func admin(s *apiserver.Server) coordinationv1client.LeaseInterface {
	return coordinationv1client.NewForConfigOrDie(s.Config("admin")).Leases(testNamespace)
}

// between answers requests for the Lease, with these verbs, in place of the server while now is true.
func between(
	s *apiserver.Server, now *atomic.Bool, answer func(*apiserver.Request) (*http.Response, error), verbs ...string,
) {
	s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		if r.Resource == leasesResource && now.Load() && slices.Contains(verbs, r.Verb) {
			return answer(r)
		}
		return next()
	})
}

// refuse answers a request that RBAC does not allow.
func refuse(r *apiserver.Request) (*http.Response, error) {
	return r.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, errors.New("no role")))
}

// within returns what comes from a channel. It fails if nothing comes for an hour of virtual time, because a test that
// waits for ever continues until the real time is over.
func within[T any](t *testing.T, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(time.Hour):
		t.Fatal("nothing has happened for an hour")
	}
	return got
}

// A fault is something that happens to a process for some time.
type fault struct {
	kind  faultKind
	delay time.Duration // Of slow requests, or of the time of day.
	ended chan struct{} // Closed at the end.
}

type faultKind int

const (
	cut       faultKind = iota // Requests hang and are not executed.
	cutLease                   // The same, for requests for the Lease only.
	refused                    // Requests fail at once.
	lost                       // Requests are executed, and the answer hangs.
	slow                       // Requests for the Lease, and their answers, are late.
	stopped                    // SIGSTOP: nothing is sent or received, and contexts end without anybody noticing.
	suspended                  // The same, and the monotonic clock stands still.
	clockSet                   // The time of day is wrong, by up to a day.
	faultKinds
)

// A process is one of the simulated processes. It is the connection of its clients, and has its faults.
type process struct {
	user   string
	server *apiserver.Server
	next   http.RoundTripper

	mu         sync.Mutex
	faults     []*fault
	forgotten  []*fault      // That are over for new requests, but not for those that hang.
	stoodStill time.Duration // How far the monotonic clock is behind.
	standing   time.Time     // Since when it stands still. Zero if it does not.
	wrong      time.Duration // How far the time of day is ahead.

	signal   context.CancelFunc // As SIGTERM.
	identity string
	open     func() bool // Whether it may write now.
}

func newProcess(server *apiserver.Server, user string) *process {
	config := server.Config(user)
	return &process{user: user, server: server, next: config.Transport, open: func() bool { return false }}
}

// config returns the configuration of a client of the process.
func (p *process) config() *rest.Config {
	config := p.server.Config(p.user)
	config.Transport = p
	return config
}

// RoundTrip implements http.RoundTripper.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.suffer(r, false); err != nil {
		return nil, err
	}
	response, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := p.suffer(r, true); err != nil {
		return nil, err
	}
	return response, nil
}

// CancelRequest does nothing, because requests have contexts. Without it, client-go logs a warning for every request
// that times out.
func (p *process) CancelRequest(*http.Request) {}

// suffer waits as long as the faults of the process delay a request, or its answer.
func (p *process) suffer(r *http.Request, answered bool) error {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, f := range faults {
		if err := f.apply(r, answered); err != nil {
			return err
		}
	}
	return nil
}

func (f *fault) apply(r *http.Request, answered bool) error {
	lease := strings.Contains(r.URL.Path, "/leases")
	switch f.kind {
	case stopped, suspended:
		<-f.ended
	case cut, cutLease:
		if f.kind == cut || lease {
			return wait(r.Context(), f.ended)
		}
	case lost:
		if answered {
			return wait(r.Context(), f.ended)
		}
	case slow:
		if lease {
			return wait(r.Context(), time.After(f.delay))
		}
	case refused:
		if !answered {
			return errors.New("connection refused")
		}
	}
	return nil
}

// wait waits until the channel is closed or has a value, but not longer than the client does.
func wait[T any](ctx context.Context, until <-chan T) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin lets a fault happen from now on.
func (p *process) begin(f *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.ended = make(chan struct{})
	p.faults = append(p.faults, f)
	if f.kind == suspended && p.standing.IsZero() {
		p.standing = time.Now()
	}
	if f.kind == clockSet {
		p.wrong = f.delay
	}
}

// heal ends all faults.
func (p *process) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range append(p.faults, p.forgotten...) {
		close(f.ended)
	}
	p.faults, p.forgotten, p.wrong = nil, nil, 0
	if !p.standing.IsZero() {
		p.stoodStill += time.Since(p.standing)
		p.standing = time.Time{}
	}
}

// now returns the time on the clocks of the process.
func (p *process) now() moment {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := now()
	behind := p.stoodStill
	if !p.standing.IsZero() {
		behind += time.Since(p.standing)
	}
	m.monotonic, m.wall = m.monotonic.Add(-behind), m.wall.Add(p.wrong)
	return m
}

// forget ends the faults for new requests. Those that hang continue to hang until the process is healed.
func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten = append(p.forgotten, p.faults...)
	p.faults = nil
}
