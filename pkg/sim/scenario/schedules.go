package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"net/http"
	"reflect"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
)

// PlaySchedules plays the schedules of the first seeds, and logs how many it played per second.
//
// A schedule is a short simulation of the objects of Setup, which are edited ten times. Its seed decides which edits
// happen, and which faults: see [faults.Random]. In every second schedule faults are dense, and ten times as much time
// is between edits. In the others, the controller is restarted once. An hour after the last edit, this must hold:
//
//   - What Check demands.
//   - The status of each object is about its newest generation.
//   - The controller has changed only statuses of its kind, and children that it controls. No status is about an older
//     generation than before.
//   - Each write had a uid and a resourceVersion, unless it was a create, and changed something.
//   - In ten minutes without changes, the controller writes nothing.
//
// A schedule that fails names the command that shows it step by step, see ShowSchedule. again is that command without
// the seed.
func PlaySchedules(t *testing.T, kind Kind, users func() Users, schedules int, again string) {
	began := time.Now()
	var running errgroup.Group
	running.SetLimit(goruntime.GOMAXPROCS(0))
	for seed := range int64(schedules) {
		running.Go(func() error {
			playSchedule(t, kind, users(), seed, again)
			return nil
		})
	}
	_ = running.Wait()
	rate := float64(schedules) / time.Since(began).Seconds()
	t.Logf("%d schedules, %.0f per second, with GOMAXPROCS=%d", schedules, rate, goruntime.GOMAXPROCS(0))
}

// playSchedule plays a schedule as a subtest, because a bubble that fails ends the goroutine that started it.
func playSchedule(t *testing.T, kind Kind, users Users, seed int64, again string) {
	t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("all of it: %s%d", again, seed)
			}
		}()
		synctest.Test(t, func(t *testing.T) { playSeed(t, kind, users, seed, func(*apiserver.Server) {}) })
	})
}

// playSeed plays the schedule of a seed, and returns what happened. It calls prepare before anything happens.
func playSeed(t *testing.T, kind Kind, users Users, seed int64, prepare func(*apiserver.Server)) (
	trace string, happened []faults.Fault,
) {
	// A list may come in the order of a map. With a worker for each object, this order does not matter.
	s := NewSimulation(kind, 8)
	s.settles = true
	s.Lag = 10 * time.Minute // A watch may be down for minutes, more than once.
	s.Server.Intercept(refuseSeries)
	injected := faults.Random(seed, isDense(seed)).Inject(s.Server, kind.Controller)
	prepare(s.Server)
	s.Start(t)
	defer s.Stop(t)
	if err := users.Setup(s.Ctx, s.User()); err != nil {
		t.Fatal(err)
	}
	user := apiserver.User{
		Name: UserName, Rand: rand.New(rand.NewSource(seed)), Edits: users.Edits, Pause: 2 * time.Second, Times: 5,
	}
	if isDense(seed) { // A restart, or the next edit a moment later, would repair what the controller misses.
		user.Pause, user.Times = 20*time.Second, 10
		user.Edits = slices.Concat(users.Edits, users.Dense)
	}
	apiserver.RunUser(s.Ctx, s.Server, user)
	if !isDense(seed) {
		s.Restart(t)
		apiserver.RunUser(s.Ctx, s.Server, user)
	}
	s.Finish(t, users, 10*time.Minute)
	return s.Server.Trace(), injected.Happened()
}

func isDense(seed int64) bool { return seed%2 == 1 }

// ShowSchedule plays a schedule, and writes its faults and what happened to w. Statuses of the kind are in words, too.
func ShowSchedule(t *testing.T, kind Kind, users Users, seed int64, w io.Writer) {
	synctest.Test(t, func(t *testing.T) {
		trace, happened := playSeed(t, kind, users, seed, func(s *apiserver.Server) {
			traceAll(s)
			s.Intercept(kind.noteStatus(s))
		})
		density := "few faults"
		if isDense(seed) {
			density = "dense faults"
		}
		fmt.Fprintf(w, "Schedule %d, with %s. These happen:\n\n%s\n", seed, density, faults.Schedule{Faults: happened})
		for line := range strings.Lines(trace) {
			if shown := readable(line); shown != "" {
				fmt.Fprint(w, shown)
			}
		}
		if !t.Failed() {
			fmt.Fprintln(w, "converged")
		}
	})
}

// noteStatus returns an interceptor that adds each status that the controller has written to the trace.
func (k *Kind) noteStatus(s *apiserver.Server) func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	return func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		answer, err := next()
		if len(r.Committed()) > 0 && r.User == k.Controller && r.Subresource == "status" {
			s.Note("%s: status %s %s", r.User, r.Name, Summary(s.Object(r.Resource, r.Namespace, r.Name)))
		}
		return answer, err
	}
}

var (
	unreadable = regexp.MustCompile(`sent BOOKMARK|: watch \w+: no answer`)
	ofStatus   = regexp.MustCompile(`(/status \S+) \(.*\): 20`)
)

// readable returns a line of the trace with a time of day, and without the fields of a status. It returns nothing for
// bookmarks, and for watches that are tried in vain.
func readable(line string) string {
	if unreadable.MatchString(line) && !strings.Contains(line, "fault: ") {
		return ""
	}
	line = ofStatus.ReplaceAllString(strings.TrimSpace(line), "$1: 20")
	seconds, what, _ := strings.Cut(line, "s ")
	at, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return line + "\n"
	}
	return time.Unix(0, 0).UTC().Add(at).Format("15:04:05.000 ") + what + "\n"
}

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

// What follows removes from a schedule what would be different when its seed is played again: orders that goroutines
// of one moment, or a map, decide. The latency of the faults lets no two requests or events have the same moment, see
// faults.Schedule.

