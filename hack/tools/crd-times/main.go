// Command crd-times replaces the format of times in CustomResourceDefinitions by a validation rule.
//
// For the format date-time, an API server stores values that metav1.Time cannot decode: a lowercase t or z, an offset
// of 25 hours, characters after the zone, and even a list in place of the string. One such object makes every list and
// watch of its kind fail. controller-gen sets that format for every metav1.Time, and no marker can change it in a type
// of another module, such as metav1.Condition.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// The rule accepts what metav1.Time can decode and encode again. It encodes times in UTC, so a time with an offset must
// not be in the first or the last of the years that can be encoded. format.datetime checks the numbers.
//
// Neither text has a single quote, which would end it in YAML, or a dollar sign before a letter, a digit, an underscore
// or a brace, which would be a group of times.
const (
	rule = `!format.datetime().validate(self).hasValue() && self.matches(r"^([0-9]{4}-[0-9-]{5}T[0-9:]{8}([.][0-9]+)?Z|` +
		`[1-8][0-9]{3}-[0-9-]{5}T[0-9:]{8}([.][0-9]+)?[+-]([01][0-9]|2[0-3]):[0-5][0-9])$")`
	message = `must be a time such as "2026-01-31T12:00:00Z", with a capital T and Z, or with an offset such as ` +
		`+01:00 in place of the Z`
	// longest bounds the cost of the rule. Nanoseconds and an offset take 35 characters. An API server refuses a time in a
	// list or map without a limit, because of the cost of all of them, and names the field.
	longest = 64
)

// times matches the type of a time. Its first group is the indentation.
var times = regexp.MustCompile(`(?m)^( +)format: date-time\n +type: string\n`)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: crd-times FILE...")
		os.Exit(2)
	}
	for _, file := range os.Args[1:] {
		if err := edit(file); err != nil {
			fmt.Fprintln(os.Stderr, "crd-times:", err)
			os.Exit(1)
		}
	}
}

func edit(file string) error {
	crd, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	edited, err := replaceTimes(string(crd))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(edited), 0o644)
}

// replaceTimes returns crd with the rule in place of each such format.
func replaceTimes(crd string) (string, error) {
	if !times.MatchString(crd) {
		return "", errors.New("it has no field of the format date-time")
	}
	return times.ReplaceAllString(crd, strings.Join([]string{
		"${1}maxLength: " + strconv.Itoa(longest),
		"${1}type: string",
		"${1}x-kubernetes-validations:",
		"${1}- message: '" + message + "'",
		"${1}  rule: '" + rule + "'",
		"",
	}, "\n")), nil
}
