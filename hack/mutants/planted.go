package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"example.com/foo-controller/hack/faults"
)

// planted returns the mutants that the file list describes, in its order. faults.Read has its form.
//
// A fault whose text is not in the file exactly once is an error. One run reports all such errors.
func planted(root, list string) ([]mutant, error) {
	described, err := faults.Read(list)
	errs := []error{err}
	var mutants []mutant
	for _, f := range described {
		m, err := plant(root, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: planted fault no longer fits: %w", list, f.Name, err))
			continue
		}
		mutants = append(mutants, m)
	}
	return mutants, errors.Join(errs...)
}

// plant returns a fault as a mutant of its file.
func plant(root string, f faults.Fault) (mutant, error) {
	source, err := os.ReadFile(filepath.Join(root, f.File))
	if err != nil {
		return mutant{}, err
	}
	at, err := f.At(source)
	if err != nil {
		return mutant{}, err
	}
	tests := f.Tests
	if tests == nil {
		tests = []string{packageOf(f.File)}
	}
	return mutant{key: f.Name, file: f.File, from: at, to: at + len(f.Before), text: f.After, tests: tests}, nil
}

// packageOf returns the package of a file as an argument of `go test`.
func packageOf(file string) string { return "./" + path.Dir(file) }
