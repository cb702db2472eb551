package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client-go has to find the connection below, to close what is idle.
var _ utilnet.RoundTripperWrapper = wrapper{}

const (
	foosPath = "/apis/samplecontroller.k8s.io/v1alpha1/foos"
	podsPath = "/api/v1/namespaces/default/pods"
	foos     = "foos.samplecontroller.k8s.io"
	missing  = "ERROR0 The API server does not know the resource, will keep trying resource=" + foos + " fix=install it"
	served   = "INFO0 The API server serves the resource resource=" + foos
)

// newLogger returns a context with a logger, and a function that returns a line for each entry that was logged so far.
// A line has the time since the start, the level, the message, the error and the values.
func newLogger(t *testing.T) (context.Context, func() []string) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(4)))
	buffer, start := logger.GetSink().(ktesting.Underlier).GetBuffer(), time.Now()
	return klog.NewContext(t.Context(), logger), func() []string {
		var lines []string
		for _, entry := range buffer.Data() {
			line := fmt.Sprintf("%s %s%d %s", entry.Timestamp.Sub(start), entry.Type, entry.Verbosity, entry.Message)
			if entry.Err != nil {
				line += fmt.Sprintf(" err=%v", entry.Err)
			}
			for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
				line += fmt.Sprintf(" %v=%v", entry.ParameterKVList[i], entry.ParameterKVList[i+1])
			}
			lines = append(lines, line)
		}
		return lines
	}
}

// A bench is a Reporter between an HTTP client and an API server whose responses the test chooses, without a socket.
type bench struct {
	*testing.T
	reporter *Reporter
	client   *http.Client
	ctx      context.Context // The context of the Reporter. stop ends it.
	stop     context.CancelFunc
	url      string
	lines    func() []string

	// The server responds with code and body. With err there is no response.
	code int
	body string
	err  error
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, url: "https://api.test", code: http.StatusOK}
	ctx, lines := newLogger(t)
	b.lines = lines
	b.ctx, b.stop = context.WithCancel(ctx)
	t.Cleanup(b.stop)
	b.reporter = NewReporter(b.ctx, Hints{Missing: "install it", Forbidden: "grant it"})
	b.client = &http.Client{Transport: b.reporter.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
		if b.err != nil {
			return nil, b.err
		}
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: b.code, Status: fmt.Sprint(b.code, " ", http.StatusText(b.code)),
			Body: io.NopCloser(strings.NewReader(b.body))}, nil
	}))}
	return b
}

// inBubble runs test with a bench in a synctest bubble.
func inBubble(t *testing.T, test func(*bench)) {
	synctest.Test(t, func(t *testing.T) { test(newBench(t)) })
}

// get sends a request and returns the body of the response, as the client behind the Reporter reads it.
func (b *bench) get(path string) string {
	b.Helper()
	resp, err := b.client.Get(b.url + path)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return string(body)
}

// wantNoResponse sends a request that must fail.
func (b *bench) wantNoResponse(ctx context.Context, path string) {
	b.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	if resp, err := b.client.Do(req); err == nil {
		resp.Body.Close()
		b.Errorf("got a response: %s", resp.Status)
	}
}

