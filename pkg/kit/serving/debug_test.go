package serving

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDebugConfigHasVersionUptimeAndFlags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DebugConfig{
			Version: "v1.2.3", Started: time.Now().Add(300 * time.Millisecond),
			Flags: map[string]string{"workers": "16", "leader-elect": "true"},
		}
		time.Sleep(time.Hour + 2*time.Minute + 3*time.Second + 800*time.Millisecond) // Virtual time.
		recorder := httptest.NewRecorder()
		config.serve(recorder, nil)
		want := `{
  "version": "v1.2.3",
  "started": "2000-01-01T00:00:00Z",
  "uptime": "1h2m3s",
  "flags": {
    "leader-elect": "true",
    "workers": "16"
  }
}
`
		if diff := cmp.Diff(want, recorder.Body.String()); diff != "" {
			t.Errorf("wrong body (-want +got):\n%s", diff)
		}
		if got := recorder.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("the content type is %s", got)
		}
	})
}

func TestDebugServesSyncsAndProfiles(t *testing.T) {
	noLeaks(t)
	syncs := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the syncs") })
	server, err := NewDebug(t.Context(), DebugConfig{Address: anyPort, Started: time.Now(), Syncs: syncs})
	url := start(t, server, err)
	for path, want := range map[string]string{
		"/debug/config":                  `200 {` + "\n  \"version\": \"\"",
		"/debug/syncs":                   "200 the syncs",
		"/debug/pprof/":                  "200 <html>",
		"/debug/pprof/goroutine?debug=1": "200 goroutine profile: total ",
		"/debug/pprof/heap?debug=1":      "200 heap profile: ",
		"/debug/pprof/cmdline":           "200 ",
		"/debug/pprof/symbol":            "200 num_symbols: 1",
		"/":                              "404 ",
	} {
		if got := get(t, url+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %.60q, want %q", path, got, want)
		}
	}
}

func TestDebugSetsTheLevelOfTheLog(t *testing.T) {
	noLeaks(t)
	level := "0"
	server, err := NewDebug(t.Context(), DebugConfig{Address: anyPort, SetLevel: func(text string) error {
		if text == "high" {
			return errors.New("this is no number")
		}
		level = text
		return nil
	}})
	url := start(t, server, err) + "/debug/flags/v"
	for _, test := range []struct{ method, body, want, level string }{
		{method: http.MethodPut, body: "4", want: "200 the level of the log is 4\n", level: "4"},
		{method: http.MethodPut, body: "high", want: "400 this is no number\n", level: "4"},
		{method: http.MethodPut, body: "12345678901", want: "400 http: request body too large\n", level: "4"},
		{method: http.MethodGet, want: "405 Method Not Allowed\n", level: "4"},
		{method: http.MethodPost, body: "0", want: "405 Method Not Allowed\n", level: "4"},
		{method: http.MethodPut, body: "0", want: "200 the level of the log is 0\n", level: "0"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), test.method, url, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := newClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); got != test.want || level != test.level {
			t.Errorf("%s %q: %q and the level %s, want %q and %s", test.method, test.body, got, level, test.want, test.level)
		}
	}
}

func TestDebugIsRefusedOnAnAddressThatOthersCanReach(t *testing.T) {
	_, err := NewDebug(t.Context(), DebugConfig{Address: ":6060"})
	want := `address ":6060" can be reached from other machines; give one such as 127.0.0.1:6060`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// A web page can let a name of its own resolve to 127.0.0.1. Then a browser sends that name as the Host.
func TestLocalEndpointsAnswerOnlyToNamesOfThisMachine(t *testing.T) {
	noLeaks(t)
	debug, err := NewDebug(t.Context(), DebugConfig{Address: anyPort})
	debugURL := start(t, debug, err) + "/debug/config"
	metrics, err := NewMetrics(t.Context(), MetricsConfig{Address: anyPort, Plain: true, Handler: metricsHandler(t)})
	metricsURL := start(t, metrics, err) + metricsPath
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "localhost:6060": http.StatusOK,
		"127.0.0.1:6060": http.StatusOK, "[::1]:6060": http.StatusOK,
		"evil.example": http.StatusForbidden, "evil.example:6060": http.StatusForbidden,
		"10.0.0.1": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden,
	} {
		for _, url := range []string{debugURL, metricsURL} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			resp, err := newClient(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s with the host %s gets %d, want %d", url, host, resp.StatusCode, want)
			}
		}
	}
}
