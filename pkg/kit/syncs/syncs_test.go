package syncs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

func newLog() *Log { return New("foo", func() Queue { return Queue{Tokens: 300} }) }

func get(log *Log, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	log.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	return w
}

func all(l *Log) State { return l.state(filter{limit: allSyncs}) }

// TestEachSyncHasItsCause: of several events the last one counts, and the time since the first; a delay counts if no
// event comes before its end.
func TestEachSyncHasItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, web, other := newLog(), cache.NewObjectName("ns", "web"), cache.NewObjectName("ns", "other")
		var got []string
		begin := func(key cache.ObjectName) *Sync {
			s := log.Begin(key, "")
			got = append(got, fmt.Sprintf("%s waited %v", s.record.Why, s.record.WaitedSeconds))
			return s
		}
		log.Queued(web, "created")
		time.Sleep(time.Second)
		log.Queued(web, "changed")
		time.Sleep(time.Second)
		s := begin(web)
		log.Queued(web, "changed meanwhile")
		s.End("retry", true, time.Minute, "backoff", errors.New("refused")) // The event is earlier than the end of the delay.
		s = begin(web)
		s.End("retry", true, time.Minute, "backoff", errors.New("refused"))
		time.Sleep(time.Minute + time.Second)
		s = begin(web)
		s.End("wait", true, time.Minute, "", nil)
		time.Sleep(time.Second)
		log.Queued(web, "changed during the delay")
		begin(web).End("done", false, 0, "", nil)
		time.Sleep(time.Hour)
		s = begin(web)
		s.End("wait", true, 10*time.Second, "", nil)
		log.Queued(web, "changed")
		s = begin(web)
		s.End("retry", true, time.Minute, "", nil) // The key comes back after the first delay.
		if until := time.Until(s.record.Until); until != 10*time.Second {
			t.Error("comes back after", until)
		}
		log.Queued(web, "changed")
		s = begin(web)
		time.Sleep(11 * time.Second) // The delay ends during the sync.
		s.End("wait", true, time.Minute, "", nil)
		begin(web)
		time.Sleep(time.Minute)
		begin(web)
		begin(other)
		if diff := cmp.Diff([]string{
			"changed waited 2",
			"changed meanwhile waited 0",
			"the delay of an earlier retry has ended waited 1",
			"changed during the delay waited 0",
			"the delay of an earlier wait has ended waited 3541",
			"changed waited 0", "changed waited 0",
			"the delay of an earlier wait has ended waited 1",
			"the delay of an earlier wait has ended waited 0",
			"not recorded waited 0",
		}, got); diff != "" {
			t.Error("causes (-want +got):\n", diff)
		}
	})
}

// A key may be shown with another namespace than before, and is the same key in the queue.
func TestACauseIsFoundAfterTheNamespaceHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, key, shown := newLog(), cache.NewObjectName("", "web"), "team"
		log.Namespace = func(cache.ObjectName) string { return shown }
		log.Begin(key, "").End("wait", true, time.Minute, "", nil)
		shown = ""
		time.Sleep(time.Minute)
		s := log.Begin(key, "")
		if s.record.Why == "not recorded" || s.record.Namespace != "" || len(log.delays) > 0 {
			t.Errorf("queued: %s, in the namespace %q, and %d delays are kept", s.record.Why, s.record.Namespace,
				len(log.delays))
		}
	})
}

// TestTheLastSyncsAreKept compares the store with a plain model: the last 1,000 syncs, and the last 20 of each of the
// 1,000 objects that were synced last.
func TestTheLastSyncsAreKept(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	log := newLog()
	var want []modelSync
	for i := range 3000 {
		object := int(random.ExpFloat64() * 400)
		log.Begin(cache.NewObjectName("ns", fmt.Sprint("foo-", object)), "").End("done", false, 0, "", nil)
		want = kept(append(want, modelSync{id: int64(i + 1), object: object}))
		if i%500 != 0 {
			continue
		}
		var got []int64
		for _, r := range slices.Backward(all(log).Syncs) {
			got = append(got, r.ID)
		}
		if !slices.EqualFunc(got, want, func(id int64, s modelSync) bool { return id == s.id }) {
			t.Fatalf("after %d syncs: %d are kept, and %d should be", i+1, len(got), len(want))
		}
	}
}

