package serving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newTestServer returns a server for handler without limits for time, so that tests set those that they are about.
func newTestServer(t *testing.T, ctx context.Context, handler http.HandlerFunc) *Server {
	t.Helper()
	listener, err := listen(anyPort, true)
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(ctx, "test", listener, nil, TLS{}, handler)
	server.http.ReadTimeout, server.http.WriteTimeout, server.http.IdleTimeout = 0, 0, 0
	server.drain = time.Hour
	return server
}

func answerOK(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, "ok") }

// untilClosed reads from conn until the server closes it, and returns what it has read.
func untilClosed(t *testing.T, conn net.Conn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(eventually)); err != nil {
		t.Fatal(err)
	}
	read, err := io.ReadAll(conn)
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() {
		t.Fatal(err)
	}
	return string(read)
}

// In these cases nothing but a timeout of the server ends the connection: the client waits for it.
func TestSlowClientsAreCutOff(t *testing.T) {
	tiny := 10 * time.Millisecond
	for _, tc := range []struct {
		name, sent string
		read, idle time.Duration
	}{
		{name: "nothing is sent", sent: "", read: tiny},
		{name: "the header does not end", sent: "GET / HTTP/1.1\r\nHost: a\r\n", read: tiny},
		{
			name: "the body does not come", sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", read: tiny,
		},
		{name: "no second request comes", sent: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", read: time.Hour, idle: tiny},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			server := newTestServer(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				answerOK(w, r)
			})
			server.http.ReadTimeout, server.http.IdleTimeout = tc.read, tc.idle
			conn := dial(t, start(t, server, nil))
			fmt.Fprint(conn, tc.sent)
			untilClosed(t, conn)
		})
	}
}

// To net/http, a limit of zero is no limit.
func TestAllLimitsAreSet(t *testing.T) {
	server := newServer(t.Context(), "test", nil, nil, TLS{}, http.HandlerFunc(answerOK))
	if l := server.http; min(l.ReadTimeout, l.WriteTimeout, l.IdleTimeout, server.drain) <= 0 || l.MaxHeaderBytes <= 0 {
		t.Errorf("there is no limit for read (%s), write (%s), idle (%s), drain (%s), or header (%d bytes)",
			l.ReadTimeout, l.WriteTimeout, l.IdleTimeout, server.drain, l.MaxHeaderBytes)
	}
	if server.http.WriteTimeout < 2*reviewTimeout {
		t.Errorf("the response after a review of %s is cut off after %s", reviewTimeout, server.http.WriteTimeout)
	}
}

func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	noLeaks(t)
	cut := make(chan error, 1)
	endless := func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 1<<20)
		for {
			if _, err := w.Write(block); err != nil { // The buffers of the connection are full, and time is over.
				cut <- err
				return
			}
		}
	}
	server := newTestServer(t, t.Context(), endless)
	server.http.WriteTimeout = 10 * time.Millisecond
	fmt.Fprint(dial(t, start(t, server, nil)), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-cut
}

func TestAHeaderThatIsTooLargeIsRefused(t *testing.T) {
	noLeaks(t)
	server := newTestServer(t, t.Context(), answerOK)
	server.http.MaxHeaderBytes = 100
	url := start(t, server, nil)
	const allowedByNetHTTP = 4096
	for _, tc := range []struct {
		size int
		want int
	}{
		{allowedByNetHTTP - 100, http.StatusOK},
		{allowedByNetHTTP + 100, http.StatusRequestHeaderFieldsTooLarge},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", strings.Repeat("a", tc.size))
		resp, err := newClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.want {
			t.Errorf("a header of %d bytes gets %d, want %d", tc.size, resp.StatusCode, tc.want)
		}
	}
}

func TestRunLetsRequestsFinishAndAcceptsNoMore(t *testing.T) {
	noLeaks(t)
	began, release := make(chan struct{}), make(chan struct{})
	server := newTestServer(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		answerOK(w, r)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	conn := dial(t, server.Address())
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-began

	stop()
	for refused := false; !refused; { // Until the listener is closed.
		other, err := net.Dial("tcp", server.Address())
		if refused = err != nil; !refused {
			other.Close()
		}
	}
	select {
	case <-ended:
		t.Fatal("Run returned before the request was finished")
	default:
	}
	close(release)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the request that was in work got %v, %v", resp, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunCutsOffRequestsThatDoNotFinish(t *testing.T) {
	noLeaks(t)
	began := make(chan struct{})
	server := newTestServer(t, t.Context(), func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done() // Until the connection is closed.
	})
	server.drain = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	conn := dial(t, server.Address())
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-began
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := untilClosed(t, conn); got != "" {
		t.Errorf("a request that does not finish gets %q", got)
	}
}

// The process may be asked to stop before the goroutine that serves has begun. With one thread this is certain.
func TestRunClosesTheListenerIfItIsStoppedAtOnce(t *testing.T) {
	noLeaks(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	server := newTestServer(t, t.Context(), answerOK)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := server.Run(stopped); err != nil {
		t.Fatal(err)
	}
	if err := server.listener.(*net.TCPListener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Error("the listener is open after the end of Run")
	}
}

func TestRunReturnsTheErrorThatEndsServing(t *testing.T) {
	noLeaks(t)
	server := newTestServer(t, t.Context(), answerOK)
	server.listener.Close()
	if err := server.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run returned %v", err)
	}
}

func TestAServerThatIsOffDoesNothing(t *testing.T) {
	health, err := NewHealth(t.Context(), HealthConfig{Address: off})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := NewMetrics(t.Context(), MetricsConfig{Address: off, CertFile: "missing"})
	if err != nil {
		t.Fatal(err)
	}
	debug, err := NewDebug(t.Context(), DebugConfig{Address: off})
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*Server{health, metrics, debug} {
		if err := server.Run(t.Context()); err != nil || server.Address() != "" {
			t.Errorf("Run returned %v, the address is %q", err, server.Address())
		}
	}
}

func TestAPanicOfAHandlerIsLoggedAndClosesTheConnection(t *testing.T) {
	noLeaks(t)
	ctx, lines := newLog(t)
	url := start(t, newTestServer(t, ctx, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		panic("no such map")
	}), nil)
	for _, path := range []string{"/x", "/abort"} {
		conn := dial(t, url)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
		if got := untilClosed(t, conn); got != "" {
			t.Errorf("%s gets %q", path, got)
		}
	}
	want := []string{"ERROR Observed a panic endpoint=test path=/x panic=no such map"}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("wrong log (-want +got):\n%s", diff)
	}
}
