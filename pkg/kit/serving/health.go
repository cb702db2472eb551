package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// HealthConfig is what NewHealth needs.
type HealthConfig struct {
	// Address is HOST:PORT or :PORT. "0" turns the endpoint off.
	Address string
	// Live are the checks of /healthz. A failure makes the kubelet kill the process, so they ask only what a restart
	// can repair: does the process hang? The state of the API server is not among that.
	Live []Check
	// Ready are the checks of /readyz. kubectl get pods shows a failure, and a rolling update waits for its end. A
	// replica that waits for the lease is ready, else an update of two replicas would never end.
	Ready []Check
}

// NewHealth returns a Server for /healthz and /readyz, which is plain HTTP without authentication, as the kubelet needs
// it. The Server listens when NewHealth returns. An error means that the address is invalid or in use. The Server logs
// to the logger of ctx. NewHealth panics if two checks of one page have the same name, as http.ServeMux does.
func NewHealth(ctx context.Context, config HealthConfig) (*Server, error) {
	if config.Address == off {
		return &Server{}, nil
	}
	listener, err := listen(config.Address, false)
	if err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx)
	mux := http.NewServeMux()
	install(mux, "healthz", config.Live, logger)
	// V(2), because each problem that makes a process not ready is in the log anyway.
	install(mux, "readyz", config.Ready, logger.V(2))
	return newServer(ctx, "health", listener, nil, TLS{}, mux), nil
}

// Check is one named question about the process, for /healthz or /readyz.
type Check struct {
	// Name is shown in the response, and is the last part of the path /healthz/NAME or /readyz/NAME. It has lower case
	// letters, digits, dots and dashes, and no other check of the page has it.
	Name string
	// Do returns nil if all is well, and otherwise the reason. It is called for each request, by several goroutines at
	// a time. It must return at once: it reads memory, and does not wait for a lock that a request to the API server
	// may hold.
	//
	// Everybody who reaches the port can read the reason. It may have names of objects and messages of the API server.
	// It must not have credentials or fields of objects.
	Do func() error
}

// Until returns a Check that fails until done is closed, and from then on never fails. It is for the start of a cache:
// done is the Done channel of cache.DoneChecker.
//
// The reason of the failure is waiting. If why is not nil and returns text, that text follows. why is called for each
// request that comes before the end of done, with the limits that Check.Do has.
func Until(name string, done <-chan struct{}, waiting string, why func() string) Check {
	return Check{Name: name, Do: func() error {
		select {
		case <-done:
			return nil
		default:
		}
		if why != nil {
			if text := why(); text != "" {
				return errors.New(waiting + ": " + text)
			}
		}
		return errors.New(waiting)
	}}
}

// maxReason is the length in bytes after which the reason of a failed check is cut.
const maxReason = 4096

// page serves a list of checks in the format of the API server: "ok" if all pass, otherwise 500 and one line for each
// check. With ?verbose there are always the lines. With ?exclude=NAME the check NAME is not made.
//
// There is one difference: the API server withholds the reason of a failure, and shows it only to users with a
// permission. Here it is shown. There are no users on this port, and Check.Do defines what a reason may contain.
type page struct {
	name   string // "healthz" or "readyz".
	checks []Check
	failed klog.Logger // For a check that fails for the first time, or again after it has passed.

	failing sync.Map // By the name of the check: whether it failed when it was last made.
}

// install adds a page to mux.
func install(mux *http.ServeMux, name string, checks []Check, failed klog.Logger) {
	p := &page{name: name, checks: checks, failed: failed}
	mux.HandleFunc("GET /"+name, p.serveAll)
	for _, check := range checks {
		mux.HandleFunc("GET /"+name+"/"+check.Name, func(w http.ResponseWriter, _ *http.Request) { p.serveOne(w, check) })
	}
}

