package logging_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/logging"
)

// A log has the lines at level 0 and those of errors.
type log struct {
	klog.Logger
	lines ktesting.Buffer
}

// newLog returns an empty log. It writes to a buffer instead of t: t has a lock that a bubble must not wait for.
func newLog(t *testing.T) *log {
	t.Helper()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	return &log{Logger: logger, lines: logger.GetSink().(ktesting.Underlier).GetBuffer()}
}

func (l *log) context() context.Context { return klog.NewContext(context.Background(), l.Logger) }

// all returns the lines. Each has the severity, the message and the values.
func (l *log) all() []string {
	var lines []string
	for _, entry := range l.lines.Data() {
		line := fmt.Sprintf("%s %s", entry.Type, entry.Message)
		if entry.Err != nil {
			line += fmt.Sprintf(": %v", entry.Err)
		}
		values := append(append([]any{}, entry.WithKVList...), entry.ParameterKVList...)
		for i := 0; i < len(values); i += 2 {
			line += fmt.Sprintf(" %v=%v", values[i], values[i+1])
		}
		lines = append(lines, line)
	}
	return lines
}

func (l *log) check(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.all()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

var (
	errQuota  = errors.New("create Deployment web: exceeded quota")
	errPolicy = errors.New("create Deployment web: denied")
)

func TestAFailureIsLoggedOnceAndThenOnceAMinuteWithTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failures := newLog(t), logging.Failures[string]{}
		for range 121 { // For two minutes, every second.
			failures.Failed(log.Logger, "web", errQuota)
			time.Sleep(time.Second)
		}
		log.check(t,
			"ERROR Sync failed: create Deployment web: exceeded quota failures=1",
			"ERROR Sync failed: create Deployment web: exceeded quota failures=61",
			"ERROR Sync failed: create Deployment web: exceeded quota failures=121")
	})
}

func TestDifferentMessagesOfAKeyAreLoggedSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failures := newLog(t), logging.Failures[string]{}
		for range 10 {
			failures.Failed(log.Logger, "web", errQuota)
			failures.Failed(log.Logger, "web", errPolicy)
		}
		failures.Failed(log.Logger, "other", errQuota)
		log.check(t,
			"ERROR Sync failed: create Deployment web: exceeded quota failures=1",
			"ERROR Sync failed: create Deployment web: denied failures=2",
			"ERROR Sync failed: create Deployment web: exceeded quota failures=1")
	})
}

func TestMessagesThatDifferOnlyInNumbersAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failures := newLog(t), logging.Failures[string]{}
		for i := range 10 {
			failures.Failed(log.Logger, "web", fmt.Errorf("exceeded quota, used: pods=%d, read tcp 10.0.0.%d:443: reset", i, i))
		}
		if got := log.all(); len(got) != 1 {
			t.Errorf("%d lines, want 1:\n%s", len(got), strings.Join(got, "\n"))
		}
	})
}

func TestRecoveryIsLoggedOnceAndOnlyAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failures := newLog(t), logging.Failures[string]{}
		failures.Succeeded(log.Logger, "web")
		failures.Failed(log.Logger, "web", errQuota)
		failures.Failed(log.Logger, "web", errQuota)
		failures.Succeeded(log.Logger, "web")
		failures.Succeeded(log.Logger, "web")
		failures.Failed(log.Logger, "web", errQuota) // Logged again, and counted from 1.
		log.check(t,
			"ERROR Sync failed: create Deployment web: exceeded quota failures=1",
			"INFO Sync recovered failures=2",
			"ERROR Sync failed: create Deployment web: exceeded quota failures=1")
	})
}

func TestAForgottenKeyDoesNotRecover(t *testing.T) {
	log, failures := newLog(t), logging.Failures[string]{}
	failures.Failed(log.Logger, "web", errQuota)
	failures.Forget("web")
	failures.Succeeded(log.Logger, "web")
	log.check(t, "ERROR Sync failed: create Deployment web: exceeded quota failures=1")
}

func TestTheLineHasTheValuesOfTheSyncsLogger(t *testing.T) {
	log, failures := newLog(t), logging.Failures[string]{}
	logger := klog.LoggerWithValues(log.Logger, "foo", "default/web", "reconcileID", "1")
	failures.Failed(logger, "web", errQuota)
	log.check(t,
		"ERROR Sync failed: create Deployment web: exceeded quota foo=default/web reconcileID=1 failures=1")
}

func TestAFailureWithoutAnErrorIsLogged(t *testing.T) {
	log, failures := newLog(t), logging.Failures[string]{}
	failures.Failed(log.Logger, "web", nil)
	log.check(t, "ERROR Sync failed failures=1")
}

// A key whose messages all differ adds at most nine lines a minute. After 10,000 keys, all further keys are logged as
// if they were one.
func TestLinesAndMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failures := newLog(t), logging.Failures[string]{}
		for i := range 100 {
			failures.Failed(log.Logger, "web", errors.New(strings.Repeat("x", i)))
		}
		if got := len(log.all()); got != 9 {
			t.Errorf("100 messages of a key: %d lines, want 9", got)
		}

		log, failures = newLog(t), logging.Failures[string]{}
		for i := range 20_000 {
			failures.Failed(log.Logger, fmt.Sprint(i), errQuota)
		}
		if got := len(log.all()); got != 10_001 {
			t.Errorf("20,000 keys: %d lines, want 10,001", got)
		}
		failures.Succeeded(log.Logger, "19999")
		if got := len(log.all()); got != 10_001 {
			t.Error("a recovery was logged for a key that is not remembered")
		}
		failures.Succeeded(log.Logger, "0") // Now one more key is remembered.
		failures.Failed(log.Logger, "19999", errQuota)
		if got := len(log.all()); got != 10_003 {
			t.Errorf("%d lines, want 10,003: one more for each", got)
		}
	})
}

func TestFailuresMayBeUsedConcurrently(t *testing.T) {
	log, failures := newLog(t), logging.Failures[int]{}
	var workers sync.WaitGroup
	for key := range 8 {
		workers.Go(func() {
			for range 100 {
				failures.Failed(log.Logger, key, errQuota)
				failures.Failed(log.Logger, key, errQuota)
				failures.Succeeded(log.Logger, key)
				failures.Failed(log.Logger, key, errPolicy)
				failures.Forget(key)
			}
		})
	}
	workers.Wait()
	if got := len(log.all()); got != 8*100*3 {
		t.Errorf("%d lines, want %d", got, 8*100*3)
	}
}

func TestAListIsWrittenAsOneString(t *testing.T) {
	if got, want := logging.List([]time.Duration{time.Second, time.Minute}), "1s, 1m0s"; got != want {
		t.Errorf("List = %q, want %q", got, want)
	}
}
