package serving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serve starts a server for handler. Its limits are those of probes, except that no time is limited, changed by change.
func serve(t *testing.T, ctx context.Context, handler http.HandlerFunc, change func(*limits)) (url string) {
	t.Helper()
	listener, err := listen(anyPort, true)
	limits := probeLimits
	limits.header, limits.read, limits.write, limits.idle = time.Hour, time.Hour, time.Hour, time.Hour
	change(&limits)
	return start(t, newServer(ctx, "test", listener, nil, handler, limits), err)
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
		change     func(*limits)
	}{
		{"nothing is sent", "", func(l *limits) { l.header = tiny }},
		{"the header does not end", "GET / HTTP/1.1\r\nHost: a\r\n", func(l *limits) { l.header = tiny }},
		{
			"the body does not come", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n",
			func(l *limits) { l.read = tiny },
		},
		{
			"no second request comes", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			func(l *limits) { l.idle, l.keepAlive = tiny, true },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			handler := func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				answerOK(w, r)
			}
			url := serve(t, t.Context(), handler, tc.change)
			conn := dial(t, url)
			fmt.Fprint(conn, tc.sent)
			untilClosed(t, conn)
		})
	}
}

// To net/http, a limit of zero is no limit.
func TestAllLimitsAreSet(t *testing.T) {
	for name, l := range map[string]limits{"probes": probeLimits, "scrapes": scrapeLimits, "debug": debugLimits} {
		l.keepAlive = true // Both values are meant.
		for field, value := range reflect.ValueOf(l).Fields() {
			if value.IsZero() {
				t.Errorf("%s: there is no limit %s", name, field.Name)
			}
		}
	}
	if scrapeLimits.write < 2*reviewTimeout {
		t.Errorf("the response after a review of %s is cut off after %s", reviewTimeout, scrapeLimits.write)
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
	url := serve(t, t.Context(), endless, func(l *limits) { l.write = 10 * time.Millisecond })
	fmt.Fprint(dial(t, url), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-cut
}

func TestAHeaderThatIsTooLargeIsRefused(t *testing.T) {
	noLeaks(t)
	url := serve(t, t.Context(), answerOK, func(l *limits) { l.headerBytes = 100 })
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

// Two connections are open and idle. A third one is accepted only when one of them ends.
func TestMoreConnectionsThanTheLimitWait(t *testing.T) {
	noLeaks(t)
	accepted := make(chan struct{}, 3)
	hold, release := context.WithCancel(t.Context())
	handler := func(w http.ResponseWriter, r *http.Request) {
		accepted <- struct{}{}
		<-hold.Done()
		answerOK(w, r)
	}
	url := serve(t, t.Context(), handler, func(l *limits) { l.connections = 2 })
	defer release()
	for range 3 {
		fmt.Fprint(dial(t, url), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	<-accepted
	<-accepted
	for range 100 { // Each round gives the third one an opportunity.
		conn := dial(t, url)
		conn.Close()
		select {
		case <-accepted:
			t.Fatal("a third connection was accepted")
		default:
		}
	}
	release()
	<-accepted
}

func TestProbesUseAConnectionOnce(t *testing.T) {
	noLeaks(t)
	url := serve(t, t.Context(), answerOK, func(*limits) {})
	conn := dial(t, url)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	response := untilClosed(t, conn)
	if n := strings.Count(response, "HTTP/1.1 200 OK"); n != 1 || !strings.Contains(response, "Connection: close") {
		t.Errorf("%d responses:\n%s", n, response)
	}
}

func TestRunLetsRequestsFinishAndAcceptsNoMore(t *testing.T) {
	noLeaks(t)
	listener, err := listen(anyPort, true)
	if err != nil {
		t.Fatal(err)
	}
	began, release := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		answerOK(w, r)
	})
	limits := probeLimits
	limits.drain, limits.write = time.Hour, time.Hour
	server := newServer(t.Context(), "test", listener, nil, handler, limits)
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
	listener, err := listen(anyPort, true)
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done() // Until the connection is closed.
	})
	limits := probeLimits
	limits.drain, limits.write, limits.read = time.Millisecond, time.Hour, time.Hour
	server := newServer(t.Context(), "test", listener, nil, handler, limits)
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
	listener, err := listen(anyPort, true)
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(t.Context(), "test", listener, nil, http.HandlerFunc(answerOK), probeLimits)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := server.Run(stopped); err != nil {
		t.Fatal(err)
	}
	if err := listener.(*net.TCPListener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Error("the listener is open after the end of Run")
	}
}

func TestRunReturnsTheErrorThatEndsServing(t *testing.T) {
	noLeaks(t)
	listener, err := listen(anyPort, true)
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(t.Context(), "test", listener, nil, http.HandlerFunc(answerOK), probeLimits)
	listener.Close()
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

func TestAHandlerThatPanicsGets500AndALine(t *testing.T) {
	noLeaks(t)
	ctx, lines := newLog(t)
	handler := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		panic("no such map")
	}
	url := serve(t, ctx, handler, func(*limits) {})
	if got, want := get(t, url+"/x"), "500 the handler failed; the log has the reason\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	conn := dial(t, url)
	fmt.Fprint(conn, "GET /abort HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := untilClosed(t, conn); got != "" {
		t.Errorf("an aborted request gets %q", got)
	}
	want := []string{"ERROR Request panicked err=no such map endpoint=test path=/x"}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("wrong log (-want +got):\n%s", diff)
	}
}
