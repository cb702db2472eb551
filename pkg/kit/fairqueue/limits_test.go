package fairqueue

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// A pool has the goroutines that work on the keys of a queue, in virtual time.
type pool struct {
	*Queue[string]
	// work returns how long the work on a key lasts, and is called when it begins.
	work func(key string) time.Duration

	mu     sync.Mutex
	inHand map[string]int // By namespace.
	begun  map[string]time.Time
}

// hangs is a work that does not end before the test.
const hangs = 1000 * time.Hour

// newPool starts the goroutines. They end with the test.
func newPool(t *testing.T, config Config[string], work func(key string) time.Duration) *pool {
	config.Namespace = keyNamespace
	p := &pool{Queue: New(config), work: work, inHand: map[string]int{}, begun: map[string]time.Time{}}
	over := make(chan struct{})
	for range p.Goroutines() {
		go func() {
			for key, shutdown := p.Get(); !shutdown; key, shutdown = p.Get() {
				end := time.NewTimer(p.begin(key, 1))
				select {
				case <-end.C:
				case <-over:
				}
				p.begin(key, -1)
				p.Done(key)
			}
		}()
	}
	t.Cleanup(func() {
		close(over)
		p.ShutDown()
	})
	return p
}

// begin notes that one more or less key is in hand.
func (p *pool) begin(key string, more int) (last time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inHand[keyNamespace(key)] += more
	if more > 0 {
		p.begun[key] = time.Now()
		return p.work(key)
	}
	return 0
}

// held returns how many keys are in hand, by namespace.
func (p *pool) held() map[string]int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	held := maps.Clone(p.inHand)
	maps.DeleteFunc(held, func(_ string, n int) bool { return n == 0 })
	return held
}

func (p *pool) mustHold(t *testing.T, want map[string]int) {
	t.Helper()
	if held := p.held(); !maps.Equal(held, want) {
		t.Fatalf("in hand: %v, want %v", held, want)
	}
}

// delay adds a key and returns the time until the work on it begins, at most limit.
func (p *pool) delay(key string, class Class, limit time.Duration) time.Duration {
	added := time.Now()
	p.mu.Lock()
	delete(p.begun, key)
	p.mu.Unlock()
	p.AddAs(key, class)
	for time.Since(added) < limit {
		synctest.Wait()
		p.mu.Lock()
		begun, ok := p.begun[key]
		p.mu.Unlock()
		if ok {
			return begun.Sub(added)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return limit
}

func addMany(q *Queue[string], namespace string, n int, class Class) {
	for i := range n {
		q.AddAs(fmt.Sprint(namespace, "/", i), class)
	}
}

func hang(string) time.Duration { return hangs }

func TestANamespaceHasAtMostHalfOfTheWorkers(t *testing.T) {
	for workers, limit := range map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 16: 8} {
		synctest.Test(t, func(t *testing.T) {
			p := newPool(t, Config[string]{Workers: workers}, hang)
			addMany(p.Queue, "a", 100, Change)
			p.mustHold(t, map[string]int{"a": limit})
			time.Sleep(time.Hour) // Slow keys count.
			p.mustHold(t, map[string]int{"a": limit})
		})
	}
}

func TestAKeyThatComesBackMakesRoomInItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		addMany(q, "a", 4, Change)
		mustGet(t, q, "a/0")
		mustGet(t, q, "a/1")
		next := started(func() { mustGet(t, q, "a/2") })
		if next() {
			t.Fatal("a namespace has more than half of the workers")
		}
		q.Done("a/1")
		if !next() {
			t.Fatal("the place that Done has made is not used")
		}
	})
}

// A worker has one key at a time, unless a key is slow. Then another goroutine takes the next one.
func TestASlowKeyTakesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config[string]{Workers: 4}, hang)
		for i := range 20 {
			addMany(p.Queue, fmt.Sprint("n", i), 1, Change)
		}
		for _, want := range []int{4, 8, 12, 16, 16, 16} {
			if got := len(p.held()); got != want {
				t.Fatalf("%d keys are in hand, want %d", got, want)
			}
			time.Sleep(time.Second - time.Nanosecond)
			if got := len(p.held()); got != want {
				t.Fatalf("%d keys are in hand just before a second has passed, want %d", got, want)
			}
			time.Sleep(time.Nanosecond)
		}
	})
}

