package footest

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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	samplesinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
)

// A simulation is a simulated cluster in which the controller runs. As in main, the controller has the clients, the
// informers and the queue of client-go. Everything runs in a bubble of testing/synctest.
type simulation struct {
	api *apiserver.Server
	ctx context.Context
	// newRunner makes a controller. It runs with this number of workers.
	newRunner NewRunner
	workers   int
	// resync is the period of the resync of Foos. It is 0 unless a test is about it: nothing else may need one.
	resync time.Duration
	// lag is the longest time until the controller sees a change.
	lag time.Duration
	// onSynced, unless nil, is called after every sync.
	onSynced func(cache.ObjectName)
	// settle, unless nil, goes to the controller.
	settle func(add AddAs) AddAs
	// stopController stops the controller and waits for its end.
	stopController func()
	// cancel stops everything else.
	cancel context.CancelFunc

	mu sync.Mutex // Guards the fields below while the controller runs.
	// writes counts the writes of the controller, by verb and resource.
	writes map[string]int
	// needless are writes of the controller that changed nothing.
	needless []string
}

// start starts the controller, a garbage collector, and a Deployment controller whose replicas are available after a
// second.
func (s *simulation) start(t testing.TB) {
	go apiserver.RunGarbageCollector(s.ctx, s.api, 10*time.Millisecond)
	go apiserver.RunDeployments(s.ctx, s.api, apiserver.Rollouts{
		Lag: 10 * time.Millisecond, Available: func(*appsv1.Deployment) time.Duration { return time.Second },
	})
	s.runController(t)
}

// newSimulation returns a simulation in which nothing runs.
func newSimulation(newRunner NewRunner, workers int) *simulation {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	s := &simulation{
		api: apiserver.New(apiserver.Namespaces(), FooKind(), apiserver.Deployments(), apiserver.Events()),
		ctx: ctx, cancel: cancel, newRunner: newRunner, workers: workers,
		lag: time.Second, writes: map[string]int{},
	}
	s.api.KeepTrace(300)
	s.api.KeepHistory(-1) // The checks at the end need it.
	s.api.Intercept(s.count)
	return s
}

// stop stops everything and waits for its end.
func (s *simulation) stop(t testing.TB) {
	if t.Failed() {
		t.Log("the last requests and events:\n" + s.api.Trace())
	}
	s.stopController()
	s.cancel()
	synctest.Wait()
}

// restart stops the controller and starts another one.
func (s *simulation) restart(t testing.TB) {
	s.stopController()
	s.runController(t)
}

// runController starts a controller.
func (s *simulation) runController(t testing.TB) {
	ctx, cancel := context.WithCancel(s.ctx)
	config := s.api.Config(controllerName)
	kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
	kubeFactory := kubeinformers.NewSharedInformerFactoryWithOptions(kube, 0, kubeinformers.WithTransform(plan.Trim))
	samplesFactory := samplesinformers.NewSharedInformerFactoryWithOptions(samples, s.resync,
		samplesinformers.WithTransform(plan.Trim))
	scheme := runtime.NewScheme()
	if err := v1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	reportedBy := v1alpha1.GroupName + "/" + controllerName
	events, err := recorder.New(ctx, kube.EventsV1(), scheme, reportedBy)
	if err != nil {
		t.Fatal(err)
	}
	run, err := s.newRunner(ctx, Wiring{
		Kube: kube, Samples: samples, Recorder: events,
		Foos:        samplesFactory.Samplecontroller().V1alpha1().Foos(),
		Deployments: cache.NewTypedSharedIndexInformer[*plan.Observed](kubeFactory.Apps().V1().Deployments().Informer()),
		Workers:     s.workers, OnSynced: s.onSynced, Random: faults.Float64, Settle: s.settle,
	})
	if err != nil {
		t.Fatal(err)
	}
	samplesFactory.StartWithContext(ctx)
	kubeFactory.StartWithContext(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		run(ctx)
	}()
	s.stopController = func() {
		cancel()
		<-stopped
		samplesFactory.Shutdown()
		kubeFactory.Shutdown()
	}
}

