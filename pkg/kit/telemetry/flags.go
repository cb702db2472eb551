package telemetry

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"

	"k8s.io/client-go/features"
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
