// Package recorder adds Limits and a Flush to the event recorder of client-go. That recorder keeps each event in memory
// for minutes, so users who create and delete objects could fill it. And it sends events in the background, so a
// process that ends without Flush loses those that are not sent yet. Limits are also of use without a Recorder, for
// lines of the log that users can cause.
package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
)

// seriesTime is the time without an event after which client-go ends a series, with a last patch.
const seriesTime = 6 * time.Minute

// keptFor is the time after which client-go has given up an event: it sends 12 requests, which end after 10 s each,
// with pauses of up to 12.5 s.
const keptFor = 5 * time.Minute

// Recorder is an events.EventRecorder that drops events beyond its Limits, and counts its unsent ones. It may be used
// concurrently.
type Recorder struct {
	recorder events.EventRecorder
	scheme   *runtime.Scheme
	limits   *Limits
	sink     *sink
}

// New returns a Recorder that sends events through client until ctx ends. name is the reporting controller of the
// events. The scheme must know the kinds of the objects that events are about. The Recorder has Limits of its own.
func New(
	ctx context.Context, client typedeventsv1.EventsV1Interface, scheme *runtime.Scheme, name string,
) (*Recorder, error) {
	sink := newSink(&events.EventSinkImpl{Interface: client})
	broadcaster := events.NewBroadcaster(sink)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start recording events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	recorder := broadcaster.NewRecorder(scheme, name)
	return &Recorder{recorder: recorder, scheme: scheme, limits: NewLimits(), sink: sink}, nil
}

// Eventf implements events.EventRecorder. It does not block. An object without a namespace has a limit of its own: what
// one user causes must not take the events of another. The event has no resourceVersion of regarding, because
// client-go folds events only if they regard the same version.
func (r *Recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	ref, err := reference.GetReference(r.scheme, regarding)
	if err != nil {
		r.recorder.Eventf(regarding, related, eventType, reason, action, note, args...) // It logs the error.
		return
	}
	if !r.limits.Allow(cmp.Or(ref.Namespace, "/"+ref.Name)) {
		return
	}
	ref = ref.DeepCopy() // It may be the caller's own.
	ref.ResourceVersion = ""
	r.sink.recorded(series{*ref, eventType, reason, action})
	r.recorder.Eventf(ref, related, eventType, reason, action, note, args...)
}

// Flush waits until all events of the last five minutes are sent or refused, but not longer than timeout. An event that
// client-go folds into a series counts as sent: client-go sends the number of them minutes later.
func (r *Recorder) Flush(timeout time.Duration) {
	allSent := func(context.Context) (bool, error) { return r.sink.allSent(), nil }
	// The error is ignored: the process ends, and the remaining events are lost.
	_ = wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, timeout, true, allSent)
}

// A series are events that client-go folds, if they are related to the same object too.
type series struct {
	regarding                 corev1.ObjectReference
	eventType, reason, action string
}

// A sink counts the events that are not sent yet. Of a series, client-go creates the first event, and sends the second
// one as a patch. It folds those that follow. It may also drop an event without any request.
type sink struct {
	events.EventSink

	mu      sync.Mutex
	unsent  map[series]*pending
	folding map[series]bool
}

func newSink(to events.EventSink) *sink {
	return &sink{EventSink: to, unsent: map[series]*pending{}, folding: map[series]bool{}}
}

// recorded counts an event, unless it is folded. It is forgotten when client-go has given it up. Newer events of the
// series then are forgotten too: that costs only that Flush does not wait for them.
func (s *sink) recorded(of series) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folding[of] {
		return
	}
	p := s.unsent[of]
	if p == nil {
		p = &pending{}
		p.forget = time.AfterFunc(keptFor, func() { s.forget(of, p) })
		s.unsent[of] = p
	}
	p.n++
}

// pending is how many events of a series are not sent yet. When client-go has given them up, forget drops them.
type pending struct {
	n      int
	forget *time.Timer
}

func (s *sink) forget(of series, p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsent[of] == p {
		delete(s.unsent, of)
	}
}

func (s *sink) allSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unsent) == 0
}

func (s *sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	s.sent(event, err)
	return created, err
}

func (s *sink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	patched, err := s.EventSink.Patch(ctx, event, data)
	if !apierrors.IsNotFound(err) { // After this one client-go creates the event.
		s.sent(event, err)
	}
	return patched, err
}

// sent counts an event that is sent, or refused. client-go retries after any other error.
func (s *sink) sent(event *eventsv1.Event, err error) {
	var refused *apierrors.StatusError
	if err != nil && !errors.As(err, &refused) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := series{event.Regarding, event.Type, event.Reason, event.Action}
	if p := s.unsent[of]; p != nil {
		if p.n--; p.n <= 0 || event.Series != nil {
			p.forget.Stop()
			delete(s.unsent, of)
		}
	}
	switch {
	case event.Series == nil: // The first event. Its answer may come after that to the patch.
	case time.Since(event.Series.LastObservedTime.Time) < seriesTime:
		s.folding[of] = true
	default:
		delete(s.folding, of)
	}
}