// count counts the writes of the controller. A write that succeeds and changes nothing is needless. Events do not count
// as needless, because client-go decides when it updates a series of equal events.
func (s *simulation) count(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	answer, err := next()
	if r.User != controllerName || r.HTTP.Method == http.MethodGet {
		return answer, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes[strings.TrimSuffix(r.Verb+" "+r.Resource.Resource+"/"+r.Subresource, "/")]++
	changed := len(r.Committed()) > 0 || r.Resource.Resource == "events"
	isPage := err == nil && answer.Header.Get("Content-Type") == "text/html" // Of a proxy.
	if err == nil && answer.StatusCode < http.StatusBadRequest && !isPage && !changed {
		s.needless = append(s.needless, r.String())
	}
	return answer, err
}

// checkEnd resumes all Foos, waits until the last fault and the longest backoff are over, and checks the final state
// and all writes. Then it checks that the controller writes nothing for the duration quiet.
func (s *simulation) checkEnd(t *testing.T, u *users, quiet time.Duration) {
	for i := range u.foos {
		if err := u.patchFoo(s.ctx, fooName(i), `{"paused":false}`); err != nil {
			t.Error(err)
		}
		u.edits[resume]++
	}
	time.Sleep(time.Hour) // Watches that break again and again for minutes take as long to send all events.
	s.followAdvice(t, u)
	for _, problem := range s.notConverged() {
		t.Error(problem)
	}
	for _, problem := range s.violations() {
		t.Error(problem)
	}
	for _, request := range s.needless {
		t.Errorf("this write changed nothing: %s", request)
	}
	before := s.objectWrites()
	time.Sleep(quiet)
	if after := s.objectWrites(); !maps.Equal(before, after) {
		t.Errorf("the controller wrote although nothing happened for %s: before %v, after %v", quiet, before, after)
	}
}

// followAdvice does what a person must do when a new Deployment was scaled below the previous one, and its Foo sets no
// number of replicas.
func (s *simulation) followAdvice(t *testing.T, u *users) {
	for _, obj := range s.api.Objects(fooResource) {
		foo := obj.(*v1alpha1.Foo)
		stalled := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionStalled)
		if stalled == nil || stalled.Reason != v1alpha1.ReasonRenaming {
			continue
		}
		if err := u.patchFoo(s.ctx, foo.Name, `{"replicas":1}`); err != nil {
			t.Error(err)
		}
		u.edits[scale]++
	}
	time.Sleep(15 * time.Minute)
}

// objectWrites returns the numbers of writes so far, without events, because client-go updates the Event of a series
// once more, minutes after the last event.
func (s *simulation) objectWrites() map[string]int {
	writes := maps.Clone(s.writes)
	delete(writes, "create events")
	delete(writes, "patch events")
	return writes
}

// checkWrites checks that the controller wrote at most once for each reason to write.
func (s *simulation) checkWrites(t *testing.T, u *users) {
	patches := 0
	for _, edit := range []userEdit{scale, setImage, resume, unsetReplicas, editDeployment} {
		patches += u.edits[edit]
	}
	changes := u.foos // Each change of a Deployment, and of a Foo by a user, may change a status.
	for _, rev := range s.api.History(fooResource, deploymentResource) {
		if rev.Resource == deploymentResource || rev.User != controllerName {
			changes++
		}
	}
	for _, most := range []struct {
		write   string
		reasons int
	}{
		{"create deployments", u.foos + u.edits[recreate] + u.edits[rename] + u.edits[deleteDeployment]},
		{"patch deployments", patches},
		{"delete deployments", u.edits[rename]},
		{"update foos/status", changes},
	} {
		if got := s.writes[most.write]; got > most.reasons {
			t.Errorf("%s: %d times, for %d reasons", most.write, got, most.reasons)
		}
	}
}
