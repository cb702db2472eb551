package telemetry_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
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
