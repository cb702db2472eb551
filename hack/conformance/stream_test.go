package conformance

import (
	"context"
	"net/http"
	"time"
)

// A stream is an open watch.
type stream struct {
	op     operation
	answer int // The index of its answer in the record.
	cancel context.CancelFunc
	events []any
	done   chan struct{} // Closed when all events have been read.
}

// watch opens a watch. The stream is nil if the server refuses the watch.
func (p *player) watch(ctx context.Context, op operation) (*stream, answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	p.accept = op.accept
	response, err := p.request(ctx, op.method, p.path(op), "", nil)
	p.accept = ""
	if err != nil {
		cancel()
		return nil, answer{}, err
	}
	if response.StatusCode != http.StatusOK {
		defer cancel()
		defer response.Body.Close()
		a, err := read(response)
		a.op = op
		return nil, a, err
	}
	s := &stream{op: op, cancel: cancel, done: make(chan struct{})}
	go s.follow(response)
	return s, answer{op: op, code: response.StatusCode, media: mediaOf(response)}, nil
}

// follow reads events up to the last write of the sequence.
func (s *stream) follow(response *http.Response) {
	defer close(s.done)
	defer response.Body.Close()
	next := eventsOf(response)
	for {
		event, err := next()
		if err != nil {
			return // The server has ended the watch, or the player has closed it.
		}
		s.events = append(s.events, event)
		object := valueAt(event, "object")
		if text(object, "metadata", "annotations", endMark) != "" && text(object, "metadata", "name") == endOf(s.op) {
			return
		}
	}
}

// expired reports whether the server has ended the watch because its version, one of this sequence, has expired.
func (s *stream) expired(events []any) bool {
	return len(events) > 0 && valueAt(events[0], "object", "code") == 410.0 &&
		s.op.parameter("resourceVersion") != noVersion
}

// noEnd is the type of the last event of a watch that does not see the last write.
const noEnd = "no end"

// wait returns all events up to the last write of the sequence. If the watch does not see it, the last event is noEnd.
func (s *stream) wait(timeout time.Duration) []any {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	defer s.cancel()
	select {
	case <-s.done:
		return s.events
	case <-timer.C:
	}
	s.cancel()
	<-s.done
	return append(s.events, map[string]any{"type": noEnd})
}
