package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

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
