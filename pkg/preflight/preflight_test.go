package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

const (
	foosPath = "/apis/samplecontroller.k8s.io/v1alpha1/foos"
	podsPath = "/api/v1/namespaces/default/pods"
	foos     = "foos.samplecontroller.k8s.io"
	grant    = " fix=grant it"
	missing  = "ERROR0 The API server does not know the resource, will keep trying resource=" + foos + " fix=install it"
)

// newLogger returns a logger and what it has logged so far: a line for each entry, with its level, message,
// error and values.
func newLogger(t *testing.T) (klog.Logger, func() []string) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(4)))
	buffer := logger.GetSink().(ktesting.Underlier).GetBuffer()
	return logger, func() []string {
		var lines []string
		for _, entry := range buffer.Data() {
			line := fmt.Sprintf("%s%d %s", entry.Type, entry.Verbosity, entry.Message)
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

// A bench is a Reporter between an HTTP client and an API server that answers as the test says.
type bench struct {
	*testing.T
	reporter *Reporter
	client   *http.Client
	server   *httptest.Server
	clock    time.Time
	lines    func() []string

	// What the server answers; err is that it does not.
	code int
	body string
	err  error
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, clock: time.Unix(0, 0), code: http.StatusOK}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(b.code)
		io.WriteString(w, b.body)
	}))
	t.Cleanup(b.server.Close)
	logger, lines := newLogger(t)
	b.lines = lines
	reporter := NewReporter(logger, Fixes{Missing: "install it", Forbidden: "grant it"})
	reporter.now = func() time.Time { return b.clock }
	b.reporter = reporter
	b.client = &http.Client{Transport: reporter.Wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
		if b.err != nil {
			return nil, b.err
		}
		return b.server.Client().Transport.RoundTrip(req)
	}))}
	return b
}