// wantLog compares the lines that were logged so far. ADDR stands for the URL of the server.
func (b *bench) wantLog(want ...string) {
	b.Helper()
	var got []string
	for _, line := range b.lines() {
		got = append(got, strings.ReplaceAll(line, b.url, "ADDR"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("wrong log (-want +got):\n%s", diff)
	}
}

func TestReporterLogsWhyARequestFails(t *testing.T) {
	const forbidden = `{"kind":"Status","status":"Failure",` +
		`"message":"foos is forbidden: User \"x\" cannot list","reason":"Forbidden","code":403}`
	const notAllowed = "0s ERROR0 Not allowed to list and watch the resource, will keep trying err="
	const notKnown = "0s ERROR0 The API server does not know the resource, will keep trying resource="
	long := strings.Repeat("x", 100<<10)
	for _, tc := range []struct {
		name string
		code int
		path string
		body string
		want []string
	}{
		{"the request succeeds", http.StatusOK, foosPath, "{}", nil},
		{"the resource is not known", http.StatusNotFound, foosPath, "404 page not found", []string{
			notKnown + foos + " fix=install it"}},
		{"the resource in a namespace is not known", http.StatusNotFound,
			"/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos", "", []string{
				notKnown + foos + " fix=install it"}},
		{"the resource behind a proxy is not known", http.StatusNotFound,
			"/k8s/clusters/c-1/apis/apps/v1/deployments", "", []string{
				notKnown + "deployments.apps fix=install it"}},
		{"listing is not allowed", http.StatusForbidden, foosPath, forbidden, []string{
			notAllowed + `foos is forbidden: User "x" cannot list resource=` + foos}},
		{"listing the core group is not allowed", http.StatusForbidden, podsPath, forbidden, []string{
			notAllowed + `foos is forbidden: User "x" cannot list resource=pods`}},
		{"a proxy refuses with a page of its own", http.StatusForbidden, foosPath, "<html>no</html>", []string{
			notAllowed + "403 Forbidden resource=" + foos}},
		{"a refusal has no message", http.StatusForbidden, foosPath, "{}", []string{
			notAllowed + "403 Forbidden resource=" + foos}},
		{"the message of a refusal is too long", http.StatusForbidden, foosPath, long, []string{
			notAllowed + "403 Forbidden resource=" + foos}},
		{"the credentials are not accepted", http.StatusUnauthorized, foosPath, `{"message":"Unauthorized"}`, []string{
			"0s ERROR0 The API server does not accept the credentials, will keep trying err=Unauthorized server=ADDR"}},
		{"the server fails", http.StatusInternalServerError, foosPath, `{"message":"etcd is gone"}`, []string{
			"0s ERROR0 The API server fails, will keep trying err=etcd is gone resource=" + foos}},
		{"the server is not ready", http.StatusServiceUnavailable, foosPath, "", []string{
			"0s ERROR0 The API server fails, will keep trying err=503 Service Unavailable resource=" + foos}},
		{"a watch is too old, which informers handle", http.StatusGone, foosPath, "", nil},
		{"the server is busy, which clients handle", http.StatusTooManyRequests, foosPath, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.code, b.body = tc.code, tc.body
				if got := b.get(tc.path); got != tc.body {
					b.Errorf("the client reads %d of the %d bytes of the response", len(got), len(tc.body))
				}
				b.wantLog(tc.want...)
			})
		})
	}
}

func TestAProblemIsLoggedUntilItIsResolved(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.code = http.StatusNotFound
		b.get(foosPath)
		b.reporter.reportOther(errors.New("the server could not find the requested resource")) // That is logged already.
		time.Sleep(40 * time.Second)
		b.code = http.StatusOK
		b.get(foosPath)
		want := []string{"0s " + missing, "30s " + missing, "40s " + served}
		b.wantLog(want...)

		time.Sleep(5 * time.Minute)
		b.get(foosPath)
		b.wantLog(want...)

		b.code = http.StatusNotFound // The same problem again.
		b.get(foosPath)
		time.Sleep(time.Second)
		b.code = http.StatusOK
		b.get(foosPath)
		time.Sleep(time.Second)
		b.code = http.StatusNotFound
		b.get(foosPath)
		time.Sleep(40 * time.Second)
		b.wantLog(append(want, "5m40s "+missing, "5m41s "+served, "5m42s "+missing, "6m12s "+missing)...)
	})
}

// An API server that has just started refuses everything until it has read the roles.
func TestARefusalIsLoggedWhenItLasts(t *testing.T) {
	const refused = "ERROR0 Not allowed to list and watch the resource, will keep trying err=no role resource=" + foos
	inBubble(t, func(b *bench) {
		respond := func(code int) {
			b.code, b.body = code, `{"message":"no role"}`
			b.get(foosPath)
		}
		respond(http.StatusForbidden)
		b.wantLog("0s " + refused) // Nothing has worked yet.
		respond(http.StatusOK)
		if err := b.reporter.Wait(b.ctx, func(context.Context) error { return nil }); err != nil {
			b.Fatal(err)
		}
		want := []string{"0s " + refused, "0s " + served}
		respond(http.StatusForbidden)
		time.Sleep(9 * time.Second)
		respond(http.StatusForbidden)
		wantProblems(b)
		respond(http.StatusOK)
		time.Sleep(time.Minute)
		b.wantLog(want...)

		respond(http.StatusForbidden) // After 1m9s.
		time.Sleep(time.Minute)
		respond(http.StatusOK)
		b.wantLog(append(want, "1m19s "+refused, "1m49s "+refused, "2m9s "+served)...)
	})
}

