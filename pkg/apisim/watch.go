package apisim

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// longestWatch is when a watch ends whose client did not say. Real servers roll dice for 30 to 60 minutes.
	longestWatch = 45 * time.Minute
	// heartbeat is how often a watch that wants bookmarks gets one.
	heartbeat = time.Minute
	// farewell is how long before its end a watch gets a last bookmark.
	farewell = 2 * time.Second
)

// A Watch is an open watch, as event interceptors see it.
type Watch struct {
	Request   *Request
	User      string
	Resource  schema.GroupVersionResource
	Namespace string // Empty for all.
	// Told counts the events that went out on it, bookmarks included.
	Told int
}

// An Event is what a watch is about to tell.
type Event struct {
	Type    watch.EventType
	Version int64 // Of what happened. A bookmark's says up to where the watch is.
	// Object is not to be modified. Of a bookmark it has nothing but a version. With an error it is nil.
	Object runtime.Object
	Status *metav1.Status // Of an error.

	revision *Revision
}

func (c *call) watch() (*answer, error) {
	opts, selected, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	from, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err // As it is: a real server has no words for it here.
	}
	w := &stream{
		server: c.server, kind: c.kind, selected: selected, ctx: c.request.Context(), closed: make(chan struct{}),
		media: acceptedMedia(c.request, c.kind), bookmarks: opts.AllowWatchBookmarks, told: from,
		watch: Watch{
			Request: c.request, User: c.request.User, Resource: c.kind.Resource, Namespace: selected.namespace,
		},
	}
	w.begin(opts, from)
	return &answer{stream: w}, nil
}

// event returns what a change means to somebody who sees only what is selected.
func (s *selection) event(rev *Revision) (Event, bool) {
	event := Event{Type: rev.Type, Version: rev.Version, Object: rev.Object, revision: rev}
	if s.everything() && (s.namespace == "" || s.namespace == rev.Namespace) {
		return event, true
	}
	is, was := rev.Type != watch.Deleted && s.has(rev.Object), s.has(rev.Before)
	switch {
	case is && was:
		event.Type = watch.Modified
	case is:
		event.Type = watch.Added
	case was && rev.Type != watch.Deleted:
		gone := rev.departed()
		event = Event{Type: watch.Deleted, Version: rev.Version, Object: gone.Object, revision: gone}
	case !was:
		return Event{}, false
	}
	return event, true
}