// That is so even if the caller starts too many goroutines.
func TestAtMostFourKeysForEachWorkerAreInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(3)
		var inHand atomic.Int64
		for i := range 20 {
			q.AddAs(fmt.Sprint("n", i, "/1"), Change)
			go func() {
				if _, shutdown := q.Get(); !shutdown {
					inHand.Add(1)
				}
			}()
		}
		time.Sleep(time.Hour)
		q.AddAs("more/1", Change)
		synctest.Wait()
		if got := int(inHand.Load()); got != 12 || got != q.Goroutines() {
			t.Errorf("%d keys are in hand, want 12", got)
		}
		q.ShutDown()
	})
}

// What ends makes room for what waits, be it slow or not.
func TestDoneOfASlowKeyMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config[string]{Workers: 2}, func(string) time.Duration { return 10 * time.Second })
		for i := range 20 {
			addMany(p.Queue, fmt.Sprint("n", i), 1, Change)
		}
		for _, want := range []int{2, 4, 6, 8, 8, 8, 8, 8, 8, 8, 8} {
			if got := len(p.held()); got != want {
				t.Fatalf("%d keys are in hand, want %d", got, want)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		p.mustHold(t, map[string]int{})
		mustLen(t, p.Queue, 0)
	})
}

// The objects of some namespaces are behind a webhook that does not answer, or that takes ten seconds.
func TestWritesThatHangDoNotDelayOtherNamespaces(t *testing.T) {
	for _, lasts := range []time.Duration{hangs, 10 * time.Second} {
		for _, namespaces := range []int{1, 2, 5} {
			for _, keys := range []int{16, 100, 500} {
				t.Run(fmt.Sprintf("%d keys in %d namespaces last %s", keys, namespaces, lasts), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := newPool(t, Config[string]{Workers: 16}, func(key string) time.Duration {
							if key[0] == 'n' {
								return 10 * time.Millisecond
							}
							return lasts
						})
						for i := range namespaces {
							addMany(p.Queue, fmt.Sprint("hanging", i), keys, Change)
						}
						var worst time.Duration
						for start := time.Now(); time.Since(start) < time.Hour; time.Sleep(67 * time.Second) {
							worst = max(worst, p.delay("new/1", Change, time.Minute))
							for i := range namespaces { // They fail and come back.
								addMany(p.Queue, fmt.Sprint("hanging", i), keys, Failed)
							}
						}
						if worst >= 2*time.Second {
							t.Errorf("a new key elsewhere waits for %s", worst)
						}
					})
				})
			}
		}
	}
}

// tokens returns a Config with tokens, a second for each.
func tokens(workers, burst int) Config[string] {
	return Config[string]{Workers: workers, Retries: rate.NewLimiter(1, burst)}
}

func quick(string) time.Duration { return 0 }

func TestNFailedKeysComeBackWithinNTokens(t *testing.T) {
	for _, perSecond := range []rate.Limit{0.3, 1, 3, 7, 50, 1e4, 1e9} {
		for _, burst := range []int{1, 2, 300} {
			synctest.Test(t, func(t *testing.T) {
				limiter := rate.NewLimiter(perSecond, burst)
				limiter.AllowN(time.Now(), burst)
				p := newPool(t, Config[string]{Workers: 4, Retries: limiter}, quick)
				const n = 500
				addMany(p.Queue, "a", n-1, Failed)
				addMany(p.Queue, "b", 1, Failed)
				bound := time.Duration(n/float64(perSecond)*float64(time.Second)) + n // Each time is rounded up to 1 ns.
				time.Sleep(bound / 2)
				synctest.Wait()
				if got := p.Len(); perSecond < 1e5 && (got < n/2-1 || got > n/2+1) {
					t.Errorf("rate %v, burst %d: %d keys wait after half of the time", perSecond, burst, got)
				}
				time.Sleep(bound - bound/2)
				synctest.Wait()
				if got := p.Len(); got != 0 {
					t.Errorf("rate %v, burst %d: %d keys wait after %s", perSecond, burst, got, bound)
				}
			})
		}
	}
}

