package preflight

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

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

// runAll runs the checks and enters what they have found, which is logged after a delay. It returns true if there is no
// problem.
func (r *Reporter) runAll(ctx context.Context, checks []Check, found [][]Problem, delay time.Duration) bool {
	healthy := true
	for i, check := range checks {
		problems, err := r.run(ctx, check, found[i], delay)
		found[i] = problems
		healthy = healthy && err == nil // What it has found is among the problems of the Reporter.
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

// run runs a check and reports what it has found. before are the problems that it found the last time. It returns those
// that there are now, as far as is known.
func (r *Reporter) run(ctx context.Context, check Check, before []Problem, delay time.Duration) ([]Problem, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found, err := check(ctx)
	if err != nil {
		r.logger.V(2).Info("Could not check the cluster", "err", err)
		return before, err
	}
	for _, p := range before {
		if !slices.ContainsFunc(found, func(now Problem) bool { return now.Key == p.Key }) {
			r.resolve(p.Key, "A problem is resolved", "problem", p.Key)
		}
	}
	for _, p := range found {
		r.reportAfter(delay, p.Key, nil, p.Message, p.Values...)
	}
	return found, nil
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
