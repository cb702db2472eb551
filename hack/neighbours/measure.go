package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

const (
	firstRound  = "a"
	secondRound = "b"
)

// measureProblem makes a problem in a new place, and measures next door.
func measureProblem(ctx context.Context, opts options, of problem) (rows []row, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := newPlace(ctx, opts.controller, of.olderCRD)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.startController(ctx); err != nil {
		return nil, err
	}
	if err := p.createSpares(ctx); err != nil {
		return nil, err
	}
	if err := of.prepare(ctx, p); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- of.keep(ctx, p) }()
	defer func() {
		cancel()
		if keepErr := <-ended; err == nil && !errors.Is(keepErr, context.Canceled) {
			err = keepErr
		}
	}()
	first, err := measure(ctx, opts, of, p, firstRound)
	if err != nil || !of.restart {
		return []row{first}, err
	}
	progress("restarting the controller")
	p.stopController()
	if err := p.startController(ctx); err != nil {
		return []row{first}, err
	}
	second, err := measure(ctx, opts, of, p, secondRound)
	second.name += ", after a restart"
	return []row{first, second}, err
}

// measure takes samples for the duration, or until the problem is over.
func measure(ctx context.Context, opts options, of problem, p *place, round string) (r row, err error) {
	watchCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	seen, err := observe(watchCtx, p)
	if err != nil {
		return r, err
	}
	s := &sampler{place: p, seen: seen, round: round, patience: of.patience, interval: opts.duration / 10}
	if of.interval > 0 {
		s.interval = of.interval
	}
	before, err := usageOf(p)
	if err != nil {
		return r, err
	}
	began := time.Now()
	progress("measuring for %s", opts.duration)
	over := func(ctx context.Context) (bool, error) { return of.over(ctx, p) }
	if err := s.runWhile(ctx, opts.duration, over); err != nil {
		return r, err
	}
	took := time.Since(began)
	after, err := usageOf(p)
	if err != nil {
		return r, err
	}
	requests, err := requestsSince(p.plane.AuditLog(), before.audited)
	r = row{
		name: of.name + p.remark, newFoo: s.newFoo, drift: s.drift, write: s.write, seconds: took.Seconds(),
		cpu: (after.cpu - before.cpu).Seconds(), requests: requests, memory: after.memory,
	}
	return r, errors.Join(err, ctx.Err())
}

// runWhile takes samples for a duration, or until over returns true.
func (s *sampler) runWhile(ctx context.Context, d time.Duration, over func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	watched := make(chan error, 1)
	go func() {
		defer cancel()
		watched <- poll(ctx, d, func() (bool, error) { return over(ctx) })
	}()
	err := s.run(ctx)
	if overErr := <-watched; overErr != nil && !isEnd(overErr) {
		return overErr
	}
	return err
}

// isEnd reports whether an error only shows that the time is over.
func isEnd(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// A usage is what a controller has used so far.
type usage struct {
	cpu     time.Duration
	memory  int   // The peak, in MB.
	audited int64 // The length of the audit log.
}

func usageOf(p *place) (u usage, err error) {
	if u.cpu, err = p.controller.cpu(); err != nil {
		return u, err
	}
	if u.memory, err = p.controller.peakMemory(); err != nil {
		return u, err
	}
	info, err := os.Stat(p.plane.AuditLog())
	if err != nil {
		return u, err
	}
	u.audited = info.Size()
	return u, nil
}

// requestsSince counts the requests of the controller in an audit log that are after the first bytes.
func requestsSince(auditLog string, bytes int64) (int, error) {
	file, err := os.Open(auditLog)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := file.Seek(bytes, io.SeekStart); err != nil {
		return 0, err
	}
	n := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct{ UserAgent string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // The last line may be incomplete.
		}
		if strings.HasPrefix(event.UserAgent, "foo-controller/") {
			n++
		}
	}
	return n, lines.Err()
}
