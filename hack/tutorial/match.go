package main

import (
	"regexp"
	"slices"
	"strings"
)

// skipLines stands for any number of lines in the play of a page.
const skipLines = "..."

// placeholder matches the parts of a line of a page that differ from run to run, such as <n> or <port>.
var placeholder = regexp.MustCompile(`<[a-z][a-zA-Z ]*>`)

// matchLine reports whether a line of a page, which may have placeholders, fits a line that was printed.
func matchLine(want, have string) bool {
	var pattern strings.Builder
	pattern.WriteString("^")
	at := 0
	for _, found := range placeholder.FindAllStringIndex(want, -1) {
		pattern.WriteString(regexp.QuoteMeta(want[at:found[0]]) + ".+")
		at = found[1]
	}
	pattern.WriteString(regexp.QuoteMeta(want[at:]) + "$")
	return regexp.MustCompile(pattern.String()).MatchString(have)
}

// A matcher compares lines, one after another, with those of a page. A line skipLines fits any number of lines, up to
// one that fits the line after it.
type matcher struct{ want []string }

// accept reports whether line is the next one of the page, or is skipped. After false the matcher has not changed.
func (m *matcher) accept(line string) bool {
	switch {
	case len(m.want) == 0:
		return false
	case m.want[0] != skipLines && matchLine(m.want[0], line):
		m.want = m.want[1:]
	case m.want[0] == skipLines && len(m.want) > 1 && matchLine(m.want[1], line):
		m.want = m.want[2:]
	case m.want[0] != skipLines:
		return false
	}
	return true
}

// done reports whether all lines of the page were printed.
func (m *matcher) done() bool { return len(m.want) == 0 || slices.Equal(m.want, []string{skipLines}) }

// matchAll reports whether the lines that a command printed are those of the page.
func matchAll(want, have []string) bool {
	m := matcher{want}
	for _, line := range have {
		if !m.accept(line) {
			return false
		}
	}
	return m.done()
}
