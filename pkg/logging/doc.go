// Package logging keeps the log of a controller short enough to be read.
//
// Three things fill a log with lines that nobody needs: an API server that repeats a warning with every write, a stored
// field that cannot be decoded, and the libraries. [Warnings] logs each warning once, and [Unread] each such field.
// [Stalled] logs the changes of a status that somebody must act on, as many as are allowed. [AddFlags] adds the logging
// flags that have an effect, and prevents client-go from logging its feature gates.
//
// Warnings, Unread and Stalled log with the logger of the caller. So each line has the object and the reconcile id of
// its sync. Their memory is bounded. docs/operations.md lists the levels and their lines.
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
	// quoted matches a text in double quotes, mostly the name of an object.
	quoted = regexp.MustCompile(`"[^"]*"`)
	seed   = maphash.MakeSeed()
)

// hash returns the number by which a message is remembered. The message itself may have a stack trace of several
// kilobytes. Two messages with the same hash count as one, but that is too rare to matter in a log.
func hash(message string) uint64 { return maphash.String(seed, message) }

// withoutNames returns message without quoted words and without words that have a digit, so that messages which differ
// only in these become equal.
func withoutNames(message string) string {
	return numbers.ReplaceAllLiteralString(quoted.ReplaceAllLiteralString(message, "#"), "#")
}

// List returns values as one string. klog writes a list as JSON, also in the text format, and escapes every "->".
func List[T fmt.Stringer](values []T) string {
	var all []string
	for _, value := range values {
		all = append(all, value.String())
	}
	return strings.Join(all, ", ")
}
