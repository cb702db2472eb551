package fairqueue

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// The cases of client-go's own tests of its queue, except those of its storage.

// keyNamespace returns the part of a key before the slash.
func keyNamespace(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

func newQueue(workers int) *Queue[string] {
	return New(Config[string]{Workers: workers, Namespace: keyNamespace})
}

// ends are the two ways to end a queue.
var ends = map[string]func(*Queue[string]){
	"ShutDown":          (*Queue[string]).ShutDown,
	"ShutDownWithDrain": (*Queue[string]).ShutDownWithDrain,
}

// mustGet returns the next key, and fails if it is not want.
func mustGet(t *testing.T, q *Queue[string], want string) {
	t.Helper()
	if key, shutdown := q.Get(); key != want || shutdown {
		t.Fatalf("Get returned %q, %t, want %q", key, shutdown, want)
	}
}

// mustEnd fails if Get does not report the end.
func mustEnd(t *testing.T, q *Queue[string]) {
	t.Helper()
	if key, shutdown := q.Get(); key != "" || !shutdown {
		t.Fatalf("Get returned %q, %t, want the end", key, shutdown)
	}
}

func mustLen(t *testing.T, q *Queue[string], want int) {
	t.Helper()
	if got := q.Len(); got != want {
		t.Fatalf("Len is %d, want %d", got, want)
	}
}

func TestManyProducersAndConsumers(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(10)
				var handedOut atomic.Int64
				var producers, consumers sync.WaitGroup
				for i := range 50 {
					producers.Go(func() {
						for range 50 {
							q.Add(string(rune('A'+i)) + "/key")
							time.Sleep(time.Millisecond)
						}
					})
				}
				for range 10 {
					consumers.Go(func() {
						for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
							if key == "late/key" {
								t.Error("a key that was added after the end is handed out")
							}
							handedOut.Add(1)
							time.Sleep(3 * time.Millisecond)
							q.Done(key)
						}
					})
				}
				producers.Wait()
				end(q)
				q.Add("late/key")
				consumers.Wait()
				mustLen(t, q, 0)
				if n := handedOut.Load(); n < 50 || n > 50*50 {
					t.Errorf("%d keys were handed out, want 50 to 2500", n)
				}
			})
		})
	}
}

func TestKeysThatAreAddedWhileInHand(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(10)
				var mu sync.Mutex
				times, inHand := map[string]int{}, map[string]bool{}
				var producers, consumers sync.WaitGroup
				for i := range 50 {
					producers.Go(func() { q.Add(string(rune('A'+i)) + "/key") })
				}
				take := func(key string) (again bool) {
					mu.Lock()
					defer mu.Unlock()
					if inHand[key] {
						t.Errorf("%s is in the hands of two consumers", key)
					}
					inHand[key] = true
					times[key]++
					return times[key] < 3
				}
				for range 10 {
					consumers.Go(func() {
						for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
							if take(key) {
								q.Add(key)
							}
							time.Sleep(time.Millisecond)
							mu.Lock()
							inHand[key] = false
							mu.Unlock()
							q.Done(key)
						}
					})
				}
				producers.Wait()
				time.Sleep(time.Minute)
				end(q)
				consumers.Wait()
				mustLen(t, q, 0)
				for key, n := range times {
					if n != 3 {
						t.Errorf("%s was handed out %d times, want 3", key, n)
					}
				}
				if len(times) != 50 {
					t.Errorf("%d keys were handed out, want 50", len(times))
				}
			})
		})
	}
}

func TestLenCountsAKeyOnce(t *testing.T) {
	q := newQueue(1)
	for i, key := range []string{"a/1", "b/1", "a/1"} {
		q.Add(key)
		mustLen(t, q, min(i+1, 2))
	}
	mustGet(t, q, "a/1")
	mustLen(t, q, 1)
}

