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

// store is a cache that has reached the resourceVersion in its value.
type store string

func (s *store) LastStoreSyncResourceVersion() string { return string(*s) }

// newWrites returns a Writes for Foos and Deployments whose caches have reached version 100. The clock stands still
// until the test moves it.
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

// checkDelays calls CatchUpDelay n times and compares the results.
func checkDelays(t *testing.T, what string, w *Writes, n int, want string) {
	t.Helper()
	var all []time.Duration
	for range n {
		all = append(all, w.CatchUpDelay(key))
	}
	if got := fmt.Sprint(all); got != want {
		t.Errorf("%s: delays %s, want %s", what, got, want)
	}
}

func TestCatchUpDelayDoublesUpToASecond(t *testing.T) {
	w, _, _, _ := newWrites()
	w.WroteAt(key, uid, "foos", "101")
	checkDelays(t, "behind", w, 12, "[5ms 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1s 1s 1s 1s]")
	w.WroteAt(key, uid, "foos", "102")
	checkDelays(t, "after another write", w, 3, "[5ms 10ms 20ms]")
	w.ObservedAt(key, uid, "foos", "102")
	checkDelays(t, "after a live read of the same version", w, 2, "[5ms 10ms]")
}

func TestCatchUpDelayEndsWhenTheCacheHasCaughtUp(t *testing.T) {
	for _, tc := range []struct {
		name, written, cached string
		want                  string
	}{
		{name: "an older version", written: "101", cached: "100", want: "[5ms 10ms]"},
		{name: "the same version", written: "101", cached: "101", want: "[0s 0s]"},
		{name: "a newer version", written: "101", cached: "102", want: "[0s 0s]"},
		{name: "a version with fewer digits, which is older", written: "100", cached: "99", want: "[5ms 10ms]"},
		{name: "a version with more digits, which is newer", written: "99", cached: "100", want: "[0s 0s]"},
		{name: "nothing yet, which cannot be compared", written: "101", cached: "", want: "[0s 0s]"},
		{name: "a version that is not a number", written: "101", cached: "abc", want: "[0s 0s]"},
		{name: "a version, but the write returned none", written: "", cached: "100", want: "[0s 0s]"},
		{name: "a version, but the write returned one that is not a number", written: "x1", cached: "100", want: "[0s 0s]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, foos, _, _ := newWrites()
			*foos = store(tc.cached)
			w.WroteAt(key, uid, "foos", tc.written)
			checkDelays(t, "the cache has "+tc.name, w, 2, tc.want)
		})
	}
}

func TestCatchUpDelayIsForEachResource(t *testing.T) {
	w, foos, deployments, _ := newWrites()
	w.WroteAt(key, uid, "deployments", "102")
	w.WroteAt(key, uid, "foos", "101")
	checkDelays(t, "both behind", w, 1, "[5ms]")
	*foos = "103"
	checkDelays(t, "the Deployments behind", w, 1, "[10ms]")
	*deployments = "101"
	checkDelays(t, "the Deployments almost there", w, 1, "[20ms]")
	*deployments = "102"
	checkDelays(t, "both there", w, 1, "[0s]")
	*deployments, *foos = "50", "50"
	checkDelays(t, "a version that was reached once stays reached", w, 1, "[0s]")

	w.WroteAt(key, uid, "deployments", "104")
	w.WroteAt(key, uid, "foos", "105")
	checkDelays(t, "both behind again", w, 1, "[5ms]")
	*deployments, *foos = "104", "105"
	checkDelays(t, "both there at once", w, 1, "[0s]")

	w.WroteAt(key, uid, "pods", "999")
	checkDelays(t, "a resource without a cache", w, 1, "[0s]")
}

