package recorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	ktest "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ events.EventRecorder = &Recorder{} // The controller takes this interface.

// eventually is a timeout that no test here should reach.
const eventually = time.Minute

// newRecorder returns a Recorder, and the clientset that it uses.
func newRecorder(t *testing.T) (*Recorder, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset()
	recorder, err := New(t.Context(), client.EventsV1(), scheme.Scheme, "example.com/foo-controller")
	if err != nil {
		t.Fatal(err)
	}
	return recorder, client
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid"}}
}

// sent returns a line for each stored event.
func sent(t *testing.T, client *fake.Clientset) []string {
	t.Helper()
	list, err := client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		all = append(all, fmt.Sprintf("%s/%s %s %s %s by %s: %s",
			e.Regarding.Kind, e.Regarding.Name, e.Type, e.Reason, e.Action, e.ReportingController, e.Note))
	}
	slices.Sort(all)
	return all
}

// client-go keeps events for minutes, so one beyond the limits must not reach it. Who can cause events about one object
// without a namespace must not take those about another.
func TestAnEventBeyondTheLimitsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, client := newRecorder(t)
		record := func(namespace, name string, n int) {
			object := pod(name)
			object.Namespace = namespace
			for i := range n {
				recorder.Eventf(object, nil, corev1.EventTypeNormal, fmt.Sprint("Synced", i), "Sync", "")
				time.Sleep(time.Nanosecond) // It is in the name of the event.
			}
		}
		record("default", "web", burst+3)
		record("other", "web", 1)
		time.Sleep(time.Second) // All share 50 more.
		record("", "noisy", burst+3)
		record("", "quiet", 1)
		recorder.Flush(eventually)
		all, err := client.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, e := range all.Items {
			got[e.Regarding.Namespace+"/"+e.Regarding.Name]++
		}
		want := map[string]int{"default/web": burst, "other/web": 1, "/noisy": burst, "/quiet": 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events by object (-want +got):\n%s", diff)
		}
	})
}

// A sink that hangs must not prevent the process from ending.
func TestFlushGivesUpOnASinkThatHangs(t *testing.T) {
	recorder, client := newRecorder(t)
	release := make(chan struct{})
	client.PrependReactor("create", "events", func(ktest.Action) (bool, runtime.Object, error) {
		<-release
		return false, nil, nil
	})
	recorder.Eventf(pod("web"), nil, corev1.EventTypeNormal, "Synced", "Sync", "late")
	recorder.Flush(10 * time.Millisecond)
	if n := len(recorder.sink.unsent); n != 1 {
		t.Errorf("%d events pending, want 1", n)
	}

	close(release)
	recorder.Flush(eventually)
	want := []string{"Pod/web Normal Synced Sync by example.com/foo-controller: late"}
	if diff := cmp.Diff(want, sent(t, client)); diff != "" {
		t.Errorf("wrong events (-want +got):\n%s", diff)
	}
}

// constantSink is a sink that returns the same error for every event.
type constantSink struct {
	events.EventSink
	err error
}

func (s constantSink) Create(context.Context, *eventsv1.Event) (*eventsv1.Event, error) {
	return nil, s.err
}

func (s constantSink) Patch(context.Context, *eventsv1.Event, []byte) (*eventsv1.Event, error) {
	return nil, s.err
}

// client-go sends an event again unless the API server itself refused it.
func TestSinkCountsEventsThatAreNotSentAgain(t *testing.T) {
	refused := apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("no"))
	for _, tc := range []struct {
		name string
		err  error
		// created and patched are the numbers of events that are pending then.
		created, patched int
	}{
		{"sent", nil, 2, 0},
		{"refused", refused, 2, 0},
		{"not found, so that it is created", apierrors.NewNotFound(eventsv1.Resource("events"), ""), 2, 2},
		{"no response", errors.New("connection reset"), 3, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sink, event := newSink(constantSink{err: tc.err}), &eventsv1.Event{Reason: "Synced"}
			for range 3 {
				sink.recorded(series{reason: "Synced"})
			}
			if _, err := sink.Create(t.Context(), event); !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if n := sink.pending(); n != tc.created {
				t.Errorf("after a create: %d events pending, want %d", n, tc.created)
			}
			event.Series = &eventsv1.EventSeries{Count: 2}
			if _, err := sink.Patch(t.Context(), event, nil); !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if n := sink.pending(); n != tc.patched {
				t.Errorf("after a patch: %d events pending, want %d", n, tc.patched)
			}
		})
	}
}

