package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"strings"
	"unicode/utf8"
)

// wideLines returns the lines that have too many columns. A line may have more where it cannot be wrapped: it is
// one string literal or a line of one, or a comment that a program reads.
func wideLines(src source) []string {
	var findings []string
	words := wordsByLine(src)
	output := false
	for i, line := range strings.Split(string(src.text), "\n") {
		output = strings.HasPrefix(strings.TrimSpace(line), "//") && (output || isOutput(line))
		got := columns(line)
		if got <= maxColumns || output || isDirective(line) || words[i+1] == oneString {
			continue
		}
		findings = append(findings, fmt.Sprintf("%s:%d: the line has %d columns, %d are allowed",
			src.path, i+1, got, maxColumns))
	}
	return findings
}

// columns counts characters. A tab is one, as for most linters: how wide it is shown is up to the reader.
func columns(line string) int { return utf8.RuneCountInString(line) }

// isDirective reports whether a line is a comment that some program reads, such as //go:build or // +kubebuilder.
// That program would not find the rest of it on a second line.
func isDirective(line string) bool {
	comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
	return ok && (strings.HasPrefix(comment, "go:") || strings.HasPrefix(strings.TrimSpace(comment), "+"))
}

// isOutput reports whether the lines of comment that follow are what go test expects an example to print.
func isOutput(line string) bool {
	line = strings.ToLower(strings.TrimSpace(line))
	return strings.HasPrefix(line, "// output:") || strings.HasPrefix(line, "// unordered output:")
}

// words says what a line consists of, punctuation apart.
type words int

const (
	oneString words = iota + 1
	anythingElse
)

func wordsByLine(src source) map[int]words {
	lines := map[int]words{}
	put := func(line int, word words) {
		if lines[line] != 0 {
			word = anythingElse // The second on this line.
		}
		lines[line] = word
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
		case !tok.IsOperator(): // Those are what stands around a literal: commas, braces, plus.
			put(first, anythingElse)
		}
	}
}
