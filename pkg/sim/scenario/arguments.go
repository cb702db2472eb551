package scenario

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// None is the value of an argument that removes a field.
const None = "-"

// Arguments are the words after the name of a step, and the values given as key=value. A step must use all of them.
type Arguments struct {
	words  []string
	values map[string]string
	used   map[string]bool
}

var argument = regexp.MustCompile(`([a-z.A-Z/0-9-]+=)?("[^"]*"|[^ ]+)`)

func parseArguments(text string) Arguments {
	args := Arguments{values: map[string]string{}, used: map[string]bool{}}
	for _, match := range argument.FindAllStringSubmatch(text, -1) {
		key, value := strings.TrimSuffix(match[1], "="), strings.Trim(match[2], `"`)
		if match[1] == "" {
			args.words = append(args.words, value)
			continue
		}
		args.values[key] = value
	}
	return args
}

// Word returns the word at i, or "" if there are not so many.
func (a Arguments) Word(i int) string {
	if i >= len(a.words) {
		return ""
	}
	a.used[a.words[i]] = true
	return a.words[i]
}

// Words returns all words.
func (a Arguments) Words() []string {
	for i := range a.words {
		a.Word(i)
	}
	return a.words
}

// Has reports whether there is such a word.
func (a Arguments) Has(word string) bool {
	a.used[word] = true
	return slices.Contains(a.words, word)
}

// Value returns the value of a key.
func (a Arguments) Value(key string) (string, bool) {
	a.used[key] = true
	value, ok := a.values[key]
	return value, ok
}

// Values returns the values of the keys that begin with prefix, without it.
func (a Arguments) Values(prefix string) map[string]string {
	values := map[string]string{}
	for key := range a.values {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			values[rest], _ = a.Value(key)
		}
	}
	return values
}

// Number returns the value of a key, or another number if it has none.
func (a Arguments) Number(key string, otherwise int32) int32 {
	text, ok := a.Value(key)
	n, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil {
		return otherwise
	}
	return int32(n)
}

// unused returns an error if the step has not used an argument.
func (a Arguments) unused() error {
	for _, word := range append(slices.Sorted(maps.Keys(a.values)), a.words...) {
		if !a.used[word] {
			return fmt.Errorf("this step has no argument %q", word)
		}
	}
	return nil
}
