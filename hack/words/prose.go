package main

import (
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// A prose is the text of one comment or one string literal. White space is replaced by single spaces, so that
// a phrase that spans two lines is found too.
type prose struct {
	text string
	// lines has the line number of each word of text in the file.
	lines []int
}

// line returns the line number in the file of the word at an offset of text.
func (p prose) line(offset int) int { return p.lines[strings.Count(p.text[:offset], " ")] }

// add appends text, which begins on a line of the file.
func (p *prose) add(text string, line int) {
	for row := range strings.Lines(text) {
		for word := range strings.FieldsSeq(row) {
			if len(p.lines) > 0 {
				p.text += " "
			}
			p.text += word
			p.lines = append(p.lines, line)
		}
		line++
	}
}

// proseIn returns the prose of a file that is checked. It returns nil for other files.
func proseIn(name string, source []byte) []prose {
	switch extension := path.Ext(name); {
	case extension == ".go":
		return proseOf(source)
	case extension == ".md":
		return paragraphs(string(source))
	case extension == ".yaml" || extension == ".sh" || extension == ".txt" && path.Dir(name) == scenarios:
		return hashComments(string(source))
	}
	return nil
}

var hashComment = regexp.MustCompile(`(?:^#|\s#\s)(.*)`)

// hashComments returns the comments of a scenario, a manifest or a script: what follows a #. Those of lines that follow
// each other are one comment.
func hashComments(source string) []prose {
	var all []prose
	number, lastComment := 0, -1
	for line := range strings.Lines(source) {
		number++
		found := hashComment.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if number != lastComment+1 {
			all = append(all, prose{})
		}
		all[len(all)-1].add(found[1], number)
		lastComment = number
	}
	return all
}

// notProse is what is set as code in a line of Markdown, the target of a link, and what readers do not see.
var notProse = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)|<!--.*-->")

// paragraphs returns the paragraphs of a Markdown document, without code.
func paragraphs(source string) []prose {
	all := []prose{{}}
	number, isCode := 0, false
	for line := range strings.Lines(source) {
		number++
		isFence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence:
			isCode = !isCode
		case strings.TrimSpace(line) == "":
			all = append(all, prose{})
		case !isCode:
			all[len(all)-1].add(notProse.ReplaceAllString(line, " "), number)
		}
	}
	return all
}

// proseOf returns the comments and the string literals of a Go file. Line comments that follow each other are one.
func proseOf(source []byte) []prose {
	var all []prose
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(source))
	var tokens scanner.Scanner
	tokens.Init(file, source, nil, scanner.ScanComments)
	lastComment := -1 // The line on which the previous comment ends.
	for {
		pos, tok, text := tokens.Scan()
		line := file.Line(pos)
		switch tok {
		case token.EOF:
			return all
		case token.COMMENT:
			if line != lastComment+1 {
				all = append(all, prose{})
			}
			all[len(all)-1].add(uncomment(text), line)
			lastComment = line + strings.Count(text, "\n")
		case token.STRING:
			literal := prose{}
			literal.add(unquote(text), line)
			all = append(all, literal)
			lastComment = -1
		}
	}
}

func uncomment(text string) string {
	if inner, isLine := strings.CutPrefix(text, "//"); isLine {
		return inner
	}
	return strings.TrimSuffix(strings.TrimPrefix(text, "/*"), "*/")
}

// unquote returns the value of a string literal. The line breaks of an interpreted literal become spaces, because they
// are not line breaks of the file.
func unquote(literal string) string {
	text, err := strconv.Unquote(literal)
	if err != nil {
		return literal // The compiler reports it.
	}
	if strings.HasPrefix(literal, `"`) {
		return strings.ReplaceAll(text, "\n", " ")
	}
	return text
}
