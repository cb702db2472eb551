package serving

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func passes(name string) Check { return Check{Name: name, Do: func() error { return nil }} }

func fails(name, reason string) Check {
	return Check{Name: name, Do: func() error { return errors.New(reason) }}
}

func TestPagesHaveTheFormatOfTheAPIServerWithReasons(t *testing.T) {
	noLeaks(t)
	server, err := NewHealth(t.Context(), HealthConfig{
		Address: anyPort,
		Live:    []Check{passes("ping"), passes("workers")},
		Ready:   []Check{passes("ping"), fails("foos", "not listed yet: foos is forbidden"), passes("deployments")},
	})
	url := start(t, server, err)
	for _, tc := range []struct{ name, path, want string }{
		{"all pass", "/healthz", "200 ok"},
		{"all pass, verbose", "/healthz?verbose", "200 [+]ping ok\n[+]workers ok\nhealthz check passed\n"},
		{"one check", "/healthz/workers", "200 ok"},
		{
			"a failure is shown with all checks", "/readyz",
			"500 [+]ping ok\n[-]foos failed: not listed yet: foos is forbidden\n[+]deployments ok\nreadyz check failed\n",
		},
		{
			"a failure, verbose", "/readyz?verbose=true",
			"500 [+]ping ok\n[-]foos failed: not listed yet: foos is forbidden\n[+]deployments ok\nreadyz check failed\n",
		},
		{
			"the failing check is excluded", "/readyz?verbose&exclude=foos",
			"200 [+]ping ok\n[+]foos excluded: ok\n[+]deployments ok\nreadyz check passed\n",
		},
		{"one check that fails", "/readyz/foos", "500 not listed yet: foos is forbidden\n"},
		{"one check that passes beside it", "/readyz/ping", "200 ok"},
		{"no such check", "/readyz/nothing", "404 404 page not found\n"},
		{"a check of the other page", "/healthz/foos", "404 404 page not found\n"},
		{"metrics are not here", "/metrics", "404 404 page not found\n"},
		{"profiles are not here", "/debug/pprof/", "404 404 page not found\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, get(t, url+tc.path)); diff != "" {
				t.Errorf("wrong response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPagesOnlyAnswerGetAndAreNotCached(t *testing.T) {
	noLeaks(t)
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
	noLeaks(t)
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

func TestUntilFailsUntilItIsDone(t *testing.T) {
	done := make(chan struct{})
	text := ""
	check := Until("foos", done, "not listed yet", func() string { return text })
	bare := Until("foos", done, "not listed yet", nil)
	var got []string
	note := func() {
		for _, err := range []error{check.Do(), bare.Do()} {
			reason := "passes"
			if err != nil {
				reason = err.Error()
			}
			got = append(got, reason)
		}
	}
	note()
	text = "foos is forbidden"
	note()
	close(done)
	note()
	want := []string{
		"not listed yet", "not listed yet", "not listed yet: foos is forbidden", "not listed yet", "passes", "passes",
	}
	if diff := cmp.Diff(want, got); diff != "" || check.Name != "foos" {
		t.Errorf("wrong reasons of %s (-want +got):\n%s", check.Name, diff)
	}
}
