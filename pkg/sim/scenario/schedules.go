package scenario

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
	var running sync.WaitGroup
	seeds := make(chan int64)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for seed := range seeds {
				playSchedule(t, kind, users(), seed, again)
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

// ShowSchedule plays a schedule, and writes its faults and what happened to w.
func ShowSchedule(t *testing.T, kind Kind, users Users, seed int64, w io.Writer) {
	synctest.Test(t, func(t *testing.T) {
		trace, happened := playSeed(t, kind, users, seed, func(s *apiserver.Server) {
			traceAll(s)
			s.Intercept(kind.inWords(s))
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

// inWords returns an interceptor that adds a line in words to the trace for each executed write whose own line would be
// long. readable leaves out its own line.
func (k *Kind) inWords(s *apiserver.Server) func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	return func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		answer, err := next()
		if err != nil || answer.StatusCode >= http.StatusBadRequest {
			return answer, err
		}
		if words := k.wordsFor(r); words != "" {
			s.Note("%s: %s", r.User, words)
		}
		return answer, err
	}
}

// wordsFor describes a status or an event.
func (k *Kind) wordsFor(r *apiserver.Request) string {
	if (r.Subresource != "status" || k.served(r.Resource.Resource) == nil) && r.Resource.Resource != "events" {
		return ""
	}
	decoded, err := k.decode(r)
	if err != nil {
		return ""
	}
	switch obj := decoded.(type) {
	case *eventsv1.Event:
		return fmt.Sprintf("event %s %s %s: %s", obj.Regarding.Name, obj.Type, obj.Reason, obj.Note)
	case *appsv1.Deployment:
		replicas := "?" // A status needs no spec.
		if n := obj.Spec.Replicas; n != nil {
			replicas = fmt.Sprint(*n)
		}
		return fmt.Sprintf("status deployment %s %d of %s replicas available",
			obj.Name, obj.Status.AvailableReplicas, replicas)
	}
	return fmt.Sprintf("status %s %s", r.Name, Summary(decoded))
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
