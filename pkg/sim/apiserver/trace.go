package apiserver

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

// A trace records the requests to the server. The lock of the server guards it.
type trace struct {
	entries []*entry
	keep    int // How many entries to keep, negative for all.
	events  bool
	writer  io.Writer
}

// An entry is a request or a note in the trace.
type entry struct {
	at       time.Time
	user     string
	text     string // Of a note.
	request  *Request
	written  []*Revision
	served   []served // What the server answered, once for each time that it was asked.
	received string   // What the client got.
	ended    bool
}

// served is a response of the server.
type served struct {
	response *http.Response
	result   string
}

// Trace returns the trace, with one line for each request:
//
//	1.250s alice: patch deployments default/web (spec.replicas 3 -> 5): 200, version 17
//
// A line has the time since New, the user, the request, the fields that it changed, and the response with its
// resourceVersion. Requests are in the order in which the server answered them, so writes are in the order of their
// versions. If the client received something else than the response of the server, the line has both.
func (s *Server) Trace() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, e := range s.trace.entries {
		b.WriteString(e.line(s.started))
	}
	return b.String()
}

// TraceTo also writes each line of the trace to w when its request has been answered. Errors of w are ignored. A Write
// blocks all requests, and must not make any itself.
func (s *Server) TraceTo(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.writer = w
}

// KeepTrace makes the trace keep only the last n lines, and temporarily up to twice as many. The lines keep their
// objects in memory, even after Compact. The default is 1,000. A negative n keeps all lines.
func (s *Server) KeepTrace(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.keep = n
	s.trace.trim()
}

// TraceEvents adds a line to the trace for each event that is sent on a watch. The default is off.
func (s *Server) TraceEvents(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.events = on
}

// Note adds a line to the trace.
func (s *Server) Note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.trace.add(&entry{at: time.Now(), text: fmt.Sprintf(format, args...), ended: true}))
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

// write writes a complete entry to the writer. The caller holds the lock.
func (s *Server) write(e *entry) {
	if s.trace.writer != nil {
		_, _ = io.WriteString(s.trace.writer, e.line(s.started)) // TraceTo documents that errors are ignored.
	}
}

// traceServed records a response of the server. It adds the entry of the request, unless a commit has added it before.
func (s *Server) traceServed(r *Request, response *http.Response, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryOf(r)
	e.served = append(e.served, served{response, result})
	e.written = r.committed
}

// entryOf returns the entry of a request. The caller holds the lock.
func (s *Server) entryOf(r *Request) *entry {
	if r.entry == nil {
		r.entry = s.trace.add(&entry{at: time.Now(), user: r.User, request: r})
	}
	return r.entry
}

// traceAnswer records the response that the client received.
func (s *Server) traceAnswer(r *Request, response *http.Response, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryOf(r)
	i := slices.IndexFunc(e.served, func(one served) bool { return one.response == response })
	switch {
	case err != nil:
		e.received = "no answer: " + err.Error()
	case i >= 0:
		e.received = e.served[i].result
	case r.refusal.response == response:
		e.received = r.refusal.result
	default:
		e.received = outcome(response.StatusCode, "", "")
	}
	e.ended = true
	s.write(e)
}

// traceEvent records an event that is sent.
func (s *Server) traceEvent(w *Watch, event Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.trace.events {
		return
	}
	what := fmt.Sprintf("%s: sent %s", w.Resource.Resource, event.Type)
	switch {
	case event.Status != nil:
		what += ": " + event.Status.Message
	case event.Type != watch.Bookmark:
		m := accessor(event.Object)
		what += " " + fullName(m.GetNamespace(), m.GetName())
	}
	what += fmt.Sprintf(", version %d", event.Version)
	s.write(s.trace.add(&entry{at: time.Now(), user: w.User, text: what, ended: true}))
}

// outcome describes a response.
func outcome(code int, reason metav1.StatusReason, version string) string {
	result := fmt.Sprint(code)
	if reason != "" {
		result += " " + string(reason)
	}
	if version != "" && version != "0" {
		result += ", version " + version
	}
	return result
}

// line returns the line of the entry.
func (e *entry) line(started time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs ", e.at.Sub(started).Seconds())
	if e.user != "" {
		b.WriteString(e.user + ": ")
	}
	if e.request == nil {
		return b.String() + e.text + "\n"
	}
	b.WriteString(e.request.String())
	if changed := e.changed(); changed != "" {
		b.WriteString(" (" + changed + ")")
	}
	switch {
	case !e.ended:
		b.WriteString(": not answered yet")
	case len(e.served) == 1 && e.served[0].result == e.received:
		b.WriteString(": " + e.received)
	default:
		b.WriteString(": " + e.received)
		for _, one := range e.served {
			b.WriteString(" (the server: " + one.result + ")")
		}
	}
	return b.String() + "\n"
}

// changed describes the changes of the request.
func (e *entry) changed() string {
	var all []string
	for _, rev := range e.written {
		name := fullName(rev.Namespace, rev.Name)
		switch {
		case rev.Type == watch.Deleted && len(e.written) > 1:
			all = append(all, name+" deleted")
		case rev.Type == watch.Deleted:
			all = append(all, "deleted")
		case rev.Type == watch.Added && e.request.Name == "":
			all = append(all, rev.Name)
		case rev.Type == watch.Modified && len(e.written) > 1:
			all = append(all, name+" "+changes(rev.Before, rev.Object))
		case rev.Type == watch.Modified:
			all = append(all, changes(rev.Before, rev.Object))
		}
	}
	wrote := slices.Contains([]string{"update", "patch", "delete"}, e.request.Verb)
	if len(e.written) == 0 && wrote && len(e.served) > 0 && strings.HasPrefix(e.served[len(e.served)-1].result, "200") {
		return "nothing"
	}
	return strings.Join(all, "; ")
}
