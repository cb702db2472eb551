package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/apisim"
	"example.com/foo-controller/pkg/footest"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/recorder"
)

// This file runs the controller as main does, with client-go's own clients, informers, queue and recorder, on a
// simulated API server and in virtual time: days of it in seconds.

const namespace = "default"

// A simulatedWorld is a simulated cluster with the controller in it. It lives in a bubble of testing/synctest.
type simulatedWorld struct {
	api  *apisim.Server
	ctx  context.Context
	stop func() // Ends everything, and waits for it.
	// lag is how long it may take until the controller has seen a change.
	lag time.Duration
	// restart stops the controller and starts another one.
	restart func()

	mu sync.Mutex // Guards what follows, while the controller runs.
	// writes counts what the controller wrote, by verb and resource.
	writes map[string]int
	// needless are writes of the controller that changed nothing.
	needless []string
}

// startWorld starts the controller, a Deployment controller that has replicas available a second after they are
// wanted, and a garbage collector.
func startWorld(t testing.TB, workers int) *simulatedWorld {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	w := &simulatedWorld{
		api: apisim.New(apisim.Namespaces(), fooKind, deploymentKind, apisim.Events()),
		ctx: ctx, lag: time.Second, writes: map[string]int{},
	}
	w.api.KeepTrace(2000)
	w.api.Intercept(w.count)
	go apisim.RunGarbageCollector(ctx, w.api, 10*time.Millisecond)
	go apisim.RunDeployments(ctx, w.api, apisim.Rollouts{
		Lag: 10 * time.Millisecond, Available: func(*appsv1.Deployment) time.Duration { return time.Second },
	})
	stopController := w.startController(t, workers)
	w.restart = func() {
		stopController()
		stopController = w.startController(t, workers)
	}
	w.stop = func() {
		if t.Failed() {
			t.Log("what happened last:\n" + w.api.Trace())
		}
		stopController()
		cancel()
		synctest.Wait()
	}
	return w
}

// startController starts a controller, wired as in main, and returns what stops it.
func (w *simulatedWorld) startController(t testing.TB, workers int) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	config := w.api.Config(controllerName)
	kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
	kubeFactory := kubeinformers.NewSharedInformerFactoryWithOptions(kube, 0, kubeinformers.WithTransform(plan.Trim))
	samplesFactory := fooinformers.NewSharedInformerFactory(samples, 0)
	scheme := kuberuntime.NewScheme()
	if err := v1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	events, err := recorder.New(ctx, kube.EventsV1(), scheme, v1alpha1.GroupName+"/"+controllerName)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(ctx, kube, samples, events, samplesFactory.Samplecontroller().V1alpha1().Foos(), kubeFactory.Apps().V1().Deployments())
	if err != nil {
		t.Fatal(err)
	}
	samplesFactory.StartWithContext(ctx)
	kubeFactory.StartWithContext(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.Run(ctx, workers)
	}()
	return func() {
		cancel()
		<-stopped
		samplesFactory.Shutdown()
		kubeFactory.Shutdown()
	}
}

