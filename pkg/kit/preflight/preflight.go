// Package preflight logs, one line per problem, why a controller cannot work: the API server cannot be reached, a
// CustomResourceDefinition is not installed or is another one, a permission is not granted.
//
// An administrator can solve each of these while the controller runs, so nothing here gives up. Wait delays the start
// until the controller can list. A Reporter sees every response to the requests of the informers. It logs a problem
// when it appears, every 30 s while it lasts, and once more when it is resolved. Errors without a response that
// explains them are logged when they occur, at most every 30 s, and only Wait and Keep can log that they are resolved.
package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// repeatEvery is how often a problem that lasts is logged. A timer repeats it, because reflectors back off to
	// one request per minute.
	repeatEvery = 30 * time.Second
	// refusedFor is how long a permission must be missing before that is logged, once the controller has worked. An API
	// server that has just started refuses everybody until it has read the roles.
	refusedFor = 10 * time.Second
	// checkEvery is the time between two runs of the checks of Keep while there is a problem. repeatEvery is not a
	// multiple of it, so that a problem that is resolved is not logged once more at the same time.
	checkEvery = 8 * time.Second
	// maxPause is the longest time from checks that found nothing to the next ones, if writes are refused.
	maxPause = time.Minute
	// checkTimeout is how long a check of Keep may take, which sends many requests.
	checkTimeout = time.Minute
	// tryEvery is the delay between a failed check and its next attempt.
	tryEvery = 2 * time.Second
	// tryTimeout is how long one check of Wait may take.
	tryTimeout = 10 * time.Second
)

// Reporter logs the problems that prevent a client from listing and watching. It may be used concurrently.
//
// There is at most one problem for each resource, one for each missing permission and each definition, one for the
// connection to the API server, and one for errors that no response explains. A problem is logged when it appears and
// when it turns into another one. From then on a timer logs it with its newest error, until a response shows that it
// is resolved. Further requests that fail in the same way only update that error.
//
// The problem of unexplained errors has no timer. Only a check of Wait can show that it is resolved, which Keep repeats
// while there is that problem. Without Keep, a timer might log it long after its end.
type Reporter struct {
	ctx    context.Context // The context of the process. Nothing is logged after its end.
	logger klog.Logger
	hints  Hints
	// suspicion has an element when Suspect was called since the last checks of Keep: a problem has begun, a write was
	// refused, or the caller has noticed something.
	suspicion chan struct{}

	mu sync.Mutex
	// lists are the checks of Wait, after it has returned. Guarded by mu.
	lists []func(context.Context) error
	// problems has the unresolved ones. The key is a resource, that of a Problem, unreachable or other. Guarded by mu.
	problems map[string]*problem
}

// Hints are instructions for the user who reads the log: what to do about a problem.
type Hints struct {
	// Missing is logged when the API server does not know the resource.
	Missing string
	// Forbidden is logged when a review shows that a permission is missing.
	Forbidden string
}

// problem is the current problem with one key. Guarded by Reporter.mu.
type problem struct {
	msg           string
	err           error // The newest error, as are keysAndValues.
	keysAndValues []any
	loggedAt      time.Time   // When it was first logged, zero before. Repetitions by the timer do not count.
	timer         *time.Timer // Nil for the key other.
}

// NewReporter returns a Reporter that writes to ctx's logger until ctx ends.
func NewReporter(ctx context.Context, hints Hints) *Reporter {
	return &Reporter{
		ctx: ctx, logger: klog.FromContext(ctx), hints: hints, suspicion: make(chan struct{}, 1),
		problems: map[string]*problem{},
	}
}

