package apisim

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A trace is what happened. The server's lock guards it.
type trace struct {
	entries []*entry
	keep    int // How many entries to keep, negative for all.
	events  bool
	writer  io.Writer
}

// An entry is what the trace has of a request, or a note.
type entry struct {
	at      time.Time
	who     string
	what    string // Of a note.
	request *Request
	written []*Revision
	served  []served // What the server answered, once for each time that it was asked.
	got     string   // What the client got.
	ended   bool
}

// served is an answer of the server.
type served struct {
	response *http.Response
	words    string
}

// Trace returns all that has happened, one line a request:
//
//	1.250s alice: patch deployments default/web (spec.replicas 3 -> 5): 200, version 17
//
// That is the time since New, who, what in kubectl's words, what it changed, and the answer with the resourceVersion
// that came with it. Requests are in the order in which the server answered them, so that writes are in the order
// of their versions. When the client got something else than the server's answer, both are told.
func (s *Server) Trace() string {
	s.mu.Lock()
	entries := slices.Clone(s.trace.entries)
	s.mu.Unlock()
	var b strings.Builder
	for _, e := range entries {
		s.mu.Lock()
		copied := *e
		s.mu.Unlock()
		b.WriteString(copied.line(s.started))
	}
	return b.String()
}

// TraceTo writes each line of the trace to w, too, when its request has been answered. Errors of w are ignored. It
// stands in the way of all requests, and must not make any.
func (s *Server) TraceTo(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.writer = w
}

// KeepTrace keeps only the last n lines, and for a while up to as many more. They hold on to the objects they tell of,
// which Compact would have let go. Negative for all, which is the default.
func (s *Server) KeepTrace(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.keep = n
	s.trace.trim()
}

// TraceEvents says whether events that go out on watches are in the trace, a line each. By default they are not.
func (s *Server) TraceEvents(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.events = on
}

// Note adds a line to the trace.
func (s *Server) Note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.trace.add(&entry{at: time.Now(), what: fmt.Sprintf(format, args...), ended: true}))
}

func (t *trace) add(e *entry) *entry {
	t.entries = append(t.entries, e)
	if t.keep >= 0 && len(t.entries) > 2*t.keep {
		t.trim()
	}
	return e
}

func (t *trace) trim() {
	if t.keep >= 0 && len(t.entries) > t.keep {
		t.entries = slices.Clone(t.entries[len(t.entries)-t.keep:])
	}
}

// write passes a complete entry on. The lock is held.
func (s *Server) write(e *entry) {
	if s.trace.writer != nil {
		_, _ = io.WriteString(s.trace.writer, e.line(s.started)) // There is nobody to tell.
	}
}

// traceServed notes what the server answered. Unless it has written something, here is the request's place.
func (s *Server) traceServed(r *Request, response *http.Response, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryOf(r)
	e.served = append(e.served, served{response, words})
	e.written = r.committed
}

// entryOf returns the entry of a request. The lock is held.
func (s *Server) entryOf(r *Request) *entry {
	if r.entry == nil {
		r.entry = s.trace.add(&entry{at: time.Now(), who: r.User, request: r})
	}
	return r.entry
}

// traceAnswer notes what the client got in the end.
func (s *Server) traceAnswer(r *Request, response *http.Response, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryOf(r)
	i := slices.IndexFunc(e.served, func(one served) bool { return one.response == response })
	switch {
	case err != nil:
		e.got = "no answer: " + err.Error()
	case i >= 0:
		e.got = e.served[i].words
	case r.refusal.response == response:
		e.got = r.refusal.words
	default:
		e.got = outcome(response.StatusCode, "", "")
	}
	e.ended = true
	s.write(e)
}

// traceEvent notes an event that goes out.
func (s *Server) traceEvent(w *Watch, event Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.trace.events {
		return
	}
	what := fmt.Sprintf("%s: told %s", w.Resource.Resource, event.Type)
	switch {
	case event.Status != nil:
		what += ": " + event.Status.Message
	case event.Type != watch.Bookmark:
		m := accessor(event.Object)
		what += " " + fullName(m.GetNamespace(), m.GetName())
	}
	what += fmt.Sprintf(", version %d", event.Version)
	s.write(s.trace.add(&entry{at: time.Now(), who: w.User, what: what, ended: true}))
}

// outcome puts an answer into words.
func outcome(code int, reason metav1.StatusReason, version string) string {
	words := fmt.Sprint(code)
	if reason != "" {
		words += " " + string(reason)
	}
	if version != "" && version != "0" {
		words += ", version " + version
	}
	return words
}

// line returns the entry as it is read.
func (e *entry) line(started time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs ", e.at.Sub(started).Seconds())
	if e.who != "" {
		b.WriteString(e.who + ": ")
	}
	if e.request == nil {
		return b.String() + e.what + "\n"
	}
	b.WriteString(e.request.String())
	if changed := e.changed(); changed != "" {
		b.WriteString(" (" + changed + ")")
	}
	switch {
	case !e.ended:
		b.WriteString(": not answered yet")
	case len(e.served) == 1 && e.served[0].words == e.got:
		b.WriteString(": " + e.got)
	default:
		b.WriteString(": " + e.got)
		for _, one := range e.served {
			b.WriteString(" (the server: " + one.words + ")")
		}
	}
	return b.String() + "\n"
}

// changed says what the request has changed.
func (e *entry) changed() string {
	var all []string
	for _, rev := range e.written {
		name := fullName(rev.Namespace, rev.Name)
		switch {
		case rev.Type == watch.Deleted && len(e.written) > 1:
			all = append(all, name+" gone")
		case rev.Type == watch.Deleted:
			all = append(all, "gone")
		case rev.Type == watch.Added && e.request.Name == "":
			all = append(all, rev.Name)
		case rev.Type == watch.Modified && len(e.written) > 1:
			all = append(all, name+" "+changes(rev.Before, rev.Object))
		case rev.Type == watch.Modified:
			all = append(all, changes(rev.Before, rev.Object))
		}
	}
	wrote := slices.Contains([]string{"update", "patch", "delete"}, e.request.Verb)
	if len(e.written) == 0 && wrote && len(e.served) > 0 && strings.HasPrefix(e.served[len(e.served)-1].words, "200") {
		return "nothing"
	}
	return strings.Join(all, "; ")
}