type modelSync struct {
	id     int64
	object int
}

// kept returns those of syncs that should be kept. The last one is the newest.
func kept(syncs []modelSync) (result []modelSync) {
	var number [8000]int // Of kept syncs, by object.
	objects, last := 0, syncs[len(syncs)-1].id
	for _, s := range slices.Backward(syncs) {
		isOfObject := (number[s.object] > 0 || objects < maxObjects) && number[s.object] < maxPerObject
		if isOfObject && number[s.object] == 0 {
			objects++
		}
		if isOfObject {
			number[s.object]++
		}
		if isOfObject || last-s.id < maxRecent {
			result = append(result, s)
		}
	}
	slices.Reverse(result)
	return result
}

// TestASyncThatRunsIsKept: a sync that hangs is what a person looks for, also after thousands of others.
func TestASyncThatRunsIsKept(t *testing.T) {
	log := newLog()
	hangs := log.Begin(cache.NewObjectName("ns", "hangs"), "")
	for i := range 2500 {
		s := log.Begin(cache.NewObjectName("ns", fmt.Sprint("job-", i)), "")
		s.Observed(strings.Repeat("o", 1000), "")
		s.End("done", false, 0, "", nil)
	}
	if n := len(log.state(filter{outcome: running, limit: allSyncs}).Syncs); n != 1 {
		t.Errorf("%d syncs are running", n)
	}
	hangs.End("done", false, 0, "", nil)
	if n := len(log.state(filter{name: "hangs", limit: allSyncs}).Syncs); n != 0 {
		t.Errorf("it has ended, and %d of it are kept", n)
	}
}

// TestRunningSyncsDisplaceAllOthers: a namespace whose running syncs alone need more than the limit has nothing that
// can be dropped. What has ended elsewhere is dropped instead.
func TestRunningSyncsDisplaceAllOthers(t *testing.T) {
	log := newLog()
	log.Begin(cache.NewObjectName("quiet", "web"), "").End("done", false, 0, "", nil)
	long := strings.Repeat("x", maxText)
	for i := range 3 {
		s := log.Begin(cache.NewObjectName("busy", fmt.Sprint("job-", i)), "")
		for range maxRequests {
			s.Sent(Request{Fields: slices.Repeat([]Field{{Path: long, Have: long, Want: long}}, maxFields)}, nil)
		}
	}
	if state := all(log); len(state.Syncs) != 3 {
		t.Errorf("%d syncs are kept, want the 3 that run", len(state.Syncs))
	}
}

// TestMemoryIsBounded: whatever users write into objects, the Log needs 4 MiB, and keeps the newest syncs.
func TestMemoryIsBounded(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before, log := heap(), newLog()
	for i := range 1500 {
		text := strings.Repeat("é", i%4000)
		key := cache.NewObjectName("ns", fmt.Sprint("foo-", i%3000))
		log.Queued(key, "changed")
		for j := range 4 {
			log.Queued(cache.NewObjectName("ns", fmt.Sprint("queued for ever ", i, " ", j)), "created")
		}
		s := log.Begin(key, "id")
		s.Observed(text, text)
		for range i % 50 {
			s.Sent(Request{Rule: "rule", Fields: make([]Field, i%100)}, errors.New(text))
		}
		s.Reported(text)
		s.Concluded(make([]Rule, i%100))
		s.End("retry", true, time.Hour, text, errors.New(text))
	}
	if grown := heap() - before; grown > 2*maxBytes {
		t.Errorf("the Log has %d bytes, and may have about %d", grown, maxBytes)
	}
	state := all(log)
	for i, r := range state.Syncs {
		if want := int64(1500 - i); r.ID != want {
			t.Fatalf("sync %d is missing, but older ones are kept", want)
		}
	}
	if r := state.Syncs[0]; len(state.Syncs) < 50 || r.Ended.IsZero() || len(r.Observed) > maxText+3 ||
		len(r.Rules) > maxRules {
		t.Errorf("%d syncs are kept; the last one is %+v", len(state.Syncs), r)
	}
	runtime.KeepAlive(log)
}