// Wait runs the checks one after the other. It repeats each check until it passes once. If ctx ends before that, Wait
// returns the cause. The checks should use a client whose transport comes from Wrap.
func (r *Reporter) Wait(ctx context.Context, checks ...func(context.Context) error) error {
	for _, check := range checks {
		for !r.passes(ctx, check) {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(tryEvery):
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = checks
	return nil
}

func (r *Reporter) passes(ctx context.Context, check func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	err := check(ctx)
	if err != nil {
		r.reportOther(err)
		return false
	}
	r.resolve(other, "Listed the resources")
	return true
}

// Wrap returns a transport that passes requests on to next and reports problems with them. It is for rest.Config.Wrap
// of a client that only lists and watches: for these requests, a 404 means that the server does not know the resource.
func (r *Reporter) Wrap(next http.RoundTripper) http.RoundTripper {
	return wrapper{next: next, roundTripper: func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		r.observe(req, resp, err)
		return resp, err
	}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// wrapper is a transport around next.
type wrapper struct {
	roundTripper
	next http.RoundTripper
}

// WrappedRoundTripper makes next known to client-go, which closes its idle connections. Without it, client-go also logs
// a warning for every request that times out.
func (w wrapper) WrappedRoundTripper() http.RoundTripper { return w.next }

// WatchErrorHandler is for informers whose client has a transport from Wrap. It replaces the handler of client-go,
// which logs every failed attempt. It logs an error that no response explains, unless one was logged less than 30 s
// ago. Informers do not report that they have recovered, so this handler cannot log it either.
func (r *Reporter) WatchErrorHandler(ctx context.Context, _ *cache.Reflector, err error) {
	if r.ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).V(4).Info("Watch ended", "err", err)
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if closed || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // A watch normally ends in one of these ways.
	}
	r.reportOther(err)
}

// Keys of Reporter.problems that are not resources.
const (
	unreachable = "unreachable"
	other       = "other"
)

// reportOther reports an error that observe has not reported: there are no credentials, or the response does not come
// from an API server.
func (r *Reporter) reportOther(err error) {
	r.mu.Lock()
	_, isOther := r.problems[other]
	isExplained := len(r.problems) > 1 || len(r.problems) == 1 && !isOther
	r.mu.Unlock()
	if isExplained || errors.Is(err, context.Canceled) {
		return
	}
	r.report(other, err, "Cannot list and watch, will keep trying")
}

func (r *Reporter) observe(req *http.Request, resp *http.Response, err error) {
	server := req.URL.Scheme + "://" + req.URL.Host
	if err != nil {
		if !errors.Is(err, context.Canceled) { // Our own cancellation is no problem of the server.
			r.report(unreachable, err, "Cannot reach the API server, will keep trying", "server", server)
		}
		return
	}
	r.resolve(unreachable, "Reached the API server", "server", server)

	resource := resourceOf(req.URL.Path)
	switch code := resp.StatusCode; {
	case code < http.StatusMultipleChoices:
		r.resolve(resource, "The API server serves the resource", "resource", resource)
	case code == http.StatusNotFound:
		r.report(resource, nil, "The API server does not know the resource, will keep trying",
			"resource", resource, "fix", r.hints.Missing)
	case code == http.StatusForbidden:
		// What to do is logged by the check of the permission, which Suspect has Keep run again.
		r.reportAfter(r.patience(), resource, serverMessage(resp),
			"Not allowed to list and watch the resource, will keep trying", "resource", resource)
	case code == http.StatusUnauthorized:
		r.report(resource, serverMessage(resp), "The API server does not accept the credentials, will keep trying",
			"server", server)
	case code >= http.StatusInternalServerError:
		r.report(resource, serverMessage(resp), "The API server fails, will keep trying", "resource", resource)
	}
}

// patience returns for how long a refused list must be refused before that is logged: not at all, while no list has
// worked yet.
func (r *Reporter) patience() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lists == nil {
		return 0
	}
	return refusedFor
}

// report logs msg, unless it is the current problem with key already. Then the timer repeats it or, for the key other,
// the first call after 30 s does.
func (r *Reporter) report(key string, err error, msg string, keysAndValues ...any) {
	r.reportAfter(0, key, err, msg, keysAndValues...)
}

// reportAfter is like report. It logs msg only after a delay, if there is still that problem.
func (r *Reporter) reportAfter(delay time.Duration, key string, err error, msg string, keysAndValues ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	last := r.problems[key]
	if last != nil && last.msg == msg && (key != other || time.Since(last.loggedAt) < repeatEvery) {
		last.err, last.keysAndValues = err, keysAndValues
		return
	}
	p := &problem{msg: msg, err: err, keysAndValues: keysAndValues}
	r.problems[key] = p
	r.Suspect()
	if delay == 0 {
		r.log(p)
		delay = repeatEvery
	}
	if key != other {
		p.timer = time.AfterFunc(delay, func() { r.repeat(key, p) })
	}
}

// log logs p. Call it with mu.
func (r *Reporter) log(p *problem) {
	if p.loggedAt.IsZero() {
		p.loggedAt = time.Now()
	}
	r.logger.Error(p.err, p.msg, p.keysAndValues...)
}

// repeat logs p again and restarts its timer. The timer calls it. Nothing else stops the timer, because the timer may
// have fired and may be waiting for the lock. Instead, repeat does nothing if p is not the current problem with key.
func (r *Reporter) repeat(key string, p *problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problems[key] != p || r.ctx.Err() != nil {
		return
	}
	r.log(p)
	p.timer.Reset(repeatEvery)
}

