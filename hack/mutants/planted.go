package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// planted returns the mutants that the file list describes, in its order. Its form:
//
//	# A comment.
//
//	a Foo that is being deleted is written to
//	in controller.go
//	-	if foo.DeletionTimestamp != nil {
//	+	if false {
//
// Faults are apart by an empty line. The first line says what goes wrong, the second where; the text behind
// each "-" is to be found there exactly once, as it stands, and that behind each "+" replaces it. Tests other
// than those of the file's own package have a line such as "seen by ./pkg/plan . -run TestSync".
//
// A fault that does not fit the sources any more is an error; all of them are told at once.
func planted(root, list string) ([]mutant, error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	var mutants []mutant
	var errs []error
	keys := map[string]bool{}
	for _, block := range strings.Split(string(text), "\n\n") {
		m, found, err := parseFault(block)
		if err == nil && found != "" {
			err = m.fit(root, found)
		}
		if err == nil && keys[m.key] {
			err = errors.New("there is another fault of this name")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: %w", list, m.key, err))
			continue
		}
		if found != "" {
			keys[m.key] = true
			mutants = append(mutants, m)
		}
	}
	return mutants, errors.Join(errs...)
}

// parseFault reads one fault. What it returns as found is to be replaced; "" when there are only comments.
func parseFault(block string) (m mutant, found string, err error) {
	var before, after []string
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		rest, isPlace := strings.CutPrefix(line, "in ")
		tests, isTests := strings.CutPrefix(line, "seen by ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '-':
			before = append(before, line[1:])
		case line[0] == '+':
			after = append(after, line[1:])
		case m.key == "":
			m.key = line
		case isPlace && m.file == "":
			m.file = rest
		case isTests && m.tests == nil:
			m.tests = strings.Fields(tests)
		default:
			return m, "", fmt.Errorf("what is this line: %q", line)
		}
	}
	found, m.text = strings.Join(before, "\n"), strings.Join(after, "\n")
	switch {
	case m.key == "" && m.file == "" && found == "" && m.text == "":
		return m, "", nil
	case m.key == "", m.file == "", found == "", found == m.text:
		return m, "", errors.New(`a fault has a name, a line "in FILE", lines with "-" and, differing from them, ` +
			`lines with "+"`)
	}
	if m.tests == nil {
		m.tests = []string{packageOf(m.file)}
	}
	return m, found, nil
}

// fit looks for the text to be replaced.
func (m *mutant) fit(root, found string) error {
	src, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return fmt.Errorf("planted fault no longer fits: %w", err)
	}
	if n := bytes.Count(src, []byte(found)); n != 1 {
		return fmt.Errorf("planted fault no longer fits: %s has its text %d times, not once:\n%s", m.file, n, found)
	}
	m.from = bytes.Index(src, []byte(found))
	m.to = m.from + len(found)
	return nil
}

// packageOf returns the package of a file as an argument of `go test`.
func packageOf(file string) string { return "./" + path.Dir(file) }
