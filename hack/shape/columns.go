package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"strings"
	"unicode/utf8"
)

// wideLines returns a finding for each line that is too long. It allows lines that cannot be wrapped: a line that is
// one string literal or part of one, and a comment that a program reads.
func wideLines(src source) []string {
	var findings []string
	kinds := kindsByLine(src)
	output := false
	for i, line := range strings.Split(string(src.text), "\n") {
		output = strings.HasPrefix(strings.TrimSpace(line), "//") && (output || isOutput(line))
		got := columns(line)
		if got <= maxColumns || output || isDirective(line) || kinds[i+1] == oneString {
			continue
		}
		findings = append(findings, fmt.Sprintf("%s:%d: the line has %d columns, %d are allowed",
			src.path, i+1, got, maxColumns))
	}
	return findings
}

// columns counts characters. A tab counts as one, as in most linters, because its width depends on the editor.
func columns(line string) int { return utf8.RuneCountInString(line) }

// isDirective reports whether a line is a comment that a program reads, such as //go:build or // +kubebuilder. Such a
// comment must be on one line.
func isDirective(line string) bool {
	comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
	return ok && (strings.HasPrefix(comment, "go:") || strings.HasPrefix(strings.TrimSpace(comment), "+"))
}

// isOutput reports whether a line begins the expected output of an example.
func isOutput(line string) bool {
	line = strings.ToLower(strings.TrimSpace(line))
	return strings.HasPrefix(line, "// output:") || strings.HasPrefix(line, "// unordered output:")
}

// A lineKind is what a line consists of, except for operators.
type lineKind int

const (
	oneString lineKind = iota + 1
	anythingElse
)

func kindsByLine(src source) map[int]lineKind {
	lines := map[int]lineKind{}
	put := func(line int, kind lineKind) {
		if lines[line] != 0 {
			kind = anythingElse // The second token on this line.
		}
		lines[line] = kind
	}
	fset := token.NewFileSet()
	file := fset.AddFile(src.path, -1, len(src.text))
	var tokens scanner.Scanner
	tokens.Init(file, src.text, nil, scanner.ScanComments)
	for {
		pos, tok, text := tokens.Scan()
		first := file.Line(pos)
		switch {
		case tok == token.EOF:
			return lines
		case tok == token.STRING:
			for line := range bytes.Count([]byte(text), []byte("\n")) + 1 {
				put(first+line, oneString)
			}
		case !tok.IsOperator(): // Operators such as commas, braces and plus do not count.
			put(first, anythingElse)
		}
	}
}
