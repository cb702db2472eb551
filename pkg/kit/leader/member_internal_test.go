package leader

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/sim/apiserver"
)

var (
	leasesResource     = coordinationv1.SchemeGroupVersion.WithResource("leases")
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
)

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
	maps    corev1client.ConfigMapInterface // Through the gate.
	stop    context.CancelFunc              // As a signal does.

	leading chan struct{} // Closed when the member leads.
	ended   chan error    // Has the result of Run.
	cause   error         // Why the context of the work ended. Valid when ended has a value.
	drain   func()        // What the work does after its context has ended.
}

// start starts a member. The work of its leadership is to wait for the end.
func start(t *testing.T, s *apiserver.Server, user string, c Config) *member {
	t.Helper()
	return startWith(t, newProcess(s, user), c, klog.New(nil), func() {})
}

func startWith(t *testing.T, p *process, c Config, logger klog.Logger, drain func()) *member {
	t.Helper()
	c.Connection = p.config()
	elector, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	elector.gate.now = p.now
	config := p.config()
	config.Wrap(elector.Gate)
	m := &member{
		process: p, elector: elector, drain: drain,
		maps:    corev1client.NewForConfigOrDie(config).ConfigMaps(testNamespace),
		leading: make(chan struct{}), ended: make(chan error, 1),
	}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	m.stop = stop
	go func() {
		m.ended <- elector.Run(ctx, func(ctx context.Context) {
			close(m.leading)
			<-ctx.Done()
			m.drain()
			m.cause = context.Cause(ctx)
		})
	}()
	return m
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

// write sends a write through the gate.
func (m *member) write(t *testing.T, name string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := m.maps.Create(t.Context(), cm, metav1.CreateOptions{})
	return err
}

// leads reports whether the member leads at this moment.
func (m *member) leads() bool { return m.elector.gate.open() }

// storedLease returns the Lease, nil if it does not exist.
func storedLease(s *apiserver.Server) *coordinationv1.Lease {
	obj := s.Object(leasesResource, testNamespace, testLease)
	if obj == nil {
		return nil
	}
	return obj.(*coordinationv1.Lease)
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

// forbidLeases lets the server refuse requests for Leases with these verbs, or with all of them, while now is true.
func forbidLeases(s *apiserver.Server, now *atomic.Bool, verbs ...string) {
	s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		if r.Resource == leasesResource && now.Load() && (len(verbs) == 0 || slices.Contains(verbs, r.Verb)) {
			return r.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, errors.New("no role")))
		}
		return next()
	})
}

// betweenRenewals is a time at which no renewal is sent, for tests in which the next update is that of the release.
const betweenRenewals = time.Minute + 100*time.Millisecond

// editBeforeUpdate returns an interceptor that edits the Lease immediately before the next update is executed.
func editBeforeUpdate(edited *bool, edit func()) func(
	*apiserver.Request, apiserver.Next) (*http.Response, error) {
	return func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		if r.Resource == leasesResource && r.Verb == "update" && r.User != "admin" && !*edited {
			*edited = true
			edit()
		}
		return next()
	}
}

func newSwitch(on bool) *atomic.Bool {
	now := &atomic.Bool{}
	now.Store(on)
	return now
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