func TestAnotherProblemWithTheSameResourceIsLoggedAtOnceAndThenEvery30s(t *testing.T) {
	const fails = "ERROR0 The API server fails, will keep trying err=not ready resource=" + foos
	inBubble(t, func(b *bench) {
		b.code, b.body = http.StatusServiceUnavailable, `{"message":"not ready"}`
		b.get(foosPath)
		time.Sleep(20 * time.Second)
		b.code = http.StatusNotFound
		b.get(foosPath)
		want := []string{"0s " + fails, "20s " + missing}
		b.wantLog(want...)
		time.Sleep(65 * time.Second)
		b.wantLog(append(want, "50s "+missing, "1m20s "+missing)...)
	})
}

func TestARepetitionHasTheNewestErrorAndValues(t *testing.T) {
	const unauthorized = "ERROR0 The API server does not accept the credentials, will keep trying err="
	inBubble(t, func(b *bench) {
		b.code = http.StatusUnauthorized
		for i, message := range []string{"expired", "unknown", "revoked", "forged"} { // At 0, 14, 28, 42 s.
			b.url = fmt.Sprint("https://api.test-", i)
			b.body = `{"message":"` + message + `"}`
			b.get(foosPath)
			time.Sleep(14 * time.Second)
		}
		time.Sleep(10 * time.Second)
		b.url = "https://api.test"
		b.wantLog("0s "+unauthorized+"expired server=ADDR-0", "30s "+unauthorized+"revoked server=ADDR-2",
			"1m0s "+unauthorized+"forged server=ADDR-3")
	})
}

func TestAnUnreachableServerIsOneProblemForAllResources(t *testing.T) {
	const (
		logged  = "ERROR0 Cannot reach the API server, will keep trying err=no route server=ADDR"
		reached = "INFO0 Reached the API server server=ADDR"
	)
	inBubble(t, func(b *bench) {
		b.err = errors.New("no route")
		for _, path := range []string{foosPath, podsPath, foosPath} {
			b.wantNoResponse(b.ctx, path)
			b.wantLog("0s " + logged)
		}
		time.Sleep(40 * time.Second)
		b.wantLog("0s "+logged, "30s "+logged)

		b.err, b.code = nil, http.StatusNotFound // A 404 also shows that the server can be reached.
		b.get(foosPath)
		b.get(foosPath)
		time.Sleep(29 * time.Second)
		b.wantLog("0s "+logged, "30s "+logged, "40s "+reached, "40s "+missing)
	})
}

func TestNothingIsLoggedAfterTheContextOfTheProcessEnds(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.code = http.StatusNotFound
		b.get(foosPath)
		time.Sleep(10 * time.Second)
		b.stop()
		time.Sleep(5 * time.Minute)
		b.wantLog("0s " + missing)

		b.get(podsPath)
		b.err = errors.New("no route")
		b.wantNoResponse(context.Background(), foosPath)
		b.err, b.code = nil, http.StatusOK
		b.get(foosPath)
		b.get(podsPath)
		b.reporter.WatchErrorHandler(b.ctx, nil, errors.New("no such plugin"))
		time.Sleep(5 * time.Minute)
		b.wantLog("0s " + missing)
	})
}

// For the race detector: the goroutines send requests at the times at which the timers repeat problems.
func TestReporterMayBeUsedConcurrently(t *testing.T) {
	inBubble(t, func(b *bench) {
		transport := b.reporter.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
			code, err := strconv.Atoi(req.URL.RawQuery)
			return &http.Response{StatusCode: code, Body: http.NoBody}, err
		}))
		var all sync.WaitGroup
		for _, code := range slices.Repeat([]string{"404", "503", "200", "none"}, 4) {
			all.Go(func() {
				for range 11 {
					transport.RoundTrip(httptest.NewRequest(http.MethodGet, b.url+foosPath+"?"+code, nil)) // The log has the result.
					time.Sleep(10 * time.Second)
				}
			})
		}
		all.Wait()
		b.get(foosPath)
		end := b.lines()
		time.Sleep(5 * time.Minute)
		if diff := cmp.Diff(end, b.lines()); diff != "" {
			b.Errorf("logged although all problems were resolved (-before +after):\n%s", diff)
		}
	})
}