// resolve removes the problem with key, and logs msg if the problem was logged.
func (r *Reporter) resolve(key, msg string, keysAndValues ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.problems[key]
	if p == nil || r.ctx.Err() != nil {
		return
	}
	delete(r.problems, key)
	if !p.loggedAt.IsZero() {
		r.logger.Info(msg, keysAndValues...)
	}
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

// serverMessage returns the message of a response that is not a success. The caller of the transport can still read the
// whole body.
func serverMessage(resp *http.Response) error {
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
	return errors.New(resp.Status) // The body is protobuf, or does not come from the API server.
}

// A Problem is something that an administrator has to solve.
type Problem struct {
	// Key distinguishes problems. There is at most one problem for each key.
	Key string
	// Message is the same as long as the problem is the same. Values has keys and values for the log.
	Message string
	Values  []any
}

// String returns the problem in one line.
func (p Problem) String() string {
	line := p.Message
	for i := 0; i+1 < len(p.Values); i += 2 {
		line += fmt.Sprintf(" %v=%q", p.Values[i], fmt.Sprint(p.Values[i+1]))
	}
	return line
}

// A Check returns the problems that there are, of a kind that the requests of informers do not show. An error means
// that it does not know: what it returned before still counts.
type Check func(context.Context) ([]Problem, error)

// Keep runs the checks until ctx ends: at once, then every 8 s while there is a problem, of a check or of an informer,
// and when the API server has refused a write, see WrapWrites, or Suspect was called, at most once a minute. So it
// costs no request when everything works. What it finds is logged like the problems of informers: at once the first
// time, later when it has lasted for 10 s.
func (r *Reporter) Keep(ctx context.Context, checks ...Check) {
	found := make([][]Problem, len(checks))
	pause, delay := checkEvery, time.Duration(0)
	for {
		healthy := r.runAll(ctx, checks, found, delay)
		delay = refusedFor
		pause = min(2*pause, maxPause) // A quota and a webhook answer 403 too, again and again.
		if !healthy {
			pause = checkEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if !healthy {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.suspicion:
		}
	}
}

// Suspect makes Keep run the checks again, within a minute. The caller has noticed something that they may explain.
func (r *Reporter) Suspect() {
	select {
	case r.suspicion <- struct{}{}:
	default: // It will do so already.
	}
}

// runAll runs the checks and reports what they find, which is logged after a delay. found has what each has found the
// last time, which still counts if it fails now. It returns true if there is no problem.
func (r *Reporter) runAll(ctx context.Context, checks []Check, found [][]Problem, delay time.Duration) bool {
	healthy := true
	for i, check := range checks {
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		problems, err := check(limited)
		cancel()
		if err != nil {
			r.logger.V(2).Info("Could not check the cluster", "err", err)
			healthy = false
			continue
		}
		for _, p := range found[i] {
			if !slices.ContainsFunc(problems, func(now Problem) bool { return now.Key == p.Key }) {
				r.resolve(p.Key, "A problem is resolved", "problem", p.Key)
			}
		}
		for _, p := range problems {
			r.reportAfter(delay, p.Key, nil, p.Message, p.Values...)
		}
		found[i] = problems
	}
	r.listAgain(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	return healthy && len(r.problems) == 0
}

// listAgain repeats the checks of Wait if an error of an informer was not explained by a response. No response shows
// its end.
func (r *Reporter) listAgain(ctx context.Context) {
	r.mu.Lock()
	lists, wrong := r.lists, r.problems[other] != nil
	r.mu.Unlock()
	if !wrong {
		return
	}
	for _, check := range lists {
		if !r.passes(ctx, check) {
			return
		}
	}
}

// WrapWrites returns a transport that passes requests on to next. When the API server refuses one, with 403, or a write
// with 404, Keep runs the checks again, within a minute. It is for rest.Config.Wrap of all clients that write.
func (r *Reporter) WrapWrites(next http.RoundTripper) http.RoundTripper {
	return wrapper{next: next, roundTripper: func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return resp, err
		}
		// A live read may be of an object that does not exist.
		missing := resp.StatusCode == http.StatusNotFound && req.Method != http.MethodGet
		if missing || resp.StatusCode == http.StatusForbidden {
			r.Suspect()
		}
		return resp, nil
	}}
}

// Problems returns the unresolved problems that were logged, one line each, in order.
func (r *Reporter) Problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, p := range r.problems {
		if p.loggedAt.IsZero() {
			continue
		}
		line := Problem{Message: strings.TrimSuffix(p.msg, ", will keep trying"), Values: p.keysAndValues}.String()
		if p.err != nil {
			line += ": " + p.err.Error()
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}
