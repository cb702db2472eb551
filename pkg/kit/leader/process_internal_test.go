package leader

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// A fault is something that happens to a process for some time.
type fault struct {
	kind  faultKind
	delay time.Duration // Of slow requests, or of the time of day.
	ended chan struct{} // Closed at the end.
}

type faultKind int

const (
	cut       faultKind = iota // Requests hang and are not executed.
	cutLease                   // The same, for requests for the Lease only.
	refused                    // Requests fail at once.
	lost                       // Requests are executed, and the answer hangs.
	slow                       // Requests for the Lease, and their answers, are late.
	stopped                    // SIGSTOP: nothing is sent or received, and contexts end without anybody noticing.
	suspended                  // The same, and the monotonic clock stands still.
	clockSet                   // The time of day is wrong, by up to a day.
	faultKinds
)

// A process is one of the simulated processes. It is the connection of its clients, and has its faults.
type process struct {
	user   string
	server *apiserver.Server
	next   http.RoundTripper

	mu         sync.Mutex
	faults     []*fault
	forgotten  []*fault      // That are over for new requests, but not for those that hang.
	renewal    time.Time     // When the last renewal that was answered was sent.
	stoodStill time.Duration // How far the monotonic clock is behind.
	standing   time.Time     // Since when it stands still. Zero if it does not.
	wrong      time.Duration // How far the time of day is ahead.

	signal   context.CancelFunc // As SIGTERM.
	identity string
	open     func() bool // Whether it may write now.
}

func newProcess(server *apiserver.Server, user string) *process {
	config := server.Config(user)
	return &process{user: user, server: server, next: config.Transport, open: func() bool { return false }}
}

// config returns the configuration of a client of the process.
func (p *process) config() *rest.Config {
	config := p.server.Config(p.user)
	config.Transport = p
	return config
}

// RoundTrip implements http.RoundTripper.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	if err := p.suffer(r, false); err != nil {
		return nil, err
	}
	response, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := p.suffer(r, true); err != nil {
		return nil, err
	}
	if r.Method == http.MethodPut && response.StatusCode == http.StatusOK {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.renewal = sent
	}
	return response, nil
}

// CancelRequest does nothing, because requests have contexts. Without it, client-go logs a warning for every request
// that times out.
func (p *process) CancelRequest(*http.Request) {}

// renewed returns when the last renewal that was answered was sent.
func (p *process) renewed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewal
}

// suffer waits as long as the faults of the process delay a request, or its answer.
func (p *process) suffer(r *http.Request, answered bool) error {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, f := range faults {
		if err := f.apply(r, answered); err != nil {
			return err
		}
	}
	return nil
}

func (f *fault) apply(r *http.Request, answered bool) error {
	lease := strings.Contains(r.URL.Path, "/leases")
	switch f.kind {
	case stopped, suspended:
		<-f.ended
	case cut, cutLease:
		if f.kind == cut || lease {
			return wait(r.Context(), f.ended)
		}
	case lost:
		if answered {
			return wait(r.Context(), f.ended)
		}
	case slow:
		if lease {
			return wait(r.Context(), time.After(f.delay))
		}
	case refused:
		if !answered {
			return errors.New("connection refused")
		}
	}
	return nil
}

// wait waits until the channel is closed or has a value, but not longer than the client does.
func wait[T any](ctx context.Context, until <-chan T) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin lets a fault happen from now on.
func (p *process) begin(f *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.ended = make(chan struct{})
	p.faults = append(p.faults, f)
	if f.kind == suspended && p.standing.IsZero() {
		p.standing = time.Now()
	}
	if f.kind == clockSet {
		p.wrong = f.delay
	}
}

// heal ends all faults.
func (p *process) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range append(p.faults, p.forgotten...) {
		close(f.ended)
	}
	p.faults, p.forgotten, p.wrong = nil, nil, 0
	if !p.standing.IsZero() {
		p.stoodStill += time.Since(p.standing)
		p.standing = time.Time{}
	}
}

// now returns the time on the clocks of the process.
func (p *process) now() moment {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := now()
	behind := p.stoodStill
	if !p.standing.IsZero() {
		behind += time.Since(p.standing)
	}
	m.monotonic, m.wall = m.monotonic.Add(-behind), m.wall.Add(p.wrong)
	return m
}

// forget ends the faults for new requests. Those that hang continue to hang until the process is healed.
func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten = append(p.forgotten, p.faults...)
	p.faults = nil
}