func TestErrorsThatNoResponseExplainsAreLoggedWhenTheyOccurAtMostEvery30s(t *testing.T) {
	const trace, logged = " INFO4 Watch ended err=", " ERROR0 Cannot list and watch, will keep trying err="
	inBubble(t, func(b *bench) {
		fail := func(err error) { b.reporter.WatchErrorHandler(b.ctx, nil, err) }
		fail(io.EOF)
		fail(apierrors.NewResourceExpired("too old"))
		want := []string{"0s" + trace + "EOF", "0s" + trace + "too old"} // A watch normally ends in these ways.
		b.wantLog(want...)

		noPlugin := errors.New("no such plugin")
		fail(noPlugin)
		time.Sleep(29 * time.Second)
		fail(noPlugin)
		time.Sleep(time.Second)
		fail(noPlugin)
		want = append(want, "0s"+trace+"no such plugin", "0s"+logged+"no such plugin", "29s"+trace+"no such plugin",
			"30s"+trace+"no such plugin", "30s"+logged+"no such plugin")
		b.wantLog(want...)

		time.Sleep(5 * time.Minute) // No timer repeats it.
		b.wantLog(want...)
		fail(errors.New("no such file"))
		b.wantLog(append(want, "5m30s"+trace+"no such file", "5m30s"+logged+"no such file")...)
	})
}

func TestWaitLogsAnErrorAndWhenItIsResolved(t *testing.T) {
	inBubble(t, func(b *bench) {
		attempts := 0
		err := b.reporter.Wait(b.ctx, func(context.Context) error {
			if attempts++; attempts < 20 { // The last at 38 s.
				return errors.New("no such plugin")
			}
			return nil
		})
		if err != nil {
			b.Error(err)
		}
		const logged = "ERROR0 Cannot list and watch, will keep trying err=no such plugin"
		b.wantLog("0s "+logged, "30s "+logged, "38s INFO0 Listed the resources")
	})
}

func TestTimeoutsAreLoggedButNotRequestsThatTheClientCancelled(t *testing.T) {
	inBubble(t, func(b *bench) {
		cancelled, cancel := context.WithCancel(b.ctx)
		cancel()
		b.wantNoResponse(cancelled, foosPath)
		b.wantLog()
		late, cancel := context.WithTimeout(b.ctx, -time.Second)
		defer cancel()
		b.wantNoResponse(late, foosPath)
		b.wantLog("0s ERROR0 Cannot reach the API server, will keep trying err=context deadline exceeded server=ADDR")
	})
}

// A check that fails runs again every 2 s, one that hangs is ended after 10 s, and one that has passed does not run
// again.
func TestWaitRepeatsEachCheckUntilItPasses(t *testing.T) {
	errStopped := errors.New("stopped")
	pass := func(context.Context) error { return nil }
	fail := func(context.Context) error { return errors.New("missing") }
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	type check = func(context.Context) error
	for _, tc := range []struct {
		name   string
		checks [][]check // For each check, the results of its attempts.
		stop   time.Duration
		want   string // The start of each attempt of a check, and the result of Wait.
	}{
		{name: "nothing to check", want: "0s: <nil>"},
		{
			name: "all pass at last", checks: [][]check{{fail, hang, pass}, {fail, pass}},
			want: "0s: check 1, 2s: check 1, 14s: check 1, 14s: check 2, 16s: check 2, 16s: <nil>",
		},
		{
			name: "the stop ends the pause", checks: [][]check{{fail, fail, fail}}, stop: 3 * time.Second,
			want: "0s: check 1, 2s: check 1, 3s: stopped",
		},
		{
			name: "the stop ends a check that hangs", checks: [][]check{{hang}}, stop: 3 * time.Second,
			want: "0s: check 1, 3s: stopped",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				start, got := time.Now(), []string{}
				record := func(event any) { got = append(got, fmt.Sprint(time.Since(start), ": ", event)) }
				ctx, cancel := context.WithCancelCause(b.ctx)
				defer cancel(nil)
				if tc.stop > 0 {
					time.AfterFunc(tc.stop, func() { cancel(errStopped) })
				}
				var checks []check
				for i, attempts := range tc.checks {
					checks = append(checks, func(ctx context.Context) error {
						record(fmt.Sprint("check ", i+1))
						attempt := attempts[0]
						attempts = attempts[1:]
						return attempt(ctx)
					})
				}
				record(b.reporter.Wait(ctx, checks...))
				if got := strings.Join(got, ", "); got != tc.want {
					t.Errorf("got  %s, want %s", got, tc.want)
				}
			})
		})
	}
}
