package telemetry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/telemetry"
)

// A real client passes the context of the request to the handler.
func TestAWarningIsLoggedOnceByTheLoggerOfTheRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 - "would violate PodSecurity"`)
		w.Header().Add("Warning", `299 - "is deprecated"`)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL, WarningHandlerWithContext: &telemetry.Warnings{}})
	log := newLog(t)
	for _, foo := range []string{"default/web", "default/other"} {
		ctx := klog.NewContext(t.Context(), klog.LoggerWithValues(log.Logger, "foo", foo))
		_, _ = client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	}
	log.check(t,
		"INFO API server warned foo=default/web warning=would violate PodSecurity",
		"INFO API server warned foo=default/web warning=is deprecated")
}

func TestWarningsThatDifferOnlyInNamesAndNumbersAreLoggedOnce(t *testing.T) {
	for _, test := range []struct {
		name          string
		first, second string
		lines         int
	}{
		{name: "a name in quotes", first: `container "web" runs as root`, second: `container "db" runs as root`, lines: 1},
		{name: "a counted name", first: "foo web-1 has no limits", second: "foo web-2 has no limits", lines: 1},
		{name: "a random name", first: "pod web-7c9-x2 has no limits", second: "pod db-84d-k9 has no limits", lines: 1},
		{name: "another name", first: "foo web has no limits", second: "foo db has no limits", lines: 2},
		{name: "another subject", first: `unknown field "a"`, second: `duplicate field "a"`, lines: 2},
		{name: "nothing", first: "", second: "", lines: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			log, warnings := newLog(t), &telemetry.Warnings{}
			for _, text := range []string{test.first, test.second, test.first} {
				warnings.HandleWarningHeaderWithContext(log.context(), 299, "-", text)
			}
			if got := log.all(); len(got) != test.lines {
				t.Errorf("%d lines, want %d: %v", len(got), test.lines, got)
			}
		})
	}
}

func TestOnlyTheCodeOfAPIServersIsLogged(t *testing.T) {
	log, warnings := newLog(t), &telemetry.Warnings{}
	warnings.HandleWarningHeaderWithContext(log.context(), 110, "proxy", "response is stale")
	log.check(t)
}

// letters returns a number as a word without digits.
func letters(n int) string {
	word := ""
	for ; n > 0; n /= 10 {
		word += string(rune('a' + n%10))
	}
	return word
}

func TestRememberedWarningsAreBounded(t *testing.T) {
	log, warnings := newLog(t), &telemetry.Warnings{}
	warn := func(n int) {
		warnings.HandleWarningHeaderWithContext(log.context(), 299, "-", fmt.Sprintf("policy %s", letters(n)))
	}
	for range 2 {
		for n := 1; n <= 500; n++ {
			warn(n)
		}
	}
	if got := len(log.all()); got != 500 {
		t.Errorf("%d lines for 500 warnings, twice, want 500", got)
	}
	warn(501) // From now on, only this one is remembered.
	warn(1)
	if got := len(log.all()); got != 502 {
		t.Errorf("%d lines, want 502", got)
	}
}

func TestWarningsMayBeUsedConcurrently(t *testing.T) {
	log, warnings := newLog(t), &telemetry.Warnings{}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for n := 1; n <= 300; n++ {
				warnings.HandleWarningHeaderWithContext(klog.NewContext(context.Background(), log.Logger), 299, "-", letters(n))
			}
		})
	}
	workers.Wait()
	if got := len(log.all()); got != 300 {
		t.Errorf("%d lines, want 300", got)
	}
}