// TestNothingIsRecordedWithoutALog: a program without the endpoint neither allocates nor fails.
func TestNothingIsRecordedWithoutALog(t *testing.T) {
	var log *Log
	ctx, key := t.Context(), cache.NewObjectName("ns", "web")
	if allocs := testing.AllocsPerRun(100, func() {
		log.Queued(key, "created")
		s := log.Begin(key, "id")
		inner := NewContext(ctx, s)
		From(inner).Observed("", "")
		From(inner).Sent(Request{}, nil)
		From(inner).Reported("")
		From(inner).Concluded(nil)
		s.End("done", false, 0, "", nil)
		if inner != ctx {
			t.Error("the context is another one")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestStateAsJSON has the format that readers rely on.
func TestStateAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Time begins on 1 January 2000.
		log := New("foo", func() Queue {
			return Queue{Tokens: 299,
				Namespaces: []Namespace{{Namespace: "ns", Waiting: 1}, {Namespace: "b", InWork: 2, BackingOff: 1}}}
		})
		record(log)
		want := `{"kind":"foo","now":"2000-01-01T00:00:04Z","started":"2000-01-01T00:00:00Z","last":7,"dropped":0,
"queue":{"tokens":299,"namespaces":[{"namespace":"b","waiting":0,"inWork":2,"backingOff":1},{"namespace":"ns",
"waiting":1,"inWork":0,"backingOff":0}]},
"syncs":[
{"id":2,"number":7,"namespace":"ns","name":"other","reconcileID":"2","why":"not recorded",
"began":"2000-01-01T00:00:04Z","waitedSeconds":0},
{"id":1,"number":6,"namespace":"ns","name":"web","reconcileID":"1","why":"created","queued":"2000-01-01T00:00:00Z",
"began":"2000-01-01T00:00:01Z","waitedSeconds":1,
"observed":"one \u003cb\u003e","requests":[{"at":"2000-01-01T00:00:02Z","rule":"patch drift","why":"replicas differ",
"request":"patch Deployment","name":"web",
"fields":[{"path":"spec.replicas","have":"1","want":"3"},{"path":"data.key","have":"","want":""}],"answer":"refused",
"failed":true,"tookSeconds":2}],
"rules":[{"rule":"create","answer":"not needed","sends":false}],"statusBefore":"Ready=Unknown",
"statusAfter":"Ready=False",
"ended":"2000-01-01T00:00:04Z","outcome":"retry","for":"the backoff to end","until":"2000-01-01T00:01:04Z",
"error":"no\u001b[1m"}]}` + "\n"
		w := get(log, "/debug/syncs?format=json")
		if diff := cmp.Diff(strings.ReplaceAll(want, ",\n", ","),
			strings.ReplaceAll(w.Body.String(), "[{\"id", "[\n{\"id")); diff != "" {
			t.Error("JSON (-want +got):\n", diff)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Error("Content-Type:", got)
		}
	})
}

// record records a sync of 3 s that fails, and one that is running.
func record(log *Log) {
	web := cache.NewObjectName("ns", "web")
	log.Queued(web, "created")
	time.Sleep(time.Second)
	s := log.Begin(web, "1")
	s.Observed("one <b>", "Ready=Unknown")
	time.Sleep(3 * time.Second)
	s.Sent(Request{
		At: time.Now().Add(-2 * time.Second), Rule: "patch drift", Why: "replicas differ", Request: "patch Deployment",
		Name: "web", Fields: []Field{{Path: "spec.replicas", Have: "1", Want: "3"}, {Path: "data.key"}},
	}, errors.New("refused"))
	s.Reported("Ready=False")
	s.Concluded([]Rule{{Rule: "create", Answer: "not needed"}})
	s.End("retry", true, time.Minute, "the backoff to end", errors.New("no\x1b[1m"))
	log.Begin(cache.NewObjectName("ns", "other"), "2")
}

// TestStateAsText: no text of a user controls the terminal.
func TestStateAsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		record(log)
		want := `foo: syncs since 00:00:00.000Z, the newest first; it is 00:00:04.000Z
queue: 300 tokens left for retries

00:00:04.000Z  ns/other
  queued    not recorded
  outcome   none: the sync is running

00:00:01.000Z  ns/web
  queued    created; waited 1s
  observed  one <b>
  request   patch Deployment web (patch drift: replicas differ)
            spec.replicas 1 -> 3
            data.key
            refused, after 2s
  rule      create: not needed
  status    Ready=Unknown
         -> Ready=False
  outcome   retry, the sync took 3s, waits for the backoff to end, comes back at 00:01:04.000Z
  error     no\u001b[1m
`
		if diff := cmp.Diff(want, get(log, "/debug/syncs").Body.String()); diff != "" {
			t.Error("text (-want +got):\n", diff)
		}
	})
}

