package serving

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// eventually is a timeout that no test here should reach.
const eventually = time.Minute

// anyPort is an address of this machine with a port that the system chooses.
const anyPort = "127.0.0.1:0"

// noLeaks fails the test if goroutines are left at its end. Call it before anything starts a Server or
// another HTTP server: its check then comes last.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if t.Failed() {
			return // Perhaps before it released what it holds.
		}
		var left error
		done := func(context.Context) (bool, error) { // Connections end soon after their server.
			left = goleak.Find(before)
			return left == nil, nil
		}
		if wait.PollUntilContextTimeout(context.Background(), time.Millisecond, eventually, true, done) != nil {
			t.Errorf("goroutines are left: %v", left)
		}
	})
}

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
