// Package logging keeps the log of a controller short enough to be read.
//
// Three things fill a log with lines that nobody needs: an object whose sync fails again and again, an API server that
// warns of the same with every write, and the libraries. [Failures] logs a failing sync once and then once a minute.
// [Warnings] logs each warning once. [Stalled] logs changes of a status that somebody must act on. [AddFlags] offers
// the flags for logging that have an effect, and keeps client-go from listing its feature gates.
//
// All of them log with the logger of the caller, so a line names the object and has the reconcile id of the sync that
// it is about. The memory of all of them is bounded. What is logged at which level is in docs/operations.md.
package logging

import (
	"fmt"
	"hash/maphash"
	"regexp"
	"strings"
)

var (
	// numbers matches words with a digit: counters, addresses, names with a random or counted suffix.
	numbers = regexp.MustCompile(`\S*\d\S*`)
	// quoted matches what stands in double quotes: mostly the name of an object.
	quoted = regexp.MustCompile(`"[^"]*"`)
	seed   = maphash.MakeSeed()
)

// hash returns what is remembered of a message: a number, since a message with a stack trace has kilobytes. Two
// messages with the same hash are taken for one, which is too rare to matter in a log.
func hash(message string) uint64 { return maphash.String(seed, message) }

// withoutNumbers returns message without its words that have a digit: messages that differ in nothing else are equal.
func withoutNumbers(message string) string { return numbers.ReplaceAllLiteralString(message, "#") }

// withoutNames returns message without quoted words and without numbers.
func withoutNames(message string) string {
	return withoutNumbers(quoted.ReplaceAllLiteralString(message, "#"))
}

// List returns values as one string. As a list they would be written in JSON, also in the text format, with every "->"
// escaped.
func List[T fmt.Stringer](values []T) string {
	var all []string
	for _, value := range values {
		all = append(all, value.String())
	}
	return strings.Join(all, ", ")
}