// serveAll makes all checks. All of them are made even if one fails, since the reader wants to know all problems.
func (p *page) serveAll(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var lines strings.Builder
	passed := true
	for _, check := range p.checks {
		if slices.Contains(query["exclude"], check.Name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if reason := p.do(check); reason != "" {
			passed = false
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", check.Name, reason)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", check.Name)
	}
	switch {
	case !passed:
		respond(w, http.StatusInternalServerError, lines.String()+p.name+" check failed\n")
	case query.Has("verbose"):
		respond(w, http.StatusOK, lines.String()+p.name+" check passed\n")
	default:
		respond(w, http.StatusOK, "ok")
	}
}

func (p *page) serveOne(w http.ResponseWriter, check Check) {
	if reason := p.do(check); reason != "" {
		respond(w, http.StatusInternalServerError, reason+"\n")
		return
	}
	respond(w, http.StatusOK, "ok")
}

// do makes a check and returns the reason of its failure, "" if it passes. A check that begins to fail is logged, and
// so is the end of it: the response may be the last one before the process is killed, and nobody keeps it.
func (p *page) do(check Check) (reason string) {
	err := check.Do()
	failed, _ := p.failing.Swap(check.Name, err != nil)
	changed := (failed == true) != (err != nil)
	logger := p.failed.WithValues("page", "/"+p.name, "check", check.Name)
	if err == nil {
		if changed {
			logger.Info("Check passes again")
		}
		return ""
	}
	reason = oneLine(err.Error())
	if changed {
		logger.Info("Check failed", "reason", reason)
	}
	return reason
}

// oneLine returns text on one line, so that a reason cannot imitate the line of another check, and not too much of it.
// It is never empty.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "no reason is known"
	}
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + "..."
}

// respond sends plain text that no cache may keep and no browser may interpret.
func respond(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // A client that is gone needs no response.
}

// Busy notes which keys are in work and since when, for a Check that fails when one of them takes longer than its
// budget. A worker that never returns would otherwise be noticed by nobody: the process is alive, the lease is renewed,
// and the key is never synced again, because the queue does not give it to a second worker.
//
// It starts no goroutine and has no timer. The time is compared when the Check is made. Create it with NewBusy. It may
// be used concurrently.
type Busy struct {
	budget time.Duration

	mu    sync.Mutex
	next  uint64
	turns map[uint64]turn // The keys in work. Guarded by mu, as is next, which numbers them.
}

// turn is one key in the hands of one worker.
type turn struct {
	key   string
	since time.Time
}

// NewBusy returns a Busy whose Check fails when a key is in work for longer than budget. The budget must be larger than
// the longest time that a key may need, so that only a worker that hangs is reported.
func NewBusy(budget time.Duration) *Busy {
	return &Busy{budget: budget, turns: map[uint64]turn{}}
}

// Start notes that a worker has taken key, and returns the function that the worker calls when it has finished with the
// key. Further calls of that function have no effect. Two workers may have equal keys. The reason of the Check has the
// key.
func (b *Busy) Start(key string) (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.next
	b.next++
	b.turns[id] = turn{key: key, since: time.Now()}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.turns, id)
	}
}

// Progress lets the budget of a key that is in work begin again: the worker that has it continues. It has no effect on
// other keys.
func (b *Busy) Progress(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, t := range b.turns {
		if t.key == key {
			b.turns[id] = turn{key: key, since: time.Now()}
		}
	}
}

// Check returns a Check with that name. It fails while a key is in work for longer than the budget. The reason has the
// key that is in work for the longest time, that time in whole seconds, and how many keys are beyond the budget.
func (b *Busy) Check(name string) Check {
	return Check{Name: name, Do: b.stuck}
}

func (b *Busy) stuck() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var longest turn
	var beyond int
	for _, turn := range b.turns {
		if time.Since(turn.since) <= b.budget {
			continue
		}
		beyond++
		if longest.since.IsZero() || turn.since.Before(longest.since) {
			longest = turn
		}
	}
	if beyond == 0 {
		return nil
	}
	return fmt.Errorf("a worker is busy with %s for %s; %d above the limit of %s",
		longest.key, time.Since(longest.since).Truncate(time.Second), beyond, b.budget)
}