// In any time no more failed keys are handed out than there are tokens.
func TestFailedKeysAreNotHandedOutFasterThanTokensCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := 0
		p := newPool(t, tokens(4, 10), func(string) time.Duration { count++; return 0 })
		for i := range 7 {
			addMany(p.Queue, fmt.Sprint("n", i), 50, Failed)
		}
		for i := range 600 {
			addMany(p.Queue, fmt.Sprint("n", i%7), 50, Failed)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if most := 10 + (i+1)/10; count > most || count < most-1 {
				t.Fatalf("%d keys after %d00 ms, want %d", count, i+1, most)
			}
		}
	})
}

func TestTokensAreTakenInTurnsByTheNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, tokens(4, 1), quick)
		addMany(p.Queue, "a", 1000, Failed)
		addMany(p.Queue, "b", 3, Failed)
		time.Sleep(100 * time.Second)
		if delay := p.delay("c/1", Failed, time.Hour); delay > 3*time.Second {
			t.Errorf("one key that failed waits for %s", delay)
		}
		if got := p.Len(); got < 900 || got > 903 {
			t.Errorf("%d keys are left, want 900 to 903", got)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range 3 {
			if _, ok := p.begun[fmt.Sprint("b/", i)]; !ok {
				t.Errorf("b/%d was not handed out", i)
			}
		}
	})
}

// What did not fail is not delayed by what failed, in the same namespace or in another, however long the tokens are
// used up for.
func TestWhatDidNotFailNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, tokens(4, 1), quick)
		addMany(p.Queue, "a", 5000, Failed)
		for range 100 {
			for _, class := range []Class{Change, Retry, Initial} {
				for _, key := range []string{"a/new", "b/new"} {
					if delay := p.delay(key, class, time.Hour); delay != 0 {
						t.Fatalf("%s in class %d waits for %s", key, class, delay)
					}
				}
			}
			time.Sleep(777 * time.Millisecond)
		}
	})
}

// A change brings a key that failed back at once, and takes nothing from the others.
func TestAChangeMakesTheTokenUnnecessary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, tokens(4, 1), quick)
		addMany(p.Queue, "a", 10, Failed)
		time.Sleep(500 * time.Millisecond)
		if delay := p.delay("a/9", Change, time.Hour); delay != 0 {
			t.Errorf("it waits for %s", delay)
		}
		for range 100 { // No debt is built up.
			p.AddAs("a/8", Change)
			p.AddAs("a/8", Failed)
			synctest.Wait()
		}
		time.Sleep(7500 * time.Millisecond)
		if got := p.Len(); got != 0 {
			t.Errorf("%d keys wait, want none", got)
		}
	})
}

// A key that failed waits for its token, even if it is also added because of a report or a resync, before or after.
func TestWithoutAChangeAFailedKeyWaitsForItsToken(t *testing.T) {
	for _, classes := range [][]Class{{Failed, Retry}, {Retry, Failed}, {Failed, Initial}, {Initial, Failed}} {
		synctest.Test(t, func(t *testing.T) {
			q := New(Config[string]{Workers: 4, Namespace: keyNamespace, Retries: tokens(4, 1).Retries})
			defer q.ShutDown()
			q.AddAs("a/1", Failed)
			mustGet(t, q, "a/1") // Takes the only token.
			q.Done("a/1")
			for _, class := range classes {
				q.AddAs("a/2", class)
			}
			began := time.Now()
			mustGet(t, q, "a/2")
			if waited := time.Since(began); waited != time.Second {
				t.Errorf("classes %v: it waits for %s, want a second", classes, waited)
			}
		})
	}
}

// A key that is in hand and changes as well needs no token either.
func TestAChangeWhileInHandMakesTheTokenUnnecessary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := tokens(2, 1)
		config.Retries.Allow()
		config.Namespace = keyNamespace
		q := New(config)
		q.AddAs("a/1", Change)
		mustGet(t, q, "a/1")
		q.AddAs("a/1", Failed)
		q.AddAs("a/1", Change)
		q.AddAs("a/1", Failed)
		q.Done("a/1")
		if !started(func() { mustGet(t, q, "a/1") })() {
			t.Fatal("it waits for a token")
		}
		q.AddAs("a/1", Failed)
		q.Done("a/1")
		start := time.Now()
		if mustGet(t, q, "a/1"); time.Since(start) != time.Second {
			t.Errorf("it was handed out after %s, want 1s: the claim of before is used up", time.Since(start))
		}
	})
}