// refuseSeries refuses the patches of events. client-go sends those that end a series in the order of a map, so they
// would take the faults of a seed in any order.
func refuseSeries(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	if r.Verb == "patch" && r.Resource.Resource == "events" {
		return r.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, nil))
	}
	return next()
}

// ReplaySchedules runs each schedule several times, and checks that the same requests, answers and events follow each
// other at the same virtual times.
func ReplaySchedules(t *testing.T, kind Kind, users func() Users, schedules, replays int) {
	for seed := range int64(schedules) {
		first := replay(t, kind, users(), seed)
		for range replays - 1 {
			if diff := cmp.Diff(first, replay(t, kind, users(), seed)); diff != "" {
				t.Errorf("seed %d (-first +replay):\n%s", seed, diff)
				break
			}
		}
	}
}

// replay runs the schedule of a seed, and returns the lines of its trace, except those of refuseSeries. They are
// sorted, because what happens at one moment has no order, such as the ends of two watches.
func replay(t *testing.T, kind Kind, users Users, seed int64) (lines []string) {
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		trace, _ := playSeed(t, kind, users, seed, traceAll)
		for line := range strings.Lines(trace) {
			if !strings.Contains(line, ": patch events") {
				lines = append(lines, line)
			}
		}
	})
	slices.Sort(lines)
	return lines
}

// traceAll makes the trace keep all lines, also of events.
func traceAll(s *apiserver.Server) {
	s.KeepTrace(-1)
	s.TraceEvents(true)
}

// settle returns an AddAs that queues a key a moment later, when all goroutines of this moment have stopped. One event
// may queue a key twice, by its handler and by the worker of another queue. If the first sync began between the two,
// there would be a second one.
func settle(add addAs) addAs {
	var mu sync.Mutex
	waiting := map[cache.ObjectName]fairqueue.Class{}
	return func(key cache.ObjectName, class fairqueue.Class) {
		mu.Lock()
		defer mu.Unlock()
		have, waits := waiting[key]
		if !waits {
			have = class
			time.AfterFunc(time.Nanosecond, func() {
				mu.Lock()
				class := waiting[key]
				delete(waiting, key)
				mu.Unlock()
				add(key, class)
			})
		}
		waiting[key] = min(have, class) // The more urgent one.
	}
}

// problems checks what holds for any controller on the kit. It knows neither the plan nor the kit.
func (s *Simulation) problems() []string {
	wrong := append([]string(nil), s.wrong...)
	for _, obj := range s.Server.Objects(s.kind.Served[0].Resource) {
		obj := obj.(Object)
		status := statusOf(obj)
		if obj.GetDeletionTimestamp() == nil && status.ObservedGeneration != obj.GetGeneration() {
			wrong = append(wrong, fmt.Sprintf("%s %s: generation %d, observed %d",
				s.kind.Served[0].Kind, obj.GetName(), obj.GetGeneration(), status.ObservedGeneration))
		}
	}
	i := &invariants{kind: s.kind, objects: map[types.UID]bool{}, observed: map[types.UID]int64{}}
	for _, rev := range s.Server.History(s.kind.resources()...) {
		if problem := i.check(rev); problem != "" {
			wrong = append(wrong, fmt.Sprintf("version %d, %s %s: %s", rev.Version, rev.Resource.Resource, rev.Name, problem))
		}
	}
	return wrong
}

// invariants check the history of a simulation, revision by revision.
type invariants struct {
	kind *Kind
	// objects are the uids of the objects of the kind, also of those that are gone.
	objects map[types.UID]bool
	// observed are the generations that statuses were written for.
	observed map[types.UID]int64
}

// check returns the invariant that a change of the controller violates, or "".
func (i *invariants) check(rev *apiserver.Revision) string {
	obj := rev.Object.(Object)
	own := rev.Resource == i.kind.Served[0].Resource
	if own {
		i.objects[obj.GetUID()] = true
	}
	switch {
	case rev.User != i.kind.Controller:
		return ""
	case own:
		return i.checkStatus(rev, obj)
	}
	before := obj // A child that is created must be owned from the beginning.
	if rev.Before != nil {
		before = rev.Before.(Object)
	}
	if owner := metav1.GetControllerOf(before); owner == nil || !i.objects[owner.UID] {
		return fmt.Sprintf("no %s owns it", i.kind.Served[0].Kind)
	}
	return ""
}

// checkStatus checks a write of an object of the kind itself. What else it changes, such as finalizers, is metadata.
func (i *invariants) checkStatus(rev *apiserver.Revision, obj Object) string {
	now, last := statusOf(obj).ObservedGeneration, i.observed[obj.GetUID()]
	i.observed[obj.GetUID()] = now
	switch {
	case rev.Type == watch.Deleted && obj.GetDeletionTimestamp() != nil: // The last finalizer was removed.
		return ""
	case rev.Type != watch.Modified:
		return "it is " + string(rev.Type) + " by its controller"
	case !reflect.DeepEqual(othersOf(rev.Before), othersOf(obj)):
		return "more than the status changes"
	case now < last || now > obj.GetGeneration():
		return fmt.Sprintf("observedGeneration %d after %d, of %d", now, last, obj.GetGeneration())
	}
	return ""
}

// othersOf returns the fields of an object, and its labels and annotations, that belong to its users.
func othersOf(obj runtime.Object) map[string]any {
	var fields map[string]any
	text, err := json.Marshal(obj)
	if err := errors.Join(err, json.Unmarshal(text, &fields)); err != nil {
		panic(err) // The API server has encoded it before.
	}
	m, _ := fields["metadata"].(map[string]any)
	fields["metadata"] = []any{m["labels"], m["annotations"]}
	delete(fields, "status")
	return fields
}
