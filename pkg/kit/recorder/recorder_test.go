package recorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestFlushReturnsWhenAllEventsAreSent(t *testing.T) {
	recorder, client := newRecorder(t)
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("web-%02d", i)
		recorder.Eventf(pod(name), nil, corev1.EventTypeNormal, "Synced", "Sync", "%d of %d", i, 20)
		want = append(want, fmt.Sprintf("Pod/%s Normal Synced Sync by example.com/foo-controller: %d of 20", name, i))
	}
	recorder.Flush(eventually)
	if diff := cmp.Diff(want, sent(t, client)); diff != "" {
		t.Errorf("wrong events (-want +got):\n%s", diff)
	}
}

// client-go keeps events for minutes, so one beyond the limits must not reach it.
func TestAnEventBeyondTheLimitsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, client := newRecorder(t)
		for i := range burst + 3 {
			recorder.Eventf(pod(fmt.Sprint("web-", i)), nil, corev1.EventTypeNormal, "Synced", "Sync", "")
		}
		other := pod("web")
		other.Namespace = "other"
		recorder.Eventf(other, nil, corev1.EventTypeNormal, "Synced", "Sync", "")
		recorder.Flush(eventually)
		all, err := client.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]int{}
		for _, e := range all.Items {
			of[e.Namespace]++
		}
		if diff := cmp.Diff(map[string]int{"default": burst, "other": 1}, of); diff != "" {
			t.Errorf("events by namespace (-want +got):\n%s", diff)
		}
		if !recorder.sink.allSent() {
			t.Errorf("pending: %v", recorder.sink.unsent)
		}
	})
}

// Who can cause events about one object without a namespace must not take those about another.
func TestAnObjectWithoutANamespaceHasALimitOfItsOwn(t *testing.T) {
	recorder, client := newRecorder(t)
	noisy, quiet := pod("noisy"), pod("quiet")
	noisy.Namespace, quiet.Namespace = "", ""
	for i := range burst + 3 {
		recorder.Eventf(noisy, nil, corev1.EventTypeNormal, fmt.Sprint("Synced", i), "Sync", "")
	}
	recorder.Eventf(quiet, nil, corev1.EventTypeNormal, "Synced", "Sync", "")
	recorder.Flush(eventually)
	all, of := sent(t, client), map[string]int{}
	for _, event := range all {
		name, _, _ := strings.Cut(event, " ")
		of[name]++
	}
	if diff := cmp.Diff(map[string]int{"Pod/noisy": burst, "Pod/quiet": 1}, of); diff != "" {
		t.Errorf("events by object (-want +got):\n%s", diff)
	}
}

func TestFlushDoesNotWaitForARefusedEvent(t *testing.T) {
	recorder, client := newRecorder(t)
	client.PrependReactor("create", "events", func(ktest.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("no"))
	})
	recorder.Eventf(pod("web"), nil, corev1.EventTypeNormal, "Synced", "Sync", "")
	recorder.Flush(eventually)
	if !recorder.sink.allSent() {
		t.Errorf("pending: %v", recorder.sink.unsent)
	}
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

func TestFlushReturnsAsSoonAsNoEventIsPending(t *testing.T) {
	for _, tc := range []struct {
		name          string
		pending       int
		done, timeout time.Duration
		want          time.Duration
	}{
		{"nothing is pending", 0, 0, time.Second, 0},
		{"an event is sent in time", 1, 298 * time.Millisecond, time.Second, 300 * time.Millisecond},
		{"an event is sent too late", 1, 2 * time.Second, time.Second, time.Second},
		{"one of two events is sent", 2, 298 * time.Millisecond, time.Second, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := &Recorder{sink: newSink(nil)}
				for range tc.pending {
					recorder.sink.recorded(series{reason: "Synced"})
				}
				sending := time.AfterFunc(tc.done, func() { recorder.sink.sent(&eventsv1.Event{Reason: "Synced"}, nil) })
				defer sending.Stop()
				start := time.Now()
				recorder.Flush(tc.timeout)
				if got := time.Since(start); got != tc.want {
					t.Errorf("took %s, want %s", got, tc.want)
				}
			})
		})
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

// The time in which client-go tries to send an event begins with the event, also when another one of the series was sent
// a while ago.
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
