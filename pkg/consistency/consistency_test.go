package consistency

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

var _ Store = cache.Store(nil) // Every cache is one.

var key = cache.NewObjectName("default", "web")

const uid = types.UID("uid")

// store is a cache that has come as far as its text says.
type store string

func (s *store) LastStoreSyncResourceVersion() string { return string(*s) }

// newWrites returns a Writes for Foos and Deployments whose caches have come to 100. The clock stands
// still until the test moves it.
func newWrites() (w *Writes, foos, deployments *store, clock *time.Time) {
	foos, deployments, clock = new(store("100")), new(store("100")), new(time.Unix(0, 0))
	w = New(storesOf(map[string]Store{"foos": foos, "deployments": deployments}))
	w.now = func() time.Time { return *clock }
	return w, foos, deployments, clock
}

// storesOf returns stores that are the same for all namespaces.
func storesOf(stores map[string]Store) Stores {
	return func(resource, _ string) Store { return stores[resource] }
}

// waits asks n times and says how long each answer is.
func waits(w *Writes, n int) string {
	var all []time.Duration
	for range n {
		all = append(all, w.Wait(key))
	}
	return fmt.Sprint(all)
}

func wantWaits(t *testing.T, what string, w *Writes, n int, want string) {
	t.Helper()
	if got := waits(w, n); got != want {
		t.Errorf("%s: waits %s, want %s", what, got, want)
	}
}

func TestWaitDoublesUpToASecond(t *testing.T) {
	w, _, _, _ := newWrites()
	w.Wrote(key, uid, "foos", "101")
	wantWaits(t, "unseen", w, 12, "[5ms 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1s 1s 1s 1s]")
	w.Wrote(key, uid, "foos", "102")
	wantWaits(t, "after another write", w, 3, "[5ms 10ms 20ms]")
}

func TestWaitEndsWhenTheCacheHasCaughtUp(t *testing.T) {
	for _, tc := range []struct {
		name, written, cached string
		want                  string
	}{
		{"an older version", "101", "100", "[5ms 10ms]"},
		{"the same version", "101", "101", "[0s 0s]"},
		{"a newer version", "101", "102", "[0s 0s]"},
		{"a version with fewer digits, which is older", "100", "99", "[5ms 10ms]"},
		{"a version with more digits, which is newer", "99", "100", "[0s 0s]"},
		{"nothing yet, which says nothing", "101", "", "[0s 0s]"},
		{"a version that is no number", "101", "abc", "[0s 0s]"},
		{"a version, and the write gave none", "", "100", "[0s 0s]"},
		{"a version, and the write gave none that is a number", "x1", "100", "[0s 0s]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, foos, _, _ := newWrites()
			*foos = store(tc.cached)
			w.Wrote(key, uid, "foos", tc.written)
			wantWaits(t, "the cache has "+tc.name, w, 2, tc.want)
		})
	}
}

func TestWaitLooksAtEachResourceByItself(t *testing.T) {
	w, foos, deployments, _ := newWrites()
	w.Wrote(key, uid, "deployments", "102")
	w.Wrote(key, uid, "foos", "101")
	wantWaits(t, "both unseen", w, 1, "[5ms]")
	*foos = "103"
	wantWaits(t, "the Deployment unseen", w, 1, "[10ms]")
	*deployments = "101"
	wantWaits(t, "the Deployment almost seen", w, 1, "[20ms]")
	*deployments = "102"
	wantWaits(t, "both seen", w, 1, "[0s]")
	*deployments, *foos = "50", "50"
	wantWaits(t, "what was seen once stays seen", w, 1, "[0s]")

	w.Wrote(key, uid, "deployments", "104")
	w.Wrote(key, uid, "foos", "105")
	wantWaits(t, "both unseen again", w, 1, "[5ms]")
	*deployments, *foos = "104", "105"
	wantWaits(t, "both seen at once", w, 1, "[0s]")

	w.Wrote(key, uid, "pods", "999")
	wantWaits(t, "a resource without a cache", w, 1, "[0s]")
}

func TestWaitIsForTheLatestWriteOfAResource(t *testing.T) {
	w, foos, _, _ := newWrites()
	w.Wrote(key, uid, "foos", "101")
	w.Wrote(key, uid, "foos", "102")
	*foos = "101"
	wantWaits(t, "the first write seen", w, 1, "[5ms]")
	*foos = "102"
	wantWaits(t, "the second write seen", w, 1, "[0s]")

	w.Wrote(key, uid, "foos", "110")
	wantWaits(t, "a third write", w, 1, "[5ms]")
	w.Met(key, uid, "foos", "109")
	*foos = "109"
	wantWaits(t, "what was met is older than the write", w, 1, "[10ms]")
	w.Met(key, uid, "foos", "none")
	wantWaits(t, "what was met cannot be compared", w, 1, "[0s]")
}