func TestCatchUpDelayIsForTheLatestWriteOfAResource(t *testing.T) {
	w, foos, _, _ := newWrites()
	w.WroteAt(key, uid, "foos", "101")
	w.WroteAt(key, uid, "foos", "102")
	*foos = "101"
	checkDelays(t, "the first write is there", w, 1, "[5ms]")
	*foos = "102"
	checkDelays(t, "the second write is there", w, 1, "[0s]")

	w.WroteAt(key, uid, "foos", "110")
	checkDelays(t, "a third write", w, 1, "[5ms]")
	w.ObservedAt(key, uid, "foos", "109")
	*foos = "109"
	checkDelays(t, "a live read returned an older version than the write", w, 1, "[10ms]")
	w.ObservedAt(key, uid, "foos", "none")
	checkDelays(t, "a live read returned a version that cannot be compared", w, 1, "[0s]")
}

func TestCatchUpDelayEndsAfterAMinute(t *testing.T) {
	w, _, _, clock := newWrites()
	w.WroteAt(key, uid, "foos", "101")
	*clock = clock.Add(time.Hour) // Does not count: the minute begins with the first call of CatchUpDelay.
	checkDelays(t, "at first", w, 1, "[5ms]")
	*clock = clock.Add(time.Minute - 1)
	checkDelays(t, "just before a minute", w, 1, "[10ms]")
	*clock = clock.Add(1)
	checkDelays(t, "after a minute", w, 1, "[0s]")
	*clock = clock.Add(-time.Minute)
	checkDelays(t, "the key is not held again", w, 1, "[0s]")

	*clock = clock.Add(time.Hour)
	w.WroteAt(key, uid, "foos", "102")
	checkDelays(t, "a new write has a minute of its own", w, 1, "[5ms]")
}

