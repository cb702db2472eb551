package leader

import (
	"context"
	"errors"
	"fmt"
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
