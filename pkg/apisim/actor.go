package apisim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// retryAfter is when an actor tries again what did not work.
const retryAfter = time.Second

// An actor looks at what is stored, and acts by requests like any client: interceptors see them, and the trace.
type actor struct {
	server *Server
	user   string
	lag    time.Duration // How long it takes to see a change.
	seen   int64         // The version up to which it has looked.
}

// changes returns what has changed since the last call, longer ago than the lag; or what there is, when history does
// not go back so far. It waits for something to return, but, unless that is zero, only until an actor wants to be
// woken in any case.
func (a *actor) changes(ctx context.Context, until time.Time, kinds ...*resource) ([]*Revision, error) {
	for {
		revisions, next, wake := a.look(kinds)
		if len(revisions) > 0 {
			return revisions, context.Cause(ctx)
		}
		due := until
		if !next.IsZero() && (due.IsZero() || next.Before(due)) {
			due = next
		}
		if err := awake(ctx, due, wake); err != nil {
			return nil, err
		}
		if !until.IsZero() && !time.Now().Before(until) {
			return nil, nil
		}
	}
}

// awake waits for a moment, if there is one, or for a change.
func awake(ctx context.Context, due time.Time, wake <-chan struct{}) error {
	var timeout <-chan time.Time
	if !due.IsZero() {
		timer := time.NewTimer(max(time.Until(due), 0))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-wake:
		return nil
	case <-timeout:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look returns what can be seen by now, when there will be more to see, and what is closed at the next change.
func (a *actor) look(kinds []*resource) (seen []*Revision, next time.Time, wake <-chan struct{}) {
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	horizon, upTo := time.Now().Add(-a.lag), a.server.version
	behind := slices.ContainsFunc(kinds, func(r *resource) bool { return a.seen < r.dropped })
	for _, r := range kinds {
		revisions := r.since(a.seen)
		if behind { // Of all kinds: what has gone may have left something behind in another.
			revisions = r.sorted()
		}
		for _, rev := range revisions {
			if !rev.Time.After(horizon) {
				seen = append(seen, rev)
				continue
			}
			upTo = min(upTo, rev.Version-1)
			if visible := rev.Time.Add(a.lag); next.IsZero() || visible.Before(next) {
				next = visible
			}
		}
	}
	slices.SortFunc(seen, func(a, b *Revision) int { return cmp.Compare(a.Version, b.Version) })
	a.seen = max(a.seen, upTo)
	return seen, next, waiting(&a.server.wake)
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// path returns where an object is, or all of a namespace when there is no name.
func (r *resource) path(namespace, name, subresource string) string {
	path := "/apis/" + r.gvk.Group + "/" + r.gvk.Version
	if r.gvk.Group == "" {
		path = "/api/" + r.gvk.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	for _, part := range []string{r.gr.Resource, name, subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// do makes a request. An error is what a client would get.
func (a *actor) do(ctx context.Context, method, path, contentType string, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %T: %w", body, err)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://apisim"+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", contentType)
	response, err := a.server.roundTrip(r, a.user)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusBadRequest {
		return nil
	}
	status := &metav1.Status{}
	if err := json.NewDecoder(response.Body).Decode(status); err != nil {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return &apierrors.StatusError{ErrStatus: *status}
}

// get returns an object as it is stored, nil when there is none.
func (a *actor) get(r *resource, namespace, name string) runtime.Object {
	if rev := a.server.find(r, r.key(namespace, name)); rev != nil {
		return rev.Object
	}
	return nil
}
