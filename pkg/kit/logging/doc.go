// Package logging keeps the log of a controller short enough to be read.
//
// Two things fill a log with lines that nobody needs: an API server that repeats a warning with every write, and the
// libraries. [Warnings] logs each warning once, and [Once] is for lines of your own that must not be repeated.
// [AddFlags] adds the logging flags that have an effect, and prevents client-go from logging its feature gates.
// [SetLevel] makes the log longer for a while.
//
// Warnings logs with the logger of the request's context, so each line has the object and the reconcile id of its sync.
package logging

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
