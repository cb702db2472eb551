// Package telemetry is what the people who operate a controller read of it: a log that is short enough to be read, and
// metrics whose number is bounded. It sends nothing to anybody.
//
// # The log
//
// Two things fill a log with lines that nobody needs: an API server that repeats a warning with every write, and the
// libraries. [Warnings] logs each warning once, and [Once] is for lines of your own that must not be repeated.
// [AddLogFlags] adds the logging flags that have an effect, and prevents client-go from logging its feature gates.
// [SetLogLevel] makes the log longer for a while.
//
// Warnings logs with the logger of the request's context, so each line has the object and the reconcile id of its sync.
//
// # The metrics
//
// [Metrics] counts what a controller does, for Prometheus: syncs, requests and panics. [Problems] is the number of
// problems that an administrator has to solve. The metrics of client-go (queue, requests, informers, leader election),
// of Go and of the process come from k8s.io/component-base, which this package imports for them.
//
// No label has the name of an object or of a namespace, and each label has a fixed set of values. So the number of
// series does not grow with the cluster, and no user can make it grow.
package telemetry

import (
	"context"
	"flag"
	"fmt"
	"hash/maphash"
	"os"
	"regexp"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
)

// AddLogFlags adds the flags for logging to fs. Call apply after the flags were parsed, before anything is logged.
//
// It leaves out the flags of component-base that cannot be set without a feature gate, because there is no flag for
// feature gates. It also leaves out --log-flush-frequency, which has an effect only together with them.
func AddLogFlags(fs *flag.FlagSet) (apply func() error) {
	config := logsapi.NewLoggingConfiguration()
	all := flag.NewFlagSet("", flag.ContinueOnError)
	logsapi.AddGoFlags(config, all)
	add := func(name, usage string) { fs.Var(all.Lookup(name).Value, name, usage) }
	add("logging-format", "`format` of log lines: text or json")
	add("v", "`level` of the log: 0 has what is changed, and failures; 2 also each request; 4 also each sync")
	add("vmodule", "`pattern=level,...` for single source files, for instance controller=4; for the format text only")
	return func() error {
		readFeatureGates()
		isJSON.Store(config.Format == logsapi.JSONLogFormat)
		return logsapi.ValidateAndApply(config, nil)
	}
}

// isJSON is set by AddLogFlags' apply. Like the log that it is about, it is the process's.
var isJSON atomic.Bool

// LastLine writes the error that ends a program, in the format of the log: what collects JSON can read no other line.
func LastLine(program string, err error) {
	if isJSON.Load() {
		klog.Background().Error(err, "Exiting")
		klog.Flush()
		return
	}
	fmt.Fprintln(os.Stderr, program+":", err)
}

// SetLogLevel sets the level of the log while the process runs. The flag -v sets it at the start.
func SetLogLevel(level string) error {
	if _, err := logs.GlogSetter(level); err != nil {
		return fmt.Errorf("%q is no level of the log; give a number such as 0, 2 or 4", level)
	}
	return nil
}

// readFeatureGates makes client-go read its feature gates from the environment. client-go then logs all of them at V(1)
// with the global logger: ten lines that are always the same. They are not logged if this happens before the level of
// the log is set. A gate that cannot be set is logged nevertheless, because that is an error.
func readFeatureGates() { features.FeatureGates().Enabled(features.WatchListClient) }

const (
	// maxWarnings is the number of warnings that are remembered.
	maxWarnings = 500
	// miscellaneous is the only code of the Warning header that API servers use.
	miscellaneous = 299
)

var _ rest.WarningHandlerWithContext = (*Warnings)(nil)

// Warnings logs the warnings in the responses of API servers. It is for rest.Config.WarningHandlerWithContext. It logs
// with the logger of the request's context, so each line has the object that was synced. The zero value is ready to
// use. It may be used concurrently.
//
// A warning is logged once, and later only at V(4), because an API server repeats it with every write. Warnings that
// differ only in quoted text and in words with a digit count as one. Otherwise a policy whose warning has the name of
// the object would add a line for each object. The deduplicating handler of client-go gets no context, compares the
// whole text, and never forgets a warning.
type Warnings struct {
	logged Once
}

// HandleWarningHeaderWithContext logs a warning.
func (w *Warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code != miscellaneous || text == "" {
		return
	}
	logger := klog.FromContext(ctx)
	if !w.logged.IsNew(names.ReplaceAllLiteralString(text, "#"), maxWarnings) {
		logger = logger.V(4)
	}
	logger.Info("API server warned", "warning", text)
}

// names matches what mostly names an object: a text in double quotes, or a word with a digit, as in counters, addresses
// and random suffixes. Messages that differ only in these become equal without them.
var names = regexp.MustCompile(`"[^"]*"|[^\s"]*\d[^\s"]*`)

var seed = maphash.MakeSeed()

// Once remembers texts, so that each is logged once. Its memory is bounded: it keeps only hashes, and when there are as
// many as allowed and one more comes, all are forgotten, and may be logged once more. That is simpler than to drop the
// oldest one. Two texts with the same hash count as one, but that is too rare to matter in a log. The zero value is
// ready to use. It may be used concurrently.
type Once struct {
	mu   sync.Mutex
	seen map[uint64]struct{}
}

// IsNew reports whether text is not remembered, and remembers it. max is the number of texts to remember.
func (s *Once) IsNew(text string, max int) bool {
	hash := maphash.String(seed, text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[hash]; known {
		return false
	}
	if s.seen == nil || len(s.seen) >= max {
		s.seen = map[uint64]struct{}{}
	}
	s.seen[hash] = struct{}{}
	return true
}
