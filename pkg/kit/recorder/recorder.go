// Package recorder adds a limit and a Flush to the event recorder of client-go. That recorder keeps each event in
// memory for minutes, so users who create and delete objects could fill it. And it sends events in the background, so a
// process that ends without Flush loses those that are not sent yet.
package recorder

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
)

// Recorder is an events.EventRecorder that drops events beyond a limit, and counts its unsent ones. It may be used
// concurrently.
type Recorder struct {
	recorder events.EventRecorder
	allow    func(namespace string) bool
	pending  *atomic.Int64
}

// New returns a Recorder that sends events through client until ctx ends. name is the reporting controller of the
// events. The scheme must know the kinds of the objects that events are about. allow reports whether one more event
// about an object of this namespace may be sent now.
func New(
	ctx context.Context, client typedeventsv1.EventsV1Interface, scheme *runtime.Scheme, name string,
	allow func(namespace string) bool,
) (*Recorder, error) {
	pending := new(atomic.Int64)
	broadcaster := events.NewBroadcaster(&sink{EventSink: &events.EventSinkImpl{Interface: client}, pending: pending})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start recording events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &Recorder{recorder: broadcaster.NewRecorder(scheme, name), allow: allow, pending: pending}, nil
}

// Eventf implements events.EventRecorder. It does not block.
func (r *Recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	if obj, err := meta.Accessor(regarding); err == nil && !r.allow(obj.GetNamespace()) {
		return
	}
	r.pending.Add(1)
	r.recorder.Eventf(regarding, related, eventType, reason, action, note, args...)
}

// Flush waits until all recorded events are sent or refused, but not longer than timeout. Events that client-go folded
// into an earlier one are never sent one by one, so with such events Flush always waits for timeout.
func (r *Recorder) Flush(timeout time.Duration) {
	allSent := func(context.Context) (bool, error) { return r.pending.Load() <= 0, nil }
	// The error is ignored: the process ends, and the remaining events are lost.
	_ = wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, timeout, true, allSent)
}

// sink counts the events that are sent or refused.
type sink struct {
	events.EventSink
	pending *atomic.Int64
}

func (s *sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	s.count(err)
	return created, err
}

func (s *sink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	patched, err := s.EventSink.Patch(ctx, event, data)
	s.count(err)
	return patched, err
}

func (s *sink) count(err error) {
	var refused *apierrors.StatusError
	if err == nil || errors.As(err, &refused) { // client-go retries after any other error.
		s.pending.Add(-1)
	}
}
