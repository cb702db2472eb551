package main

import (
	"bytes"
	"fmt"
	"go/format"
	"go/scanner"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A renamer gives a text, or a Go file, other names.
type renamer struct {
	from, to noun
	exact    map[string]string // Texts without forms, such as paths.
	words    *regexp.Regexp
}

func newRenamer(from, to noun, exact map[string]string) *renamer {
	keys := slices.Sorted(maps.Keys(exact))
	slices.SortStableFunc(keys, func(a, b string) int { return len(b) - len(a) }) // The longest one first.
	var alternatives []string
	for _, key := range keys {
		alternatives = append(alternatives, regexp.QuoteMeta(key))
	}
	for _, one := range []string{from.one + "s", from.lower(false) + "s", strings.ToUpper(from.one + "s")} {
		alternatives = append(alternatives, one+"?")
	}
	return &renamer{from, to, exact, regexp.MustCompile(strings.Join(alternatives, "|"))}
}

// text returns prose, a string or a path with the other names and their articles.
func (r *renamer) text(s string) string { return r.replace(s, false) }

// name returns a name in Go. There, a word in lower case is not that of a resource.
func (r *renamer) name(s string) string { return r.replace(s, true) }

func (r *renamer) replace(s string, isName bool) string {
	var out []byte
	end := 0
	for _, match := range r.words.FindAllStringIndex(s, -1) {
		out = append(out, s[end:match[0]]...)
		end = match[1]
		word, exact := r.exact[s[match[0]:end]]
		switch {
		case exact && strings.HasSuffix(s[:match[0]], "k8s.io/"):
			word = s[match[0]:end] // The version of another group.
		case !exact:
			word, end = r.word(s, match[0], end, isName)
			out = withArticle(out, word)
		}
		out = append(out, word...)
	}
	return string(append(out, s[end:]...))
}

// word returns the new form of the noun at s[start:end], and where the rest begins.
func (r *renamer) word(s string, start, end int, isName bool) (word string, rest int) {
	old := s[start:end]
	before, _ := utf8.DecodeLastRuneInString(s[:start])
	after, _ := utf8.DecodeRuneInString(s[end:])
	plural := len(old) > len(r.from.one)
	if plural && unicode.IsLower(after) { // As in WidgetState.
		plural, end = false, end-1
		old = old[:len(old)-1]
		after = 's'
	}
	switch {
	case old == strings.ToUpper(old):
		return strings.ToUpper(r.to.kind(plural)), end
	case unicode.IsUpper(rune(old[0])):
		return r.to.kind(plural), end
	case unicode.IsLetter(before) || unicode.IsLower(after):
	case unicode.IsUpper(after), isName:
		return r.to.camel(plural), end
	}
	return r.to.lower(plural), end
}

// articleBefore finds the article in "for a", in "a `", and in TestA.
var articleBefore = regexp.MustCompile("(?:^|[^\\w.])([Aa])(n?)( +[\"'`*(\\[]*)$|[a-z](A)(n?)()$")

// withArticle returns text, with the article of word if it ends in an article.
func withArticle(text []byte, word string) []byte {
	match := articleBefore.FindSubmatchIndex(text)
	if match == nil {
		return text
	}
	match = slices.DeleteFunc(match[2:], func(i int) bool { return i < 0 }) // The groups of one alternative.
	return fmt.Appendf(nil, "%s%s%s", text[:match[1]], article(word)[1:], text[match[4]:])
}

// goFile renames identifiers, strings and comments of a Go file, wraps the comments again, and formats the result.
func (r *renamer) goFile(src []byte) ([]byte, error) {
	tokens := scan(src)
	var out bytes.Buffer
	end := 0
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		text := r.text(t.text)
		switch {
		case t.kind == token.IDENT:
			text = r.name(t.text)
		case t.ownLine:
			lines := []string{t.indent + t.text}
			for ; i+1 < len(tokens) && tokens[i+1].follows(tokens[i]); i++ {
				lines = append(lines, t.indent+tokens[i+1].text)
			}
			text = strings.Join(rewrap(lines, false, r.text), "\n")[len(t.indent):]
		}
		out.Write(src[end:t.start])
		out.WriteString(text)
		end = tokens[i].end
	}
	out.Write(src[end:])
	return format.Source(out.Bytes())
}

// A goToken is an identifier, a string or a comment.
type goToken struct {
	kind       token.Token
	text       string
	start, end int
	line       int
	indent     string // Before a comment that begins its line.
	ownLine    bool   // A comment from // to the end of the line, with nothing before it.
}

func (t goToken) follows(before goToken) bool {
	return t.ownLine && before.ownLine && t.line == before.line+1 && t.indent == before.indent
}

func scan(src []byte) []goToken {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	s.Init(file, src, func(token.Position, string) {}, scanner.ScanComments) // format.Source finds the errors.
	var tokens []goToken
	for {
		pos, kind, text := s.Scan()
		switch kind {
		case token.EOF:
			return tokens
		case token.IDENT, token.STRING, token.COMMENT:
			start := file.Offset(pos)
			indent := string(src[bytes.LastIndexByte(src[:start], '\n')+1 : start])
			ownLine := strings.HasPrefix(text, "//") && strings.TrimSpace(indent) == ""
			tokens = append(tokens, goToken{kind, text, start, start + len(text), file.Line(pos), indent, ownLine})
		}
	}
}

// file returns a file with the other names. path is for how it is read.
func (r *renamer) file(path string, src []byte) ([]byte, error) {
	switch {
	case bytes.IndexByte(src, 0) >= 0:
		return src, nil
	case strings.HasSuffix(path, ".go"):
		out, err := r.goFile(src)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return out, nil
	}
	lines := strings.Split(string(src), "\n")
	return []byte(strings.Join(rewrap(lines, strings.HasSuffix(path, ".md"), r.text), "\n")), nil
}
