package consistency

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

var _ Store = cache.Store(nil) // Every cache is one.

var key = cache.NewObjectName("default", "web")

// A store is a cache that has reached a version. It has the items, by key.
type store struct {
	reached string
	items   map[string]any
}

func (s *store) LastStoreSyncResourceVersion() string { return s.reached }

func (s *store) GetByKey(key string) (any, bool, error) {
	item := s.items[key]
	return item, item != nil, nil
}

// inBubble calls test with a Writes for Foos and Deployments whose caches have reached version 100.
func inBubble(t *testing.T, test func(t *testing.T, w *Writes, foos, deployments *store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		foos, deployments := &store{reached: "100"}, &store{reached: "100"}
		test(t, New(), foos, deployments)
	})
}

func object(name, version string) metav1.Object {
	return &metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}
}

// check calls CatchUpDelay n times, then HoldDelay, and compares the results.
func check(t *testing.T, what string, w *Writes, n int, want string) {
	t.Helper()
	var before []time.Duration
	for range n {
		before = append(before, w.CatchUpDelay(key))
	}
	if got := fmt.Sprint(before, " ", w.HoldDelay(key)); got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestDelaysDoubleUpToASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writes, foos, _ *store) {
		check(t, "nothing is expected", w, 1, "[0s] 0s")
		w.Wrote(key, foos, object("web", "101"))
		check(t, "after the sync that wrote", w, 0, "[] 5ms")
		check(t, "behind", w, 12, "[5ms 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1s 1s 1s 1s] 1m0s")
		w.Wrote(key, foos, object("web", "102"))
		check(t, "after another write", w, 3, "[5ms 10ms 20ms] 1m0s")
		w.Forget(cache.NewObjectName("default", "api"))
		check(t, "another key is forgotten", w, 1, "[40ms] 1m0s")
		w.Forget(key)
		check(t, "the key is forgotten", w, 1, "[0s] 0s")
	})
}

// The sync that recorded a version is followed by another one, also if the cache has it already: perhaps without an
// event. Versions that cannot be compared hold up nothing.
func TestTheDelayEndsWhenTheCacheHasReachedTheVersion(t *testing.T) {
	for written, want := range map[string]string{
		"100": "[0s] 0s", "99": "[0s] 0s", "101": "[5ms] 1m0s", "none": "[0s] 0s",
	} {
		inBubble(t, func(t *testing.T, w *Writes, foos, _ *store) {
			w.Wrote(key, foos, object("web", written))
			check(t, written+" was written", w, 0, "[] 5ms")
			check(t, "the cache has 100, the API server "+written, w, 1, want)
		})
	}
}

func TestAfterAMinuteSyncsDoNotWaitAnyLonger(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writes, foos, _ *store) {
		w.Wrote(key, foos, object("web", "101"))
		check(t, "at first", w, 1, "[5ms] 1m0s")
		time.Sleep(time.Minute - time.Nanosecond)
		check(t, "just before a minute", w, 1, "[10ms] 1m0s")
		time.Sleep(time.Nanosecond)
		check(t, "after a minute", w, 2, "[0s 0s] 1m0s")
		w.Wrote(key, foos, object("web", "102"))
		check(t, "a new write has a minute of its own", w, 1, "[5ms] 1m0s")
		time.Sleep(time.Hour - time.Nanosecond)
		check(t, "just before an hour", w, 1, "[0s] 1m0s")
		time.Sleep(time.Nanosecond)
		check(t, "after an hour the version is forgotten", w, 1, "[0s] 0s")

		w.Wrote(key, foos, object("web", "103"))
		time.Sleep(2 * time.Minute)
		check(t, "a key that comes back late", w, 1, "[0s] 1m0s")
		foos.reached = "103"
		check(t, "the cache has it then", w, 1, "[0s] 0s")
	})
}

func TestALiveReadIsLikeAWriteIfTheCacheHasAnotherVersionOfTheObject(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writes, _, deployments *store) {
		w.Read(key, deployments, object("web", "101"))
		check(t, "the cache lacks the object", w, 0, "[] 5ms")
		check(t, "the next sync", w, 1, "[5ms] 1m0s")
		deployments.reached = "101"
		check(t, "the cache has reached it", w, 1, "[0s] 0s")

		deployments.items = map[string]any{"default/web": object("web", "101"), "default/other": object("other", "102")}
		w.Read(key, deployments, object("web", "101"))
		check(t, "the cache has this version", w, 0, "[] 0s")
		w.Read(key, deployments, object("web", "102"))
		check(t, "the cache has an older version of it", w, 1, "[5ms] 1m0s")
		w.Forget(key)

		deployments.reached = "150"
		w.Read(key, deployments, object("web", "99"))
		check(t, "the cache has a newer version of it: etcd was restored", w, 0, "[] 0s")

		// A list came during the sync: the object is gone again, and there was no event.
		deployments.items, deployments.reached = nil, "300"
		w.Read(key, deployments, object("web", "200"))
		check(t, "the cache has reached a later version, and lacks the object", w, 0, "[] 5ms")
	})
}

// An object without a namespace may have children in any.
func TestADeletionMustBeShownByTheCache(t *testing.T) {
	for name, shown := range map[string]any{
		"it is gone":                   nil,
		"another one has the name":     &metav1.ObjectMeta{UID: "another"},
		"it is shown as being deleted": &metav1.ObjectMeta{UID: "uid", DeletionTimestamp: new(metav1.Now())},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *Writes, _, deployments *store) {
				deleted := &metav1.ObjectMeta{Namespace: "team", Name: "web-1", UID: "uid"}
				deployments.items = map[string]any{"team/web-1": deleted}
				deployments.reached = "900"
				w.Deleted(key, deployments, deleted)
				check(t, "the cache still has it", w, 2, "[5ms 10ms] 1m0s")
				deployments.items["team/web-1"] = shown
				check(t, name, w, 1, "[0s] 0s")
			})
		})
	}
}

// After a restore of etcd, versions are older than before.
func TestALiveReadOfAnOlderVersionReplacesTheNewerOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writes, foos, deployments *store) {
		w.Wrote(key, foos, object("web", "900"))
		w.Wrote(key, deployments, object("web", "901"))
		w.Read(key, foos, object("web", "110"))
		w.Read(key, deployments, object("other", "90")) // This one is just older.
		foos.reached, deployments.reached = "110", "110"
		check(t, "the Deployment is not there", w, 1, "[5ms] 1m0s")
		w.Read(key, deployments, object("web", "109"))
		check(t, "both have been restored", w, 1, "[0s] 0s")
	})
}

// A key that waits for a cache comes back after the delay, or when the caches are asked earlier and have caught up.
func TestCallAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writes, foos, _ *store) {
		var calls []string
		call := func(name string) bool { return w.CallAfter(key, time.Second, func() { calls = append(calls, name) }) }
		if call("nothing is expected") {
			t.Error("it is to be called although nothing is expected")
		}
		w.Wrote(key, foos, object("web", "101"))
		if !call("replaced") || !call("the cache lags") {
			t.Error("it is not to be called although the cache lags")
		}
		time.Sleep(2 * time.Second)
		call("the cache has caught up")
		foos.reached = "101"
		w.CatchUpDelay(key)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := fmt.Sprint(calls); got != "[the cache lags]" {
			t.Errorf("called: %s", got)
		}
	})
}

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
