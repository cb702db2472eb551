package apiserver

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// defaultWatchTimeout is the duration of a watch without a timeout. Real servers choose 30 to 60 minutes at random.
	defaultWatchTimeout = 45 * time.Minute
	// bookmarkInterval is the time between two bookmarks of a watch that asks for bookmarks.
	bookmarkInterval = time.Minute
	// lastBookmarkLead is the time between the last bookmark of a watch and its end.
	lastBookmarkLead = 2 * time.Second
)

// A Watch is an open watch, as event interceptors see it.
type Watch struct {
	Request   *Request
	User      string
	Resource  schema.GroupVersionResource
	Namespace string // Empty for all.
	// Sent counts the events that were sent on it, including bookmarks.
	Sent int
}

// An Event is an event that a watch is about to send.
type Event struct {
	Type    watch.EventType
	Version int64 // The version of the change. A bookmark has the version up to which all events are sent.
	// Object must not be modified. The object of a bookmark has only a version. An error has none.
	Object runtime.Object
	Status *metav1.Status // Only of an error.

	revision *Revision
}

func (c *call) watch() (*answer, error) {
	opts, selected, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	from, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err // A real server adds no context to this error.
	}
	accepts, err := c.acceptsEvents()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.request.Context())
	request := *c.request
	request.HTTP = request.HTTP.WithContext(ctx) // So that the end of the watch ends an interceptor that sleeps.
	w := &stream{
		server: c.server, kind: c.kind, selected: selected, ctx: c.request.Context(), closed: make(chan struct{}),
		cancel: cancel, accepts: accepts, bookmarks: opts.AllowWatchBookmarks, sentVersion: from,
		watch: Watch{
			Request: &request, User: c.request.User, Resource: c.kind.Resource, Namespace: selected.namespace,
		},
	}
	w.begin(opts, from)
	return &answer{stream: w}, nil
}

// event returns the event of a change for a watch with this selection, and whether there is one.
func (s *selection) event(rev *Revision) (Event, bool) {
	event := Event{Type: rev.Type, Version: rev.Version, Object: rev.Object, revision: rev}
	if s.everything() && (s.namespace == "" || s.namespace == rev.Namespace) {
		return event, true
	}
	is, was := rev.Type != watch.Deleted && s.matches(rev.Object), s.matches(rev.Before)
	switch {
	case is && was:
		event.Type = watch.Modified
	case is:
		event.Type = watch.Added
	case was && rev.Type != watch.Deleted:
		deleted, err := rev.kind.newRevision(watch.Deleted, withVersion(rev.Before, rev.Version), rev.Before)
		if err != nil {
			panic("apiserver: " + err.Error()) // Impossible: it was encoded before with another version.
		}
		event = Event{Type: watch.Deleted, Version: rev.Version, Object: deleted.Object, revision: deleted}
	case !was:
		return Event{}, false
	}
	return event, true
}

// A stream is the body of the response to a watch. It has no goroutine: Read does the work.
type stream struct {
	server       *Server
	kind         *resource
	selected     *selection
	ctx          context.Context
	accepts      encoding
	bookmarks    bool
	ends         time.Time
	nextBookmark time.Time // When the next bookmark is due.

	closing sync.Once
	closed  chan struct{}
	reason  error  // Why the watch ended. It is set before closed is closed.
	cancel  func() // It ends the context of the interceptors.

	changes []*Revision // Those that are not queued yet. The lock of the server guards it.

	// Only the reader uses the fields below.
	watch       Watch
	initial     bool  // The initial events are not queued yet.
	sentVersion int64 // All events up to this version are sent or pending. The initial ones wait for it.
	pending     []Event
	buffer      []byte
	failed      bool  // The watch ends after the pending events.
	done        error // Read returns it when the buffer is empty.
}

// begin decides where the watch starts.
func (w *stream) begin(opts *internalversion.ListOptions, from int64) {
	timeout := defaultWatchTimeout
	if seconds := opts.TimeoutSeconds; seconds != nil && *seconds > 0 {
		timeout = time.Duration(*seconds) * time.Second
	}
	now := time.Now()
	w.ends = now.Add(timeout)
	w.schedule(now)
	w.initial = orZero(opts.SendInitialEvents)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.streams[w] = true
	switch {
	case w.initial && w.sentVersion <= w.server.version:
		w.queueInitialEvents()
	case w.initial:
	case from == 0:
		w.sentVersion = w.server.version // Without a version and without initial events, the watch begins now.
	case from < w.server.compacted:
		w.fail(apierrors.NewResourceExpired(
			fmt.Sprintf("too old resource version: %d (%d)", from, w.server.compacted)))
	default:
		w.changes = slices.Clone(w.kind.since(from))
	}
}

// schedule sets when the next bookmark is due.
func (w *stream) schedule(now time.Time) {
	w.nextBookmark = now.Add(bookmarkInterval)
	if last := w.ends.Add(-lastBookmarkLead); last.After(now) && last.Before(w.nextBookmark) {
		w.nextBookmark = last
	}
}

