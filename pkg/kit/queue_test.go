package kit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/syncs"
	"example.com/foo-controller/pkg/kit/telemetry"
)

// TestMain fails if the tests leave a goroutine behind. The flags for logging start one that flushes the log, and that
// nothing ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

var (
	errBoom     = errors.New("boom")
	conflict    = apierrors.NewConflict(schema.GroupResource{Resource: "widgets"}, "web", errBoom)
	web, other  = cache.NewObjectName("default", "web"), cache.NewObjectName("default", "other")
	returnsDone = func(context.Context, cache.ObjectName) Outcome { return Done() }
)

// inBubble calls test with a Queue in virtual time, and shuts the Queue down.
func inBubble(t *testing.T, sync Sync, test func(t *testing.T, q *Queue)) {
	t.Helper()
	// The handler of errors delays the goroutine of a panic, in real time too.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(t.Context(), QueueConfig{Kind: "widget", Workers: 10, Sync: sync})
		test(t, q)
		q.ShutDown()
	})
}

// next syncs the next key, which must be there.
func next(t *testing.T, q *Queue) {
	t.Helper()
	synctest.Wait()
	if n := q.Workqueue.Len(); n == 0 {
		t.Fatal("no key is queued")
	}
	if !q.ProcessNextWorkItem(t.Context(), t.Context()) {
		t.Fatal("the worker has ended")
	}
}

// TestAnOutcomeDecidesWhenTheKeyComesBack syncs a key with one outcome after the other.
func TestAnOutcomeDecidesWhenTheKeyComesBack(t *testing.T) {
	after := func(outcome Outcome, after time.Duration) Outcome {
		outcome.After = after
		return outcome
	}
	for _, test := range []struct {
		name     string
		outcomes []Outcome
		// want are the delays after each sync; "never" if the key does not come back.
		want string
		// failures is the number of failures that are remembered in the end.
		failures int
	}{
		{name: "done", outcomes: []Outcome{Done()}, want: "never"},
		{name: "terminal", outcomes: []Outcome{Terminal()}, want: "never"},
		{name: "a wait", outcomes: []Outcome{Wait(3 * time.Second)}, want: "3s"},
		{
			name:     "failures in a row",
			outcomes: []Outcome{Retry(errBoom), Retry(errBoom), Retry(conflict), Retry(errBoom)}, want: "5ms 10ms 20ms 40ms",
			failures: 4,
		},
		{
			name: "many failures", outcomes: slices.Repeat([]Outcome{Retry(errBoom)}, 16), failures: 16,
			want: "5ms 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1.28s 2.56s 5.12s 10.24s 20.48s 40.96s 1m0s 1m0s",
		},
		{
			name:     "a failure after a wait",
			outcomes: []Outcome{Retry(errBoom), Wait(time.Second), Retry(errBoom)}, want: "5ms 1s 10ms", failures: 2,
		},
		{
			name:     "a failure after a success",
			outcomes: []Outcome{Retry(errBoom), Wait(time.Second), Done()}, want: "5ms 1s never",
		},
		{name: "a failure with its own delay", outcomes: []Outcome{after(Retry(errBoom), 7*time.Second)}, want: "7s",
			failures: 1},
		{name: "kinds that do not exist", outcomes: []Outcome{{}, {Kind: "Wait", After: time.Hour}}, want: "5ms 10ms",
			failures: 2},
		{name: "a failure without a delay", outcomes: []Outcome{after(Retry(errBoom), 0)}, want: "0s", failures: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var outcome Outcome
			inBubble(t, func(context.Context, cache.ObjectName) Outcome { return outcome }, func(t *testing.T, q *Queue) {
				var delays []string
				q.Add(web)
				for _, outcome = range test.outcomes {
					next(t, q)
					began := time.Now()
					for q.Workqueue.Len() == 0 && time.Since(began) < 2*time.Minute {
						time.Sleep(5 * time.Millisecond)
						synctest.Wait()
					}
					delay := time.Since(began).String()
					if q.Workqueue.Len() == 0 {
						delay = "never"
					}
					delays = append(delays, delay)
				}
				if got := strings.Join(delays, " "); got != test.want {
					t.Errorf("the key comes back after %s, want %s", got, test.want)
				}
				if got := q.Workqueue.NumRequeues(web); got != test.failures || len(q.retries.Failing()) != min(got, 1) {
					t.Errorf("%d failures of %v are remembered, want %d", got, q.retries.Failing(), test.failures)
				}
			})
		})
	}
}

