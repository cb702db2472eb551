package apiserver_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// However many edits there are, half of them creations and deletions, what the server keeps does not grow.
func TestTheHistoryAndTheTraceAreBounded(t *testing.T) {
	const most, dropped, edits = 20_000, 10_000, 24_000
	s := apiserver.New(kinds()...)
	r := &requester{t, s}
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
}

// heap returns the bytes of the heap after a collection.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A list that began before old changes were dropped has to begin again, and a watch that is open has all events.
func TestDroppedHistory(t *testing.T) {
	s := apiserver.New(kinds()...)
	s.KeepHistory(2)
	r := &requester{t, s}
	r.do(aConfigMap)
	watch, err := clientOf(s, "alice").CoreV1().ConfigMaps("default").Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: "2"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for i := range 5 {
		r.do(fmt.Sprintf(`MERGE configmaps/a {"data":{"i":"%d"}}`, i))
	}
	if got := len(s.History()); got > 4 {
		t.Errorf("%d changes are kept, want at most 4", got)
	}
	for version, want := range map[int64]int{3: 410, s.Version(): 200} {
		path := fmt.Sprintf("GET configmaps?resourceVersion=%d&resourceVersionMatch=Exact", version)
		if code, answer := r.do(path); code != want {
			t.Errorf("a list at version %d: %d %v", version, code, answer["message"])
		}
	}
	for i := range 6 {
		if event := <-watch.ResultChan(); event.Object.(metav1.Object).GetResourceVersion() != fmt.Sprint(3+i) {
			t.Fatalf("event %d is %v", i, event)
		}
	}
}