func TestWaitGivesUpAfterAMinute(t *testing.T) {
	w, _, _, clock := newWrites()
	*clock = clock.Add(time.Hour) // Between the write and the first question: it does not count.
	w.Wrote(key, uid, "foos", "101")
	wantWaits(t, "at first", w, 1, "[5ms]")
	*clock = clock.Add(time.Minute - 1)
	wantWaits(t, "just before a minute", w, 1, "[10ms]")
	*clock = clock.Add(1)
	wantWaits(t, "after a minute", w, 1, "[0s]")
	*clock = clock.Add(-time.Minute)
	wantWaits(t, "given up for good", w, 1, "[0s]")

	*clock = clock.Add(time.Hour)
	w.Wrote(key, uid, "foos", "102")
	wantWaits(t, "a new write has a minute of its own", w, 1, "[5ms]")
}

func TestWritesAreKnownByUID(t *testing.T) {
	type answer struct {
		Known bool
		Wait  time.Duration
	}
	ask := func(w *Writes, uid types.UID) answer { return answer{w.Known(key, uid), w.Wait(key)} }
	never, unseen, seen := answer{false, 0}, answer{true, 5 * time.Millisecond}, answer{true, 0}
	again := func(n int, known bool) answer { return answer{known, 5 * time.Millisecond << n} } // Asked n times before.

	w, foos, _, _ := newWrites()
	for _, step := range []struct {
		name string
		do   func()
		uid  types.UID
		want answer
	}{
		{"before any write", func() {}, uid, never},
		{"after a write", func() { w.Wrote(key, uid, "foos", "101") }, uid, unseen},
		{"another object of the name waits too: the caches it will be read from are the same",
			func() {}, "other", again(1, false)},
		{"when the write is seen", func() { *foos = "101" }, uid, seen},
		{"when the other object is written for", func() { w.Wrote(key, "other", "foos", "102") }, "other", unseen},
		{"then the first one is forgotten", func() {}, uid, again(1, false)},
		{"another key is another matter",
			func() { w.Forget(cache.NewObjectName("default", "api")) }, "other", again(2, true)},
		{"when it is gone", func() { w.Forget(key) }, "other", never},
	} {
		step.do()
		if diff := cmp.Diff(step.want, ask(w, step.uid)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// What an earlier object of the name has written is nothing to wait for.
func TestWroteForANewUIDDropsTheOldWrites(t *testing.T) {
	w, foos, _, _ := newWrites()
	w.Wrote(key, "earlier", "deployments", "900")
	w.Wrote(key, uid, "foos", "101")
	*foos = "101"
	wantWaits(t, "the new object's write seen", w, 1, "[0s]")
}

// What somebody else has written and we have met is waited for like our own.
func TestWaitIsForWhatWasMetToo(t *testing.T) {
	w, _, deployments, _ := newWrites()
	w.Met(key, uid, "deployments", "101")
	wantWaits(t, "unseen", w, 2, "[5ms 10ms]")
	w.Met(key, uid, "deployments", "102")
	wantWaits(t, "after something newer was met", w, 1, "[5ms]")
	*deployments = "101"
	wantWaits(t, "the first one seen", w, 1, "[10ms]")
	*deployments = "102"
	wantWaits(t, "both seen", w, 1, "[0s]")
	w.Met(key, uid, "deployments", "100")
	wantWaits(t, "what the cache had long before", w, 1, "[0s]")
}

// A controller may watch some namespaces, each with caches of its own.
func TestWaitAsksTheCacheOfTheNamespace(t *testing.T) {
	var asked []string
	ahead, behind := new(store("200")), new(store("50"))
	w := New(func(resource, namespace string) Store {
		asked = append(asked, resource+" in "+namespace)
		if namespace == "default" {
			return behind
		}
		return ahead
	})
	other := cache.NewObjectName("other", "web")
	w.Wrote(key, uid, "foos", "101")
	w.Wrote(other, uid, "foos", "101")
	if got := []time.Duration{w.Wait(key), w.Wait(other)}; !cmp.Equal(got, []time.Duration{firstWait, 0}) {
		t.Errorf("waits %s", got)
	}
	if diff := cmp.Diff([]string{"foos in default", "foos in other"}, asked); diff != "" {
		t.Errorf("asked for the wrong caches (-want +got):\n%s", diff)
	}
}

// Only a write that was acknowledged makes an Echo, and only the last one of its resource and object.
func TestEchoIsOfTheLastWriteOnly(t *testing.T) {
	w, _, _, _ := newWrites()
	w.Wrote(key, uid, "foos", "101")
	w.Wrote(key, uid, "deployments", "102")
	w.Wrote(key, uid, "deployments", "105")
	w.Met(key, uid, "deployments", "107")
	w.Doubt(key, uid, "foos")
	for _, tc := range []struct {
		name     string
		key      cache.ObjectName
		resource string
		version  string
		want     bool
	}{
		{"the write", key, "foos", "101", true},
		{"the last write", key, "deployments", "105", true},
		{"an earlier write", key, "deployments", "102", false},
		{"somebody's write in between", key, "deployments", "104", false},
		{"somebody's write that was met", key, "deployments", "107", false},
		{"a write to another resource", key, "foos", "105", false},
		{"a resource that was never written to", key, "pods", "101", false},
		{"an event without a version", key, "foos", "", false},
		{"an event without a version of what was never written to", key, "pods", "", false},
		{"a write for another object", cache.NewObjectName("default", "api"), "foos", "101", false},
		{"a write for an object in another namespace", cache.NewObjectName("other", "web"), "foos", "101", false},
	} {
		if got := w.Echo(tc.key, tc.resource, tc.version); got != tc.want {
			t.Errorf("%s: Echo = %t, want %t", tc.name, got, tc.want)
		}
	}

	for range 2 {
		if !w.Echo(key, "foos", "101") {
			t.Error("asked again, or seen by the cache, it is no Echo any more")
		}
		w.Wait(key)
	}
	w.Wrote(key, "other", "foos", "110")
	if w.Echo(key, "deployments", "105") {
		t.Error("what was written for an earlier object of the name is still an Echo")
	}
	w.Forget(key)
	if w.Echo(key, "foos", "110") {
		t.Error("what was written for an object that is gone is still an Echo")
	}
}

func TestEchoOfAWriteThatGaveNoVersion(t *testing.T) {
	w, _, _, _ := newWrites()
	w.Wrote(key, uid, "foos", "")
	if w.Echo(key, "foos", "") {
		t.Error("no version is the echo of no version")
	}
}

// When the caches cannot be relied upon, or do not show a write in time, nothing more is written until the API server
// was asked.
func TestDoubts(t *testing.T) {
	w, foos, _, clock := newWrites()
	other := cache.NewObjectName("default", "api")
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"before any write", func() {}, false},
		{"when the API server was asked for nothing", func() { w.Trust(key, "foos") }, false},
		{"after a write", func() { w.Wrote(key, uid, "foos", "101") }, false},
		{"after a doubt", func() { w.Doubt(key, uid, "foos") }, true},
		{"as long as nobody has looked", func() { w.Wait(key) }, true},
		{"after a look for another object", func() { w.Trust(other, "foos") }, true},
		{"after a look at another resource", func() { w.Trust(key, "deployments") }, true},
		{"after another write all the same", func() { w.Wrote(key, uid, "foos", "102") }, true},
		{"after something was met all the same", func() { w.Met(key, uid, "foos", "103") }, true},
		{"after a look", func() { w.Trust(key, "foos") }, false},
		{"while the cache is behind", func() { w.Wait(key) }, false},
		{"just before a minute of that", func() { *clock = clock.Add(time.Minute - 1); w.Wait(key) }, false},
		{"after a minute of that", func() { *clock = clock.Add(1); w.Wait(key) }, true},
		{"when the cache has come to it after all", func() { *foos = "103"; w.Wait(key) }, true},
		{"after another look", func() { w.Trust(key, "foos") }, false},
		{"when the next write is seen in time", func() { w.Wrote(key, uid, "foos", "103"); w.Wait(key) }, false},
		{"after a doubt about another resource", func() { w.Doubt(key, uid, "deployments") }, false},
		{"after a doubt about another object", func() { w.Doubt(other, uid, "foos") }, false},
		{"after a doubt about an earlier object of the name", func() { w.Doubt(key, "earlier", "foos") }, true},
		{"when the object is another one by now", func() { w.Wrote(key, uid, "foos", "103") }, false},
		{"when it is gone", func() { w.Doubt(key, uid, "foos"); w.Forget(key) }, false},
	} {
		step.do()
		if got := w.Doubts(key, "foos"); got != step.want {
			t.Fatalf("%s: Doubts = %t, want %t", step.name, got, step.want)
		}
	}
	if !w.Doubts(other, "foos") {
		t.Error("the other object's doubt was forgotten")
	}
}

func TestGivingUpIsADoubtAboutEveryResourceThatIsBehind(t *testing.T) {
	for range 20 { // In whatever order they come.
		w, _, _, clock := newWrites()
		w.Wrote(key, uid, "foos", "101")
		w.Wrote(key, uid, "deployments", "102")
		w.Wait(key)
		*clock = clock.Add(time.Minute)
		w.Wait(key)
		if !w.Doubts(key, "foos") || !w.Doubts(key, "deployments") {
			t.Fatalf("doubts about the Foos %t, about the Deployments %t, want both",
				w.Doubts(key, "foos"), w.Doubts(key, "deployments"))
		}
	}
}

// That something may have been written for an object, or was met, is enough to know it.
func TestADoubtMakesAnObjectKnown(t *testing.T) {
	for name, record := range map[string]func(*Writes){
		"doubted": func(w *Writes) { w.Doubt(key, uid, "foos") },
		"met":     func(w *Writes) { w.Met(key, uid, "deployments", "1") },
	} {
		w, _, _, _ := newWrites()
		record(w)
		if !w.Known(key, uid) || w.Known(key, "other") {
			t.Errorf("%s: known %t, another object of the name known %t",
				name, w.Known(key, uid), w.Known(key, "other"))
		}
		wantWaits(t, name, w, 1, "[0s]")
	}
}

// A doubt does not make anybody forget what was acknowledged before.
func TestADoubtKeepsWhatIsToBeWaitedFor(t *testing.T) {
	w, _, _, _ := newWrites()
	w.Wrote(key, uid, "foos", "101")
	w.Doubt(key, uid, "foos")
	wantWaits(t, "unseen", w, 2, "[5ms 10ms]")
	w.Trust(key, "foos")
	wantWaits(t, "after a look", w, 1, "[20ms]")
}

// Somebody else may write the status too. What we have reported ourselves tells theirs from ours.
func TestOverwritten(t *testing.T) {
	type status struct{ Ready, Message string }
	ours, theirs := status{"True", "all is well"}, status{"False", "no"}
	other := cache.NewObjectName("default", "api")
	w, _, _, _ := newWrites()
	for _, step := range []struct {
		name   string
		do     func()
		status status
		want   bool
	}{
		{"before any write", func() {}, theirs, false},
		{"when something else was written", func() { w.Wrote(key, uid, "foos", "101") }, theirs, false},
		{"after a report for another object", func() { w.Reported(other, uid, ours) }, theirs, false},
		{"after a report, and the cache has it", func() { w.Reported(key, uid, ours) }, ours, false},
		{"after a report, and the cache has another", func() {}, theirs, true},
		{"after the next write all the same", func() { w.Wrote(key, uid, "foos", "102") }, theirs, true},
		{"after the next report, and the cache has it", func() { w.Reported(key, uid, theirs) }, theirs, false},
		{"after the next report, and the cache has the first", func() {}, ours, true},
		{"after a report for an earlier object of the name",
			func() { w.Reported(key, "earlier", ours) }, theirs, false},
		{"when it is gone", func() { w.Reported(key, uid, ours); w.Forget(key) }, theirs, false},
	} {
		step.do()
		if got := w.Overwritten(key, uid, step.status); got != step.want {
			t.Errorf("%s: Overwritten = %t, want %t", step.name, got, step.want)
		}
	}
}

// What cannot be told apart from anything is nobody's.
func TestOverwrittenWhenAReportCannotBeEncoded(t *testing.T) {
	w, _, _, _ := newWrites()
	w.Reported(key, uid, func() {})
	if w.Overwritten(key, uid, "another") {
		t.Error("overwritten, though it is not known what was reported")
	}
}

// For the race detector: workers with a key each share one Writes.
func TestWritesMayBeUsedConcurrently(t *testing.T) {
	w := New(storesOf(map[string]Store{"foos": new(store("100"))}))
	var workers sync.WaitGroup
	for worker := range 8 {
		key := cache.NewObjectName("default", fmt.Sprint("web-", worker))
		workers.Go(func() {
			for range 100 {
				w.Wrote(key, uid, "foos", "101")
				w.Met(key, uid, "deployments", "101")
				w.Doubt(key, uid, "foos")
				if !w.Doubts(key, "foos") || !w.Echo(key, "foos", "101") {
					t.Errorf("%s: what was recorded is lost", key)
				}
				w.Trust(key, "foos")
				if !w.Known(key, uid) || w.Wait(key) != firstWait {
					t.Errorf("%s: the write was lost", key)
				}
				w.Forget(key)
			}
		})
	}
	workers.Wait()
}