// TestFilters: a reader asks for what it wants, or only for what is new.
func TestFilters(t *testing.T) {
	log := newLog()
	for i, namespace := range []string{"a", "b", "a"} {
		s := log.Begin(cache.NewObjectName(namespace, fmt.Sprint("web-", i)), "")
		if i > 0 {
			s.End("done", false, 0, "", nil)
		}
	}
	for url, want := range map[string]string{
		"format=json":                    "3 2 1",
		"format=json&namespace=a":        "3 1",
		"format=json&name=eb-1":          "2",
		"format=json&outcome=running":    "1",
		"format=json&outcome=done":       "3 2",
		"format=json&limit=1":            "3",
		"format=json&after=3":            "3",
		"format=json&after=5":            "",
		"format=json&namespace=a&name=0": "1",
		"format=json&limit=-1":           `strconv.ParseUint: parsing "-1": invalid syntax`,
		"format=json&outcome=failed":     `outcome="failed": it is one of ["done" "retry" "wait" "terminal" "running"]`,
		"format=json&limit=x":            `strconv.ParseUint: parsing "x": invalid syntax`,
		"format=json&nmae=web": `there is no parameter "nmae": use format, namespace, name, outcome, after or ` +
			"limit",
		"format=yaml": `format="yaml": it is json, text or html`,
	} {
		w := get(log, "/debug/syncs?"+url)
		var state State
		var ids []string
		_ = json.Unmarshal(w.Body.Bytes(), &state)
		for _, r := range state.Syncs {
			ids = append(ids, fmt.Sprint(r.ID))
		}
		got := strings.Join(ids, " ")
		if w.Code != http.StatusOK {
			got = strings.TrimSpace(w.Body.String())
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", url, got, want)
		}
	}
}

// TestPage: a browser gets a page that may load and run nothing but its own script.
func TestPage(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/debug/syncs", nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	newLog().ServeHTTP(w, r)
	if !strings.HasPrefix(w.Body.String(), "<!doctype html>") {
		t.Error("no page:", w.Body)
	}
	policy := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-",
		"connect-src 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %q", policy, want)
		}
	}
	for _, element := range []string{"<style>", "<script>"} {
		if n := strings.Count(pageHTML, element); n != 1 {
			t.Errorf("the page has %d %s, and the policy the hash of the first one", n, element)
		}
	}
}

// TestConcurrentReaders is for the race detector.
func TestConcurrentReaders(t *testing.T) {
	log := newLog()
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for range 300 {
				key := cache.NewObjectName("ns", fmt.Sprint(i))
				log.Queued(key, "changed")
				s := log.Begin(key, "")
				for range 3 {
					From(NewContext(context.Background(), s)).Sent(Request{Fields: []Field{{Path: "a"}}}, nil)
				}
				s.End("done", false, 0, "", nil)
			}
		})
		running.Go(func() {
			for range 20 {
				get(log, "/debug/syncs?format=json")
			}
		})
	}
	running.Wait()
}

// A Foo that fails has been synced 20 times. Then a resync finds nothing to do for many others.
func TestAResyncDoesNotDisplaceWhatFails(t *testing.T) {
	log := newLog()
	for range 20 {
		s := log.Begin(cache.NewObjectName("quiet", "web"), "12345678")
		s.Sent(Request{Request: "patch Deployment", Name: "web"}, errors.New(strings.Repeat("x", 300)))
		s.End("retry", true, time.Minute, "", nil)
	}
	for other := range 27_000 {
		s := log.Begin(cache.NewObjectName(fmt.Sprint("ns-", other%300), fmt.Sprint("web-", other%9_000)), "12345678")
		s.End("done", false, 0, "", nil)
	}
	state := log.state(filter{namespace: "quiet", limit: 100})
	if kept := len(state.Syncs); kept != 20 || state.Dropped < 20_000 {
		t.Errorf("%d of the 20 syncs of the Foo that fails are left, and %d of all are dropped", kept, state.Dropped)
	}
}
