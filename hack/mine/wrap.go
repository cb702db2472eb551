package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// width is the number of columns of a line.
const width = 120

// A paragraph has lines of prose, without the marks of comments and lists before them.
type paragraph struct {
	mark  string // The indentation, with // or # of a comment.
	item  string // "- " of an item of a list. The lines below have spaces instead.
	lines []string
	fixed bool // Not prose: a line of code, of a table, or one that a tool reads.
}

var (
	lineParts  = regexp.MustCompile(`^(\s*(?://|#)? ?)((?:[-*] |\d+\. )?)(.*)$`)
	notProse   = regexp.MustCompile("^($|[ \\t+|<#!$]|```|go:|nolint|---)")
	codeFence  = regexp.MustCompile("^ *```")
	isComment  = regexp.MustCompile(`^\s*(//|#)`)
	manySpaces = regexp.MustCompile(`\S  `)
)

// rewrap renames what stands in lines, and wraps the paragraphs that this has changed. Comments are paragraphs; if
// prose is true, other lines are, too.
func rewrap(lines []string, prose bool, rename func(string) string) []string {
	var out []string
	var last *paragraph
	fenced := false
	flush := func() {
		if last != nil {
			out = append(out, last.rename(rename)...)
			last = nil
		}
	}
	for _, line := range lines {
		parts := lineParts.FindStringSubmatch(line)
		mark, item, text := parts[1], parts[2], parts[3]
		if last != nil && !last.fixed && mark == last.mark && item == "" {
			below, isBelow := strings.CutPrefix(text, strings.Repeat(" ", len(last.item)))
			if isBelow && !notProse.MatchString(below) && !manySpaces.MatchString(below) && !codeFence.MatchString(line) {
				last.lines = append(last.lines, below)
				continue
			}
		}
		flush()
		if prose && codeFence.MatchString(line) {
			fenced = !fenced
		}
		fixed := fenced || !prose && !isComment.MatchString(line) ||
			notProse.MatchString(text) || manySpaces.MatchString(text)
		last = &paragraph{mark, item, []string{text}, fixed}
	}
	flush()
	return out
}

func (p *paragraph) rename(rename func(string) string) []string {
	old := strings.Join(p.lines, " ")
	text := rename(old)
	lines := p.lines
	if text != old && !p.fixed {
		lines = p.wrap(strings.Fields(text))
	} else if text != old {
		lines = []string{text}
	}
	var out []string
	before := p.mark + p.item
	for _, line := range lines {
		out = append(out, before+line)
		before = p.mark + strings.Repeat(" ", len(p.item))
	}
	return out
}

// wrap returns the words in lines that end where they did, such as the output of an example, or if one is too long,
// in full lines.
func (p *paragraph) wrap(words []string) []string {
	limit := width - utf8.RuneCountInString(p.mark+p.item) - 3*strings.Count(p.mark, "\t")
	var lines []string
	rest := words
	for _, line := range p.lines {
		n := len(strings.Fields(line)) // A new name has no spaces.
		lines = append(lines, strings.Join(rest[:n], " "))
		rest = rest[n:]
		if utf8.RuneCountInString(lines[len(lines)-1]) > limit {
			return fill(words, limit)
		}
	}
	return lines
}

func fill(words []string, limit int) []string {
	lines := []string{words[0]}
	for _, word := range words[1:] {
		last := &lines[len(lines)-1]
		if utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) > limit {
			lines = append(lines, word)
			continue
		}
		*last += " " + word
	}
	return lines
}
