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
func Read(file string) (faults []Fault, err error) {
	text, err := os.ReadFile(file)
	for _, block := range strings.Split(string(text), "\n\n") {
		var f Fault
		for line := range strings.Lines(block + "\n") {
			rest := line[1:]
			switch mark := line[0]; {
			case mark == '\n' || mark == '#':
			case mark == '-':
				f.Before += rest
			case mark == '+':
				f.After += rest
			case f.Name == "":
				f.Name = strings.TrimSpace(line)
			default:
				f.File = strings.TrimSpace(strings.TrimPrefix(line, "in "))
			}
		}
		f.Before, f.After = strings.TrimSuffix(f.Before, "\n"), strings.TrimSuffix(f.After, "\n")
		switch {
		case f == (Fault{}): // Comments only.
		case f.Name == "" || f.File == "" || f.Before == "" || f.Before == f.After:
			err = errors.Join(err, fmt.Errorf("%s: a fault has a name, a line \"in FILE\", lines with \"-\" and, "+
				"differing from them, lines with \"+\":\n%s", file, block))
		default:
			faults = append(faults, f)
		}
	}
	return faults, err
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
