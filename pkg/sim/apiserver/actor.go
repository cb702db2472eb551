package apiserver

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

// retryAfter is the delay after which an actor retries a failed request.
const retryAfter = time.Second

// An actor is a simulated controller or user. It reads the stored objects directly, but writes by requests like any
// client, so interceptors and the trace see its writes.
type actor struct {
	server *Server
	user   string
	lag    time.Duration // How long it takes to see a change.
	seen   int64         // The version up to which it has seen changes.
}

// changes returns the changes since the last call that are older than the lag. If the history does not reach back so
// far, it returns all current objects instead, as for a client that has to list again. It waits until there is a change
// or, unless until is zero, until then.
func (a *actor) changes(ctx context.Context, until time.Time, kinds ...*resource) ([]*Revision, error) {
	for {
		revisions, next, wake := a.visibleChanges(kinds)
		if len(revisions) > 0 {
			return revisions, context.Cause(ctx)
		}
		due := until
		if !next.IsZero() && (due.IsZero() || next.Before(due)) {
			due = next
		}
		if err := waitForChange(ctx, due, wake); err != nil {
			return nil, err
		}
		if !until.IsZero() && !time.Now().Before(until) {
			return nil, nil
		}
	}
}

// waitForChange waits for a change or, unless due is zero, until due.
func waitForChange(ctx context.Context, due time.Time, wake <-chan struct{}) error {
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

// visibleChanges returns the changes that are older than the lag, the time at which the next one will be, and a channel
// that is closed at the next change.
func (a *actor) visibleChanges(kinds []*resource) (seen []*Revision, next time.Time, wake <-chan struct{}) {
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	horizon, upTo := time.Now().Add(-a.lag), a.server.version
	behind := slices.ContainsFunc(kinds, func(r *resource) bool { return a.seen < r.dropped })
	for _, r := range kinds {
		revisions := r.since(a.seen)
		if behind { // For all kinds, because a deletion that was missed may concern objects of another kind.
			revisions = r.sorted()
		}
		for _, rev := range revisions {
			if behind || !rev.Time.After(horizon) {
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
	return seen, next, nextChange(&a.server.wake)
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

// path returns the path of an object or, without a name, of all objects of a namespace.
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

// do sends a request. It returns the error that a client would get.
func (a *actor) do(ctx context.Context, method, path, contentType string, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %T: %w", body, err)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://apiserver"+path, bytes.NewReader(encoded))
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

// get returns a stored object, nil if it does not exist.
func (a *actor) get(r *resource, namespace, name string) runtime.Object {
	if rev := a.server.find(r, r.key(namespace, name)); rev != nil {
		return rev.Object
	}
	return nil
}
