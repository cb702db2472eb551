package leader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// ErrNotLeading is the error of a write that was not sent, because this process does not lead.
var ErrNotLeading = errors.New("the write was not sent, because this process is not the leader")

// errExpired closes a gate that no renewal has kept open.
var errExpired = errors.New("the lease was not renewed in time")

// A gate lets writes pass while this process leads. It opens with the first successful renewal, stays open until life
// has passed since the last one was sent, and then never opens again. It may be used concurrently.
type gate struct {
	life   time.Duration
	now    func() moment
	opened chan struct{} // Closed when the gate opens.
	closed chan struct{} // Closed when the gate closes, before it has opened or after.

	mu sync.Mutex // Guards what follows.
	// sent is when the last successful renewal was sent: not when it was answered, because others may count the lease
	// duration from any time in between.
	sent     moment
	timer    *time.Timer // Closes the gate in time. Nil before the gate opens.
	reason   error       // Why the gate has closed. Nil before.
	ended    moment      // When it has closed.
	writes   map[*write]struct{}
	inFlight sync.WaitGroup // Has the writes. Grows only under mu and while the gate is open.
}

// A write is a request that has passed the gate and is not answered yet.
type write struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newGate(life time.Duration) *gate {
	return &gate{
		life: life, now: now,
		opened: make(chan struct{}), closed: make(chan struct{}), writes: map[*write]struct{}{},
	}
}

// renewed opens the gate or keeps it open: a renewal that was sent then has succeeded. It returns false if the gate is
// closed, which it is for ever if the answer came too late.
func (g *gate) renewed(sent moment) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeIfLate()
	if g.now().since(sent) >= g.life {
		g.closeLocked(errExpired)
	}
	if g.reason != nil {
		return false
	}
	g.sent = sent
	if g.timer == nil {
		g.timer = time.AfterFunc(g.left(), g.expire)
		close(g.opened)
	}
	return true
}

// expire is called by the timer. It closes the gate, or waits for as long as renewals have kept it open meanwhile.
func (g *gate) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeIfLate()
	if g.reason == nil {
		g.timer.Reset(g.left())
	}
}

// left returns how long the gate is still open. The caller holds mu.
func (g *gate) left() time.Duration {
	return g.life - g.now().since(g.sent)
}

// closeIfLate closes the gate if its time is over. The timer does the same, but the timers of a process that was
// stopped are late, and its requests may come first. The caller holds mu.
func (g *gate) closeIfLate() {
	if g.timer != nil && g.left() <= 0 {
		g.closeLocked(errExpired)
	}
}

// close closes the gate for ever and cancels the writes in flight. The first reason is kept.
func (g *gate) close(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeLocked(reason)
}

func (g *gate) closeLocked(reason error) {
	if g.reason != nil {
		return
	}
	g.reason, g.ended = reason, g.now()
	close(g.closed)
	if g.timer != nil {
		g.timer.Stop()
	}
	for w := range g.writes {
		w.cancel(fmt.Errorf("the write was cancelled and its outcome is unknown: %w", reason))
	}
}

// closeAndWait closes the gate and waits until no write is in flight.
func (g *gate) closeAndWait(reason error) {
	g.close(reason)
	g.inFlight.Wait()
}

// open reports whether writes pass.
func (g *gate) open() bool {
	return g.check() == nil
}

// check returns the error of a write that does not pass.
func (g *gate) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checkLocked()
}

func (g *gate) checkLocked() error {
	g.closeIfLate()
	switch {
	case g.reason != nil:
		return fmt.Errorf("%w: %w", ErrNotLeading, g.reason)
	case g.timer == nil:
		return ErrNotLeading
	}
	return nil
}

// overdue returns the reason for which the gate has closed, if that was longer ago than its life, and nobody stops.
func (g *gate) overdue() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == nil || errors.Is(g.reason, errStopped) || g.now().since(g.ended) < g.life {
		return nil
	}
	return fmt.Errorf("still running after the leadership was lost: %w", g.reason)
}

// why returns the reason for which the gate has closed, nil if it has not.
func (g *gate) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason
}

// enter lets a write pass or returns an error. The write must use the context of the result, which the gate ends when
// it closes, and leave must be called when it is answered.
func (g *gate) enter(ctx context.Context) (*write, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	w := &write{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	g.writes[w] = struct{}{}
	g.inFlight.Add(1)
	return w, nil
}

// leave forgets a write that is answered. From now on closing the gate does not cancel it, so that the answer can be
// read to its end.
func (g *gate) leave(w *write) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.writes, w)
	g.inFlight.Done()
}

// gated is a connection whose writes pass a gate.
type gated struct {
	gate *gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *gated) RoundTrip(r *http.Request) (*http.Response, error) {
	if isRead(r.Method) {
		return t.next.RoundTrip(r)
	}
	w, err := t.gate.enter(r.Context())
	if err != nil {
		closeBody(r)
		return nil, err
	}
	response, err := t.next.RoundTrip(r.WithContext(w.ctx))
	t.gate.leave(w)
	if err != nil {
		err = orCause(w.ctx, err)
		w.cancel(nil)
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, cancel: w.cancel}
	return response, nil
}

// WrappedRoundTripper lets client-go find the connection, to close what is idle. Without it, client-go also logs a
// warning for every request that times out.
func (t *gated) WrappedRoundTripper() http.RoundTripper { return t.next }

// isRead reports whether requests with this method change nothing. Everything else is a write, also a method that the
// API server may get one day.
func isRead(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "": // Empty is GET.
		return true
	}
	return false
}

// closeBody closes the body of a request that is not sent, as a RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // Nothing was sent, so nothing can be lost.
	}
}

// orCause returns why ctx ended instead of the error that this has caused.
func orCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// body frees the context of a request when its response has been read. Earlier would cut the response.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// A moment is a point in time on the two clocks of a process. The monotonic one is never set, but on Linux it stands
// still while the machine is suspended. The other one has the time of day, and may be set.
type moment struct {
	monotonic time.Time
	wall      time.Time // Without a monotonic reading, or time.Time.Sub would use that one.
}

func now() moment {
	t := time.Now()
	return moment{monotonic: t, wall: t.Round(0)}
}

// since returns the time since then, by the clock on which more has passed. It is for what allows us to act: if the
// clocks differ, we stop early.
func (m moment) since(then moment) time.Duration {
	return max(m.waited(then), m.wall.Sub(then.wall))
}

// waited returns the time since then by the monotonic clock alone. It is for how long we have waited for others.
// Setting the time of day must not shorten that, and a clock that stood still only makes it longer.
func (m moment) waited(then moment) time.Duration {
	return m.monotonic.Sub(then.monotonic)
}
