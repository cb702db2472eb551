package footest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// none is the value of an argument that removes a field.
const none = "-"

// arguments are the words after the name of a step, and the values given as key=value. A step must use all of them.
type arguments struct {
	words  []string
	values map[string]string
	used   map[string]bool
}

var argument = regexp.MustCompile(`([a-z.A-Z/0-9-]+=)?("[^"]*"|[^ ]+)`)

func parseArguments(text string) arguments {
	args := arguments{values: map[string]string{}, used: map[string]bool{}}
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

// word returns the word at i, or "" if there are not so many.
func (a arguments) word(i int) string {
	if i >= len(a.words) {
		return ""
	}
	a.used[a.words[i]] = true
	return a.words[i]
}

func (a arguments) has(word string) bool {
	a.used[word] = true
	return slices.Contains(a.words, word)
}

func (a arguments) value(key string) (string, bool) {
	a.used[key] = true
	value, ok := a.values[key]
	return value, ok
}

func (a arguments) number(key string, otherwise int32) int32 {
	text, ok := a.value(key)
	n, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil {
		return otherwise
	}
	return int32(n)
}

// unused returns an error if the step has not used an argument.
func (a arguments) unused() error {
	for _, word := range append(slices.Sorted(maps.Keys(a.values)), a.words...) {
		if !a.used[word] {
			return fmt.Errorf("this step has no argument %q", word)
		}
	}
	return nil
}