func TestAKeyThatIsAddedWhileInHandComesBack(t *testing.T) {
	q := newQueue(1)
	q.Add("a/1")
	mustGet(t, q, "a/1")
	q.Add("a/1")
	mustLen(t, q, 0)
	q.Done("a/1")
	mustLen(t, q, 1)
	mustGet(t, q, "a/1")
	q.Done("a/1")
	mustLen(t, q, 0)
}

func TestAKeyThatIsAddedTwiceIsHandedOutOnce(t *testing.T) {
	q := newQueue(1)
	q.Add("a/1")
	q.Add("a/1")
	mustGet(t, q, "a/1")
	q.Done("a/1")
	mustLen(t, q, 0)
}

func TestAKeyThatIsAddedTwiceWhileInHandIsHandedOutOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8)
		q.Add("a/1")
		mustGet(t, q, "a/1")
		q.Add("a/1")
		q.Add("a/1")
		var again atomic.Bool
		go func() {
			mustGet(t, q, "a/1")
			again.Store(true)
			q.Done("a/1")
		}()
		synctest.Wait()
		if again.Load() {
			t.Error("the key is in hand twice")
		}
		q.Done("a/1")
		synctest.Wait()
		if !again.Load() {
			t.Error("the key did not come back")
		}
		mustLen(t, q, 0)
	})
}

// started runs f in a goroutine, and returns a function that reports whether f has returned.
func started(f func()) (ended func() bool) {
	var over atomic.Bool
	go func() {
		f()
		over.Store(true)
	}()
	return func() bool {
		synctest.Wait()
		return over.Load()
	}
}

func TestADrainWaitsForTheKeysInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8)
		q.Add("a/1")
		q.Add("b/1")
		mustGet(t, q, "a/1")
		mustGet(t, q, "b/1")
		drained := started(q.ShutDownWithDrain)
		if drained() || !q.ShuttingDown() {
			t.Fatal("the drain has ended, or has not begun")
		}
		mustEnd(t, q)
		q.Done("a/1")
		if drained() {
			t.Fatal("the drain has ended before the last Done")
		}
		q.Done("b/1")
		if !drained() {
			t.Fatal("the drain has not ended")
		}
	})
}

func TestShutDownDoesNotWaitForTheKeysInHand(t *testing.T) {
	q := newQueue(8)
	q.Add("a/1")
	q.Add("b/1")
	mustGet(t, q, "a/1")
	mustGet(t, q, "b/1")
	if q.ShuttingDown() {
		t.Fatal("it is shutting down too early")
	}
	q.ShutDown()
	if !q.ShuttingDown() {
		t.Fatal("it is not shutting down")
	}
	mustEnd(t, q)
}

func TestShutDownEndsADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8)
		q.Add("a/1")
		mustGet(t, q, "a/1")
		drained := started(q.ShutDownWithDrain)
		if drained() {
			t.Fatal("the drain has ended at once")
		}
		q.ShutDown()
		if !drained() {
			t.Fatal("the drain has not ended")
		}
	})
}

func TestADrainAfterShutDownWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8)
		q.Add("a/1")
		mustGet(t, q, "a/1")
		q.ShutDown()
		drained := started(q.ShutDownWithDrain)
		if drained() {
			t.Fatal("the drain has ended at once")
		}
		q.Done("a/1")
		if !drained() {
			t.Fatal("the drain has not ended")
		}
	})
}

func TestADrainHandsOutAKeyThatWasAddedWhileInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8)
		q.Add("a/1")
		mustGet(t, q, "a/1")
		q.Add("a/1")
		drained := started(q.ShutDownWithDrain)
		drained()
		mustEnd(t, q)
		q.Add("a/1") // Ignored.
		q.Done("a/1")
		mustGet(t, q, "a/1")
		q.Add("a/1") // Ignored.
		q.Done("a/1")
		mustEnd(t, q)
		if !drained() {
			t.Fatal("the drain has not ended")
		}
	})
}

func TestShutDownWakesAllThatWait(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(2)
				var waiting sync.WaitGroup
				for range q.Goroutines() {
					waiting.Go(func() { mustEnd(t, q) })
				}
				synctest.Wait()
				end(q)
				waiting.Wait()
			})
		})
	}
}