// A webhook for events hangs, and client-go gives an event up after 12 requests. If the Recorder kept it, the memory
// would grow until the webhook answers, and each stop from then on would take the whole timeout of Flush.
func TestAnEventThatClientGoGivesUpIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, client := newRecorder(t)
		var requests int
		client.PrependReactor("create", "events", func(ktest.Action) (bool, runtime.Object, error) {
			time.Sleep(10 * time.Second) // The timeout of a request, in virtual time.
			if requests++; recorder.sink.allSent() {
				t.Errorf("the event is forgotten before the end of request %d", requests)
			}
			return true, nil, context.DeadlineExceeded
		})
		recorder.Eventf(pod("web"), nil, corev1.EventTypeWarning, "Stalled", "Sync", "")
		time.Sleep(keptFor)
		synctest.Wait()
		if requests == 0 || !recorder.sink.allSent() {
			t.Errorf("after %s and %d requests: pending: %v", keptFor, requests, recorder.sink.unsent)
		}
		time.Sleep(time.Hour) // A request now would be too late.
	})
}

// The time in which client-go tries to send an event begins with the event, also when another one of the series was
// sent a while ago.
func TestFlushWaitsForAYoungEventOfAnOldSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, synced := newSink(nil), series{reason: "Synced"}
		sink.recorded(synced)
		sink.sent(&eventsv1.Event{Reason: "Synced"}, nil)
		time.Sleep(keptFor - time.Second) // Virtual time.
		sink.recorded(synced)
		time.Sleep(2 * time.Second)
		if sink.allSent() {
			t.Error("an event is forgotten two seconds after it was recorded")
		}
		time.Sleep(keptFor)
	})
}

// client-go sends the first event and a patch for the second one. The others are folded into these two.
func TestFlushDoesNotWaitForFoldedEvents(t *testing.T) {
	recorder, client := newRecorder(t)
	for i := range 5 {
		web := pod("web")
		web.ResourceVersion = fmt.Sprint(i) // client-go would not fold events with different ones.
		recorder.Eventf(web, nil, corev1.EventTypeNormal, "Synced", "Sync", "%d", i)
		recorder.Eventf(pod("other"), nil, corev1.EventTypeNormal, "Synced", "Sync", "")
		if i == 2 {
			recorder.Flush(eventually) // In the series, and between two events of it.
		}
		if web.ResourceVersion == "" {
			t.Error("the object of the caller is changed")
		}
	}
	began := time.Now()
	recorder.Flush(eventually)
	if took := time.Since(began); took > eventually/2 || len(sent(t, client)) != 2 {
		t.Errorf("Flush took %s, and these events are sent: %v", took, sent(t, client))
	}
}

// client-go sends the first and the second event at the same time.
func TestTheAnswerToTheFirstEventMayComeLast(t *testing.T) {
	sink, synced := newSink(nil), series{reason: "Synced"}
	sink.recorded(synced)
	sink.recorded(synced)
	sink.sent(&eventsv1.Event{Reason: "Synced", Series: &eventsv1.EventSeries{
		LastObservedTime: metav1.NewMicroTime(time.Now()),
	}}, nil)
	sink.sent(&eventsv1.Event{Reason: "Synced"}, nil)
	sink.recorded(synced)
	if !sink.allSent() {
		t.Error("an event that is folded counts as unsent")
	}
}

