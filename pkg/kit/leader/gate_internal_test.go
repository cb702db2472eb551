package leader

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// roundTripper is a connection that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// request returns a request whose body notes whether it was closed.
func request(t *testing.T, method string) (*http.Request, *trackedBody) {
	t.Helper()
	tracked := &trackedBody{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://server/", tracked)
	if err != nil {
		t.Fatal(err)
	}
	return r, tracked
}

type trackedBody struct {
	io.Reader
	closed bool
}

func (b *trackedBody) Close() error {
	b.closed = true
	return nil
}

func TestOnlyReadsPassAGateThatIsNotOpen(t *testing.T) {
	g := newGate(10 * time.Second)
	passed := ""
	connection := &gated{gate: g, next: roundTripper(func(r *http.Request) (*http.Response, error) {
		passed += r.Method + " "
		return &http.Response{Body: http.NoBody}, nil
	})}
	for _, state := range []string{"before it opens", "after it has closed"} {
		passed = ""
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "NEW"} {
			r, body := request(t, method)
			response, err := connection.RoundTrip(r)
			if err == nil {
				_ = response.Body.Close()
				continue
			}
			if !errors.Is(err, ErrNotLeading) || !body.closed {
				t.Errorf("%s: %s: got %v, want %v; body closed: %v", state, method, err, ErrNotLeading, body.closed)
			}
		}
		if want := "GET HEAD OPTIONS "; passed != want {
			t.Errorf("%s: passed %q, want %q", state, passed, want)
		}
		g.renewed(g.now())
		g.close(errStopped)
	}
}

func TestEveryMethodPassesAnOpenGate(t *testing.T) {
	g := newGate(10 * time.Second)
	g.renewed(g.now())
	defer g.close(errStopped)
	connection := &gated{gate: g, next: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: http.NoBody}, nil
	})}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		r, _ := request(t, method)
		response, err := connection.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		_ = response.Body.Close()
	}
}

// The gate has the time of its requests, and not only a timer: after a SIGSTOP, timers are late.
func TestTheGateIsClosedInTimeEvenIfItsTimerIsLate(t *testing.T) {
	at := now()
	for name, later := range map[string]moment{
		"both clocks":                         {at.monotonic.Add(10 * time.Second), at.wall.Add(10 * time.Second)},
		"the time of day was set back":        {at.monotonic.Add(10 * time.Second), at.wall.Add(-time.Hour)},
		"the monotonic clock has stood still": {at.monotonic, at.wall.Add(10 * time.Second)},
	} {
		g := newGate(10 * time.Second)
		g.now = func() moment { return at }
		g.renewed(at)
		g.timer.Stop()
		if !g.open() {
			t.Errorf("%s: the gate is not open", name)
		}
		g.now = func() moment { return later }
		if _, err := g.enter(t.Context()); !errors.Is(err, ErrNotLeading) || !errors.Is(err, errExpired) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNotLeading)
		}
		if g.renewed(later) {
			t.Errorf("%s: the gate has opened again", name)
		}
	}
}

func TestWaitingForOthersIsNotShortenedByTheTimeOfDay(t *testing.T) {
	then := now()
	later := moment{monotonic: then.monotonic.Add(time.Second), wall: then.wall.Add(time.Hour)}
	if got := later.waited(then); got != time.Second {
		t.Errorf("got %v, want a second", got)
	}
}

// A renewal whose answer comes after the gate has closed must not open it, also if it was sent in time.
func TestAGateThatWasTooLateDoesNotOpenAgain(t *testing.T) {
	at := now()
	g := newGate(10 * time.Second)
	g.now = func() moment { return at }
	g.renewed(at)
	g.timer.Stop()
	after := func(d time.Duration) moment { return moment{at.monotonic.Add(d), at.wall.Add(d)} }
	g.now = func() moment { return after(11 * time.Second) }
	if g.renewed(after(9*time.Second)) || g.open() {
		t.Error("the gate has opened again")
	}
}

func TestAGateThatIsNeverRenewedClosesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10 * time.Second)
		opened := time.Now()
		g.renewed(g.now())
		within(t, g.closed)
		if took := time.Since(opened); took != 10*time.Second {
			t.Errorf("it closed after %v, want 10 s", took)
		}
	})
}

func TestTheTimerDoesNotCloseAGateThatWasRenewed(t *testing.T) {
	g := newGate(time.Hour)
	g.renewed(g.now())
	g.expire()
	if !g.open() {
		t.Error("the gate has closed")
	}
	g.close(errStopped)
}

func TestAnAnswerCanBeReadAfterTheGateHasClosed(t *testing.T) {
	g := newGate(time.Hour)
	g.renewed(g.now())
	var sent context.Context
	connection := &gated{gate: g, next: roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Context()
		return &http.Response{Body: io.NopCloser(strings.NewReader("answer"))}, nil
	})}
	r, _ := request(t, "POST")
	response, err := connection.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	g.closeAndWait(errStopped)
	if sent.Err() != nil {
		t.Error("the context of a request that was answered has ended")
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if sent.Err() == nil {
		t.Error("the context of the request does not end with its response")
	}
}

func TestTheGateWaitsForWritesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Hour)
		g.renewed(g.now())
		connection := &gated{gate: g, next: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			time.Sleep(time.Second) // It takes a while until the connection has ended.
			return nil, r.Context().Err()
		})}
		answered := make(chan bool, 1)
		go func() {
			r, _ := request(t, "POST")
			_, err := connection.RoundTrip(r)
			if !errors.Is(err, errStopped) {
				t.Errorf("got %v, want the reason for which the gate has closed", err)
			}
			answered <- true
		}()
		synctest.Wait()
		g.closeAndWait(errStopped)
		synctest.Wait() // No time passes, in which the write could end later.
		if len(answered) == 0 || len(g.writes) != 0 {
			t.Error("closeAndWait has returned before the write has")
		}
		<-answered
	})
}

func TestClientGoFindsTheConnectionBehindTheGate(t *testing.T) {
	transport := &http.Transport{}
	var connection http.RoundTripper = &gated{next: transport}
	wrapper, ok := connection.(utilnet.RoundTripperWrapper)
	if !ok || wrapper.WrappedRoundTripper() != transport {
		t.Error("the connection is hidden")
	}
}