// A namespace that hangs at its limit cannot use a token. It leaves it to the others.
func TestANamespaceAtItsLimitTakesNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := tokens(4, 1)
		p := newPool(t, config, func(key string) time.Duration {
			if keyNamespace(key) == "hanging" {
				return hangs
			}
			return 0
		})
		p.AddAs("hanging/change1", Change)
		p.AddAs("hanging/change2", Change)
		addMany(p.Queue, "hanging", 100, Failed)
		p.mustHold(t, map[string]int{"hanging": 2})
		if config.Retries.Tokens() != 1 {
			t.Error("a token was taken for a key that is not handed out")
		}
		start := time.Now()
		addMany(p.Queue, "b", 10, Failed)
		for p.Len() > 100 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if got := time.Since(start); got != 9*time.Second { // The first token was there.
			t.Errorf("10 keys that failed came back after %s, want 9s", got)
		}
	})
}

// A token is not taken for a key that no worker can take.
func TestWithoutAWorkerNoTokenIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := tokens(2, 10)
		config.Namespace = keyNamespace
		q := New(config)
		q.AddAs("a/1", Change)
		q.AddAs("b/1", Change)
		mustGet(t, q, "a/1")
		mustGet(t, q, "b/1")
		q.AddAs("c/1", Failed)
		next := started(func() { mustGet(t, q, "c/1") })
		if next() || config.Retries.Tokens() != 10 {
			t.Errorf("%v tokens are left, want 10", config.Retries.Tokens())
		}
		q.Done("a/1")
		if !next() || config.Retries.Tokens() != 9 {
			t.Errorf("%v tokens are left, want 9", config.Retries.Tokens())
		}
	})
}

func TestALimiterWithoutALimitNeedsNoTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config[string]{Workers: 4, Retries: rate.NewLimiter(rate.Inf, 0)}, quick)
		addMany(p.Queue, "a", 1000, Failed)
		synctest.Wait()
		mustLen(t, p.Queue, 0)
	})
}

// The rate may be changed at any time, even from zero.
func TestARateThatIsRaisedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(0, 1)
		limiter.Allow()
		p := newPool(t, Config[string]{Workers: 4, Retries: limiter}, quick)
		addMany(p.Queue, "a", 10, Failed)
		time.Sleep(time.Hour)
		mustLen(t, p.Queue, 10)
		limiter.SetLimit(1)
		time.Sleep(time.Minute + 11*time.Second)
		mustLen(t, p.Queue, 0)
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

// What is queued is handed out at the end, as by client-go's queue, without limits and tokens.
func TestAtTheEndEverythingIsHandedOut(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := tokens(2, 1)
				config.Retries.Allow()
				config.Namespace = keyNamespace
				q := New(config)
				q.AddAs("hanging/1", Change)
				mustGet(t, q, "hanging/1")
				addMany(q, "hanging", 100, Change)
				addMany(q, "b", 100, Failed)
				over := started(func() { end(q) })
				over()
				got := map[string]bool{}
				for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
					got[key] = true
				}
				if len(got) != 199 {
					t.Errorf("%d keys are handed out, want 199", len(got))
				}
				mustLen(t, q, 0)
				for key := range got {
					q.Done(key)
				}
				q.Done("hanging/1") // It was added while in hand.
				mustGet(t, q, "hanging/1")
				q.Done("hanging/1")
				if !over() {
					t.Error("the end has not come")
				}
			})
		})
	}
}

func TestAfterTheEndNoTimerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := tokens(4, 1)
		config.Namespace = keyNamespace
		q := New(config)
		rings := 0
		q.alarm.ring = func() { rings++; q.retry() }
		addMany(q, "a", 3, Failed)
		mustGet(t, q, "a/0")
		waits := started(func() { mustGet(t, q, "a/1") })
		time.Sleep(time.Second)
		if !waits() || rings == 0 {
			t.Fatalf("the alarm has rung %d times", rings)
		}
		q.Done("a/0")
		q.Done("a/1")
		waits = started(func() { mustGet(t, q, "a/2") })
		if waits() || q.alarm.at == 0 {
			t.Fatal("the alarm is not set")
		}
		before := rings
		q.ShutDown()
		time.Sleep(time.Hour)
		if !waits() || rings != before {
			t.Error("the alarm rings after the end")
		}
	})
}