// count counts what the controller writes. A write that is done and changes nothing was needless.
func (w *simulatedWorld) count(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
	answer, err := next()
	if r.User != controllerName || r.HTTP.Method == http.MethodGet {
		return answer, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes[strings.TrimSuffix(r.Verb+" "+r.Resource.Resource+"/"+r.Subresource, "/")]++
	if err == nil && answer.StatusCode < http.StatusBadRequest && len(r.Committed()) == 0 {
		w.needless = append(w.needless, r.String())
	}
	return answer, err
}

// A crowd edits Foos, and what belongs to them, at random.
type crowd struct {
	foos    int
	samples clientset.Interface
	kube    kubernetes.Interface
	// did counts what changed something.
	did     map[string]int
	changed bool // By the edit at hand.
	names   int
}

// edits are what the crowd may do. Those that come more than once are more likely.
func (c *crowd) edits() []func(ctx context.Context, config *rest.Config, random *rand.Rand) error {
	named := func(what string, edit func(ctx context.Context, foo string, random *rand.Rand) error) func(context.Context, *rest.Config, *rand.Rand) error {
		return func(ctx context.Context, _ *rest.Config, random *rand.Rand) error {
			c.changed = false
			err := edit(ctx, fmt.Sprintf("foo-%d", random.Intn(c.foos)), random)
			if err == nil && c.changed {
				c.did[what]++
			}
			return err
		}
	}
	spec := func(patch func(random *rand.Rand) string) func(ctx context.Context, foo string, random *rand.Rand) error {
		return func(ctx context.Context, foo string, random *rand.Rand) error {
			return c.patchFoo(ctx, foo, patch(random))
		}
	}
	scale := named("scale", spec(func(random *rand.Rand) string { return fmt.Sprintf(`{"replicas":%d}`, random.Intn(5)) }))
	image := named("image", spec(func(random *rand.Rand) string { return fmt.Sprintf(`{"image":"nginx:1.%d"}`, random.Intn(30)) }))
	return []func(context.Context, *rest.Config, *rand.Rand) error{
		scale, scale, scale, image, image,
		named("pause", spec(func(*rand.Rand) string { return `{"paused":true}` })),
		named("resume", spec(func(*rand.Rand) string { return `{"paused":false}` })),
		named("let go", spec(func(*rand.Rand) string { return `{"replicas":null}` })),
		named("rename", spec(func(*rand.Rand) string {
			c.names++
			return fmt.Sprintf(`{"deploymentName":"name-%d"}`, c.names)
		})),
		named("recreate", c.recreate),
		named("delete the Deployment", func(ctx context.Context, foo string, _ *rand.Rand) error {
			name, err := c.deploymentOf(ctx, foo)
			if err != nil {
				return err
			}
			return c.kube.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		}),
		named("edit the Deployment", func(ctx context.Context, foo string, random *rand.Rand) error {
			name, err := c.deploymentOf(ctx, foo)
			if err != nil {
				return err
			}
			patch := fmt.Sprintf(`{"metadata":{"labels":{"samplecontroller.k8s.io/foo-generation":null}},"spec":{"replicas":%d}}`, random.Intn(5))
			_, err = c.kube.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}),
	}
}

func (c *crowd) create(ctx context.Context, foo string) error {
	_, err := c.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: foo}, Spec: v1alpha1.FooSpec{DeploymentName: foo, Replicas: new(int32(2))},
	}, metav1.CreateOptions{})
	return err
}

