package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// received reads a watch until it ends, or for the given duration, and returns its events.
func received(r *requester, request string, during time.Duration) []string {
	r.t.Helper()
	response := r.send(request)
	if response.StatusCode != 200 {
		return []string{fmt.Sprint(response.StatusCode)}
	}
	var lines []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		scanner := bufio.NewScanner(response.Body)
		for scanner.Scan() {
			lines = append(lines, eventWords(scanner.Bytes()))
		}
		if err := scanner.Err(); err != nil && !strings.Contains(err.Error(), "closed") {
			lines = append(lines, err.Error())
		}
	}()
	select {
	case <-done:
		lines = append(lines, "end")
	case <-time.After(during):
	}
	response.Body.Close()
	<-done
	return lines
}

func eventWords(line []byte) string {
	var event struct {
		Type   string
		Object struct {
			Metadata struct {
				Name, ResourceVersion string
				Annotations           map[string]string
			}
			Code            int
			Reason, Message string
			Details         struct {
				Causes []struct{ Reason string }
			}
		}
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return err.Error()
	}
	m := event.Object.Metadata
	if event.Type == "ERROR" {
		words := fmt.Sprintf("ERROR %d %s: %s", event.Object.Code, event.Object.Reason, event.Object.Message)
		for _, cause := range event.Object.Details.Causes {
			words += " " + cause.Reason
		}
		return words
	}
	words := fmt.Sprintf("%s %s@%s", event.Type, m.Name, m.ResourceVersion)
	if len(m.Annotations) > 0 {
		words += " initial"
	}
	return words
}

// a, b and c are created in versions 3, 4 and 5. b turns red in 6. a is deleted in 7.
var past = []string{
	`POST configmaps {"metadata":{"name":"a","labels":{"color":"red"}}}`,
	`POST configmaps {"metadata":{"name":"b","labels":{"color":"blue"}}}`,
	`POST widgets {$widget,"metadata":{"name":"w"},"spec":{"color":"green"}}`,
	`MERGE configmaps/b {"metadata":{"labels":{"color":"red"}}}`,
	`DELETE configmaps/a`,
}

// While a watch is open, b turns blue again in 8, w gets the color red in 9, and d is created in 10.
var meanwhile = []string{
	`MERGE configmaps/b {"metadata":{"labels":{"color":"blue"}}}`,
	`MERGE widgets/w {"spec":{"color":"red"}}`,
	`POST configmaps {"metadata":{"name":"d"}}`,
}

// A real server has compacted after minutes, and sends bookmarks at times of its own: nobody has recorded that.
func TestWatchesAndTime(t *testing.T) {
	for _, test := range []struct {
		name    string
		compact bool
		when    string
		want    []string
	}{
		{
			name: "bookmarks", when: "GET configmaps?watch=1&resourceVersion=7&allowWatchBookmarks=true",
			want: []string{"MODIFIED b@8", "ADDED d@10", "BOOKMARK @10", "BOOKMARK @10"},
		},
		{
			name: "a time limit",
			when: "GET configmaps?watch=1&resourceVersion=7&timeoutSeconds=60&allowWatchBookmarks=true",
			want: []string{"MODIFIED b@8", "ADDED d@10", "BOOKMARK @10", "end"},
		},
		{
			name: "from a version that was compacted", compact: true, when: "GET configmaps?watch=1&resourceVersion=6",
			want: []string{"ERROR 410 Expired: too old resource version: 6 (7)", "end"},
		},
		{
			name: "from the version of the compaction", compact: true, when: "GET configmaps?watch=1&resourceVersion=7",
			want: []string{"MODIFIED b@8", "ADDED d@10"},
		},
		{
			name: "from a version that comes to exist", when: "GET configmaps?watch=1&resourceVersion=8",
			want: []string{"ADDED d@10"},
		},
		{
			name: "WatchList at a version that comes to exist",
			when: "GET configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=9",
			want: []string{"ADDED b@8", "ADDED d@10"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newServer(t)
				for _, request := range past {
					r.do(request)
				}
				if test.compact {
					s.Compact()
				}
				var others sync.WaitGroup
				others.Go(func() {
					for _, request := range meanwhile {
						time.Sleep(time.Second / 2)
						r.do(request)
					}
				})
				got := received(r, test.when, 2*time.Minute+time.Second)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s\n%s", test.when, diff, s.Trace())
				}
				others.Wait()
			})
		})
	}
}

func TestOpenWatchesSurviveACompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newServer(t)
		s.InterceptEvents(func(_ *apiserver.Watch, e apiserver.Event) error {
			if e.Version == 4 {
				time.Sleep(time.Minute) // What comes next comes and is forgotten meanwhile.
			}
			return nil
		})
		var others sync.WaitGroup
		others.Go(func() {
			for _, request := range past {
				time.Sleep(time.Second)
				r.do(request)
				s.Compact()
			}
		})
		want := []string{"ADDED a@3", "ADDED b@4", "MODIFIED b@6", "DELETED a@7"}
		if diff := cmp.Diff(want, received(r, "GET configmaps?watch=1&resourceVersion=2", time.Hour/2)); diff != "" {
			t.Error(diff)
		}
		others.Wait()
		want = []string{"ERROR 410 Expired: too old resource version: 4 (7)", "end"}
		if diff := cmp.Diff(want, received(r, "GET configmaps?watch=1&resourceVersion=4", time.Hour)); diff != "" {
			t.Errorf("nothing was compacted (-want +got):\n%s", diff)
		}
	})
}

func TestEventsCanBreakAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newServer(t)
		s.InterceptEvents(func(w *apiserver.Watch, e apiserver.Event) error {
			if w.Sent == 1 {
				return errors.New("connection reset by peer")
			}
			return nil
		})
		for _, request := range past {
			r.do(request)
		}
		want := []string{"ADDED a@3", "connection reset by peer", "end"}
		if diff := cmp.Diff(want, received(r, "GET configmaps?watch=1&resourceVersion=2", time.Hour)); diff != "" {
			t.Errorf("a broken watch (-want +got):\n%s", diff)
		}
	})
}

// A watch that lags behind the writes ends at its timeout nevertheless.
func TestAWatchThatLagsEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newServer(t)
		s.InterceptEvents(func(*apiserver.Watch, apiserver.Event) error { time.Sleep(time.Second); return nil })
		var others sync.WaitGroup
		others.Go(func() {
			for i := range 100 {
				time.Sleep(time.Second / 2)
				r.do(fmt.Sprintf(`POST configmaps {"metadata":{"name":"n%d"}}`, i))
			}
		})
		began := time.Now()
		lines := received(r, "GET configmaps?watch=1&resourceVersion=2&timeoutSeconds=10", time.Hour)
		if took := time.Since(began); took > 12*time.Second || lines[len(lines)-1] != "end" {
			t.Errorf("after %s: %q", took, lines)
		}
		others.Wait()
	})
}

// A client that gives up while the server waits for a version gets the error of its context.
func TestACancelledRequestReturnsTheErrorOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(apiserver.New(kinds()...), "alice")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.CoreV1().ConfigMaps("default").List(ctx, listOptions("500"))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that the deadline is exceeded", err)
		}
	})
}

func TestTraceOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		var b strings.Builder
		s.TraceTo(&b)
		s.TraceEvents(true)
		r := &requester{t: t, server: s}
		r.do(past[0])
		received(r, "GET configmaps?watch=1&timeoutSeconds=90&allowWatchBookmarks=true", time.Hour)
		want := "    0.000s test: create configmaps -n default (a): 201, version 3\n" +
			"    0.000s test: watch configmaps -n default: 200\n" +
			"    0.000s test: configmaps: sent ADDED default/a, version 3\n" +
			"    0.000s test: configmaps: sent BOOKMARK, version 3\n" +
			"   60.000s test: configmaps: sent BOOKMARK, version 3\n" +
			"   88.000s test: configmaps: sent BOOKMARK, version 3\n"
		if diff := cmp.Diff(want, s.Trace()); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("trace written (-want +got):\n%s", diff)
		}
	})
}