// get sends a request and returns the answer's body, as the client of the Reporter's user sees it.
func (b *bench) get(path string) string {
	b.Helper()
	resp, err := b.client.Get(b.server.URL + path)
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

// wantNoAnswer sends a request that must fail.
func (b *bench) wantNoAnswer(ctx context.Context, path string) {
	b.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	if resp, err := b.client.Do(req); err == nil {
		resp.Body.Close()
		b.Errorf("an answer: %s", resp.Status)
	}
}

// wantLog compares all that was logged so far. ADDR stands for the server's address, HOST for its
// host and port.
func (b *bench) wantLog(want ...string) {
	b.Helper()
	names := strings.NewReplacer(b.server.URL, "ADDR", b.server.Listener.Addr().String(), "HOST")
	var got []string
	for _, line := range b.lines() {
		got = append(got, names.Replace(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("wrong log (-want +got):\n%s", diff)
	}
}

func TestReporterTellsWhatIsWrong(t *testing.T) {
	const forbidden = `{"kind":"Status","status":"Failure","message":"foos is forbidden: User \"x\" cannot list","reason":"Forbidden","code":403}`
	long := strings.Repeat("x", 100<<10)
	for _, tc := range []struct {
		name string
		code int
		path string
		body string
		want []string
	}{
		{"all is well", http.StatusOK, foosPath, "{}", nil},
		{"the resource is not known", http.StatusNotFound, foosPath, "404 page not found", []string{
			"ERROR0 The API server does not know the resource, will keep trying resource=" + foos + " fix=install it"}},
		{"the resource in a namespace is not known", http.StatusNotFound, "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos", "", []string{
			"ERROR0 The API server does not know the resource, will keep trying resource=" + foos + " fix=install it"}},
		{"the resource behind a proxy is not known", http.StatusNotFound, "/k8s/clusters/c-1/apis/apps/v1/deployments", "", []string{
			"ERROR0 The API server does not know the resource, will keep trying resource=deployments.apps fix=install it"}},
		{"listing is not allowed", http.StatusForbidden, foosPath, forbidden, []string{
			`ERROR0 Not allowed to list and watch the resource, will keep trying err=foos is forbidden: User "x" cannot list resource=` + foos + grant}},
		{"listing the core group is not allowed", http.StatusForbidden, podsPath, forbidden, []string{
			`ERROR0 Not allowed to list and watch the resource, will keep trying err=foos is forbidden: User "x" cannot list resource=pods` + grant}},
		{"a proxy refuses in words of its own", http.StatusForbidden, foosPath, "<html>no</html>", []string{
			"ERROR0 Not allowed to list and watch the resource, will keep trying err=403 Forbidden resource=" + foos + grant}},
		{"a refusal says nothing", http.StatusForbidden, foosPath, "{}", []string{
			"ERROR0 Not allowed to list and watch the resource, will keep trying err=403 Forbidden resource=" + foos + grant}},
		{"a refusal has no end", http.StatusForbidden, foosPath, long, []string{
			"ERROR0 Not allowed to list and watch the resource, will keep trying err=403 Forbidden resource=" + foos + grant}},
		{"the credentials are not accepted", http.StatusUnauthorized, foosPath, `{"message":"Unauthorized"}`, []string{
			"ERROR0 The API server does not accept the credentials, will keep trying err=Unauthorized server=ADDR"}},
		{"the server fails", http.StatusInternalServerError, foosPath, `{"message":"etcd is gone"}`, []string{
			"ERROR0 The API server fails, will keep trying err=etcd is gone resource=" + foos}},
		{"the server is not ready", http.StatusServiceUnavailable, foosPath, "", []string{
			"ERROR0 The API server fails, will keep trying err=503 Service Unavailable resource=" + foos}},
		{"a watch is too old, which informers mend", http.StatusGone, foosPath, "", nil},
		{"the server is busy, which clients mend", http.StatusTooManyRequests, foosPath, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.code, b.body = tc.code, tc.body
			if got := b.get(tc.path); got != tc.body {
				t.Errorf("the client reads %d bytes of an answer of %d", len(got), len(tc.body))
			}
			b.wantLog(tc.want...)
		})
	}
}

func TestReporterTellsATroubleOnceIn30SecondsAndWhenItIsOver(t *testing.T) {
	const (
		noPods = "ERROR0 The API server does not know the resource, will keep trying resource=pods fix=install it"
		served = "INFO0 The API server serves the resource resource=" + foos
	)
	b := newBench(t)
	var want []string
	for _, step := range []struct {
		name  string
		after time.Duration
		code  int
		path  string
		want  []string // What is new in the log.
	}{
		{"at once", 0, http.StatusNotFound, foosPath, []string{missing}},
		{"not again", 0, http.StatusNotFound, foosPath, nil},
		{"not again soon", 27 * time.Second, http.StatusNotFound, foosPath, nil},
		{"another resource at once", 0, http.StatusNotFound, podsPath, []string{noPods}},
		{"again when 30 s have passed since it was told", 3 * time.Second, http.StatusNotFound, foosPath, []string{missing}},
		{"once more", 30 * time.Second, http.StatusNotFound, foosPath, []string{missing}},
		{"when it is over", time.Second, http.StatusOK, foosPath, []string{served}},
		{"that only once", time.Second, http.StatusOK, foosPath, nil},
		{"at once when it is back", time.Second, http.StatusNotFound, foosPath, []string{missing}},
	} {
		b.clock = b.clock.Add(step.after)
		b.code = step.code
		b.get(step.path)
		want = append(want, step.want...)
		b.Log(step.name)
		b.wantLog(want...)
	}
}

func TestReporterTellsOfAServerOutOfReach(t *testing.T) {
	const (
		told    = "ERROR0 Cannot reach the API server, will keep trying err=no route server=ADDR"
		reached = "INFO0 Reached the API server server=ADDR"
	)
	b := newBench(t)
	b.err = errors.New("no route")
	for _, path := range []string{foosPath, podsPath, foosPath} { // One server is out of reach, whatever is asked for.
		b.wantNoAnswer(context.Background(), path)
		b.wantLog(told)
	}
	b.clock = b.clock.Add(30 * time.Second)
	b.wantNoAnswer(context.Background(), foosPath)
	b.wantLog(told, told)

	b.err, b.code = nil, http.StatusNotFound // An answer is an answer.
	b.get(foosPath)
	b.wantLog(told, told, reached, missing)
	b.get(foosPath)
	b.wantLog(told, told, reached, missing)
}

func TestReporterTellsOfARefusedConnection(t *testing.T) {
	b := newBench(t)
	b.server.Close()
	b.wantNoAnswer(context.Background(), foosPath)
	b.wantLog("ERROR0 Cannot reach the API server, will keep trying err=dial tcp HOST: connect: connection refused server=ADDR")
}

func TestReporterTellsOfAnAnswerThatBreaksOff(t *testing.T) {
	logger, lines := newLogger(t)
	broken := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))}, nil
	})
	client := &http.Client{Transport: NewReporter(logger, Fixes{Missing: "install it", Forbidden: "grant it"}).Wrap(broken)}
	resp, err := client.Get("http://server" + podsPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client reads %v", err)
	}
	want := []string{"ERROR0 Not allowed to list and watch the resource, will keep trying err=unexpected EOF resource=pods" + grant}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("wrong log (-want +got):\n%s", diff)
	}
}

func TestReporterTellsTimeoutsButNotWhatWeGaveUpOurselves(t *testing.T) {
	b := newBench(t)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	b.wantNoAnswer(cancelled, foosPath)
	b.wantLog()

	late, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	b.wantNoAnswer(late, foosPath)
	b.wantLog("ERROR0 Cannot reach the API server, will keep trying err=context deadline exceeded server=ADDR")
}