func TestPanicCostsItsKeyAMinuteAndNothingElse(t *testing.T) {
	var synced []string
	inBubble(t, func(_ context.Context, key cache.ObjectName) Outcome {
		if key == web {
			panic("planted")
		}
		return Done()
	}, func(t *testing.T, q *Queue) {
		registry := metrics.NewKubeRegistry()
		q.Metrics = telemetry.NewMetrics("widget", registry.MustRegister)
		q.OnSynced = func(key cache.ObjectName, outcome Outcome) {
			synced = append(synced, fmt.Sprint(key.Name, " panicked: ", errors.Is(outcome.Err, ErrPanic)))
		}
		q.Add(web)
		q.Add(other)
		next(t, q)
		next(t, q)
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if n := q.Workqueue.Len(); n != 0 {
			t.Errorf("%d keys are queued within a minute", n)
		}
		time.Sleep(time.Nanosecond)
		next(t, q)
		counted := `
			# HELP widget_panics_total [ALPHA] Number of syncs that panicked. Each is a defect of the controller.
			# TYPE widget_panics_total counter
			widget_panics_total 2
			# HELP widget_syncs_total [ALPHA] Number of syncs by outcome: done, retry (it failed), wait (for time to pass), ` +
			`terminal (only a change helps).
			# TYPE widget_syncs_total counter
			widget_syncs_total{outcome="done"} 1
			widget_syncs_total{outcome="retry"} 2
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(counted), "widget_panics_total",
			"widget_syncs_total"); err != nil {
			t.Error(err)
		}
	})
	want := []string{"web panicked: true", "other panicked: false", "web panicked: true"}
	if diff := cmp.Diff(want, synced); diff != "" {
		t.Errorf("syncs (-want +got):\n%s", diff)
	}
}

func TestAWorkerThatIsStuckIsReported(t *testing.T) {
	request, end := make(chan struct{}), make(chan struct{})
	var q *Queue
	inBubble(t, func(_ context.Context, key cache.ObjectName) Outcome {
		<-request
		q.Progress(key)
		<-end
		return Done()
	}, func(t *testing.T, queue *Queue) {
		q = queue
		request, end = make(chan struct{}), make(chan struct{}) // Of the bubble.
		check := q.Check()
		q.Add(web)
		go q.ProcessNextWorkItem(t.Context(), t.Context())
		time.Sleep(stuckAfter - time.Second)
		request <- struct{}{} // The next request begins.
		time.Sleep(stuckAfter)
		synctest.Wait()
		if err := check.Do(); err != nil {
			t.Errorf("after %s: %v", stuckAfter, err)
		}
		time.Sleep(time.Second)
		if err := check.Do(); err == nil || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("after more than %s: %v, want the name of the key", stuckAfter, err)
		}
		close(end)
		synctest.Wait()
		if err := check.Do(); err != nil {
			t.Errorf("after the sync: %v", err)
		}
	})
}

func TestAWorkerTakesNoKeyAfterTheStop(t *testing.T) {
	inBubble(t, func(context.Context, cache.ObjectName) Outcome {
		t.Error("a key was synced")
		return Done()
	}, func(t *testing.T, q *Queue) {
		q.Add(web)
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if q.ProcessNextWorkItem(stopped, t.Context()) {
			t.Error("the worker took a key after the stop")
		}
	})
}

// The context of a running sync ends 10 s after the stop. Run returns when the sync does, and takes no further key.
func TestRunReturnsWhenTheRunningSyncsAreDone(t *testing.T) {
	type valueKey struct{}
	for _, lasts := range []time.Duration{time.Second, time.Hour} {
		var synced []string
		inBubble(t, func(ctx context.Context, key cache.ObjectName) Outcome {
			select {
			case <-time.After(lasts):
			case <-ctx.Done():
			}
			synced = append(synced, fmt.Sprint(key.Name, " ", ctx.Value(valueKey{}), " ", ctx.Err()))
			return Done()
		}, func(t *testing.T, q *Queue) {
			ctx, stop := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "value"))
			q.Add(web)
			ended := make(chan time.Time, 1)
			go func() {
				q.Run(ctx)
				ended <- time.Now()
			}()
			synctest.Wait()
			stopped := time.Now()
			stop()
			synctest.Wait()
			q.Add(other)
			time.Sleep(time.Minute)
			returned := <-ended
			want := fmt.Sprint("web value ", map[bool]any{true: context.Canceled, false: nil}[lasts > 10*time.Second])
			if got := strings.Join(synced, ", "); got != want || returned.Sub(stopped) != min(lasts, 10*time.Second) {
				t.Errorf("synced %s, and Run returned after %s; want %s and %s", got, returned.Sub(stopped), want,
					min(lasts, 10*time.Second))
			}
		})
	}
}

// Only a retry after a failure that is no normal work needs one of the tokens that the retries of all keys share,
// also if an event brought the key back before. A wait for the caches needs none.
func TestOnlyFailuresNeedAToken(t *testing.T) {
	backsOff := reconcile.WaitFor(reconcile.Backoff, time.Second)
	for _, test := range []struct {
		name     string
		outcomes []Outcome
		want     fairqueue.Class
	}{
		{name: "a conflict", outcomes: []Outcome{Retry(conflict)}, want: fairqueue.Retry},
		{name: "a refusal after a conflict", outcomes: []Outcome{Retry(conflict), Retry(errBoom)}, want: fairqueue.Failed},
		{name: "the wait for the backoff of a refusal", outcomes: []Outcome{Retry(errBoom), backsOff},
			want: fairqueue.Failed},
		{name: "a wait for the caches", outcomes: []Outcome{Retry(errBoom), Wait(time.Second)}, want: fairqueue.Retry},
		{name: "the backoff after that", outcomes: []Outcome{Retry(errBoom), Wait(time.Second), backsOff},
			want: fairqueue.Failed},
		{name: "a refusal after that", outcomes: []Outcome{Retry(errBoom), Wait(time.Second), Retry(errBoom)},
			want: fairqueue.Failed},
		{name: "the backoff of a conflict", outcomes: []Outcome{Retry(conflict), backsOff}, want: fairqueue.Retry},
		{name: "a success after a refusal", outcomes: []Outcome{Retry(errBoom), Done()}, want: fairqueue.Retry},
	} {
		t.Run(test.name, func(t *testing.T) {
			var outcome Outcome
			inBubble(t, func(context.Context, cache.ObjectName) Outcome { return outcome }, func(t *testing.T, q *Queue) {
				for _, outcome = range test.outcomes {
					q.Add(web) // An event.
					next(t, q)
				}
				if got := q.retries.Class(web); got != test.want {
					t.Errorf("class %d, want %d", got, test.want)
				}
			})
		})
	}
}

// Objects without a namespace share the workers by that of their children: a hundred of one team, before, do not delay
// the one of another.
func TestObjectsWithoutANamespaceShareTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(t.Context(), QueueConfig{
			Workers: 1, Sync: returnsDone,
			Namespace: func(key cache.ObjectName) string {
				team, _, _ := strings.Cut(key.Name, "-")
				return team
			},
		})
		defer q.ShutDown()
		var synced []string
		q.OnSynced = func(key cache.ObjectName, _ Outcome) { synced = append(synced, key.Name) }
		for i := range 100 {
			q.Add(cache.NewObjectName("", fmt.Sprint("red-", i)))
		}
		q.Add(cache.NewObjectName("", "blue-0"))
		(&Process{options: &Options{debugAddress: "127.0.0.1:0"}}).Show(q)
		for range 3 {
			next(t, q)
		}
		if !slices.Contains(synced, "blue-0") {
			t.Errorf("synced first: %q", synced)
		}
		w := httptest.NewRecorder()
		q.Syncs.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/syncs?namespace=blue", nil))
		if !strings.Contains(w.Body.String(), "  blue/blue-0\n") {
			t.Errorf("the syncs of blue:\n%s", w.Body)
		}
	})
}

// A cache that never has the object, because its informer has a selector, looks like one that lags.
func TestExpectedFailuresWithoutEndAreLogged(t *testing.T) {
	returnsConflict := func(context.Context, cache.ObjectName) Outcome { return Retry(conflict) }
	inBubble(t, returnsConflict, func(t *testing.T, q *Queue) {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		ctx := klog.NewContext(t.Context(), logger)
		q.Add(web)
		for range 8 {
			q.ProcessNextWorkItem(ctx, ctx)
		}
		if n := strings.Count(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), "Sync failed"); n != 2 {
			t.Errorf("%d of 8 conflicts in a row are logged, want 2", n)
		}
	})
}

// A lateStore is a cache that reaches version 9 at a time, and knows whether it was asked.
type lateStore struct {
	asked     bool
	reachesAt time.Time
}

func (s *lateStore) GetByKey(string) (any, bool, error) { return nil, false, nil }

func (s *lateStore) LastStoreSyncResourceVersion() string {
	s.asked = true
	if time.Now().Before(s.reachesAt) {
		return "8"
	}
	return "9"
}

// A sync that had read the caches before they caught up would act on objects that are older than its own writes. A key
// with a version is held until the next sync has asked again.
func TestTheCachesAreAskedBeforeTheyAreRead(t *testing.T) {
	store := &lateStore{}
	read := func(context.Context, cache.ObjectName) Outcome {
		if !store.asked {
			t.Error("the caches are read before they are asked what they have")
		}
		return Done()
	}
	inBubble(t, read, func(t *testing.T, q *Queue) {
		q.Writes.Wrote(web, store, &metav1.ObjectMeta{Name: "child", ResourceVersion: "9"})
		if outcome := q.Sync(t.Context(), web); outcome.Kind != reconcile.Done {
			t.Errorf("the outcome is %+v", outcome)
		}
		q.Writes.Wrote(web, store, &metav1.ObjectMeta{Name: "child", ResourceVersion: "10"})
		if outcome := q.Sync(t.Context(), web); outcome != reconcile.WaitFor(reconcile.CacheStale, 5*time.Millisecond) {
			t.Errorf("while the cache lags, the outcome is %+v", outcome)
		}
	})
}

// A key whose sync has recorded a write comes back after a delay, because there may be no event. It does not if an
// event was first. While the cache lags, events do not multiply the syncs.
func TestAKeyWaitsForTheCachesUntilASyncHasFoundThemCaughtUp(t *testing.T) {
	for _, test := range []struct {
		name   string
		events int
		lags   time.Duration
	}{
		{name: "there was no event"},
		{name: "an event has brought the key back", events: 1},
		{name: "many events come while the cache lags", events: 200, lags: 30 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			var q *Queue
			store, writes := &lateStore{}, 0
			write := func(context.Context, cache.ObjectName) Outcome {
				if writes++; writes == 1 {
					store.reachesAt = time.Now().Add(test.lags)
					q.Writes.Wrote(web, store, &metav1.ObjectMeta{Name: "child", ResourceVersion: "9"})
				}
				return Done()
			}
			inBubble(t, write, func(t *testing.T, queue *Queue) {
				q = queue
				q.Add(web)
				next(t, q)
				for range test.events {
					q.Add(web)
					next(t, q)
				}
				attempts := 0
				for ended := time.Now().Add(time.Minute); time.Now().Before(ended); time.Sleep(time.Millisecond) {
					for synctest.Wait(); q.Workqueue.Len() > 0; synctest.Wait() {
						next(t, q)
						attempts++
					}
				}
				if writes != 2 || attempts > 50 {
					t.Errorf("%d syncs and %d attempts, want 2 syncs and at most 50 attempts", writes, attempts)
				}
			})
		})
	}
}

// Only what fails and is no normal work is in the default log. All lines of one sync have the key and the same id, and
// the next sync has another one.
func TestReconcileIDJoinsTheLinesOfASync(t *testing.T) {
	outcome := Done()
	inBubble(t, func(ctx context.Context, _ cache.ObjectName) Outcome {
		klog.FromContext(ctx).V(2).Info("Syncing")
		return outcome
	}, func(t *testing.T, q *Queue) {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(4)))
		ids := map[any]int{}
		for _, outcome = range []Outcome{Done(), Retry(conflict), Retry(errBoom)} {
			q.Add(web)
			q.ProcessNextWorkItem(t.Context(), klog.NewContext(t.Context(), logger))
		}
		var lines []string
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			lines = append(lines, fmt.Sprint(entry.Type, " ", entry.Message))
			if len(entry.WithKVList) != 4 || entry.WithKVList[0] != "widget" || entry.WithKVList[2] != "reconcileID" {
				t.Errorf("the line %q has the values %v", entry.Message, entry.WithKVList)
				continue
			}
			ids[entry.WithKVList[3]]++
		}
		want := []string{"INFO Syncing", "INFO Synced", "INFO Syncing", "INFO Synced", "INFO Syncing", "INFO Synced",
			"ERROR Sync failed"}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		if len(ids) != 3 {
			t.Errorf("lines by reconcileID: %v, want three ids", ids)
		}
	})
}

// TestSyncsAreShown: /debug/syncs has each sync, why its key was queued, and when it comes back.
func TestSyncsAreShown(t *testing.T) {
	outcome := Retry(errBoom)
	inBubble(t, func(ctx context.Context, _ cache.ObjectName) Outcome {
		syncs.From(ctx).Sent(syncs.Request{Request: "create Child", Name: "child"}, outcome.Err)
		return outcome
	}, func(t *testing.T, q *Queue) {
		(&Process{options: &Options{debugAddress: "0"}}).Show(q)
		if q.Syncs != nil {
			t.Error("syncs are recorded without a debug address")
		}
		p := &Process{options: &Options{debugAddress: "127.0.0.1:0"}}
		p.Show(q)
		handlers := Objects[*corev1.ConfigMap](q)
		handlers.AddFunc(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}, true)
		next(t, q)
		outcome = Wait(time.Second)
		q.Add(other)
		next(t, q)
		w := httptest.NewRecorder()
		p.syncs.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/syncs", nil))
		for _, want := range []string{
			"queue: 300 tokens left for retries\n  namespace default: 0 waiting, 0 in work, 1 backing off\n",
			"default/other\n  queued    a change; waited 0s\n",
			"  outcome   wait, the sync took 0s, comes back at 00:00:01.000Z\n",
			"default/web\n  queued    the initial list; waited 0s\n  request   create Child child\n            boom\n",
			"  outcome   retry, the sync took 0s, comes back at 00:00:00.005Z\n  error     boom\n",
		} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("the text lacks\n%s\n%s", want, w.Body)
			}
		}
	})
}

func TestObjectsQueuesWhatChanges(t *testing.T) {
	at := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", ResourceVersion: version}}
	}
	inBubble(t, returnsDone, func(t *testing.T, q *Queue) {
		var added []fairqueue.Class
		q.AddAs = func(key cache.ObjectName, class fairqueue.Class) {
			if added = append(added, class); key != web {
				t.Errorf("%s is queued", key)
			}
		}
		h := Objects[*corev1.ConfigMap](q)
		h.OnAdd(at("1"), true)
		h.OnAdd(at("1"), false)
		h.OnUpdate(at("1"), at("2"))
		h.OnUpdate(at("2"), at("2")) // A resync.
		h.OnDelete(cache.DeletedObject[*corev1.ConfigMap]{OptionalObj: at("2")})
		tombstone := cache.DeletedFinalStateUnknown{Key: "default/web"}
		h.OnDelete(cache.DeletedObject[*corev1.ConfigMap]{FinalStateUnknown: &tombstone})
		const change, initial = fairqueue.Change, fairqueue.Initial
		if diff := cmp.Diff([]fairqueue.Class{initial, change, change, initial, change, change}, added); diff != "" {
			t.Errorf("queued (-want +got):\n%s", diff)
		}
	})
}

// A Deployment "web-1" belongs to the Widget "web".
func TestChildrenQueuesTheirOwners(t *testing.T) {
	widgets := schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Widget"}
	child := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		owner := &metav1.ObjectMeta{Name: "web", UID: "uid"}
		dep := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-1", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, widgets)},
		}}
		edit(dep)
		return dep
	}
	var added []string
	h := Children[*appsv1.Deployment](widgets.GroupKind(), func(key cache.ObjectName) { added = append(added, key.Name) })
	expect := func(name, want string) {
		t.Helper()
		if got := strings.Join(added, " "); got != want {
			t.Errorf("%s: queued %q, want %q", name, got, want)
		}
		added = nil
	}
	for _, test := range []struct {
		name string
		edit func(*appsv1.Deployment)
		want string
	}{
		{name: "its owner has its name", edit: func(d *appsv1.Deployment) { d.Name = "web" }, want: "web"},
		{name: "no owner", edit: func(d *appsv1.Deployment) { d.OwnerReferences = nil }, want: "web-1"},
		{name: "its owner does not control it", want: "web-1", edit: func(d *appsv1.Deployment) {
			d.OwnerReferences[0].Controller = nil
		}},
		{name: "its owner is of another kind", want: "web-1", edit: func(d *appsv1.Deployment) {
			d.OwnerReferences[0].Kind = "Gadget"
		}},
		{name: "its owner is of another group", want: "web-1", edit: func(d *appsv1.Deployment) {
			d.OwnerReferences[0].APIVersion = "other.example.com/v1"
		}},
		{name: "its owner was written in another version", want: "web-1 web", edit: func(d *appsv1.Deployment) {
			d.OwnerReferences[0].APIVersion = "acme.example.com/v0"
		}},
	} {
		h.OnAdd(child(test.edit), false)
		expect(test.name, test.want)
	}
	dep := child(func(*appsv1.Deployment) {})
	h.OnAdd(dep, true)
	expect("in the initial list", "")
	h.OnUpdate(dep, dep)
	expect("a resync", "")
	h.OnUpdate(dep, child(func(d *appsv1.Deployment) { d.ResourceVersion, d.OwnerReferences[0].Name = "2", "new" }))
	expect("it gets another owner", "web-1 web web-1 new")
	h.OnDelete(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: dep})
	expect("deleted", "web-1 web")
	tombstone := cache.DeletedFinalStateUnknown{Key: "default/web-1"}
	h.OnDelete(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &tombstone})
	expect("deleted, and only its name is known", "web-1")
}

func TestByController(t *testing.T) {
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{UID: "other"}, {UID: "uid", Controller: new(true)},
	}}}
	for want, obj := range map[string]any{"[uid] <nil>": owned, "[] <nil>": &corev1.ConfigMap{}} {
		keys, err := ByController(obj)
		if got := fmt.Sprint(keys, err); got != want {
			t.Errorf("the index has %s, want %s", got, want)
		}
	}
	if _, err := ByController("text"); err == nil {
		t.Error("a text has no controller")
	}
}
