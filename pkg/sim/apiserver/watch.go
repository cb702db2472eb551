package apiserver

import (
	"context"
	"time"

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
		deleted := rev.asDeleted()
		event = Event{Type: watch.Deleted, Version: rev.Version, Object: deleted.Object, revision: deleted}
	case !was:
		return Event{}, false
	}
	return event, true
}
