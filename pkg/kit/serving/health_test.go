package serving

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func passes(name string) Check { return Check{Name: name, Do: func() error { return nil }} }

func fails(name, reason string) Check {
	return Check{Name: name, Do: func() error { return errors.New(reason) }}
}

func TestPagesHaveTheFormatOfTheAPIServerWithReasons(t *testing.T) {
	server, err := NewHealth(t.Context(), HealthConfig{
		Address: anyPort,
		Live:    []Check{passes("ping"), passes("workers")},
		Ready:   []Check{passes("ping"), fails("foos", "not listed yet: foos is forbidden"), passes("deployments")},
	})
	url := start(t, server, err)
	for path, want := range map[string]string{
		"/healthz":         "200 ok",
		"/healthz?verbose": "200 [+]ping ok\n[+]workers ok\nhealthz check passed\n",
		"/healthz/workers": "200 ok",
		"/healthz/foos":    "404 404 page not found\n", // It is a check of the other page.
		"/readyz": "500 [+]ping ok\n[-]foos failed: not listed yet: foos is forbidden\n[+]deployments ok\n" +
			"readyz check failed\n",
		"/readyz?verbose&exclude=foos": "200 [+]ping ok\n[+]foos excluded: ok\n[+]deployments ok\nreadyz check passed\n",
		"/readyz/foos":                 "500 not listed yet: foos is forbidden\n",
		"/metrics":                     "404 404 page not found\n",
		"/debug/pprof/":                "404 404 page not found\n",
	} {
		if got := get(t, url+path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestPagesOnlyAnswerGetAndAreNotCached(t *testing.T) {
	server, err := NewHealth(t.Context(), HealthConfig{Address: anyPort})
	url := start(t, server, err)
	client := newClient(t)
	resp, _ := send(t, client, http.MethodPost, url+"/healthz", "")
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST returned %d", resp.StatusCode)
	}
	resp, body := send(t, client, http.MethodGet, url+"/healthz", "")
	if resp.StatusCode != http.StatusOK || body != "ok" || resp.Header.Get("Cache-Control") != "no-cache, no-store" ||
		resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("GET returned %d %q %v", resp.StatusCode, body, resp.Header)
	}
}

func TestAReasonStaysOnTheLineOfItsCheck(t *testing.T) {
	for _, tc := range []struct{ name, reason, want string }{
		{"a line that imitates another check", "broken\n[+]workers ok", "broken [+]workers ok"},
		{"no text", " \n", "no reason is known"},
		{"the longest text", strings.Repeat("a", maxReason), strings.Repeat("a", maxReason)},
		{"one byte more", strings.Repeat("a", maxReason+1), strings.Repeat("a", maxReason) + "..."},
		{"a cut within a character", "a" + strings.Repeat("é", maxReason), "a" + strings.Repeat("é", maxReason/2-1) + "..."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := oneLine(tc.reason)
			if diff := cmp.Diff(tc.want, got); diff != "" || !utf8.ValidString(got) {
				t.Errorf("wrong line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALivenessFailureIsLoggedOnceAndItsEndToo(t *testing.T) {
	ctx, lines := newLog(t)
	var broken atomic.Bool
	server, err := NewHealth(ctx, HealthConfig{
		Address: anyPort,
		Live: []Check{passes("ping"), {Name: "workers", Do: func() error {
			if broken.Load() {
				return errors.New("stuck on\ndefault/web")
			}
			return nil
		}}},
		Ready: []Check{fails("foos", "not listed yet")},
	})
	url := start(t, server, err)
	for _, state := range []bool{false, true, true, false, false} {
		broken.Store(state)
		get(t, url+"/healthz")
		get(t, url+"/healthz/workers")
		get(t, url+"/readyz")
	}
	want := []string{
		"INFO Check failed page=/healthz check=workers reason=stuck on default/web",
		"INFO Check passes again page=/healthz check=workers",
	}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("wrong log (-want +got):\n%s", diff)
	}
}

// state returns the reason why the check of b fails, or "ok".
func state(b *Busy) string {
	if err := b.Check("workers").Do(); err != nil {
		return err.Error()
	}
	return "ok"
}

func TestBusyReportsTheKeyThatTakesLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBusy(time.Minute)
		got := []string{state(b)}
		after := func(d time.Duration) {
			time.Sleep(d) // Virtual time.
			got = append(got, state(b))
		}

		web := b.Start("default/web")
		after(time.Second)
		db := b.Start("default/db")
		after(59 * time.Second)
		after(time.Nanosecond)
		after(1500 * time.Millisecond)
		web()
		web() // Without effect: nothing else is finished by it.
		after(0)
		db()
		after(time.Hour)
		want := []string{
			"ok", "ok",
			"ok", // In work for exactly the budget.
			"a worker is busy with default/web for 1m0s; 1 above the limit of 1m0s",
			"a worker is busy with default/web for 1m1s; 2 above the limit of 1m0s",
			"a worker is busy with default/db for 1m0s; 1 above the limit of 1m0s",
			"ok",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("wrong reasons (-want +got):\n%s", diff)
		}
		if len(b.turns) != 0 {
			t.Errorf("%d keys are remembered", len(b.turns))
		}
	})
}

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

func TestDebugIsRefusedOnAnAddressThatOthersCanReach(t *testing.T) {
	_, err := NewDebug(t.Context(), DebugConfig{Address: ":6060"})
	want := `address ":6060" can be reached from other machines; give one such as 127.0.0.1:6060`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// A web page can let a name of its own resolve to 127.0.0.1. Then a browser sends that name as the Host.
func TestLocalEndpointsAnswerOnlyToNamesOfThisMachine(t *testing.T) {
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
