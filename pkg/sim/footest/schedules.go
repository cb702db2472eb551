package footest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// SimulateSchedules runs schedules, and logs how many it ran per second.
//
// A schedule is a short simulation of three Foos that are edited ten times. Its seed decides which edits happen, which
// requests and watch events are late, which requests fail, and which watches break. A watch that breaks is down for
// seconds, or for minutes. It is resumed, or gets 410 and a list follows, which lacks what came and went meanwhile. In
// every second schedule faults are dense. The controller is restarted once, and so is the API server, with an empty
// watch cache. The checks at the end are those of SimulateDay.
func SimulateSchedules(t *testing.T, newRunner NewRunner, schedules int) {
	WithoutErrorDelays(t)
	began := time.Now()
	var running sync.WaitGroup
	seeds := make(chan int64)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for seed := range seeds {
				runSchedule(t, newRunner, seed)
			}
		})
	}
	for seed := range int64(schedules) {
		seeds <- seed
	}
	close(seeds)
	running.Wait()
	rate := float64(schedules) / time.Since(began).Seconds()
	t.Logf("%d schedules, %.0f per second, with GOMAXPROCS=%d", schedules, rate, runtime.GOMAXPROCS(0))
}

// runSchedule runs a schedule as a subtest, because a bubble that fails ends the goroutine that started it.
func runSchedule(t *testing.T, newRunner NewRunner, seed int64) {
	t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { schedule(t, newRunner, seed) })
	})
}

func schedule(t *testing.T, newRunner NewRunner, seed int64) {
	s := startSimulation(t, newRunner, 2)
	defer s.stop(t)
	s.lag = 10 * time.Minute // A watch may be down for minutes, more than once.
	faults := newFaults(seed)
	s.api.Intercept(faults.request)
	s.api.InterceptEvents(faults.event)
	u, err := newUsers(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	user := apiserver.User{
		Name: usersName, Rand: rand.New(rand.NewSource(seed)), Edits: u.choices(),
		Pause: 2 * time.Second, Times: 5,
	}
	apiserver.RunUser(s.ctx, s.api, user)
	s.restart(t)
	faults.restartServer()
	apiserver.RunUser(s.ctx, s.api, user)
	s.checkEnd(t, u, 10*time.Minute)
}

// faults are injected into the requests and watches of a controller. The seed decides which of them fail, and how. The
// decision does not depend on when and in which order they arrive.
type faults struct {
	seed int64
	// breaks is how many events there are for each that breaks its watch, on average.
	breaks int

	mu   sync.Mutex
	seen map[string]int
	left int
	// downUntil is when the watch of a resource can be resumed. expired means that it then gets 410.
	downUntil map[string]time.Time
	expired   map[string]bool
}

func newFaults(seed int64) *faults {
	f := &faults{
		seed: seed, breaks: 20, left: 20,
		seen: map[string]int{}, downUntil: map[string]time.Time{}, expired: map[string]bool{},
	}
	if seed%2 == 1 {
		f.breaks, f.left = 3, 60
	}
	return f
}

var (
	errLost   = errors.New("read tcp 10.0.0.1:443: connection reset by peer")
	errBroken = errors.New("something broke")
)

// random returns the source of random numbers for the next request or event with this description.
func (f *faults) random(description string) *rand.Rand {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[description]++
	hash := fnv.New64a()
	fmt.Fprint(hash, f.seed, description, f.seen[description])
	return rand.New(rand.NewSource(int64(hash.Sum64())))
}

// happens reports whether a fault happens, on average in one of four cases, until none is left.
func (f *faults) happens(random *rand.Rand) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 || random.Intn(4) > 0 {
		return false
	}
	f.left--
	return true
}

// request delays the requests of the controller and lets some of them fail.
func (f *faults) request(r *apiserver.Request, next func() (*http.Response, error)) (*http.Response, error) {
	if r.User != controllerName {
		return next()
	}
	if r.Verb == "watch" || r.Verb == "list" {
		return f.watch(r, next)
	}
	random := f.random(r.String())
	if err := r.Sleep(time.Duration(random.Int63n(int64(30 * time.Millisecond)))); err != nil {
		return nil, err
	}
	if !f.happens(random) {
		return next()
	}
	switch random.Intn(4) {
	case 0:
		return r.Refuse(apierrors.NewTooManyRequests("slow down", 1))
	case 1:
		return r.Refuse(apierrors.NewInternalError(errBroken))
	case 2: // The answer is lost.
		if answer, err := next(); err == nil {
			answer.Body.Close()
		}
	}
	return nil, errLost
}

// watch answers the request for a watch, or for the list before it.
func (f *faults) watch(r *apiserver.Request, next func() (*http.Response, error)) (*http.Response, error) {
	f.mu.Lock()
	resource := r.Resource.Resource
	isDown := time.Now().Before(f.downUntil[resource])
	isResumed := r.Verb == "watch" && r.Query.Get("sendInitialEvents") == ""
	isExpired := !isDown && isResumed && f.expired[resource]
	if isExpired {
		f.expired[resource] = false
	}
	f.mu.Unlock()
	switch {
	case isDown:
		return nil, errLost
	case isExpired:
		return r.Refuse(apierrors.NewResourceExpired("too old resource version"))
	}
	return next()
}

// takeDown breaks the watch of a resource for some time: mostly for seconds, sometimes for minutes.
func (f *faults) takeDown(resource string, random *rand.Rand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	longest := 6 * time.Second
	if random.Intn(10) == 0 {
		longest = 3 * time.Minute
	}
	f.downUntil[resource] = time.Now().Add(time.Duration(random.Int63n(int64(longest))))
	f.expired[resource] = f.expired[resource] || random.Intn(2) == 0
}

// restartServer ends all watches. The API server has no events from before.
func (f *faults) restartServer() {
	for _, resource := range []string{foosResource, deploymentsResource} {
		f.takeDown(resource, f.random("restart of the API server"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired[foosResource], f.expired[deploymentsResource] = true, true
}

// event delays watch events, mostly a little, sometimes by seconds, and breaks some watches.
func (f *faults) event(w *apiserver.Watch, e apiserver.Event) error {
	if w.User != controllerName || e.Type == watch.Bookmark {
		return nil
	}
	random := f.random(fmt.Sprint("event of ", w.Resource.Resource))
	late := time.Duration(random.Int63n(int64(30 * time.Millisecond)))
	if random.Intn(10) == 0 {
		late *= 100
	}
	if err := w.Request.Sleep(late); err != nil {
		return err
	}
	if random.Intn(f.breaks) == 0 {
		f.takeDown(w.Resource.Resource, random)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.downUntil[w.Resource.Resource]) {
		return errLost
	}
	return nil
}
