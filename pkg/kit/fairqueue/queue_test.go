package fairqueue

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyNamespace returns the part of a key before the slash.
func keyNamespace(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

func newQueue(workers int) *Queue[string] {
	return New(Config[string]{Workers: workers, Namespace: keyNamespace})
}

// mustGet returns the next key, and fails if it is not want.
func mustGet(t *testing.T, q *Queue[string], want string) {
	t.Helper()
	if key, shutdown := q.Get(); key != want || shutdown {
		t.Fatalf("Get returned %q, %t, want %q", key, shutdown, want)
	}
}

func mustLen(t *testing.T, q *Queue[string], want int) {
	t.Helper()
	if got := q.Len(); got != want {
		t.Fatalf("Len is %d, want %d", got, want)
	}
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

// For the race detector.
func TestAQueueAndALimiterMayBeUsedConcurrently(t *testing.T) {
	q, l := newQueue(2), NewLimiter[int]()
	var producers, consumers sync.WaitGroup
	for i := range 4 {
		producers.Go(func() {
			for n := range 500 {
				l.Failed(i, time.Minute, false)
				if l.When(i) != time.Minute || l.NumRequeues(i) != 1 {
					t.Errorf("key %d: the failure is lost", i)
				}
				l.Forget(i)
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
	if got := q.Counts(others); !maps.Equal(got, want) {
		t.Errorf("counts: %v, want %v", got, want)
	}
}

// mustTake fails if the queued keys are not handed out to one worker in this order.
func mustTake(t *testing.T, q *Queue[string], want ...string) {
	t.Helper()
	for _, key := range want {
		mustGet(t, q, key)
		q.Done(key)
	}
	mustLen(t, q, 0)
}

func TestNamespacesTakeTurns(t *testing.T) {
	q := newQueue(1)
	for _, key := range strings.Fields("a/1 a/2 a/3 b/1 b/2 c/1 c/2 c/3") {
		q.AddAs(key, Change)
	}
	mustTake(t, q, "a/1", "b/1", "c/1", "a/2", "b/2", "c/2", "a/3", "c/3")
}

// A key that is queued may become that of another object, in another namespace.
func TestAKeyMovesToItsNamespace(t *testing.T) {
	moved := map[string]string{}
	q := New(Config[string]{Workers: 1, Namespace: func(key string) string {
		return cmp.Or(moved[key], keyNamespace(key))
	}})
	for _, key := range strings.Fields("a/1 a/2 a/3 b/1 c/1") {
		q.Add(key)
	}
	moved["a/3"], moved["b/1"] = "d", "a"
	q.Add("a/3")
	q.Add("b/1")
	mustTake(t, q, "a/1", "c/1", "a/3", "a/2", "b/1")
	if s := q.schedule; len(s.namespaces) > 0 || len(s.items) > 0 {
		t.Errorf("%d namespaces and %d keys are kept", len(s.namespaces), len(s.items))
	}
}

// work starts the goroutines of a queue, in virtual time. They call lasts when the work on a key begins, and it returns
// how long that takes.
func work(t *testing.T, q *Queue[string], lasts func(key string) time.Duration) {
	for range q.Goroutines() {
		go func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				select {
				case <-time.After(lasts(key)):
				case <-t.Context().Done():
				}
				q.Done(key)
			}
		}()
	}
	t.Cleanup(q.ShutDown)
}

// hangs is a time that does not end before the test.
const hangs = 1000 * time.Hour

func addMany(q *Queue[string], namespace string, n int, class Class) {
	for i := range n {
		q.AddAs(fmt.Sprint(namespace, "/", i), class)
	}
}

// hang starts goroutines that get keys and hang. It returns how many keys are in hand.
func hang(t *testing.T, q *Queue[string]) (inHand *atomic.Int64) {
	inHand = &atomic.Int64{}
	work(t, q, func(string) time.Duration {
		inHand.Add(1)
		return hangs
	})
	return inHand
}

func TestANamespaceHasAtMostHalfOfTheWorkers(t *testing.T) {
	for workers, want := range map[int]int64{0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 16: 8} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(workers)
			inHand := hang(t, q)
			addMany(q, "a", 100, Change)
			time.Sleep(time.Hour) // Slow keys count.
			if got := inHand.Load(); got != want {
				t.Errorf("%d keys are in hand with %d workers, want %d", got, workers, want)
			}
		})
	}
}

// Four keys for each worker are in hand at most, even if the caller starts too many goroutines.
func TestAtMostFourKeysForEachWorkerAreInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(3)
		inHand, more := hang(t, q), hang(t, q)
		for i := range 20 {
			q.AddAs(fmt.Sprint("n", i, "/1"), Change)
		}
		time.Sleep(time.Hour)
		q.AddAs("more/1", Change)
		synctest.Wait()
		if got := inHand.Load() + more.Load(); got != 12 || q.Goroutines() != 12 {
			t.Errorf("%d keys are in hand, want 12", got)
		}
	})
}

