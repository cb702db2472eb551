package apisim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A stream is the body of the answer to a watch. Its reader does the work, so that nothing runs that nobody waits for.
type stream struct {
	server    *Server
	kind      *resource
	selected  *selection
	ctx       context.Context
	media     media
	bookmarks bool
	ends      time.Time
	beats     time.Time // When the next bookmark is due.

	closing sync.Once
	closed  chan struct{}

	// What follows belongs to the reader.
	watch   Watch
	wants   int64 // Waits for this version before anything else.
	initial bool  // Begins with what there is.
	told    int64 // Everything up to this version has been told.
	at      *link // Where that is in the history.
	pending []Event
	buffer  []byte
	failed  bool  // Nothing comes after what is pending.
	done    error // What to return when the buffer is empty.
}

// begin decides where the watch starts.
func (w *stream) begin(opts *internalversion.ListOptions, from int64) {
	timeout := longestWatch
	if seconds := opts.TimeoutSeconds; seconds != nil && *seconds > 0 {
		timeout = time.Duration(*seconds) * time.Second
	}
	now := time.Now()
	w.ends = now.Add(timeout)
	w.schedule(now)
	if send := opts.SendInitialEvents; send != nil && *send {
		w.initial, w.wants = true, from
	}
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.at = w.kind.tail
	switch {
	case w.initial && w.wants <= w.server.version:
		w.tellAll()
	case w.initial:
	case from == 0:
		w.told = w.server.version // Whoever does not say where, and does not want what there is, begins now.
	case from < w.server.compacted:
		w.expire(from)
	default:
		w.at = w.kind.linkAt(from)
	}
}

// schedule sets when the next bookmark is due.
func (w *stream) schedule(now time.Time) {
	w.beats = now.Add(heartbeat)
	if last := w.ends.Add(-farewell); last.After(now) && last.Before(w.beats) {
		w.beats = last
	}
}

// tellAll begins with everything there is, and a bookmark that says so. The lock is held.
func (w *stream) tellAll() {
	w.initial, w.told, w.at = false, w.server.version, w.kind.tail
	for _, rev := range w.kind.sorted() {
		if w.selected.has(rev.Object) {
			w.pending = append(w.pending,
				Event{Type: watch.Added, Version: rev.Version, Object: rev.Object, revision: rev})
		}
	}
	if w.bookmarks {
		end := w.bookmark()
		accessor(end.Object).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.pending = append(w.pending, end)
	}
}

func (w *stream) bookmark() Event {
	obj := w.kind.empty()
	accessor(obj).SetResourceVersion(strconv.FormatInt(w.told, 10))
	return Event{Type: watch.Bookmark, Version: w.told, Object: obj}
}

// expire ends the watch because history does not go back to version.
func (w *stream) expire(version int64) {
	w.fail(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, w.server.compacted)))
}

// fail ends the watch with an error event.
func (w *stream) fail(err error) {
	w.pending = append(w.pending, Event{Type: watch.Error, Version: w.told, Status: statusOf(err)})
	w.failed = true
}

// Read returns events as soon as there are some.
func (w *stream) Read(p []byte) (int, error) {
	for len(w.buffer) == 0 {
		if w.done != nil {
			return 0, w.done
		}
		if w.done = w.over(); w.done != nil {
			continue
		}
		if len(w.pending) > 0 {
			w.done = w.tell()
			continue
		}
		w.done = w.wait()
	}
	n := copy(p, w.buffer)
	w.buffer = w.buffer[n:]
	return n, nil
}

// over says why the watch has ended, whatever it has yet to tell: but why it failed is told also when its time is over.
func (w *stream) over() error {
	select {
	case <-w.closed:
		return errClosed
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	default:
	}
	if !w.failed && !time.Now().Before(w.ends) {
		return io.EOF
	}
	return nil
}

// Close ends the watch. It may be called at any time.
func (w *stream) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return nil
}

// wait blocks until there is something to tell, or the watch ends.
func (w *stream) wait() error {
	if w.failed {
		return io.EOF
	}
	s := w.server
	s.mu.Lock()
	w.gather()
	wake := waiting(&w.kind.wake)
	if w.initial {
		wake = waiting(&s.wake)
	}
	version := s.version
	s.mu.Unlock()
	if len(w.pending) > 0 {
		return nil
	}
	now := time.Now()
	if !now.Before(w.ends) {
		return io.EOF
	}
	due := w.due(now)
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
		w.beat(version)
	case <-w.closed:
		return errClosed
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	return nil
}

// errClosed is what a reader gets that closed the body itself.
var errClosed = errors.New("http: read on closed response body")

// due returns how long until something happens without a change.
func (w *stream) due(now time.Time) time.Duration {
	due := w.ends
	switch {
	case w.initial:
		due = w.watch.Request.Time.Add(freshness)
	case w.bookmarks && w.beats.Before(due):
		due = w.beats
	}
	return max(due.Sub(now), 0)
}

// beat tells how far the watch is when that is due.
func (w *stream) beat(version int64) {
	now := time.Now()
	if w.initial {
		w.fail(tooLarge(w.wants, version))
		w.initial = false
		return
	}
	if now.Before(w.beats) || !now.Before(w.ends) {
		return
	}
	w.server.mu.Lock()
	w.gather()
	w.told = max(w.told, w.server.version)
	w.server.mu.Unlock()
	w.pending = append(w.pending, w.bookmark())
	w.schedule(now)
}

// gather takes note of what has happened since. The lock is held.
func (w *stream) gather() {
	if w.initial {
		if w.wants <= w.server.version {
			w.tellAll()
		}
		return
	}
	for w.at.next != nil {
		w.at = w.at.next
		if w.at.revision.Version <= w.told {
			continue // The watch is from a version that was yet to come.
		}
		w.told = w.at.revision.Version
		if event, is := w.selected.event(w.at.revision); is {
			w.pending = append(w.pending, event)
		}
	}
}

// tell puts the next event into the buffer.
func (w *stream) tell() error {
	event := w.pending[0]
	w.server.mu.Lock()
	interceptors := w.server.onEvents
	w.server.mu.Unlock()
	for _, f := range interceptors {
		if err := f(&w.watch, event); err != nil {
			return err
		}
	}
	w.pending = w.pending[1:]
	w.watch.Told++
	w.server.traceEvent(&w.watch, event)
	encoded, err := w.encode(event)
	w.buffer = encoded
	return err
}

// encode returns an event as it is sent.
func (w *stream) encode(event Event) ([]byte, error) {
	payload := &answer{revision: event.revision, object: event.Object}
	if event.Status != nil {
		payload.object = event.Status
	}
	obj, err := w.media.encode(payload)
	if err != nil {
		return nil, err
	}
	if w.media == mediaBinary {
		return frame(event.Type, obj)
	}
	kind, err := json.Marshal(event.Type)
	if err != nil {
		return nil, fmt.Errorf("encode the type of an event: %w", err)
	}
	line := make([]byte, 0, len(obj)+64)
	line = append(append(line, `{"type":`...), kind...)
	line = append(append(line, `,"object":`...), obj...)
	return append(line, "}\n"...), nil
}

// frame returns an event in protobuf: its length, and then the event without an envelope.
func frame(kind watch.EventType, obj []byte) ([]byte, error) {
	raw, err := (&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: obj}}).Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode an event: %w", err)
	}
	length := len(raw)
	framed := []byte{byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}
	return append(framed, raw...), nil
}
