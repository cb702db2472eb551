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
// An empty line separates two faults. The first line of a fault describes it, the second names the file. The file must
// contain the text of the "-" lines exactly once. The text of the "+" lines replaces it. A line such as
// "seen by ./pkg/plan . -run TestSync" names the tests, if they are not those of the file's package.
//
// A fault whose text is not in the file is an error. One run reports all such errors.
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
			err = errors.New("another fault has this name")
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

// parseFault reads one fault. found is the text to replace, "" if the block has only comments.
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
			return m, "", fmt.Errorf("unexpected line: %q", line)
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

// fit finds the text to replace.
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
