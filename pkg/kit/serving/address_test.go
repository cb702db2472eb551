package serving

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func TestAddressesAreComparedWithoutPortAndSpelling(t *testing.T) {
	for hostPort, want := range map[string]string{
		"192.0.2.1:80":            "192.0.2.1",
		"[::ffff:192.0.2.1]:443":  "192.0.2.1",
		"[fe80::1%eth0]:1":        "fe80::1",
		"":                        "invalid IP",
		"a socket without a name": "invalid IP",
	} {
		if got := addressOf(hostPort).String(); got != want {
			t.Errorf("%q: got %s, want %s", hostPort, got, want)
		}
	}
}

const getRoot = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// A pod opens connections and sends nothing. The kubelet has another address, and gets its response.
func TestAnAddressCannotTakeAllConnections(t *testing.T) {
	noLeaks(t)
	url := serve(t, t.Context(), answerOK, func(l *limits) { l.connections, l.perAddress = 4, 3 })
	var held []net.Conn
	for range 3 {
		held = append(held, dialFrom(t, "127.0.0.2", url))
	}
	for range 5 { // These are closed without a response, and take no place.
		if got := untilReset(t, dialFrom(t, "127.0.0.2", url)); got != "" {
			t.Errorf("a connection beyond the share of its address got %q", got)
		}
	}
	if got := untilReset(t, dialFrom(t, "127.0.0.3", url), getRoot); !hasOK(got) {
		t.Errorf("another address got %q, want a response", got)
	}
	for _, conn := range held {
		conn.Close()
	}
	served := func() bool {
		return hasOK(untilReset(t, dialFrom(t, "127.0.0.2", url), getRoot))
	}
	for deadline := time.Now().Add(eventually); !served(); { // The server notices that a connection is closed.
		if time.Now().After(deadline) {
			t.Fatal("the address gets no connection although it has none any more")
		}
	}
}

// untilReset is untilClosed for connections that may be closed before the request was read.
func untilReset(t *testing.T, conn net.Conn, send ...string) string {
	t.Helper()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(eventually)); err != nil {
		t.Fatal(err)
	}
	for _, text := range send {
		_, _ = fmt.Fprint(conn, text) // An error shows in the read.
	}
	buffer := make([]byte, 4096)
	n, err := conn.Read(buffer)
	if netErr, ok := err.(net.Error); ok && netErr.Timeout() {
		t.Fatal("the connection stays open")
	}
	return string(buffer[:n])
}

func hasOK(response string) bool { return strings.HasPrefix(response, "HTTP/1.1 200 OK") }

// fromAddress returns the code of the response to a request for the metrics.
func fromAddress(t *testing.T, handler http.Handler, address, token string) int {
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, metricsPath, nil)
	req.RemoteAddr = address + ":1"
	req.Header.Set("Authorization", "Bearer "+token)
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, req)
	return response.Code
}

// Four pods send an unknown token every 50 ms, for two minutes. Prometheus reads every 15 s.
func TestStrangersDoNotLockTheReaderOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reviews, refusals counter
		api := roundTripper(func(r *http.Request) (*http.Response, error) {
			var review authenticationv1.TokenReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			reviews.add(review.Kind)
			if review.Kind != "TokenReview" {
				return jsonResponse(http.StatusCreated, `{"kind":"SubjectAccessReview",
					"apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`), nil
			}
			return jsonResponse(http.StatusCreated, fmt.Sprintf(`{"kind":"TokenReview",
				"apiVersion":"authentication.k8s.io/v1","status":{"authenticated":%v,"user":{"username":"a"}}}`,
				review.Spec.Token == reader)), nil
		})
		config := MetricsConfig{
			API: &rest.Config{Host: "http://api.test", Transport: api}, backoff: &wait.Backoff{Steps: 1},
			Handler: http.HandlerFunc(answerOK),
		}
		handler, _, err := config.protect(klog.Background())
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(2 * time.Minute)
		var clients sync.WaitGroup
		for i := range 4 {
			clients.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					code := fromAddress(t, handler, fmt.Sprint("192.0.2.", i), fmt.Sprint("guess-", i, "-", n))
					refusals.add(http.StatusText(code))
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		for time.Now().Before(end) {
			began := time.Now()
			code := fromAddress(t, handler, "192.0.2.99", reader)
			if took := time.Since(began); code != http.StatusOK || took > reviewTimeout/4 {
				t.Errorf("Prometheus got %d after %s", code, took)
			}
			time.Sleep(15 * time.Second)
		}
		clients.Wait()
		const ofStrangers, ofPrometheus = 4 * (requestBurst + 120*requestQPS), 3 // One in a minute.
		if n := reviews.of("TokenReview"); n > ofStrangers+ofPrometheus {
			t.Errorf("%d reviews of tokens, want at most %d", n, ofStrangers+ofPrometheus)
		}
		if refusals.of("Unauthorized") > ofStrangers || refusals.of("Too Many Requests") < ofStrangers {
			t.Errorf("the strangers got %v, want at most %d times 401, and else 429", refusals.counts, ofStrangers)
		}
	})
}

// counter counts by name.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[name]++
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}
