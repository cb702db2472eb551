package footest

import (
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
)

// SimulateSchedules runs schedules, and logs how many it ran per second.
//
// A schedule is a short simulation of three Foos that are edited ten times. Its seed decides which edits happen, and
// which faults: see [faults.Random]. In every second schedule faults are dense, and ten times as much time is between
// edits. In the others, the controller is restarted once. The checks at the end are the same as those of SimulateDay,
// except the number of writes, and ten minutes without changes.
func SimulateSchedules(t *testing.T, newRunner NewRunner, schedules int) {
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
		defer func() {
			if t.Failed() {
				t.Logf("all of it: make simulate SEED=%d", seed)
			}
		}()
		synctest.Test(t, func(t *testing.T) { runSeed(t, newRunner, seed, func(*apiserver.Server) {}) })
	})
}

// runSeed runs the schedule of a seed, and returns what happened. It calls prepare before anything happens.
func runSeed(t *testing.T, newRunner NewRunner, seed int64, prepare func(*apiserver.Server)) (
	trace string, happened []faults.Fault,
) {
	// A list may come in the order of a map. With a worker for each Foo, this order does not matter.
	s := newSimulation(newRunner, 8)
	s.settle = settle
	s.lag = 10 * time.Minute // A watch may be down for minutes, more than once.
	s.api.Intercept(refuseSeries)
	injected := faults.Random(seed, isDense(seed)).Inject(s.api, controllerName)
	prepare(s.api)
	s.start(t)
	defer s.stop(t)
	u, err := newUsers(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	user := apiserver.User{
		Name: usersName, Rand: rand.New(rand.NewSource(seed)), Edits: u.choices(weightedEdits),
		Pause: 2 * time.Second, Times: 5,
	}
	if isDense(seed) { // A restart, or the next edit a moment later, would repair what the controller misses.
		user.Pause, user.Times = 20*time.Second, 10
		user.Edits = u.choices(slices.Concat(weightedEdits, slices.Repeat([]userEdit{deleteDeployment}, 3)))
	}
	apiserver.RunUser(s.ctx, s.api, user)
	if !isDense(seed) {
		s.restart(t)
		apiserver.RunUser(s.ctx, s.api, user)
	}
	s.checkEnd(t, u, 10*time.Minute)
	return s.api.Trace(), injected.Happened()
}

func isDense(seed int64) bool { return seed%2 == 1 }

// ShowSchedule runs a schedule, and writes its faults and what happened to w.
func ShowSchedule(t *testing.T, newRunner NewRunner, seed int64, w io.Writer) {
	synctest.Test(t, func(t *testing.T) {
		trace, happened := runSeed(t, newRunner, seed, func(s *apiserver.Server) {
			traceAll(s)
			s.Intercept(inWords(s))
		})
		kind := "few faults"
		if isDense(seed) {
			kind = "dense faults"
		}
		fmt.Fprintf(w, "Schedule %d, with %s. These happen:\n\n%s\n", seed, kind, faults.Schedule{Faults: happened})
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

// inWords returns an interceptor that adds a line in words to the trace for each executed write whose own line would be
// long. readable leaves out its own line.
func inWords(s *apiserver.Server) func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	return func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		answer, err := next()
		if err != nil || answer.StatusCode >= http.StatusBadRequest {
			return answer, err
		}
		if words := wordsFor(r); words != "" {
			s.Note("%s: %s", r.User, words)
		}
		return answer, err
	}
}

// wordsFor describes a status or an event.
func wordsFor(r *apiserver.Request) string {
	foo, dep, event := &v1alpha1.Foo{}, &appsv1.Deployment{}, &eventsv1.Event{}
	switch r.Resource.Resource + "/" + r.Subresource {
	case foosResource + "/status":
		if decodeInto(r.Body, foo) == nil {
			return fmt.Sprintf("status %s %s", foo.Name, describeStatus(&foo.Status))
		}
	case deploymentsResource + "/status":
		if decodeInto(r.Body, dep) == nil {
			replicas := "?" // A status needs no spec.
			if n := dep.Spec.Replicas; n != nil {
				replicas = fmt.Sprint(*n)
			}
			return fmt.Sprintf("status deployment %s %d of %s replicas available",
				dep.Name, dep.Status.AvailableReplicas, replicas)
		}
	case eventsResource + "/":
		if decodeInto(r.Body, event) == nil {
			return fmt.Sprintf("event %s %s %s: %s", event.Regarding.Name, event.Type, event.Reason, event.Note)
		}
	}
	return ""
}

// unreadable finds the lines that readable leaves out.
var unreadable = regexp.MustCompile(`sent BOOKMARK|(/status| events) [^:]*: 20|: watch \w+: no answer`)

// readable returns a line of the trace with a time of day. It returns nothing for bookmarks, for watches that are tried
// in vain, and for a success that has a line in words.
func readable(line string) string {
	if unreadable.MatchString(line) && !strings.Contains(line, "fault: ") {
		return ""
	}
	seconds, what, _ := strings.Cut(strings.TrimSpace(line), "s ")
	at, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return line
	}
	return time.Unix(0, 0).UTC().Add(at).Format("15:04:05.000 ") + what + "\n"
}
