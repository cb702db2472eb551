package scenario

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// This file removes from a schedule what would be different when its seed is played again: orders that goroutines of
// one moment, or a map, decide. The latency of the faults lets no two requests or events have the same moment, see
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