// The objects of some namespaces are behind a webhook that does not answer, or that takes ten seconds.
func TestWritesThatHangDoNotDelayOtherNamespaces(t *testing.T) {
	for _, slow := range []time.Duration{hangs, 10 * time.Second} {
		for _, namespaces := range []int{1, 5} {
			for _, keys := range []int{16, 300} {
				t.Run(fmt.Sprintf("%d keys in %d namespaces last %s", keys, namespaces, slow), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						q, begun := newQueue(16), make(chan struct{})
						work(t, q, func(key string) time.Duration {
							if key != "new/1" {
								return slow
							}
							begun <- struct{}{}
							return 10 * time.Millisecond
						})
						for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(67 * time.Second) {
							for i := range namespaces { // They fail and come back.
								addMany(q, fmt.Sprint("hanging", i), keys, Failed)
							}
							added := time.Now()
							q.AddAs("new/1", Change)
							<-begun
							if waited := time.Since(added); waited >= 2*time.Second {
								t.Errorf("a new key elsewhere waits for %s", waited)
							}
						}
					})
				})
			}
		}
	}
}

// newRetries returns a queue with 4 workers whose retries need the tokens of a limiter.
func newRetries(t *testing.T, limiter *rate.Limiter) *Queue[string] {
	q := New(Config[string]{Workers: 4, Namespace: keyNamespace, Retries: limiter})
	work(t, q, func(string) time.Duration { return 0 })
	return q
}

func TestNFailedKeysComeBackWithinNTokens(t *testing.T) {
	for _, perSecond := range []rate.Limit{0.3, 7, 1e9} {
		for _, burst := range []int{1, 300} {
			synctest.Test(t, func(t *testing.T) {
				limiter := rate.NewLimiter(perSecond, burst)
				limiter.AllowN(time.Now(), burst)
				q := newRetries(t, limiter)
				const n = 500
				addMany(q, "a", n-1, Failed)
				addMany(q, "b", 1, Failed)
				bound := time.Duration(n/float64(perSecond)*float64(time.Second)) + n // Each time is rounded up to 1 ns.
				time.Sleep(bound)
				synctest.Wait()
				if got := q.Len(); got != 0 {
					t.Errorf("rate %v, burst %d: %d keys wait after %s", perSecond, burst, got, bound)
				}
			})
		}
	}
}

// The rate may be changed at any time, even from zero. Without a limit, no key needs a token.
func TestARateThatIsRaisedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(0, 1)
		limiter.Allow()
		limited, free := newRetries(t, limiter), newRetries(t, rate.NewLimiter(rate.Inf, 0))
		addMany(limited, "a", 10, Failed)
		addMany(free, "a", 10, Failed)
		time.Sleep(time.Hour)
		mustLen(t, limited, 10)
		mustLen(t, free, 0)
		limiter.SetLimit(1)
		time.Sleep(time.Minute + 11*time.Second)
		mustLen(t, limited, 0)
	})
}

// The next token may come after choose has found none, and before the goroutine waits. Nobody else would wake it.
func TestAGoroutineDoesNotWaitIfAKeyIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		q.AddAs("a/1", Change)
		if !started(func() {
			q.begin()
			defer q.end()
			q.wait()
		})() {
			t.Error("the goroutine waits")
		}
		q.ShutDown()
	})
}

func TestAfterTheEndNoTimerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(1, 1)
		limiter.Allow()
		q := newRetries(t, limiter)
		q.alarm.ring = func() { t.Error("the alarm rings after the end") }
		q.AddAs("a/1", Failed)
		synctest.Wait()
		if q.alarm.at == 0 {
			t.Error("the alarm is not set")
		}
		q.ShutDown()
		time.Sleep(time.Hour)
	})
}

// gauges has the values of the metrics of a queue.
type gauges struct {
	workqueue.MetricsProvider
	depth, adds gauge
	latency     []float64
}

type gauge int

func (g *gauge) Inc()                                                    { *g++ }
func (g *gauge) Dec()                                                    { *g-- }
func (g *gauge) Set(float64)                                             {}
func (g *gauges) Observe(seconds float64)                                { g.latency = append(g.latency, seconds) }
func (g *gauges) NewDepthMetric(string) workqueue.GaugeMetric            { return &g.depth }
func (g *gauges) NewAddsMetric(string) workqueue.CounterMetric           { return &g.adds }
func (g *gauges) NewLatencyMetric(string) workqueue.HistogramMetric      { return g }
func (g *gauges) NewWorkDurationMetric(string) workqueue.HistogramMetric { return new(gauges) }

func (g *gauges) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return new(gauge)
}

func (g *gauges) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return new(gauge)
}

// The metrics are those of client-go's queue. They count all keys that wait, also those without a token.
func TestTheMetricsCountWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		q := New(Config[string]{Name: "q", MetricsProvider: &g, Namespace: keyNamespace, Retries: rate.NewLimiter(0, 0)})
		defer q.ShutDown()
		addMany(q, "a", 5, Change)
		addMany(q, "b", 5, Failed)
		if g.depth != 10 || g.adds != 10 {
			t.Errorf("depth %d and %d adds, want 10 and 10", g.depth, g.adds)
		}
		time.Sleep(3 * time.Second)
		mustGet(t, q, "a/0")
		if g.depth != 9 || len(g.latency) != 1 || g.latency[0] != 3 {
			t.Errorf("depth %d, latencies %v, want 9 and 3 s", g.depth, g.latency)
		}
	})
}
