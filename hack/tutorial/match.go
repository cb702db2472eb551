package main

import (
	"maps"
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

// matchers has a matcher for each program in the background, by its name in brackets.
type matchers map[string]*matcher

// newMatchers returns the matchers for the lines of a scene. A line skipLines is about the program of the next line.
func newMatchers(background []string) matchers {
	m := matchers{}
	skipped := false
	for _, line := range background {
		if line == skipLines {
			skipped = true
			continue
		}
		of := m[programOf(line)]
		if of == nil {
			of = &matcher{}
			m[programOf(line)] = of
		}
		if skipped {
			of.want = append(of.want, skipLines)
		}
		of.want, skipped = append(of.want, line), false
	}
	return m
}

// programOf returns the name in brackets with which a line of a program begins.
func programOf(line string) string {
	name, _, _ := strings.Cut(line, "]")
	return name
}

// accept is accept of the matcher for the program of line.
func (m matchers) accept(line string) bool {
	of := m[programOf(line)]
	return of != nil && of.accept(line)
}

func (m matchers) done() bool { return len(m.missing()) == 0 }

// missing returns the lines that were not printed yet.
func (m matchers) missing() []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !m[name].done() {
			lines = append(lines, m[name].want...)
		}
	}
	return lines
}

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
