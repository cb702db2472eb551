// Package preflight finds out whether a controller can work, and says in one line what is missing when it
// cannot: the API server is out of reach, a CustomResourceDefinition is not installed, a permission is not
// granted. Whatever is missing may come later, so nothing here gives up: Wait holds the start back, and a
// Reporter, which sees every answer to the informers' requests, tells of a trouble that an answer or its
// absence shows at once, again every 30 s until an answer shows that it is over, and then that it is over.
// Errors that no answer explains are told as they happen, at most every 30 s; that they are over shows only
// in Wait.
package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// repeatEvery is how often a trouble that lasts is told again. By a timer, not by the next try that
	// fails: reflectors back off to a minute between tries.
	repeatEvery = 30 * time.Second
	// tryEvery is how soon after a failed check the next one follows.
	tryEvery = 2 * time.Second
	// tryTimeout is how long one check may take.
	tryTimeout = 10 * time.Second
)

// Reporter tells of what keeps a client from listing and watching. It may be used concurrently.
//
// There is at most one trouble for each resource, one for the way to the API server, and one for errors that
// no answer explains. All but the last are told when they are new or turn into another one, and by a timer
// from then on, with the newest error; requests that fail the same way in between only bring that error. An
// answer that shows the trouble to be over ends that. Nothing can show that for the last kind, except a
// check of Wait that passes, so it has no timer: it would go on about what may be long over.
type Reporter struct {
	ctx    context.Context // The process's: nothing is logged after its end.
	logger klog.Logger
	fixes  Fixes

	mu       sync.Mutex
	troubles map[string]*trouble // Those not known to be over, by what they are with. Guarded by mu.
}

// Fixes says what to do about a trouble.
type Fixes struct {
	// Missing is for a resource that the API server does not know, Forbidden for one that it lets nobody
	// like us list.
	Missing, Forbidden string
}

// trouble is what is told of one key. Guarded by Reporter.mu.
type trouble struct {
	msg           string
	err           error // The newest, as are keysAndValues.
	keysAndValues []any
	toldAt        time.Time   // Without the timer's repetitions.
	timer         *time.Timer // Nil for the key other.
}

// NewReporter returns a Reporter that writes to ctx's logger until ctx ends.
func NewReporter(ctx context.Context, fixes Fixes) *Reporter {
	return &Reporter{ctx: ctx, logger: klog.FromContext(ctx), fixes: fixes, troubles: map[string]*trouble{}}
}

// Wait returns nil when every check has passed once, and the cause of ctx's end when that comes first.
// The checks should use a client whose transport comes from Wrap.
func (r *Reporter) Wait(ctx context.Context, checks ...func(context.Context) error) error {
	for _, check := range checks {
		if err := r.waitFor(ctx, check); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reporter) waitFor(ctx context.Context, check func(context.Context) error) error {
	for !r.passes(ctx, check) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(tryEvery):
		}
	}
	return nil
}

func (r *Reporter) passes(ctx context.Context, check func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	err := check(ctx)
	if err != nil {
		r.unexplained(err)
		return false
	}
	r.over(other, "Listed the resources")
	return true
}

// Wrap returns a transport that passes requests on to next and reports what goes wrong with them. It is
// for rest.Config.Wrap, of a client that only lists and watches: there a 404 means that the resource is
// not known.
func (r *Reporter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		r.observe(req, resp, err)
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// WatchErrorHandler is for informers whose client's transport comes from Wrap, in place of client-go's own,
// which prints every failed try. It tells of an error that no answer explains when there is one, unless one
// was told less than 30 s ago; informers do not say when they have recovered, so neither does this.
func (r *Reporter) WatchErrorHandler(ctx context.Context, _ *cache.Reflector, err error) {
	if r.ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).V(4).Info("Watch ended", "err", err)
	cut := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if cut || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // The ordinary ends of a watch.
	}
	r.unexplained(err)
}

// Keys of Reporter.troubles; the others are resources.
const (
	unreachable = "unreachable"
	other       = "other"
)