func TestErrorsThatNoAnswerExplainsAreToldAtOnceAndEvery30s(t *testing.T) {
	const trace, told = "INFO4 Watch ended err=", "ERROR0 Cannot list and watch, will keep trying err="
	b := newBench(t)
	ctx := klog.NewContext(context.Background(), b.reporter.logger)
	b.reporter.WatchErrorHandler(ctx, nil, io.EOF)
	b.reporter.WatchErrorHandler(ctx, nil, apierrors.NewResourceExpired("too old"))
	ordinary := []string{trace + "EOF", trace + "too old"}
	b.wantLog(ordinary...)

	noPlugin := errors.New("no such plugin")
	b.reporter.WatchErrorHandler(ctx, nil, noPlugin)
	b.reporter.WatchErrorHandler(ctx, nil, noPlugin)
	want := append(ordinary, trace+"no such plugin", told+"no such plugin", trace+"no such plugin")
	b.wantLog(want...)
	b.clock = b.clock.Add(30 * time.Second)
	b.reporter.WatchErrorHandler(ctx, nil, noPlugin)
	want = append(want, trace+"no such plugin", told+"no such plugin")
	b.wantLog(want...)
}

func TestErrorsThatAnAnswerExplainsAreNotToldTwice(t *testing.T) {
	b := newBench(t)
	b.code = http.StatusNotFound
	b.get(foosPath)
	b.wantLog(missing)
	b.reporter.WatchErrorHandler(context.Background(), nil, errors.New("the server could not find the requested resource"))
	b.wantLog(missing)
}

func TestWaitTellsWhatIsWrongAndWhenItIsOver(t *testing.T) {
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		err := b.reporter.Wait(context.Background(), func(context.Context) error {
			if tries++; tries < 4 {
				return errors.New("no such plugin")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	b.wantLog("ERROR0 Cannot list and watch, will keep trying err=no such plugin", "INFO0 Listed the resources")
}

func TestAnotherTroubleWithTheSameResourceIsToldAtOnce(t *testing.T) {
	b := newBench(t)
	for _, b.code = range []int{http.StatusServiceUnavailable, http.StatusNotFound} {
		b.get(foosPath)
	}
	if got := b.lines(); len(got) != 2 || got[1] != missing {
		t.Errorf("log = %q, want two lines, the second %q", got, missing)
	}
}

func TestWait(t *testing.T) {
	errMissing, errStopped := errors.New("missing"), errors.New("stopped")
	pass := func(context.Context) error { return nil }
	fail := func(context.Context) error { return errMissing }
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	type check = func(context.Context) error

	for _, tc := range []struct {
		name   string
		checks [][]check // For each check what becomes of its first, second, ... try.
		stop   time.Duration
		want   []string // When each try of which check began, and how it ended.
	}{
		{"nothing to check", nil, 0, []string{"0s nil"}},
		{"all pass at once", [][]check{{pass}, {pass}, {pass}}, 0, []string{"0s check 1", "0s check 2", "0s check 3", "0s nil"}},
		{"a check that fails is tried every 2 s", [][]check{{fail, fail, pass}}, 0, []string{"0s check 1", "2s check 1", "4s check 1", "4s nil"}},
		{"what has passed is not tried again", [][]check{{fail, pass}, {fail, pass}}, 0,
			[]string{"0s check 1", "2s check 1", "2s check 2", "4s check 2", "4s nil"}},
		{"a check that hangs is tried again after 12 s", [][]check{{hang, pass}}, 0, []string{"0s check 1", "12s check 1", "12s nil"}},
		{"the stop ends the pause", [][]check{{fail, fail, fail}}, 3 * time.Second, []string{"0s check 1", "2s check 1", "3s stopped"}},
		{"the stop ends a check that hangs", [][]check{{hang}}, 3 * time.Second, []string{"0s check 1", "3s stopped"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var got []string
				tell := func(what any) { got = append(got, fmt.Sprint(time.Since(start), " ", what)) }
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				if tc.stop > 0 {
					time.AfterFunc(tc.stop, func() { cancel(errStopped) })
				}

				var checks []check
				for i, tries := range tc.checks {
					checks = append(checks, func(ctx context.Context) error {
						tell(fmt.Sprint("check ", i+1))
						try := tries[0]
						tries = tries[1:]
						return try(ctx)
					})
				}
				err := NewReporter(klog.Background(), Fixes{}).Wait(ctx, checks...)
				if err == nil {
					tell("nil")
				}
				if errors.Is(err, errStopped) {
					tell("stopped")
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("wrong course (-want +got):\n%s", diff)
				}
			})
		})
	}
}
