package fairqueue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func TestTheDelayIsTheOneThatWasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[string]()
		for _, after := range []time.Duration{0, 5 * time.Millisecond, time.Minute, 10 * time.Millisecond} {
			for _, expected := range []bool{false, true} {
				l.Failed("a", after, expected)
				if got := l.When("a"); got != after {
					t.Errorf("expected %t: a delay of %s, want %s", expected, got, after)
				}
			}
		}
		if got := l.When("b"); got != 0 {
			t.Errorf("a key that never failed is delayed by %s", got)
		}
	})
}

func TestNumRequeuesAndForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[string]()
		l.Failed("a", time.Second, false)
		l.When("a")
		l.Failed("a", time.Second, true)
		l.When("a")
		l.Failed("b", time.Second, false)
		if a, b, c := l.NumRequeues("a"), l.NumRequeues("b"), l.NumRequeues("c"); a != 2 || b != 1 || c != 0 {
			t.Errorf("%d, %d and %d requeues, want 2, 1 and 0", a, b, c)
		}
		l.Forget("a")
		l.Forget("c")
		if a, b := l.NumRequeues("a"), l.NumRequeues("b"); a != 0 || b != 1 {
			t.Errorf("%d and %d requeues after one was forgotten, want 0 and 1", a, b)
		}
		if got := l.When("a"); got != 0 {
			t.Errorf("a key that was forgotten is delayed by %s", got)
		}
		l.Waits("d", false)
		if len(l.keys) != 1 { // One that waits and never failed is not one of them.
			t.Errorf("%d keys are remembered, want 1", len(l.keys))
		}
	})
}

// A key whose last sync did not fail is no failed one, though its failures still count.
func TestTheClassOfAKey(t *testing.T) {
	l := NewLimiter[string]()
	steps := []struct {
		name string
		do   func()
		want bool
		n    int
	}{
		{name: "nothing is recorded", do: func() {}},
		{name: "it waits", do: func() { l.Waits("a", false) }},
		{name: "it failed", do: func() { l.Failed("a", time.Second, false) }, want: true, n: 1},
		{name: "it waits for something else after the failure", do: func() { l.Waits("a", false) }, n: 1},
		{name: "it waits for the backoff after that", do: func() { l.Waits("a", true) }, want: true, n: 1},
		{name: "it waits for something else again", do: func() { l.Waits("a", false) }, n: 1},
		{name: "it failed again", do: func() { l.Failed("a", time.Second, false) }, want: true, n: 2},
		{name: "a failure was expected", do: func() { l.Failed("a", time.Second, true) }, n: 3},
		{name: "it waits for the backoff of that", do: func() { l.Waits("a", true) }, n: 3},
		{name: "another key failed", do: func() { l.Failed("b", time.Second, false) }, n: 3},
		{name: "it failed once more", do: func() { l.Failed("a", time.Second, false) }, want: true, n: 4},
		{name: "it is forgotten", do: func() { l.Forget("a") }},
	}
	for _, step := range steps {
		step.do()
		if got, n := l.Class("a") == Failed, l.NumRequeues("a"); got != step.want || n != step.n {
			t.Errorf("%s: failed %t, %d requeues; want %t, %d", step.name, got, n, step.want, step.n)
		}
	}
}

// The queue uses the limiter: a key is requeued when its delay has ended, and not before.
func TestTheQueueAsksTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[string]()
		queue := workqueue.NewTypedRateLimitingQueue[string](l)
		defer queue.ShutDown()
		l.Failed("a", time.Second, false)
		start := time.Now()
		queue.AddRateLimited("a")
		key, shutdown := queue.Get()
		if key != "a" || shutdown || time.Since(start) < time.Second || time.Since(start) > 1100*time.Millisecond {
			t.Errorf("%q came back after %s, want a after 1s", key, time.Since(start))
		}
		if got := queue.NumRequeues("a"); got != 1 {
			t.Errorf("%d requeues, want 1", got)
		}
		queue.Forget("a")
		queue.Done("a")
		if got := queue.NumRequeues("a"); got != 0 {
			t.Errorf("%d requeues after it was forgotten, want 0", got)
		}
	})
}

// For the race detector: many workers share one Limiter.
func TestALimiterMayBeUsedConcurrently(t *testing.T) {
	l := NewLimiter[int]()
	var workers sync.WaitGroup
	for key := range 8 {
		workers.Go(func() {
			for range 100 {
				l.Failed(key, time.Minute, false)
				if l.When(key) != time.Minute || l.NumRequeues(key) != 1 {
					t.Errorf("key %d: the failure is lost", key)
				}
				l.Forget(key)
			}
		})
	}
	workers.Wait()
}
