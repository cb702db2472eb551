// Package faults reads descriptions of small faults, and lets Go compile the sources with one of them. The tutorial
// plants such faults. `make mutants` compiles its faults, and a test the next version of the controller, in the same
// way. The sources themselves never change.
package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Fault is a text in a file and what replaces it.
type Fault struct {
	// Name describes the fault, in a line.
	Name string
	// File is the path from the root of the module.
	File string
	// Before is in the file exactly once. After replaces it.
	Before, After string
}

// Read returns the faults that a file describes, in its order. Its form:
//
//	# A comment.
//
//	a Foo that is being deleted is written to
//	in controller.go
//	-	if foo.DeletionTimestamp != nil {
//	+	if false {
//
// An empty line separates two faults. The first line of a fault is its name, the second names the file. The text of the
// "+" lines replaces that of the "-" lines.
//
// An error has all mistakes of the file.
func Read(file string) ([]Fault, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var faults []Fault
	var errs []error
	names := map[string]bool{}
	for _, block := range strings.Split(string(text), "\n\n") {
		f, err := parse(block)
		if err == nil && f.Name != "" && names[f.Name] {
			err = errors.New("another fault has this name")
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %q: %w", file, f.Name, err))
		case f.Name != "":
			names[f.Name] = true
			faults = append(faults, f)
		}
	}
	return faults, errors.Join(errs...)
}

// parse reads one fault. It has no name if the block has only comments.
func parse(block string) (f Fault, err error) {
	var before, after []string
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		file, isFile := strings.CutPrefix(line, "in ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '-':
			before = append(before, line[1:])
		case line[0] == '+':
			after = append(after, line[1:])
		case f.Name == "":
			f.Name = line
		case isFile && f.File == "":
			f.File = file
		default:
			return f, fmt.Errorf("unexpected line: %q", line)
		}
	}
	f.Before, f.After = strings.Join(before, "\n"), strings.Join(after, "\n")
	empty := f.Name == "" && f.File == "" && f.Before == "" && f.After == ""
	if !empty && (f.Name == "" || f.File == "" || f.Before == "" || f.Before == f.After) {
		return f, errors.New(`a fault has a name, a line "in FILE", lines with "-" and, differing from them, ` +
			`lines with "+"`)
	}
	return f, nil
}

// Apply returns the source of the file with the fault. It is an error if Before is not there exactly once.
func (f Fault) Apply(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(f.Before)); n != 1 {
		return nil, fmt.Errorf("%s has its text %d times, not once:\n%s", f.File, n, f.Before)
	}
	return bytes.Replace(source, []byte(f.Before), []byte(f.After), 1), nil
}

// Overlay writes files with these texts to dir, and returns the name of a file for Go's flag -overlay. With it, Go
// reads them instead of the files of these names, which are paths from root. name makes the names in dir unique.
func Overlay(root, dir, name string, texts map[string][]byte) (string, error) {
	replace := map[string]string{}
	for file, text := range texts {
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, fmt.Sprintf("%s-%d.go", name, len(replace)))
		if err := os.WriteFile(replace[original], text, 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, name+".json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