// recreate deletes a Foo, and creates it anew at once: its Deployment is still there.
func (c *crowd) recreate(ctx context.Context, foo string, _ *rand.Rand) error {
	if err := c.samples.SamplecontrollerV1alpha1().Foos(namespace).Delete(ctx, foo, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return c.create(ctx, foo)
}

func (c *crowd) patchFoo(ctx context.Context, foo, spec string) error {
	_, err := c.samples.SamplecontrollerV1alpha1().Foos(namespace).Patch(ctx, foo, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	return err
}

func (c *crowd) deploymentOf(ctx context.Context, foo string) (string, error) {
	got, err := c.samples.SamplecontrollerV1alpha1().Foos(namespace).Get(ctx, foo, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return got.Spec.DeploymentName, nil
}

func newCrowd(w *simulatedWorld, foos int) *crowd {
	const user = "crowd"
	config := w.api.Config(user)
	c := &crowd{
		foos: foos, did: map[string]int{},
		samples: clientset.NewForConfigOrDie(config), kube: kubernetes.NewForConfigOrDie(config),
	}
	w.api.Intercept(func(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
		answer, err := next()
		if r.User == user {
			c.changed = c.changed || len(r.Committed()) > 0
		}
		return answer, err
	})
	return c
}

// converged says what is not as it should be when nothing has happened for long: for each Foo that is not paused
// there is its one Deployment, as the Foo says, and the Foo says that it is Available.
func (w *simulatedWorld) converged() []string {
	var wrong []string
	deployments := map[types.UID][]*appsv1.Deployment{}
	for _, obj := range w.api.Objects(deploymentResource) {
		dep := obj.(*appsv1.Deployment)
		owner := metav1.GetControllerOf(dep)
		if owner == nil {
			wrong = append(wrong, "Deployment "+dep.Name+" has no owner")
			continue
		}
		deployments[owner.UID] = append(deployments[owner.UID], dep)
	}
	for _, obj := range w.api.Objects(fooResource) {
		foo := obj.(*v1alpha1.Foo)
		owned := deployments[foo.UID]
		delete(deployments, foo.UID)
		if problem := differs(foo, owned); problem != "" {
			wrong = append(wrong, "Foo "+foo.Name+": "+problem)
		}
	}
	for _, orphans := range deployments {
		wrong = append(wrong, "Deployment "+orphans[0].Name+" has an owner that is gone")
	}
	return wrong
}

// settle has nothing paused any longer, waits until the longest pauses are over, and checks how all that ended, and that
// nothing is written for as long as quiet says.
func (w *simulatedWorld) settle(t *testing.T, people *crowd, quiet time.Duration) {
	for i := range people.foos {
		if err := people.patchFoo(w.ctx, fmt.Sprintf("foo-%d", i), `{"paused":false}`); err != nil {
			t.Error(err)
		}
		people.did["resume"]++
	}
	time.Sleep(15 * time.Minute)
	for _, problem := range w.converged() {
		t.Error(problem)
	}
	for _, problem := range w.unsafe() {
		t.Error(problem)
	}
	for _, request := range w.needless {
		t.Errorf("needless: %s", request)
	}
	wrote := fmt.Sprint(w.writes)
	time.Sleep(quiet)
	if after := fmt.Sprint(w.writes); after != wrote {
		t.Errorf("writes in %s in which nothing happened: before %s, after %s", quiet, wrote, after)
	}
}

// unsafe looks at all that the controller wrote, and says what it should not have written, given what there was a while
// before: nobody can know what has only just happened.
func (w *simulatedWorld) unsafe() []string {
	a := &audit{lag: w.lag, foos: map[types.UID][]*apisim.Revision{}, stamps: map[types.UID]int64{}, observed: map[types.UID]int64{}}
	var wrong []string
	for _, rev := range w.api.History(fooResource, deploymentResource) {
		check := a.deployment
		if rev.Resource == fooResource {
			check = a.foo
		}
		if problem := check(rev); problem != "" {
			wrong = append(wrong, fmt.Sprintf("version %d, %s %s: %s", rev.Version, rev.Resource.Resource, rev.Name, problem))
		}
	}
	return wrong
}

// An audit goes through the history of a world.
type audit struct {
	lag      time.Duration
	foos     map[types.UID][]*apisim.Revision
	stamps   map[types.UID]int64 // The generations that Deployments were written for.
	observed map[types.UID]int64 // The generations that statuses of Foos were written for.
}

// foo says what is wrong with a change of a Foo, "" for nothing.
func (a *audit) foo(rev *apisim.Revision) string {
	foo := rev.Object.(*v1alpha1.Foo)
	a.foos[foo.UID] = append(a.foos[foo.UID], rev)
	if rev.User != controllerName {
		return ""
	}
	before, last := rev.Before.(*v1alpha1.Foo), a.observed[foo.UID]
	a.observed[foo.UID] = foo.Status.ObservedGeneration
	switch now := foo.Status.ObservedGeneration; {
	case !equality.Semantic.DeepEqual(before.Spec, foo.Spec) || !equality.Semantic.DeepEqual(before.Labels, foo.Labels):
		return "more than the status is changed"
	case now < last || now > foo.Generation:
		return fmt.Sprintf("observedGeneration %d after %d, of %d", now, last, foo.Generation)
	}
	return ""
}

// deployment says what is wrong with a change of a Deployment, "" for nothing.
func (a *audit) deployment(rev *apisim.Revision) string {
	// Deletions rest on a live look, but may be tried a few times after it.
	const looked = 10 * time.Second
	dep := rev.Object.(*appsv1.Deployment)
	if rev.User != controllerName {
		return ""
	}
	owner := metav1.GetControllerOf(dep)
	if owner == nil || len(a.foos[owner.UID]) == 0 {
		return "it is no Foo's"
	}
	stamp, _ := strconv.ParseInt(dep.Labels[v1alpha1.LabelFooGeneration], 10, 64)
	known, before := a.lag, a.stamps[dep.UID]
	a.stamps[dep.UID] = stamp
	if rev.Type == watch.Deleted {
		known = min(known, looked)
	}
	changes := a.foos[owner.UID]
	last := changes[len(changes)-1]
	foo, settled := last.Object.(*v1alpha1.Foo), rev.Time.Sub(specSince(changes)) >= known
	switch {
	case rev.Type != watch.Deleted && stamp < before:
		return fmt.Sprintf("written for generation %d after %d", stamp, before)
	case !settled:
		return ""
	case last.Type == watch.Deleted:
		return "its Foo is gone"
	case foo.Spec.Paused:
		return "its Foo is paused"
	case rev.Type == watch.Deleted && dep.Name == foo.Spec.DeploymentName:
		return "its Foo names it, and it is deleted"
	case rev.Type != watch.Deleted && dep.Name != foo.Spec.DeploymentName:
		return "its Foo does not name it"
	}
	return ""
}

// specSince returns when the spec of a Foo came to be as it is, or the Foo went. changes are its revisions.
func specSince(changes []*apisim.Revision) time.Time {
	last := changes[len(changes)-1]
	for _, rev := range slices.Backward(changes) {
		if rev.Type == watch.Deleted || rev.Object.(*v1alpha1.Foo).Generation != last.Object.(*v1alpha1.Foo).Generation {
			break
		}
		last = rev
	}
	if rev := changes[len(changes)-1]; rev.Type == watch.Deleted {
		return rev.Time
	}
	return last.Time
}

// differs says what is wrong with a Foo and the Deployments that it owns, "" when all is well.
func differs(foo *v1alpha1.Foo, owned []*appsv1.Deployment) string {
	ready := readyCondition(foo)
	switch {
	case foo.Status.ObservedGeneration != foo.Generation:
		return fmt.Sprintf("generation %d, observed %d", foo.Generation, foo.Status.ObservedGeneration)
	case len(owned) != 1 || owned[0].Name != foo.Spec.DeploymentName:
		return fmt.Sprintf("it has %d Deployments", len(owned))
	case ready.Status != metav1.ConditionTrue || ready.Reason != v1alpha1.ReasonAvailable:
		return fmt.Sprintf("Ready=%s %s: %s", ready.Status, ready.Reason, ready.Message)
	}
	dep := owned[0]
	switch {
	case foo.Spec.Replicas != nil && *foo.Spec.Replicas != *dep.Spec.Replicas:
		return fmt.Sprintf("%d replicas, want %d", *dep.Spec.Replicas, *foo.Spec.Replicas)
	case foo.Spec.Image != "" && foo.Spec.Image != dep.Spec.Template.Spec.Containers[0].Image:
		return fmt.Sprintf("image %s, want %s", dep.Spec.Template.Spec.Containers[0].Image, foo.Spec.Image)
	case foo.Status.AvailableReplicas != dep.Status.AvailableReplicas:
		return fmt.Sprintf("it says %d available of %d", foo.Status.AvailableReplicas, dep.Status.AvailableReplicas)
	}
	return ""
}

var dayFoos = flag.Int("foos", 100, "how many Foos TestASimulatedDay has")

// TestASimulatedDay has Foos edited at random for a day, each of them six times or so. There are no faults, but users who
// edit what the controller is about to write.
func TestASimulatedDay(t *testing.T) {
	foos := *dayFoos
	if testing.Short() {
		foos = min(foos, 20)
	}
	edits := 6 * foos
	footest.WithoutErrorDelays(t)
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 16)
		defer w.stop()
		people := newCrowd(w, foos)
		for i := range foos {
			if err := people.create(w.ctx, fmt.Sprintf("foo-%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		apisim.RunUser(w.ctx, w.api, apisim.User{
			Name: "crowd", Rand: rand.New(rand.NewSource(1)), Pause: 24 * time.Hour / time.Duration(edits), Times: edits, Edits: people.edits(),
		})
		w.settle(t, people, time.Hour)
		people.check(t, w)
		t.Logf("the crowd did %v; the controller wrote %v", people.did, w.writes)
	})
	t.Logf("a day took %s", time.Since(began).Round(time.Millisecond))
}

// A schedule is what one seed makes of the same small world: three Foos that are edited ten times, while requests and
// watch events are late, some requests fail, watches break, and the controller is started anew once. It ends as a day does.
func schedule(t *testing.T, seed int64) {
	w := startWorld(t, 2)
	defer w.stop()
	w.lag = time.Minute
	people := newCrowd(w, 3)
	mishaps := &mishaps{seed: seed, seen: map[string]int{}, left: 20}
	w.api.Intercept(mishaps.request)
	w.api.InterceptEvents(mishaps.event)
	for i := range people.foos {
		if err := people.create(w.ctx, fmt.Sprintf("foo-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewSource(seed))
	user := apisim.User{Name: "crowd", Rand: random, Pause: 2 * time.Second, Times: 5, Edits: people.edits()}
	apisim.RunUser(w.ctx, w.api, user)
	w.restart()
	apisim.RunUser(w.ctx, w.api, user)
	w.settle(t, people, 10*time.Minute)
}

// mishaps are what may happen to the requests and watches of a controller. What happens to which of them follows from the
// seed, whenever and in whatever order they come.
type mishaps struct {
	seed int64

	mu   sync.Mutex
	seen map[string]int
	left int
}

var errLost = errors.New("read tcp 10.0.0.1:443: connection reset by peer")

// draw returns a source of randomness for the next of what.
func (m *mishaps) draw(what string) *rand.Rand {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[what]++
	hash := fnv.New64a()
	fmt.Fprint(hash, m.seed, what, m.seen[what])
	return rand.New(rand.NewSource(int64(hash.Sum64())))
}

// happens reports whether one more mishap happens, in one of four cases.
func (m *mishaps) happens(random *rand.Rand) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 || random.Intn(4) > 0 {
		return false
	}
	m.left--
	return true
}

func (m *mishaps) request(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
	if r.User != controllerName || r.Verb == "watch" {
		return next()
	}
	random := m.draw(r.String())
	if err := r.Sleep(time.Duration(random.Int63n(int64(30 * time.Millisecond)))); err != nil {
		return nil, err
	}
	if !m.happens(random) {
		return next()
	}
	switch random.Intn(4) {
	case 0:
		return r.Refuse(apierrors.NewTooManyRequests("slow down", 1))
	case 1:
		return r.Refuse(apierrors.NewInternalError(errBoom))
	case 2: // The answer is lost.
		if answer, err := next(); err == nil {
			answer.Body.Close()
		}
	}
	return nil, errLost
}

// event has watch events come late, mostly a little, sometimes by seconds, and breaks some watches.
func (m *mishaps) event(w *apisim.Watch, e apisim.Event) error {
	if w.User != controllerName || e.Type == watch.Bookmark {
		return nil
	}
	random := m.draw(fmt.Sprint("event of ", w.Resource.Resource))
	late := time.Duration(random.Int63n(int64(30 * time.Millisecond)))
	if random.Intn(10) == 0 {
		late *= 100
	}
	if err := w.Request.Sleep(late); err != nil {
		return err
	}
	if random.Intn(20) == 0 {
		return errLost
	}
	return nil
}

var schedules = flag.Int("schedules", 20, "how many schedules TestSchedules plays")

// TestSchedules plays schedules and says how many it did in a second:
//
//	go test -run TestSchedules -v . -schedules 2000
func TestSchedules(t *testing.T) {
	footest.WithoutErrorDelays(t)
	began := time.Now()
	var running sync.WaitGroup
	seeds := make(chan int64)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { // A failed bubble ends its goroutine.
					synctest.Test(t, func(t *testing.T) { schedule(t, seed) })
				})
			}
		})
	}
	for seed := range int64(*schedules) {
		seeds <- seed
	}
	close(seeds)
	running.Wait()
	t.Logf("%d schedules, %.0f in a second, with GOMAXPROCS=%d", *schedules, float64(*schedules)/time.Since(began).Seconds(), runtime.GOMAXPROCS(0))
}

// check compares how often the controller wrote with how often there was a reason to.
func (c *crowd) check(t *testing.T, w *simulatedWorld) {
	changed := c.did["scale"] + c.did["image"] + c.did["resume"] + c.did["let go"] + c.did["edit the Deployment"]
	seen := c.foos
	for _, rev := range w.api.History(fooResource, deploymentResource) {
		if rev.Resource == deploymentResource || rev.User != controllerName {
			seen++
		}
	}
	for _, most := range []struct {
		write   string
		reasons int
	}{
		{"create deployments", c.foos + c.did["recreate"] + c.did["rename"] + c.did["delete the Deployment"]},
		{"patch deployments", changed},
		{"delete deployments", c.did["rename"]},
		{"update foos/status", seen},
	} {
		if got := w.writes[most.write]; got > most.reasons {
			t.Errorf("%s: %d times, for %d reasons", most.write, got, most.reasons)
		}
	}
}