func TestTheEndOfAWatchEndsAnInterceptorThatSleeps(t *testing.T) {
	for name, end := range map[string]func(*apiserver.Server, watch.Interface){
		"the client stops it":   func(_ *apiserver.Server, w watch.Interface) { w.Stop() },
		"its connection breaks": func(s *apiserver.Server, _ watch.Interface) { s.BreakWatches("alice", "", errReset) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				s.InterceptEvents(func(w *apiserver.Watch, _ apiserver.Event) error { return w.Request.Sleep(time.Hour) })
				w, err := clientOf(s, "alice").CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "2"})
				if err != nil {
					t.Fatal(err)
				}
				(&requester{t: t, server: s}).do(aConfigMap)
				synctest.Wait()
				began := time.Now()
				end(s, w)
				for range w.ResultChan() { // The client may get an error.
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("the watch ends after %v", waited)
				}
			})
		})
	}
}

// However many edits there are, half of them creations and deletions, what the server keeps does not grow.
func TestTheHistoryAndTheTraceAreBounded(t *testing.T) {
	const most, dropped, edits = 20_000, 10_000, 24_000
	s, r := newServer(t)
	var before uint64
	for i := range edits {
		if i == edits-dropped { // As many changes are in the history as in the end.
			before = heap()
		}
		switch i % 4 {
		case 0:
			r.do(`POST configmaps {"metadata":{"name":"a"}}`)
		case 3:
			r.do(`DELETE configmaps/a`)
		default:
			r.do(fmt.Sprintf(`MERGE configmaps/a {"data":{"i":"%d"}}`, i))
		}
	}
	if after := heap(); after > before+100_000 {
		t.Errorf("%d edits added %d bytes to the heap, although the history is not longer", dropped, after-before)
	}
	if kept := len(s.History()); s.Version() != edits+2 || kept > most || kept < most-dropped {
		t.Errorf("version %d and %d changes, want %d and from %d to %d", s.Version(), kept, edits+2, most-dropped, most)
	}
	if lines := strings.Count(s.Trace(), "\n"); lines > 2000 {
		t.Errorf("the trace has %d lines", lines)
	}
	s.KeepHistory(2)
	r.do(aConfigMap)
	if kept := len(s.History()); kept > 4 {
		t.Errorf("%d changes are kept, want at most 4", kept)
	}
}

// heap returns the bytes of the heap after a collection.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// Each of several users counts in its own key of the same object, with and without optimistic locking. No write is
// lost, and a watch sees every version once.
func TestConcurrentWrites(t *testing.T) {
	const users, edits = 8, 20
	s := apiserver.New(kinds()...)
	api := clientOf(s, "alice").CoreV1().ConfigMaps("default")
	if _, err := api.Create(t.Context(), configMap("shared"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := api.Watch(t.Context(), listOptions("3"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var all sync.WaitGroup
	for user := range users {
		all.Go(func() {
			api := clientOf(s, fmt.Sprint("user-", user)).CoreV1().ConfigMaps("default")
			for edit := range edits {
				if user%2 == 0 {
					patch := fmt.Appendf(nil, `{"data":{"user-%d":"%d"}}`, user, edit)
					_, err := api.Patch(t.Context(), "shared", types.MergePatchType, patch, metav1.PatchOptions{})
					if err != nil {
						t.Error(err)
					}
					continue
				}
				for set := false; !set; {
					cm, err := api.Get(t.Context(), "shared", metav1.GetOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					metav1.SetMetaDataAnnotation(&cm.ObjectMeta, fmt.Sprint("user-", user), fmt.Sprint(edit))
					_, err = api.Update(t.Context(), cm, metav1.UpdateOptions{})
					if set = err == nil; !set && !apierrors.IsConflict(err) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	last := int64(3)
	for event := range w.ResultChan() {
		cm := event.Object.(*corev1.ConfigMap)
		if last++; event.Type != watch.Modified || cm.ResourceVersion != fmt.Sprint(last) {
			t.Fatalf("%s of version %s after %d", event.Type, cm.ResourceVersion, last-1)
		}
		if last == 3+users*edits {
			break
		}
	}
	all.Wait()
	cm := s.Object(configMaps, "default", "shared").(*corev1.ConfigMap)
	for user := range users {
		name, want := fmt.Sprint("user-", user), fmt.Sprint(edits-1)
		if cm.Data[name] != want && cm.Annotations[name] != want {
			t.Errorf("%s: %q, %q, want %s", name, cm.Data[name], cm.Annotations[name], want)
		}
	}
}

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
