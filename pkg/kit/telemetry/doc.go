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

import "regexp"

var (
	// numbers matches words with a digit: counters, addresses, names with a random or counted suffix.
	numbers = regexp.MustCompile(`\S*\d\S*`)
	// quoted matches a text in double quotes, mostly the name of an object.
	quoted = regexp.MustCompile(`"[^"]*"`)
)

// withoutNames returns message without quoted words and without words that have a digit, so that messages which differ
// only in these become equal.
func withoutNames(message string) string {
	return numbers.ReplaceAllLiteralString(quoted.ReplaceAllLiteralString(message, "#"), "#")
}