// queueInitialEvents queues an event for each existing object, and the bookmark that ends the initial events. The
// caller holds the lock.
func (w *stream) queueInitialEvents() {
	w.initial, w.sentVersion, w.changes = false, w.server.version, nil
	for _, rev := range w.kind.sorted() {
		if w.selected.matches(rev.Object) {
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
	accessor(obj).SetResourceVersion(strconv.FormatInt(w.sentVersion, 10))
	return Event{Type: watch.Bookmark, Version: w.sentVersion, Object: obj}
}

// fail ends the watch with an error event.
func (w *stream) fail(err error) {
	w.pending = append(w.pending, Event{Type: watch.Error, Version: w.sentVersion, Status: statusOf(err)})
	w.failed = true
}

// Read returns events as soon as there are some.
func (w *stream) Read(p []byte) (int, error) {
	for len(w.buffer) == 0 {
		if w.done != nil {
			w.pending = nil // A client may keep the response. It must not keep the changes.
			_ = w.Close()   // It has no error.
			return 0, w.done
		}
		if w.done = w.endError(); w.done != nil {
			continue
		}
		if len(w.pending) > 0 {
			w.done = w.sendNext()
			continue
		}
		w.done = w.wait()
	}
	n := copy(p, w.buffer)
	w.buffer = w.buffer[n:]
	return n, nil
}

// endError returns the error that ends the watch, nil if it continues. It does not wait for pending events. But the
// event of a failure is sent even after the timeout of the watch.
func (w *stream) endError() error {
	select {
	case <-w.closed:
		return w.reason
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
	w.end(errClosed)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	delete(w.server.streams, w)
	w.changes = nil
	return nil
}

// end ends the watch with an error, unless it has ended.
func (w *stream) end(err error) {
	w.closing.Do(func() { w.reason = err; close(w.closed); w.cancel() })
}

// wait blocks until there is an event, or the watch ends.
func (w *stream) wait() error {
	if w.failed {
		return io.EOF
	}
	s := w.server
	s.mu.Lock()
	w.queueChanges()
	wake := nextChange(&w.kind.wake)
	if w.initial {
		wake = nextChange(&s.wake)
	}
	version := s.version
	s.mu.Unlock()
	if len(w.pending) > 0 {
		return nil
	}
	timer := time.NewTimer(w.due(time.Now()))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
		w.timedOut(version)
	case <-w.closed:
	case <-w.ctx.Done():
	}
	return nil // endError notices the end of the watch.
}

// errClosed is the error of a Read after Close.
var errClosed = errors.New("http: read on closed response body")

// due returns the time until the watch must do something without a change.
func (w *stream) due(now time.Time) time.Duration {
	due := w.ends
	switch {
	case w.initial:
		due = w.watch.Request.Time.Add(versionTimeout)
	case w.bookmarks && w.nextBookmark.Before(due):
		due = w.nextBookmark
	}
	return max(due.Sub(now), 0)
}

// timedOut queues a bookmark if one is due. It ends a watch that has waited too long for its first version.
func (w *stream) timedOut(version int64) {
	now := time.Now()
	if w.initial {
		w.fail(tooLarge(w.sentVersion, version))
		w.initial = false
		return
	}
	if now.Before(w.nextBookmark) || !now.Before(w.ends) {
		return
	}
	w.server.mu.Lock()
	w.queueChanges()
	w.sentVersion = max(w.sentVersion, w.server.version)
	w.server.mu.Unlock()
	w.pending = append(w.pending, w.bookmark())
	w.schedule(now)
}

// queueChanges queues events for the changes since the last call. The caller holds the lock.
func (w *stream) queueChanges() {
	if w.initial {
		if w.sentVersion <= w.server.version {
			w.queueInitialEvents()
		}
		return
	}
	for _, rev := range w.changes {
		if rev.Version <= w.sentVersion {
			continue // The watch began at a version that did not exist yet.
		}
		w.sentVersion = rev.Version
		if event, is := w.selected.event(rev); is {
			w.pending = append(w.pending, event)
		}
	}
	w.changes = nil
}

// sendNext encodes the next event into the buffer.
func (w *stream) sendNext() error {
	event := w.pending[0]
	w.server.mu.Lock()
	interceptors := w.server.onEvents
	w.server.mu.Unlock()
	for _, f := range interceptors {
		if err := f(&w.watch, event); err != nil {
			return cmp.Or(w.endError(), err)
		}
	}
	if err := w.endError(); err != nil {
		return err // It ended while an interceptor waited.
	}
	w.pending = w.pending[1:]
	w.watch.Sent++
	w.server.traceEvent(&w.watch, event)
	encoded, err := w.encode(event)
	w.buffer = encoded
	return err
}

// encode returns an encoded event.
func (w *stream) encode(event Event) ([]byte, error) {
	payload := &answer{revision: event.revision, object: event.Object}
	if event.Status != nil {
		payload.object = event.Status
	}
	obj, err := w.accepts.encode(w.kind, payload)
	w.accepts.noHeader = true // Only the first event of a watch has the columns of its table.
	if err != nil {
		return nil, err
	}
	wire := &metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: obj}}
	if w.accepts.media == mediaBinary { // The length, and then the event without an envelope.
		raw, err := wire.Marshal()
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...), err
	}
	line, err := json.Marshal(wire)
	return append(line, '\n'), err
}
