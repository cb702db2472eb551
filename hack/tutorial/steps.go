package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// stepsDir has a folder for each step.
const stepsDir = "docs/tutorial"

// A step is a step of the tutorial.
type step struct {
	number int
	// dir is its folder, from the root of the repository, and program the name of its program: the folder's name without
	// the number.
	dir, program string
	// page is the text of its README.md.
	page string
	// hasProgram is false for the last step, which reads the controller and needs no cluster.
	hasProgram bool
}

var stepName = regexp.MustCompile(`^([1-9])-([a-z-]+)$`)

// readSteps returns all steps in their order.
func readSteps(root string) ([]step, error) {
	entries, err := os.ReadDir(filepath.Join(root, stepsDir)) // Sorted by name, so by number.
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, entry := range entries {
		parts := stepName.FindStringSubmatch(entry.Name())
		if parts == nil {
			continue
		}
		s := step{number: len(steps) + 1, dir: stepsDir + "/" + entry.Name(), program: parts[2]}
		if parts[1] != fmt.Sprint(s.number) {
			return nil, fmt.Errorf("%s: step %d is expected here", s.dir, s.number)
		}
		page, err := os.ReadFile(filepath.Join(root, s.dir, "README.md"))
		if err != nil {
			return nil, err
		}
		s.page = string(page)
		_, err = os.Stat(filepath.Join(root, s.dir, "main.go"))
		s.hasProgram = err == nil
		steps = append(steps, s)
	}
	return steps, nil
}
