package scenario

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
)

// UserName is the user name of all users of a simulation.
const UserName = "users"

// A Simulation is a simulated cluster in which a controller runs as in production, with its own clients, informers,
// queue and workers. Everything runs in a bubble of testing/synctest.
type Simulation struct {
	Server *apiserver.Server
	Ctx    context.Context
	// Lag is the longest time until the controller sees a change.
	Lag time.Duration
	// OnSynced, unless nil, is called after every sync.
	OnSynced func(cache.ObjectName)
	// StopController stops the controller and waits for its end. It is nil before the first RunController.
	StopController func()

	kind    *Kind
	workers int
	// settles makes a seed replay exactly, see settle.
	settles bool
	// cancel stops everything except the controller.
	cancel context.CancelFunc

	mu sync.Mutex // Guards the fields below while the controller runs.
	// writes counts the writes of the controller, by verb and resource.
	writes map[string]int
	// wrong are writes that no controller should send.
	wrong []string
}

// NewSimulation returns a simulation in which nothing runs. Its controller will have this number of workers.
func NewSimulation(kind Kind, workers int) *Simulation {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	served := append([]apiserver.Kind{apiserver.Namespaces(), apiserver.Events()}, kind.Served...)
	s := &Simulation{
		Server: apiserver.New(served...), Ctx: ctx, cancel: cancel, kind: &kind, workers: workers,
		Lag: time.Second, writes: map[string]int{},
	}
	s.Server.KeepTrace(300)
	s.Server.KeepHistory(-1) // The checks at the end need it.
	s.Server.Intercept(s.count)
	return s
}

// Start starts the controller, a garbage collector, and a Deployment controller whose replicas are available after a
// second.
func (s *Simulation) Start(t testing.TB) {
	go apiserver.RunGarbageCollector(s.Ctx, s.Server, 10*time.Millisecond)
	s.RunDeployments(s.Ctx)
	s.RunController(t)
}

// RunDeployments starts a Deployment controller whose replicas are available after a second.
func (s *Simulation) RunDeployments(ctx context.Context) {
	if s.kind.served("deployments") == nil {
		return
	}
	go apiserver.RunDeployments(ctx, s.Server, apiserver.Rollouts{
		Lag: 10 * time.Millisecond, Available: func(*appsv1.Deployment) time.Duration { return time.Second },
	})
}

// Stop stops everything and waits for its end.
func (s *Simulation) Stop(t testing.TB) {
	if t.Failed() {
		t.Log("the last requests and events:\n" + s.Server.Trace())
	}
	s.StopController()
	s.cancel()
	synctest.Wait()
}

// Restart stops the controller and starts another one.
func (s *Simulation) Restart(t testing.TB) {
	s.StopController()
	s.RunController(t)
}

// RunController starts a controller.
func (s *Simulation) RunController(t testing.TB) {
	ctx, cancel := context.WithCancel(s.Ctx)
	config := s.Server.Config(s.kind.Controller)
	scheme, kind := runtime.NewScheme(), s.kind.Served[0]
	scheme.AddKnownTypeWithName(kind.Resource.GroupVersion().WithKind(kind.Kind), kind.Object)
	reportedBy := kind.Resource.Group + "/" + s.kind.Controller
	events, err := recorder.New(ctx, kubernetes.NewForConfigOrDie(config).EventsV1(), scheme, reportedBy)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.kind.New(ctx, Wiring{Config: config, Recorder: events, Workers: s.workers})
	if err != nil {
		t.Fatal(err)
	}
	c.Random = faults.Float64
	if s.settles {
		c.Queue.AddAs = settle(c.Queue.AddAs)
	}
	if s.OnSynced != nil {
		c.Queue.OnSynced = func(key cache.ObjectName, _ kit.Outcome) { s.OnSynced(key) }
	}
	var running, watching sync.WaitGroup
	for _, informer := range c.Informers() {
		if err := informer.SetTransform(c.Trim); err != nil {
			t.Fatal(err)
		}
		watching.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Go(func() { c.Run(ctx) })
	s.StopController = func() {
		cancel()
		running.Wait()
		watching.Wait()
	}
}

// User returns the configuration of the clients of users.
func (s *Simulation) User() *rest.Config { return s.Server.Config(UserName) }

// count counts the writes of the controller, and checks them. A write that succeeds and changes nothing is needless.
// Events do not count as needless, because client-go decides when it updates a series of equal events.
func (s *Simulation) count(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	answer, err := next()
	if r.User != s.kind.Controller || r.HTTP.Method == http.MethodGet {
		return answer, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes[strings.TrimSuffix(r.Verb+" "+r.Resource.Resource+"/"+r.Subresource, "/")]++
	if s.kind.served(r.Resource.Resource) == nil {
		return answer, err
	}
	if flaw := s.kind.describe(s.Server, r, next).flaw; flaw != nil {
		s.wrong = append(s.wrong, r.String()+": "+flaw.Error())
	}
	isPage := err == nil && answer.Header.Get("Content-Type") == "text/html" // Of a proxy.
	if err == nil && answer.StatusCode < http.StatusBadRequest && !isPage && len(r.Committed()) == 0 {
		s.wrong = append(s.wrong, r.String()+": it changed nothing")
	}
	return answer, err
}

// Writes returns the numbers of writes so far, by verb and resource. It leaves out events, because client-go updates
// the Event of a series once more, minutes after the last event.
func (s *Simulation) Writes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := maps.Clone(s.writes)
	delete(writes, "create events")
	delete(writes, "patch events")
	return writes
}

// Finish waits until the last fault and the longest backoff are over, and checks the final state and all writes. Then
// it checks that the controller writes nothing for the duration quiet.
func (s *Simulation) Finish(t *testing.T, users Users, quiet time.Duration) {
	if users.Resume != nil {
		if err := users.Resume(s.Ctx, s.User()); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(time.Hour) // Watches that break again and again for minutes take as long to send all events.
	if users.Check != nil {
		for _, problem := range users.Check(s) {
			t.Error(problem)
		}
	}
	for _, problem := range s.problems() {
		t.Error(problem)
	}
	before := s.Writes()
	time.Sleep(quiet)
	if after := s.Writes(); !maps.Equal(before, after) {
		t.Errorf("the controller wrote although nothing happened for %s: before %v, after %v", quiet, before, after)
	}
}
