package retry

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// retried records a failure of key and returns the delay before it is retried.
func retried[K comparable](l *Limiter[K], key K, after time.Duration) time.Duration {
	l.Failed(key, after, false)
	return l.When(key)
}

func TestTheDelayIsTheOneThatWasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[string](50, 300)
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
		l := NewLimiter[string](50, 300)
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
		if len(l.keys) != 1 {
			t.Errorf("%d keys are remembered, want 1", len(l.keys))
		}
	})
}

// All keys together are retried 50 times a second after a burst of 300.
func TestTheCommonLimitDelaysFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[int](50, 300)
		for key := range 400 {
			got, want := retried(l, key, time.Millisecond), time.Millisecond
			if key >= 300 {
				want = max(want, time.Duration(key-299)*20*time.Millisecond)
			}
			if got != want {
				t.Fatalf("key %d is delayed by %s, want %s", key, got, want)
			}
		}
		time.Sleep(2 * time.Second) // Until the last key is retried.
		if got := retried(l, 1000, time.Millisecond); got != 20*time.Millisecond {
			t.Errorf("a further key is delayed by %s, want 20ms: the bucket is empty at this time", got)
		}
		time.Sleep(10 * time.Second)
		if got := retried(l, 1001, time.Millisecond); got != time.Millisecond {
			t.Errorf("a key after a pause is delayed by %s, want 1ms", got)
		}
	})
}

// The longer of two delays counts: the delay of the key, and the delay from the common limit.
func TestTheLongerDelayCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[int](1, 1)
		for key, seconds := range []int{3, 3, 3, 3, 4, 5} {
			want := time.Duration(seconds) * time.Second
			if got := retried(l, key, 3*time.Second); got != want {
				t.Errorf("key %d is delayed by %s, want %s", key, got, want)
			}
		}
	})
}

// A conflict is normal work. It does not wait for the common limit, and does not count for it.
func TestTheCommonLimitDoesNotDelayExpectedFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[int](1, 1)
		for key := range 10 {
			retried(l, key, 0)
		}
		for key := range 10 {
			l.Failed(100+key, 5*time.Millisecond, true)
			if got := l.When(100 + key); got != 5*time.Millisecond {
				t.Fatalf("a conflict is delayed by %s, want 5ms", got)
			}
		}
		for key := range 10 { // The ten failures above have reserved nine seconds.
			l.Forget(100 + key)
		}
		if got := retried(l, 10, 0); got != 10*time.Second {
			t.Errorf("a failure after conflicts is delayed by %s, want 10s", got)
		}
	})
}

// A key may fail, be requeued early by an event, and fail again, many times. Each time it reserves more of the common
// limit. The other keys still wait no longer than it takes to retry every failed key once.
func TestAKeyThatIsRequeuedEarlyDoesNotDelayOthers(t *testing.T) {
	for _, others := range []int{0, 1, 49} {
		t.Run(fmt.Sprint(others, " others have failed"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter[string](50, 300)
				for i := range others {
					retried(l, fmt.Sprint("other-", i), time.Millisecond)
				}
				limit := func() time.Duration { return time.Duration(len(l.keys)) * time.Second / 50 }
				for range 10_000 {
					if got := retried(l, "again", 0); got > limit() {
						t.Fatalf("the key itself is delayed by %s, want at most %s", got, limit())
					}
				}
				if got := retried(l, "new", 0); got > limit() {
					t.Errorf("another key is delayed by %s, want at most %s", got, limit())
				}
				time.Sleep(10 * time.Second)
				if got := retried(l, "late", 0); got != 0 {
					t.Errorf("a key after a pause is delayed by %s, want none: too much is still reserved", got)
				}
			})
		})
	}
}

// A reservation is cancelled only if its delay is longer than the longest one that is allowed, not if it is equal.
func TestAReservationForTheLongestDelayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[string](1, 1)
		for i, want := range []time.Duration{0, time.Second} { // With one key, the longest delay is a second.
			if got := retried(l, "a", 0); got != want {
				t.Errorf("retry %d is delayed by %s, want %s", i+1, got, want)
			}
		}
		time.Sleep(time.Second) // Virtual time.
		if got := retried(l, "a", 0); got != time.Second {
			t.Errorf("the retry after a reserved one is delayed by %s, want a second", got)
		}
	})
}

// The queue uses the limiter: a key is requeued when its delay has ended, and not before.
func TestTheQueueAsksTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[string](50, 300)
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
	l := NewLimiter[int](1e6, 1e6)
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