func TestAKeyIsNotKeptAfterDone(t *testing.T) {
	type object [1 << 10]byte // Too large to share its memory with something that is kept.
	q := New(Config[*object]{Namespace: func(*object) string { return "a" }})
	collected := make(chan struct{})
	func() {
		key := &object{}
		runtime.AddCleanup(key, func(struct{}) { close(collected) }, struct{}{})
		q.Add(key)
		q.Add(key)
		got, _ := q.Get()
		q.Done(got)
	}()
	for tries := 0; ; tries++ {
		runtime.GC()
		select {
		case <-collected:
			runtime.KeepAlive(q)
			return
		default:
		}
		if tries == 1000 {
			t.Fatal("the key is kept")
		}
		runtime.Gosched()
	}
}

// Client-go's queue would have such a key twice.
func TestDoneOfAKeyThatIsNotInHandDoesNothing(t *testing.T) {
	q := newQueue(1)
	q.Done("a/1")
	q.Add("a/1")
	q.Done("a/1")
	mustLen(t, q, 1)
	mustGet(t, q, "a/1")
	q.Done("a/1")
	q.Done("a/1")
	mustLen(t, q, 0)
	q.Add("a/1")
	q.Add("a/2")
	q.Done("a/2")
	mustGet(t, q, "a/1")
	q.Done("a/1")
	mustGet(t, q, "a/2")
	q.Done("a/2")
	q.ShutDown()
	mustEnd(t, q)
}

// The queue is made to be the storage of client-go's queues with delays.
func TestDelaysEndWithAnAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fair := New(Config[string]{Namespace: keyNamespace, Workers: 1, Class: func(key string) Class {
			if strings.HasPrefix(key, "initial/") {
				return Initial
			}
			return Change
		}})
		q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Queue: fair})
		start := time.Now()
		q.AddAfter("a/1", time.Minute)
		q.AddAfter("initial/1", 0)
		if key, _ := q.Get(); key != "initial/1" || time.Since(start) != 0 {
			t.Errorf("%s after %s, want initial/1 at once", key, time.Since(start))
		}
		q.Done("initial/1")
		if key, _ := q.Get(); key != "a/1" || time.Since(start) != time.Minute {
			t.Errorf("%s after %s, want a/1 after 1m", key, time.Since(start))
		}
		q.ShutDown()
		if _, shutdown := q.Get(); !shutdown {
			t.Error("the queue has not ended")
		}
	})
}

// For the race detector.
func TestAQueueMayBeUsedConcurrently(t *testing.T) {
	q := newQueue(2)
	var producers, consumers sync.WaitGroup
	for i := range 4 {
		producers.Go(func() {
			for n := range 500 {
				q.AddAs(string(rune('a'+i))+"/"+string(rune('a'+n%20)), Class(n%4))
				q.Len()
			}
		})
	}
	for range q.Goroutines() {
		consumers.Go(func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				q.Done(key)
			}
		})
	}
	producers.Wait()
	q.ShutDownWithDrain()
	consumers.Wait()
	mustLen(t, q, 0)
}

// Counts has the keys of each namespace. A key that is queued or in hand is not one of the others.
func TestCounts(t *testing.T) {
	q := New(Config[string]{
		Workers: 4, Namespace: keyNamespace, Retries: rate.NewLimiter(rate.Every(time.Hour), 1),
		Class: func(string) Class { return Failed },
	})
	defer q.ShutDown()
	q.AddAs("a/in hand", Change)
	mustGet(t, q, "a/in hand")
	q.AddAs("a/change", Change)
	q.AddAs("a/initial", Initial)
	q.Add("b/retry with the token")
	q.Add("b/retry without a token")
	want := map[string]Count{"a": {Queued: 2, InHand: 1, Others: 1}, "b": {Queued: 2}, "c": {Others: 2}}
	others := []string{"a/in hand", "a/change", "a/later", "b/retry without a token", "c/1", "c/2"}
	if diff := cmp.Diff(want, q.Counts(others)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
