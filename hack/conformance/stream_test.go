package conformance

import (
	"context"
	"net/http"
	"time"
)

// A stream is a watch that is open.
type stream struct {
	op     operation
	answer int // Its place in the record.
	cancel context.CancelFunc
	events []any
	done   chan struct{} // Closed when all events have been read.
}

// watch opens a watch. The stream is nil when the server refused it.
func (p *player) watch(ctx context.Context, op operation) (*stream, answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := p.request(ctx, op.method, p.path(op), "", nil)
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
			return // The server has ended it, or nobody waits any longer.
		}
		s.events = append(s.events, event)
		object := valueAt(event, "object")
		if text(object, "metadata", "annotations", endMark) != "" && text(object, "metadata", "name") == endOf(s.op) {
			return
		}
	}
}

// forgotten says whether a watch was told that it begins too long ago, at a version of this sequence.
func (s *stream) expired(events []any) bool {
	return len(events) > 0 && valueAt(events[0], "object", "code") == 410.0 && s.op.parameter("resourceVersion") != noVersion
}

// noEnd is the type of the last event of a watch that does not come to its end.
const noEnd = "no end"

// wait returns all events up to the end of the sequence. One that never sees the end says so in a last event.
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
