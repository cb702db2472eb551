// This file finds the code blocks, headings and links of a Markdown document. It knows only what the documents of this
// project use: fenced code blocks, headings that begin with #, and links in parentheses.

package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Document is a parsed Markdown document.
type Document struct {
	Blocks []Block
	// Anchors are the names to which a link can lead: those of the headings, as GitHub makes them, and those that are
	// given in HTML.
	Anchors []string
	// Links are the targets of all links and pictures.
	Links []Link
	// Code is the text that is set as code within a line.
	Code []string
}

// A Block is a fenced code block.
type Block struct {
	Line     int    // The number of the line with the first fence.
	Language string // The word after the first fence.
	Text     string // The lines between the fences. Each ends with a line break.
	// Marker is the text of an HTML comment on the line before the block. Readers do not see it.
	Marker string
	// Output is the next block, if its language is text and only empty lines are between the two. Its text is what the
	// commands of this block print.
	Output *Block
}

// A Link is the target of a link in a line of a document.
type Link struct {
	Line   int
	Target string
}

var (
	fence    = regexp.MustCompile("^\\s*```(\\w*)")
	comment  = regexp.MustCompile(`^\s*<!--\s*(.*?)\s*-->\s*$`)
	heading  = regexp.MustCompile(`^#{1,6} +(.+?) *#*$`)
	link     = regexp.MustCompile(`\]\(([^) ]+)[^)]*\)`)
	linkText = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	htmlLink = regexp.MustCompile(`(?:href|src|srcset)="([^"]+)"`)
	htmlName = regexp.MustCompile(`<[a-z0-9]+ (?:id|name)="([^"]+)"`)
	code     = regexp.MustCompile("`([^`]+)`")
)

// Parse parses the text of a document.
func Parse(text string) *Document {
	doc := &Document{}
	var open *Block // The block of which the lines are read.
	// follows is true as long as nothing but empty lines has come after the last block.
	follows, marker, indent := false, "", ""
	for i, line := range strings.Split(text, "\n") {
		found := fence.FindStringSubmatch(line)
		switch {
		case found != nil && open == nil:
			indent = line[:strings.Index(line, "```")]
			open = &Block{Line: i + 1, Language: found[1], Marker: marker}
		case found != nil:
			if last := len(doc.Blocks) - 1; follows && open.Language == "text" {
				doc.Blocks[last].Output = open
			}
			doc.Blocks = append(doc.Blocks, *open)
			open, follows = nil, true
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		case strings.TrimSpace(line) != "":
			follows = false
			doc.addLine(i+1, line)
		}
		marker = ""
		if found := comment.FindStringSubmatch(line); found != nil && open == nil {
			marker = found[1]
		}
	}
	return doc
}

// addLine adds what is in a line outside of blocks.
func (d *Document) addLine(number int, line string) {
	for _, pattern := range []*regexp.Regexp{link, htmlLink} {
		for _, found := range pattern.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			d.Links = append(d.Links, Link{Line: number, Target: found[1]})
		}
	}
	for _, found := range htmlName.FindAllStringSubmatch(line, -1) {
		d.Anchors = append(d.Anchors, found[1])
	}
	for _, found := range code.FindAllStringSubmatch(line, -1) {
		d.Code = append(d.Code, found[1])
	}
	if found := heading.FindStringSubmatch(line); found != nil {
		d.addAnchor(anchor(found[1]))
	}
}

// addAnchor adds the anchor of a heading. GitHub adds a number to one that exists.
func (d *Document) addAnchor(name string) {
	unique := name
	for n := 1; d.HasAnchor(unique); n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	d.Anchors = append(d.Anchors, unique)
}

// HasAnchor reports whether a link can lead to name in the document.
func (d *Document) HasAnchor(name string) bool { return slices.Contains(d.Anchors, name) }

// anchor returns the anchor that GitHub gives a heading: small letters, a hyphen for each space, and no punctuation.
func anchor(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// IsCommand reports whether the block has commands for a shell. One without a language counts, because
// commands are often written so.
func (b Block) IsCommand() bool {
	switch b.Language {
	case "", "sh", "bash", "shell", "console":
		return true
	}
	return false
}

// RunBy returns the name of the test that executes the block, which is in a marker such as "run: TestReadme".
func (b Block) RunBy() string { return after(b.Marker, "run:") }

// NotRun returns the reason why no test executes the block, which is in a marker such as "not run: needs a registry".
func (b Block) NotRun() string { return after(b.Marker, "not run:") }

// after returns the text after a prefix, without spaces around it. Without the prefix it is empty.
func after(text, prefix string) string {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return ""
	}
	return strings.TrimSpace(rest)
}

// Declared returns the functions, methods, types, constants and variables that a file declares, without those within
// functions.
func Declared(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, decl := range parsed.Decls {
		names = append(names, namesOf(decl)...)
	}
	return names, nil
}

func namesOf(decl ast.Decl) (names []string) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		names = append(names, decl.Name.Name)
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}
