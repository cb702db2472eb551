package fairqueue

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// counted returns a queue and the number of comparisons that it has made.
func counted(config Config[string]) (q *Queue[string], comparisons *int) {
	config.Namespace = keyNamespace
	q, n := New(config), 0
	s := q.schedule
	s.byRank = func(a, b *item[string]) bool { n++; return byRank(a, b) }
	byTurn := func(a, b *lane[string]) bool { n++; return byTurn(a, b) }
	for _, turns := range []*turns[string]{&s.changes, &s.initial} {
		turns.free.before, turns.retries.before = byTurn, byTurn
	}
	return q, &n
}

// No operation makes more than a few times log2(n) comparisons, be n the number of keys or of namespaces.
func TestAnOperationMakesLogNComparisons(t *testing.T) {
	shapes := map[string]func(i, n int) string{
		"one namespace":                func(i, _ int) string { return fmt.Sprint("a/", i) },
		"each key in its namespace":    func(i, _ int) string { return fmt.Sprint(i, "/a") },
		"as many namespaces as keys":   func(i, n int) string { return fmt.Sprint(i%int(math.Sqrt(float64(n))), "/", i) },
		"two namespaces, one is small": func(i, n int) string { return fmt.Sprint(min(1, i%(n/4)), "/", i) },
	}
	for name, key := range shapes {
		for _, n := range []int{100, 1000, 10_000} {
			t.Run(fmt.Sprint(name, ", ", n, " keys"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { countComparisons(t, n, func(i int) string { return key(i, n) }) })
			})
		}
	}
}

func countComparisons(t *testing.T, n int, key func(int) string) {
	q, comparisons := counted(Config[string]{Workers: 4, Retries: rate.NewLimiter(rate.Limit(n), n/10)})
	limit := int(4*math.Log2(float64(n))) + 4
	worst := map[string]int{}
	measure := func(what string, operation func()) {
		before := *comparisons
		operation()
		worst[what] = max(worst[what], *comparisons-before)
	}
	for i := range n {
		measure("add", func() { q.AddAs(key(i), Class(i%4)) })
		if i%7 == 0 {
			measure("add again", func() { q.AddAs(key(i/2), Class(i/7%4)) })
		}
	}
	for i := range n {
		var got string
		measure("get", func() { got, _ = q.Get() })
		if i%3 == 0 {
			measure("add in hand", func() { q.Add(got) })
		}
		measure("done", func() { q.Done(got) })
		if i%(n/10) == 0 {
			time.Sleep(100 * time.Millisecond) // For tokens.
		}
	}
	for what, most := range worst {
		if most > limit {
			t.Errorf("%s: %d comparisons, want at most %d", what, most, limit)
		}
	}
	t.Log(worst)
}

// A queue that is empty keeps nothing, however many namespaces there were.
func TestANamespaceIsForgotten(t *testing.T) {
	q := newQueue(4)
	for range 3 {
		for i := range 1000 {
			q.AddAs(fmt.Sprint("n", i, "/1"), Change)
			q.AddAs(fmt.Sprint("n", i, "/2"), Initial)
		}
		takeAll(q)
		s := q.schedule
		names := len(s.changes.left) + len(s.initial.left)
		if kept := len(s.items) + len(s.namespaces) + names + s.queued + s.inHand + s.fast.len(); kept != 0 {
			t.Fatalf("%d keys, %d namespaces and %d names are kept, %d are queued, %d in hand, %d fast",
				len(s.items), len(s.namespaces), names, s.queued, s.inHand, s.fast.len())
		}
	}
}

// While others wait, the names of namespaces that are gone are kept until the end of the round, and no longer.
func TestNamesAreForgottenWithTheRound(t *testing.T) {
	q := newQueue(4)
	addMany(q, "a", 2000, Change)
	for i := range 1000 {
		q.Add(fmt.Sprint("n", i, "/1"))
		for range 2 {
			key, _ := q.Get()
			q.Done(key)
		}
		if kept := len(q.schedule.changes.left); kept > 1 {
			t.Fatalf("%d names are kept", kept)
		}
	}
}

// gauges has the values of the metrics of a queue.
type gauges struct {
	workqueue.MetricsProvider
	depth, adds gauge
	latency     []float64
}

type gauge int

func (g *gauge) Inc()        { *g++ }
func (g *gauge) Dec()        { *g-- }
func (g *gauge) Set(float64) {}

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
		config := tokens(2, 1)
		config.Name, config.MetricsProvider, config.Namespace = "q", &g, keyNamespace
		config.Retries.Allow()
		q := New(config)
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

// BenchmarkQueue compares the queue with the one of client-go.
func BenchmarkQueue(b *testing.B) {
	for _, namespaces := range []int{1, 1000} {
		for _, queued := range []int{0, 10_000} {
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprint(i%namespaces, "/", i)
			}
			queues := map[string]workqueue.TypedInterface[string]{
				"fair": newQueue(16), "plain": workqueue.NewTyped[string](),
			}
			for name, q := range queues {
				b.Run(fmt.Sprintf("%s/namespaces=%d/queued=%d", name, namespaces, queued), func(b *testing.B) {
					for i := range queued {
						q.Add(fmt.Sprint(i%namespaces, "/q", i))
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						q.Add(keys[i%len(keys)])
						key, _ := q.Get()
						q.Done(key)
					}
				})
			}
		}
	}
}