// client-go ends a series with a patch. Another event then is created.
func TestAfterTheEndOfASeriesEventsCountAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, synced := newSink(nil), series{reason: "Synced"}
		event := &eventsv1.Event{Reason: "Synced", Series: &eventsv1.EventSeries{
			LastObservedTime: metav1.NewMicroTime(time.Now()),
		}}
		sink.sent(event, nil)
		time.Sleep(seriesTime - time.Second) // Virtual time.
		sink.sent(event, nil)                // client-go sends the number of events from time to time.
		sink.recorded(synced)
		if !sink.allSent() {
			t.Error("an event that is folded counts as unsent")
		}
		time.Sleep(time.Second)
		sink.sent(event, nil)
		if len(sink.folding) > 0 {
			t.Error("a series is kept for ever")
		}
		sink.recorded(synced)
		if sink.allSent() {
			t.Error("an event after the end of the series counts as sent")
		}
	})
}

// client-go logs an event about an object of an unknown kind, and does not send it.
func TestAnEventThatCannotBeSentIsNotWaitedFor(t *testing.T) {
	recorder, _ := newRecorder(t)
	recorder.Eventf(&unknownKind{}, nil, corev1.EventTypeNormal, "Synced", "Sync", "")
	if !recorder.sink.allSent() {
		t.Error("the event is pending")
	}
}

type unknownKind struct{ corev1.Pod }

func (u *unknownKind) DeepCopyObject() runtime.Object { return &unknownKind{} }

// pending returns how many events of the series are pending.
func (s *sink) pending() int {
	if p := s.unsent[series{reason: "Synced"}]; p != nil {
		return p.n
	}
	return 0
}

// allowed returns how many of n calls for a namespace are allowed.
func allowed(limits *Limits, namespace string, n int) int {
	count := 0
	for range n {
		if limits.Allow(namespace) {
			count++
		}
	}
	return count
}

func TestANamespaceHasABurstAndARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewLimits()
		if n := allowed(limits, "a", 100); n != 30 {
			t.Errorf("%d at once, want 30", n)
		}
		time.Sleep(10 * time.Second)
		if n := allowed(limits, "a", 100); n != 10 {
			t.Errorf("%d after 10 s, want 10", n)
		}
		time.Sleep(time.Hour)
		if n := allowed(limits, "a", 100); n != 30 {
			t.Errorf("%d after an hour, want 30", n)
		}
	})
}

// A namespace that has used up its own tokens takes none of those that all share.
func TestANamespaceDoesNotTakeWhatOthersNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewLimits()
		allowed(limits, "greedy", 10_000)
		if n := allowed(limits, "b", 100); n != 20 {
			t.Errorf("another namespace: %d, want the 20 that are left of 50", n)
		}
		for second := range 100 {
			time.Sleep(time.Second)
			allowed(limits, "greedy", 1000)
			if n := allowed(limits, fmt.Sprint("quiet-", second), 1); n != 1 {
				t.Fatalf("second %d: a quiet namespace is refused", second)
			}
		}
	})
}

func TestAllNamespacesTogetherAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, count := NewLimits(), 0
		for second := range 60 {
			for i := range 200 {
				count += allowed(limits, fmt.Sprint("ns-", second, "-", i), 1)
			}
			time.Sleep(time.Second)
		}
		if count != 60*total {
			t.Errorf("%d in a minute, want %d", count, 60*total)
		}
	})
}

// New namespaces without end: what is remembered has a limit.
func TestNamespacesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, greedy, seconds := NewLimits(), 0, 0
		for i := range 10 * maxBuckets {
			greedy += allowed(limits, "greedy", 1)
			limits.Allow(fmt.Sprint("ns-", i))
			if i%total == 0 {
				time.Sleep(time.Second)
				seconds++
			}
			if len(limits.buckets) > maxBuckets {
				t.Fatalf("%d buckets", len(limits.buckets))
			}
		}
		if most := burst + seconds; greedy > most {
			t.Errorf("%d for the namespace that never pauses, want at most %d: its bucket must not be dropped", greedy, most)
		}
	})
}
