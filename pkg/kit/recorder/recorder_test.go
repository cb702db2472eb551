package recorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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

// newRecorder returns a Recorder that sends all events, and the clientset that it uses.
func newRecorder(t *testing.T) (*Recorder, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset()
	all := func(string) bool { return true }
	recorder, err := New(t.Context(), client.EventsV1(), scheme.Scheme, "example.com/foo-controller", all)
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

// client-go keeps events for minutes, so one that is not allowed must not reach it.
func TestAnEventThatIsNotAllowedIsDropped(t *testing.T) {
	recorder, client := newRecorder(t)
	var asked []string
	recorder.allow = func(namespace string) bool {
		asked = append(asked, namespace)
		return len(asked) == 1
	}
	for i := range 3 {
		recorder.Eventf(pod(fmt.Sprint("web-", i)), nil, corev1.EventTypeNormal, "Synced", "Sync", "")
	}
	recorder.Flush(eventually)
	if n := len(sent(t, client)); n != 1 || recorder.pending.Load() != 0 {
		t.Errorf("%d events are sent, %d are pending; want 1 and 0", n, recorder.pending.Load())
	}
	if diff := cmp.Diff([]string{"default", "default", "default"}, asked); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}

func TestFlushDoesNotWaitForARefusedEvent(t *testing.T) {
	recorder, client := newRecorder(t)
	client.PrependReactor("create", "events", func(ktest.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("no"))
	})
	recorder.Eventf(pod("web"), nil, corev1.EventTypeNormal, "Synced", "Sync", "")
	recorder.Flush(eventually)
	if n := recorder.pending.Load(); n != 0 {
		t.Errorf("%d events pending", n)
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
	if n := recorder.pending.Load(); n != 1 {
		t.Errorf("%d events pending, want 1", n)
	}

	close(release)
	recorder.Flush(eventually)
	want := []string{"Pod/web Normal Synced Sync by example.com/foo-controller: late"}
	if diff := cmp.Diff(want, sent(t, client)); diff != "" {
		t.Errorf("wrong events (-want +got):\n%s", diff)
	}
}

// The goroutines of client-go's broadcaster never end, which a bubble does not allow. So the Recorder has none here.
func TestFlushReturnsAsSoonAsNoEventIsPending(t *testing.T) {
	for _, tc := range []struct {
		name          string
		pending       int64
		done, timeout time.Duration
		want          time.Duration
	}{
		{"nothing is pending", 0, 0, time.Second, 0},
		{"more events were sent than recorded, as with a series of equal events", -1, 0, time.Second, 0},
		{"an event is sent in time", 1, 298 * time.Millisecond, time.Second, 300 * time.Millisecond},
		{"an event is sent too late", 1, 2 * time.Second, time.Second, time.Second},
		{"one of two events is sent", 2, 298 * time.Millisecond, time.Second, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := &Recorder{pending: new(atomic.Int64)}
				recorder.pending.Store(tc.pending)
				sending := time.AfterFunc(tc.done, func() { recorder.pending.Add(-1) })
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
		name    string
		err     error
		pending int64
	}{
		{"sent", nil, 0},
		{"refused", refused, 0},
		{"no response", errors.New("connection reset"), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pending := new(atomic.Int64)
			pending.Store(2) // An event and an update of its series.
			sink := &sink{EventSink: constantSink{err: tc.err}, pending: pending}
			_, created := sink.Create(t.Context(), &eventsv1.Event{})
			_, patched := sink.Patch(t.Context(), &eventsv1.Event{}, nil)
			if !errors.Is(created, tc.err) || !errors.Is(patched, tc.err) {
				t.Errorf("errors %v and %v, want %v", created, patched, tc.err)
			}
			if n := pending.Load(); n != 2*tc.pending {
				t.Errorf("%d events pending, want %d", n, 2*tc.pending)
			}
		})
	}
}
