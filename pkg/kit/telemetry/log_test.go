package telemetry_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/kit/telemetry"
)

// flagsVariable is the environment variable with the flags of a child process. Logging can be set up only once in a
// process, so each test starts the test binary again as a child.
const flagsVariable = "TELEMETRY_TEST_FLAGS"

// levelVariable is the environment variable with the level that the child sets after it has parsed its flags.
const levelVariable = "TELEMETRY_TEST_LEVEL"

// errorVariable is the environment variable with the error with which the child ends.
const errorVariable = "TELEMETRY_TEST_ERROR"

func TestMain(m *testing.M) {
	if flags, ok := os.LookupEnv(flagsVariable); ok {
		logSomething(strings.Fields(flags))
		return
	}
	os.Exit(m.Run())
}

func logSomething(args []string) {
	fs := flag.NewFlagSet("", flag.ExitOnError)
	apply := telemetry.AddLogFlags(fs)
	err := fs.Parse(args)
	if err == nil {
		err = apply()
	}
	if err != nil {
		klog.Background().Error(err, "Cannot log")
		os.Exit(1)
	}
	if level, ok := os.LookupEnv(levelVariable); ok {
		if err := telemetry.SetLogLevel(level); err != nil {
			klog.Background().Error(err, "Cannot set the level")
		}
	}
	features.FeatureGates().Enabled(features.WatchListClient) // Every client reads its feature gates.
	klog.Background().Info("Logged")
	klog.Background().V(2).Info("Logged in detail")
	klog.Flush()
	if text := os.Getenv(errorVariable); text != "" {
		telemetry.LastLine("program", errors.New(text))
	}
}

// logWith returns the log of a process with these flags.
func logWith(t *testing.T, flags, env string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), flagsVariable+"="+flags, env)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	err := cmd.Run()
	return log.String(), err
}

func TestFlagsHaveAnEffect(t *testing.T) {
	for _, test := range []struct {
		flags, env string
		want       []string // A part of each line.
	}{
		{flags: "", want: []string{`"Logged"`}},
		{flags: "-v=2", want: []string{`"Logged"`, `"Logged in detail"`}}, // But no feature gates.
		{flags: "-vmodule=log_test=2", want: []string{`"Logged"`, `"Logged in detail"`}},
		{flags: "-logging-format=json", want: []string{`"msg":"Logged"`}},
		{flags: "-v=2", env: "KUBE_FEATURE_WatchListClient=perhaps",
			want: []string{"Could not set feature gate", `"Logged"`, `"Logged in detail"`}},
		{flags: "", env: errorVariable + "=no cluster", want: []string{`"Logged"`, "program: no cluster"}},
		{flags: "-logging-format=json", env: errorVariable + "=no cluster",
			want: []string{`"msg":"Logged"`, `"msg":"Exiting","err":"no cluster"}`}},
		{flags: "-logging-format=json", env: levelVariable + "=2", want: []string{`"Logged"`, `"Logged in detail"`}},
	} {
		log, err := logWith(t, test.flags, test.env)
		if err != nil {
			t.Errorf("%q: %v", test.flags, err)
		}
		lines := strings.Split(strings.TrimSpace(log), "\n")
		for i, want := range test.want {
			if len(lines) != len(test.want) || !strings.Contains(lines[i], want) {
				t.Errorf("%q: want %d lines, one with %s:\n%s", test.flags, len(test.want), want, log)
			}
		}
	}
}

// newLog returns a logger, and a function that returns the lines at level 0 and those of errors.
func newLog() (klog.Logger, func() []string) {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	return logger, func() (lines []string) {
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			lines = append(lines, fmt.Sprint(entry.Message, entry.WithKVList, entry.ParameterKVList))
		}
		return lines
	}
}

// A real client passes the context of the request to the handler.
func TestAWarningIsLoggedOnceByTheLoggerOfTheRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 - "would violate PodSecurity"`)
		w.Header().Add("Warning", `299 - "is deprecated"`)
		w.Header().Add("Warning", `110 proxy "response is stale"`) // No API server uses this code.
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL,
		WarningHandlerWithContext: &telemetry.Warnings{}})
	logger, lines := newLog()
	for _, foo := range []string{"default/web", "default/other"} {
		ctx := klog.NewContext(t.Context(), klog.LoggerWithValues(logger, "foo", foo))
		_, _ = client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	}
	want := []string{
		"API server warned[foo default/web] [warning would violate PodSecurity]",
		"API server warned[foo default/web] [warning is deprecated]",
	}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestWarningsThatDifferOnlyInNamesAndNumbersAreLoggedOnce(t *testing.T) {
	for _, test := range []struct {
		name          string
		first, second string
		lines         int
	}{
		{name: "a name in quotes", first: `container "web" runs as root`, second: `container "db" runs as root`, lines: 1},
		{name: "a name after a word with a digit", first: `ns1="a b"`, second: `ns2="c d e"`, lines: 1},
		{name: "a counted name", first: "foo web-1 has no limits", second: "foo web-2 has no limits", lines: 1},
		{name: "a random name", first: "pod web-7c9-x2 has no limits", second: "pod db-84d-k9 has no limits", lines: 1},
		{name: "another name", first: "foo web has no limits", second: "foo db has no limits", lines: 2},
		{name: "another subject", first: `unknown field "a"`, second: `duplicate field "a"`, lines: 2},
		{name: "nothing", first: "", second: "", lines: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			logger, lines := newLog()
			warnings := &telemetry.Warnings{}
			for _, text := range []string{test.first, test.second, test.first} {
				warnings.HandleWarningHeaderWithContext(klog.NewContext(t.Context(), logger), 299, "-", text)
			}
			if got := lines(); len(got) != test.lines {
				t.Errorf("%d lines, want %d: %v", len(got), test.lines, got)
			}
		})
	}
}

func TestRememberedWarningsAreBounded(t *testing.T) {
	var once telemetry.Once
	isNew := func(n int) bool { return once.IsNew(fmt.Sprint(n), 500) }
	for i := range 1000 {
		if isNew(i%500) != (i < 500) {
			t.Fatalf("text %d of 500 is new: %t", i%500, i >= 500)
		}
	}
	if !isNew(500) || !isNew(0) || isNew(500) { // From 500 on, only that one is remembered.
		t.Error("with 501 texts, not all others are forgotten")
	}
}
