package backoff

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

var errBoom = errors.New("boom")

// between fails the test unless the pause is want, less at most a fifth.
func between(t *testing.T, what string, pause, want time.Duration) {
	t.Helper()
	if pause > want || pause < want*4/5 {
		t.Errorf("%s: a pause of %v, want %v less at most a fifth", what, pause, want)
	}
}

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	b := New[string](5*time.Millisecond, time.Minute, nil)
	want, shares := 5*time.Millisecond, map[float64]bool{}
	for range 100 {
		pause := b.When("a")
		between(t, "after failures in a row", pause, want)
		shares[float64(pause)/float64(want)] = true
		want = min(2*want, time.Minute)
	}
	if len(shares) < 50 {
		t.Errorf("100 pauses are only %d different parts of what they may be", len(shares))
	}
	between(t, "the first failure of another key", b.When("b"), 5*time.Millisecond)
	if got := b.NumRequeues("a"); got != 100 {
		t.Errorf("%d failures counted, want 100", got)
	}
	b.Forget("a")
	if got := b.NumRequeues("a"); got != 0 {
		t.Errorf("%d failures counted after they were forgotten", got)
	}
	between(t, "the first failure after they were forgotten", b.When("a"), 5*time.Millisecond)
}

func TestHoldIsWhatIsLeftOfThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New[string](time.Second, time.Minute, nil)
		want := func(what string, left time.Duration, why error) {
			t.Helper()
			if gotLeft, gotWhy := b.Hold("a"); gotLeft != left || gotWhy != why {
				t.Errorf("%s: hold for %v because of %v, want %v because of %v", what, gotLeft, gotWhy, left, why)
			}
		}
		want("before any failure", 0, nil)
		b.Because("a", errBoom)
		want("a reason without a failure", 0, nil)

		pause := b.When("a")
		want("after a failure", pause, nil)
		b.Because("a", errBoom)
		want("with its reason", pause, errBoom)
		time.Sleep(pause - 1) // Virtual time.
		want("almost over", 1, errBoom)
		time.Sleep(time.Nanosecond)
		want("over", 0, nil)

		pause = b.When("a")
		between(t, "a second failure", pause, 2*time.Second)
		want("the reason of the first is not that of the second", pause, nil)
		b.Forget("a")
		want("after it is forgotten", 0, nil)
	})
}

func TestFailuresFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New[string](time.Second, time.Minute, nil)
		b.When("a")
		time.Sleep(b.When("a") + 10*time.Minute)
		if got := b.NumRequeues("a"); got != 2 {
			t.Errorf("%d failures remembered for ten minutes after the pause, want 2", got)
		}
		time.Sleep(time.Nanosecond)
		if got := b.NumRequeues("a"); got != 0 {
			t.Errorf("%d failures remembered for longer, want 0", got)
		}
		between(t, "the next failure", b.When("a"), time.Second)
	})
}

func TestAllKeysTogetherComeBackNoFasterThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New[int](time.Millisecond, time.Minute, rate.NewLimiter(50, 300))
		var last time.Duration
		for key := range 400 {
			last = b.When(key)
			if key < 300 && last > time.Millisecond {
				t.Fatalf("key %d pauses %v: within the burst it need not", key, last)
			}
		}
		if last != 2*time.Second {
			t.Errorf("the last of 400 pauses %v, want 2 s: 300 at once, then 50 a second", last)
		}
		if left, _ := b.Hold(399); left != last {
			t.Errorf("held for %v, want all of the pause of %v", left, last)
		}
	})
}

// For the race detector: many workers share one Backoff.
func TestBackoffMayBeUsedConcurrently(t *testing.T) {
	b := New[int](time.Minute, time.Hour, nil)
	var workers sync.WaitGroup
	for key := range 8 {
		workers.Go(func() {
			for range 100 {
				b.When(key)
				b.Because(key, errBoom)
				if left, why := b.Hold(key); left <= 0 || why != errBoom || b.NumRequeues(key) != 1 {
					t.Errorf("key %d: the failure was lost", key)
				}
				b.Forget(key)
			}
		})
	}
	workers.Wait()
}
