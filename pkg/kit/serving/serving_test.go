package serving

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually is a timeout that no test here should reach.
const eventually = time.Minute

// anyPort is an address of this machine with a port that the system chooses.
const anyPort = "127.0.0.1:0"

// start runs the Server that a constructor returned until the end of the test, and returns its URL.
func start(t *testing.T, server *Server, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if server.http.TLSConfig != nil {
		return "https://" + server.Address()
	}
	return "http://" + server.Address()
}

// newClient returns a client that accepts every certificate and offers HTTP/2. Its connections end with the test.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends a request with a bearer token, unless token is "", and returns the response with its whole body.
func send(t *testing.T, client *http.Client, method, url, token string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// get sends a GET request to url, and returns the response in one string: the code and the body.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, body := send(t, newClient(t), http.MethodGet, url, "")
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// dial opens a connection to the server at url, which is closed at the end of the test.
func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// newLog returns a context with a logger, and a function that returns a line for each entry of level 0 so far.
func newLog(t *testing.T) (context.Context, func() []string) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	buffer := logger.GetSink().(ktesting.Underlier).GetBuffer()
	return klog.NewContext(t.Context(), logger), func() []string {
		var lines []string
		for _, entry := range buffer.Data() {
			line := fmt.Sprintf("%s %s", entry.Type, entry.Message)
			if entry.Err != nil {
				line += fmt.Sprintf(" err=%v", entry.Err)
			}
			all := append(entry.WithKVList, entry.ParameterKVList...)
			for i := 0; i+1 < len(all); i += 2 {
				if all[i] != "stacktrace" {
					line += fmt.Sprintf(" %v=%v", all[i], all[i+1])
				}
			}
			lines = append(lines, line)
		}
		return lines
	}
}

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
		resp, _ := send(t, newClient(t), http.MethodGet, url, strings.Repeat("a", tc.size))
		if resp.StatusCode != tc.want {
			t.Errorf("a header of %d bytes gets %d, want %d", tc.size, resp.StatusCode, tc.want)
		}
	}
}

func TestRunLetsRequestsFinishAndAcceptsNoMore(t *testing.T) {
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

func TestRunReturnsTheErrorThatEndsServing(t *testing.T) {
	server := newTestServer(t, t.Context(), answerOK)
	server.listener.Close()
	if err := server.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run returned %v", err)
	}
}

func TestAPanicOfAHandlerIsLoggedAndClosesTheConnection(t *testing.T) {
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

func TestAddressesThatCannotBeUsedAreRefusedWithAdvice(t *testing.T) {
	taken, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		taken.Addr().String(): "is in use; stop the process that has it, give another one, or 0 to turn the endpoint off: ",
		"8080":                "address 8080: missing port in address; give HOST:PORT or :PORT, or 0 to turn ",
		"":                    "missing port in address; give HOST:PORT or :PORT, or 0 to turn the endpoint off",
		"127.0.0.1:unknown":   `address "127.0.0.1:unknown": `,
		"192.0.2.1:0":         `address "192.0.2.1:0": `, // Of another machine.
	} {
		if listener, err := listen(address, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want the error %s", address, listener, err, want)
		}
	}
	for address, allowed := range map[string]bool{
		anyPort: true, "localhost:0": true, "127.9.9.9:0": true, ":0": false, "0.0.0.0:0": false, "[::]:0": false,
	} {
		listener, err := listen(address, true)
		if (err == nil) != allowed {
			t.Errorf("only loopback: %q: %v", address, err)
		}
		if err == nil {
			listener.Close()
		}
	}
}

// newPair returns a certificate for name and its key.
func newPair(t testing.TB, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certPEM, keyPEM
}

// writePair writes a certificate for name and its key to files in dir, and returns their paths.
func writePair(t testing.TB, dir, name string) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certPEM, keyPEM := newPair(t, name)
	write(t, certFile, certPEM)
	write(t, keyFile, keyPEM)
	return certFile, keyFile
}

func write(t testing.TB, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// served returns the name in the certificate that the server at url has in a new connection.
func served(t *testing.T, url string) string {
	t.Helper()
	resp, _ := send(t, newClient(t), http.MethodGet, url, reader)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s returned %s", url, resp.Status)
	}
	return resp.TLS.PeerCertificates[0].DNSNames[0]
}

