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

// goFile renames identifiers, strings and comments of a Go file, and formats the result.
func (r *renamer) goFile(src []byte) ([]byte, error) {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	s.Init(file, src, func(token.Position, string) {}, scanner.ScanComments) // format.Source finds the errors.
	var out bytes.Buffer
	end := 0
	for pos, kind, text := s.Scan(); kind != token.EOF; pos, kind, text = s.Scan() {
		rename := r.text
		switch kind {
		case token.IDENT:
			rename = r.name
		case token.STRING, token.COMMENT:
		default:
			continue
		}
		start := file.Offset(pos)
		out.Write(src[end:start])
		out.WriteString(rename(text))
		end = start + len(text)
	}
	out.Write(src[end:])
	return format.Source(out.Bytes())
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
	return []byte(r.text(string(src))), nil
}

// A noun is the name of a kind, one and many of it, in CamelCase: CacheCluster and CacheClusters.
type noun struct{ one, many string }

// plurals has what the end of a kind becomes, as in the generators of clients (k8s.io/gengo/v2/namer).
var plurals = []struct {
	end    *regexp.Regexp
	become string
}{
	{regexp.MustCompile(`([sxz]|[cs]h)$`), "${1}es"},
	{regexp.MustCompile(`([bcdfghjklmnpqrstvwxyz])y$`), "${1}ies"},
	{regexp.MustCompile(`fe?$`), "ves"},
	{regexp.MustCompile(`$`), "s"},
}

func pluralOf(one string) string {
	for _, p := range plurals {
		if p.end.MatchString(one) {
			return p.end.ReplaceAllString(one, p.become)
		}
	}
	return one
}

// newNoun returns the noun of a kind, with the plural in lower case of its resource. Without one, it is pluralOf's.
func newNoun(one, resource string) noun {
	if resource == "" {
		return noun{one, pluralOf(one)}
	}
	n := commonPrefix(strings.ToLower(one), resource)
	many := one[:n] + resource[n:]
	return noun{one, strings.ToUpper(many[:1]) + many[1:]}
}

// refused returns the error for a name of the kind that something else has.
func (n noun) refused(why string, plural bool) error {
	if usual := pluralOf(n.one); plural && n.many != usual {
		return fmt.Errorf("PLURAL=%s: %s; choose another, such as %s", n.lower(true), why, strings.ToLower(usual))
	}
	return fmt.Errorf("KIND=%s: %s; choose a longer one, such as My%s", n.one, why, n.one)
}

func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// camel returns how a name in Go begins with the noun: cacheCluster, dnsRecord, vms.
func (n noun) camel(plural bool) string {
	capitals := 0
	for capitals < len(n.one) && !unicode.IsLower(rune(n.one[capitals])) {
		capitals++
	}
	if capitals > 1 && capitals < len(n.one) {
		capitals-- // The last one begins the second word.
	}
	name := n.kind(plural)
	capitals = min(capitals, len(name))
	return strings.ToLower(name[:capitals]) + name[capitals:]
}

// kind returns the noun in CamelCase.
func (n noun) kind(plural bool) string {
	if plural {
		return n.many
	}
	return n.one
}

// lower returns the noun in lower case, as in the names of resources.
func (n noun) lower(plural bool) string { return strings.ToLower(n.kind(plural)) }

var (
	acronym        = regexp.MustCompile(`^[A-Z]([A-Z0-9]|s$)`)
	consonantSound = regexp.MustCompile(`(?i)^(u(ni([^nm]|$)|s[aeiu]|t[ei]|r[ail]|bi|u)|eu|ew|one|once)`) // As in user.
	silentH        = regexp.MustCompile(`(?i)^(hour|hono|hones|heir)`)
)

// article returns a or an, as word sounds. Initials are read letter by letter.
func article(word string) string {
	initial := strings.ToLower(word)[:1]
	vowel := strings.Contains("aeiou", initial)
	switch {
	case acronym.MatchString(word):
		vowel = strings.Contains("aefhilmnorsx", initial)
	case consonantSound.MatchString(word):
		vowel = false
	case silentH.MatchString(word):
		vowel = true
	}
	if vowel {
		return "an"
	}
	return "a"
}