// unexplained tells of an error of which observe has not told: credentials that cannot be had, an answer
// that is none of an API server.
func (r *Reporter) unexplained(err error) {
	r.mu.Lock()
	known := len(r.troubles)
	if _, ok := r.troubles[other]; ok {
		known--
	}
	r.mu.Unlock()
	if known > 0 || errors.Is(err, context.Canceled) {
		return
	}
	r.tell(other, err, "Cannot list and watch, will keep trying")
}

func (r *Reporter) observe(req *http.Request, resp *http.Response, err error) {
	server := req.URL.Scheme + "://" + req.URL.Host
	if err != nil {
		if !errors.Is(err, context.Canceled) { // We gave up, not the server.
			r.tell(unreachable, err, "Cannot reach the API server, will keep trying", "server", server)
		}
		return
	}
	r.over(unreachable, "Reached the API server", "server", server)

	resource := resourceOf(req.URL.Path)
	switch code := resp.StatusCode; {
	case code < http.StatusMultipleChoices:
		r.over(resource, "The API server serves the resource", "resource", resource)
	case code == http.StatusNotFound:
		r.tell(resource, nil, "The API server does not know the resource, will keep trying",
			"resource", resource, "fix", r.fixes.Missing)
	case code == http.StatusForbidden:
		r.tell(resource, serverWords(resp), "Not allowed to list and watch the resource, will keep trying",
			"resource", resource, "fix", r.fixes.Forbidden)
	case code == http.StatusUnauthorized:
		r.tell(resource, serverWords(resp), "The API server does not accept the credentials, will keep trying",
			"server", server)
	case code >= http.StatusInternalServerError:
		r.tell(resource, serverWords(resp), "The API server fails, will keep trying", "resource", resource)
	}
}

// tell logs msg, unless that is what was told of key last: then the timer tells it again, or, for the key
// other, the first call after 30 s.
func (r *Reporter) tell(key string, err error, msg string, keysAndValues ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	last := r.troubles[key]
	if last != nil && last.msg == msg && (key != other || time.Since(last.toldAt) < repeatEvery) {
		last.err, last.keysAndValues = err, keysAndValues
		return
	}
	t := &trouble{msg: msg, err: err, keysAndValues: keysAndValues, toldAt: time.Now()}
	r.troubles[key] = t
	r.logger.Error(err, msg, keysAndValues...)
	if key != other {
		t.timer = time.AfterFunc(repeatEvery, func() { r.repeat(key, t) })
	}
}

// repeat is what t's timer does. Nobody stops the timer: that would not help when it has fired and waits for the
// lock. It finds out by itself that t is not key's trouble any more, since another message makes another trouble.
func (r *Reporter) repeat(key string, t *trouble) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.troubles[key] != t || r.ctx.Err() != nil {
		return
	}
	r.logger.Error(t.err, t.msg, t.keysAndValues...)
	t.timer.Reset(repeatEvery)
}

// over logs when there was a trouble with key, and ends it.
func (r *Reporter) over(key, msg string, keysAndValues ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.troubles[key] == nil || r.ctx.Err() != nil {
		return
	}
	delete(r.troubles, key)
	r.logger.Info(msg, keysAndValues...)
}

// resourceOf returns the resource of a list or watch path in the form of kubectl: foos.samplecontroller.k8s.io.
// The paths are /apis/GROUP/VERSION/[namespaces/NAME/]RESOURCE, with a prefix where a proxy serves the API.
func resourceOf(path string) string {
	_, group, isGroup := strings.Cut(path, "/apis/")
	parts := strings.Split(path, "/")
	resource := parts[len(parts)-1]
	if !isGroup {
		return resource
	}
	group, _, _ = strings.Cut(group, "/")
	return resource + "." + group
}

// serverWords returns what the API server says in an answer that is not a success. The answer can still
// be read by others.
func serverWords(resp *http.Response) error {
	const limit = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	if err != nil {
		return err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return errors.New(status.Message)
	}
	return errors.New(resp.Status) // Protobuf, or not of the API server's making.
}