// The steps of a replacement, and of failures during it, as a new connection sees them. What is wrong is logged once.
func TestCertificatesAreReplacedWithoutRestart(t *testing.T) {
	ctx, lines := newLog(t)
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, "first")
	server, err := NewMetrics(ctx, MetricsConfig{
		Address: anyPort, Handler: metricsHandler(t), API: &rest.Config{Host: newAPIServer(t).URL},
		CertFile: certFile, KeyFile: keyFile,
	})
	url := start(t, server, err) + metricsPath
	second, secondKey := newPair(t, "second")
	const stays = "ERROR Cannot load the certificate, serving the previous one err="
	const noFile = stays + "read certificate: open DIR/tls.crt: no such file or directory file=DIR/tls.crt"
	const loaded = "INFO Loaded the new certificate file=DIR/tls.crt"
	for i, step := range []struct {
		change      func()
		served, log string // The log has a new line, unless log is empty.
	}{
		{change: func() {}, served: "first"},
		{
			change: func() { write(t, certFile, second) }, served: "first", // The key is still the first one.
			log: stays + "certificate DIR/tls.crt with key DIR/tls.key: tls: private key does not match public key " +
				"file=DIR/tls.crt",
		},
		{change: func() {}, served: "first"},
		{change: func() { write(t, keyFile, secondKey) }, served: "second", log: loaded},
		{change: func() {}, served: "second"},
		{change: func() { os.Remove(certFile) }, served: "second", log: noFile},
		{change: func() { write(t, certFile, second) }, served: "second"},
		{change: func() { os.Remove(certFile) }, served: "second", log: noFile},
		{change: func() { writePair(t, dir, "third") }, served: "third", log: loaded},
	} {
		before := len(lines())
		step.change()
		got := served(t, url)
		log := strings.ReplaceAll(strings.Join(lines()[before:], "\n"), dir, "DIR")
		if got != step.served || log != step.log {
			t.Errorf("step %d: served %s, want %s; logged\n%s\nwant\n%s", i, got, step.served, log, step.log)
		}
	}
}

// A certificate without files encrypts.
func TestMetricsHaveASelfSignedCertificateWithoutFiles(t *testing.T) {
	server, err := NewMetrics(t.Context(), MetricsConfig{
		Address: anyPort, Handler: metricsHandler(t), API: &rest.Config{Host: newAPIServer(t).URL},
	})
	url := start(t, server, err)
	client := newClient(t)
	resp, _ := send(t, client, http.MethodGet, url+metricsPath, reader)
	if resp.TLS.NegotiatedProtocol != "http/1.1" || resp.Close { // The client offers HTTP/2.
		t.Errorf("the protocol is %s, and the server closes the connection: %v", resp.TLS.NegotiatedProtocol, resp.Close)
	}
	leaf := resp.TLS.PeerCertificates[0]
	if err := leaf.VerifyHostname("127.0.0.1"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got %s, error %v", resp.Status, err)
	}
	if time.Until(leaf.NotAfter) < selfSignedAge-48*time.Hour {
		t.Errorf("the certificate ends at %s", leaf.NotAfter)
	}
}

// Webhooks have the certificate of their files, which somebody else renews, or the one that a function returns.
func TestCertificatesOfWebhooks(t *testing.T) {
	certFile, keyFile := writePair(t, t.TempDir(), "of the files")
	own, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	none := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("there is none yet") }
	for _, tc := range []struct {
		name   string
		config WebhooksConfig
		served string // The subject of the certificate, "" if there is no connection.
	}{
		{name: "files", config: WebhooksConfig{CertFile: certFile, KeyFile: keyFile, Certificate: own},
			served: "of the files"},
		{name: "a function", config: WebhooksConfig{Certificate: own}, served: "localhost"},
		{name: "no certificate yet", config: WebhooksConfig{Certificate: none}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.config.Address, tc.config.Handler = anyPort, http.HandlerFunc(answerOK)
			server, err := NewWebhooks(t.Context(), tc.config)
			if err != nil || server.linger == 0 {
				t.Fatal("requests that are on their way at a stop would be lost", err)
			}
			server.linger = 0
			resp, err := newClient(t).Get(start(t, server, err))
			if err != nil {
				if tc.served != "" {
					t.Error(err)
				}
				return
			}
			resp.Body.Close()
			if subject := resp.TLS.PeerCertificates[0].Subject.CommonName; !strings.HasPrefix(subject, tc.served) ||
				resp.ProtoMajor != 1 {
				t.Errorf("%s with the certificate of %q, want %q", resp.Proto, subject, tc.served)
			}
		})
	}
	for _, config := range []WebhooksConfig{{CertFile: certFile}, {KeyFile: keyFile},
		{CertFile: keyFile, KeyFile: certFile}, {}} {
		config.Address = anyPort
		if _, err := NewWebhooks(t.Context(), config); err == nil {
			t.Errorf("with the files %q and %q there is no error", config.CertFile, config.KeyFile)
		}
	}
}

func TestAServerThatIsOffDoesNothing(t *testing.T) {
	health, err := NewHealth(t.Context(), HealthConfig{Address: off})
	metrics, err2 := NewMetrics(t.Context(), MetricsConfig{Address: off, CertFile: "missing"})
	debug, err3 := NewDebug(t.Context(), DebugConfig{Address: off})
	webhooks, err4 := NewWebhooks(t.Context(), WebhooksConfig{Address: off})
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	for _, server := range []*Server{health, metrics, debug, webhooks} {
		if err := server.Run(t.Context()); err != nil || server.Address() != "" {
			t.Errorf("Run returned %v, the address is %q", err, server.Address())
		}
	}
}