// Several objects may have the same name, one after the other.
func TestWritesBelongToOneUID(t *testing.T) {
	type state struct {
		Own   bool // Version 101 of the Foo counts as our own write.
		Delay time.Duration
	}
	const first = 5 * time.Millisecond
	w, foos, _, _ := newWrites()
	for _, step := range []struct {
		name string
		do   func()
		want state
	}{
		{name: "before any write", do: func() {}, want: state{}},
		{
			name: "after a write", do: func() { w.WroteAt(key, uid, "foos", "101") },
			want: state{Own: true, Delay: first},
		},
		{name: "asked again", do: func() {}, want: state{Own: true, Delay: 2 * first}},
		{name: "when the cache has it", do: func() { *foos = "101" }, want: state{Own: true}},
		{
			name: "when another object of the name is written", do: func() { w.WroteAt(key, "other", "foos", "102") },
			want: state{Delay: first},
		},
		{
			name: "when another key is forgotten", do: func() { w.Forget(cache.NewObjectName("default", "api")) },
			want: state{Delay: 2 * first},
		},
		{name: "when it is forgotten", do: func() { w.Forget(key) }, want: state{}},
	} {
		step.do()
		got := state{Own: w.IsOwnWrite(key, "foos", "101"), Delay: w.CatchUpDelay(key)}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// Writes for an earlier object of the same name delay nothing.
func TestAnotherUIDDropsTheOldWrites(t *testing.T) {
	for name, record := range map[string]func(*Writes){
		"a write":     func(w *Writes) { w.WroteAt(key, uid, "foos", "101") },
		"a live read": func(w *Writes) { w.ObservedAt(key, uid, "foos", "101") },
	} {
		w, foos, _, _ := newWrites()
		w.WroteAt(key, "earlier", "deployments", "900")
		record(w)
		*foos = "101"
		checkDelays(t, name+" of the new object, and the cache has it", w, 1, "[0s]")
	}
}

// A key also waits until the cache shows a version that somebody else wrote, if a live read returned it.
func TestCatchUpDelayIsForLiveReadsToo(t *testing.T) {
	w, _, deployments, _ := newWrites()
	w.ObservedAt(key, uid, "deployments", "101")
	checkDelays(t, "behind", w, 2, "[5ms 10ms]")
	w.ObservedAt(key, uid, "deployments", "102")
	checkDelays(t, "after a live read of a newer version", w, 1, "[5ms]")
	*deployments = "101"
	checkDelays(t, "the first one is there", w, 1, "[10ms]")
	*deployments = "102"
	checkDelays(t, "both are there", w, 1, "[0s]")
	w.ObservedAt(key, uid, "deployments", "100")
	checkDelays(t, "a version that the cache had long before", w, 1, "[0s]")
	w.ObservedAt(key, uid, "foos", "1")
	checkDelays(t, "a version that the other cache had long before", w, 1, "[0s]")
}

// A controller may watch several namespaces, each with caches of its own.
func TestTheCacheOfTheNamespaceCounts(t *testing.T) {
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
	w.WroteAt(key, uid, "foos", "101")
	w.WroteAt(other, uid, "foos", "101")
	got := []time.Duration{w.CatchUpDelay(key), w.CatchUpDelay(other)}
	if !cmp.Equal(got, []time.Duration{firstDelay, 0}) {
		t.Errorf("delays %s", got)
	}
	if diff := cmp.Diff([]string{"foos in default", "foos in other"}, asked); diff != "" {
		t.Errorf("asked for the wrong caches (-want +got):\n%s", diff)
	}
}

// Only the last acknowledged write of a resource and object counts as our own.
func TestIsOwnWriteIsAboutTheLastWriteOnly(t *testing.T) {
	w, _, _, _ := newWrites()
	w.WroteAt(key, uid, "foos", "101")
	w.WroteAt(key, uid, "deployments", "102")
	w.WroteAt(key, uid, "deployments", "105")
	w.ObservedAt(key, uid, "deployments", "107")
	for _, tc := range []struct {
		name     string
		key      cache.ObjectName
		resource string
		version  string
		want     bool
	}{
		{name: "the write", key: key, resource: "foos", version: "101", want: true},
		{name: "the last write", key: key, resource: "deployments", version: "105", want: true},
		{name: "an earlier write", key: key, resource: "deployments", version: "102"},
		{name: "a write of others in between", key: key, resource: "deployments", version: "104"},
		{name: "a write of others that a live read returned", key: key, resource: "deployments", version: "107"},
		{name: "a write to another resource", key: key, resource: "foos", version: "105"},
		{name: "a resource that was never written", key: key, resource: "pods", version: "101"},
		{name: "an event without a version", key: key, resource: "foos"},
		{name: "an event without a version, of a resource that was never written", key: key, resource: "pods"},
		{
			name: "a write for another object", key: cache.NewObjectName("default", "api"),
			resource: "foos", version: "101",
		},
		{
			name: "a write for an object in another namespace", key: cache.NewObjectName("other", "web"),
			resource: "foos", version: "101",
		},
	} {
		if got := w.IsOwnWrite(tc.key, tc.resource, tc.version); got != tc.want {
			t.Errorf("%s: IsOwnWrite = %t, want %t", tc.name, got, tc.want)
		}
	}

	for range 2 {
		if !w.IsOwnWrite(key, "foos", "101") {
			t.Error("a second call, or one when the cache has the write, does not report it as our own any more")
		}
		w.CatchUpDelay(key)
	}
	w.WroteAt(key, "other", "foos", "110")
	if w.IsOwnWrite(key, "deployments", "105") {
		t.Error("a write for an earlier object of the name still counts")
	}
	w.Forget(key)
	if w.IsOwnWrite(key, "foos", "110") {
		t.Error("a write for an object that was forgotten still counts")
	}
}

func TestAWriteWithoutAVersionIsNotOurOwn(t *testing.T) {
	w, _, _, _ := newWrites()
	w.WroteAt(key, uid, "foos", "")
	if w.IsOwnWrite(key, "foos", "") {
		t.Error("an event without a version counts as our own write")
	}
}

// A cache that has lagged for a minute is stale until it has reached the versions that are known to exist.
func TestIsStale(t *testing.T) {
	w, foos, _, clock := newWrites()
	other := cache.NewObjectName("default", "api")
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{name: "before any write", do: func() {}},
		{name: "after a write", do: func() { w.WroteAt(key, uid, "foos", "102") }},
		{name: "while the cache is behind", do: func() { w.CatchUpDelay(key) }},
		{name: "just before a minute of that", do: func() { *clock = clock.Add(time.Minute - 1); w.CatchUpDelay(key) }},
		{name: "after a minute, before the next CatchUpDelay", do: func() { *clock = clock.Add(1) }},
		{name: "after a minute, and a CatchUpDelay", do: func() { w.CatchUpDelay(key) }, want: true},
		{name: "asked again", do: func() { w.CatchUpDelay(key) }, want: true},
		{name: "when the cache has almost reached it", do: func() { *foos = "101" }, want: true},
		{name: "still after another write", do: func() { w.WroteAt(key, uid, "foos", "103") }, want: true},
		{name: "still after a live read", do: func() { w.ObservedAt(key, uid, "foos", "104") }, want: true},
		{name: "when another object is forgotten", do: func() { w.Forget(other) }, want: true},
		{name: "when the cache has reached it", do: func() { *foos = "102" }},
		{name: "while newer versions are pending for less than a minute", do: func() { w.CatchUpDelay(key) }},
		{name: "when the cache is replaced by an older one", do: func() { *foos = "90" }},
		{name: "after a minute of that", do: func() { *clock = clock.Add(time.Minute); w.CatchUpDelay(key) }, want: true},
		{name: "when the versions cannot be compared", do: func() { *foos = "none" }},
		{name: "and not again afterwards", do: func() { *foos = "90" }},
	} {
		step.do()
		if got := w.IsStale(key, "foos"); got != step.want {
			t.Fatalf("%s: IsStale = %t, want %t", step.name, got, step.want)
		}
		if w.IsStale(key, "deployments") || w.IsStale(other, "foos") {
			t.Fatalf("%s: another resource or object is stale", step.name)
		}
	}
}

// overdue returns a Writes that has waited a minute for both caches.
func overdue() (w *Writes, foos, deployments *store) {
	w, foos, deployments, clock := newWrites()
	w.WroteAt(key, uid, "foos", "101")
	w.ObservedAt(key, uid, "deployments", "102")
	w.CatchUpDelay(key)
	*clock = clock.Add(time.Minute)
	w.CatchUpDelay(key)
	return w, foos, deployments
}

func TestEachCacheThatLagsBecomesStale(t *testing.T) {
	for range 20 { // The resources are in a map, whose order is random.
		w, foos, deployments := overdue()
		if !w.IsStale(key, "foos") || !w.IsStale(key, "deployments") {
			t.Fatalf("stale: Foos %t, Deployments %t, want both", w.IsStale(key, "foos"), w.IsStale(key, "deployments"))
		}
		*foos, *deployments = "101", "101"
		if w.IsStale(key, "foos") || !w.IsStale(key, "deployments") {
			t.Fatalf("stale: Foos %t, Deployments %t, want the latter", w.IsStale(key, "foos"), w.IsStale(key, "deployments"))
		}
	}
}

func TestCachesAreNotStaleForAnotherObject(t *testing.T) {
	for name, end := range map[string]func(*Writes){
		"forgotten":               func(w *Writes) { w.Forget(key) },
		"replaced, and written":   func(w *Writes) { w.WroteAt(key, "other", "foos", "1") },
		"replaced, and read live": func(w *Writes) { w.ObservedAt(key, "other", "foos", "1") },
	} {
		w, _, _ := overdue()
		end(w)
		if w.IsStale(key, "foos") || w.IsStale(key, "deployments") {
			t.Errorf("the object is %s, and its caches are still stale", name)
		}
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
				w.WroteAt(key, uid, "foos", "101")
				w.ObservedAt(key, uid, "deployments", "101")
				if w.IsStale(key, "foos") || !w.IsOwnWrite(key, "foos", "101") || w.CatchUpDelay(key) != firstDelay {
					t.Errorf("%s: what was recorded is lost", key)
				}
				w.Forget(key)
			}
		})
	}
	workers.Wait()
}
