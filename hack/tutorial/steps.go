package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.com/foo-controller/hack/tools/play"
)

// stepsDir has a folder for each step, such as 1-ask-again.
const stepsDir = "docs/tutorial"

// A step is a step of the tutorial.
type step struct {
	number int
	// dir is its folder, from the root of the repository, and program the name of its program: the folder's name without
	// the number.
	dir, program string
	page         string // The text of its README.md.
	hasProgram   bool   // False for a step that has only commands.
	needsCluster bool   // False for the step that reads the controller, which has faults.
}

// readSteps returns all steps in their order.
func readSteps(root string) ([]step, error) {
	pages, err := filepath.Glob(filepath.Join(root, stepsDir, "[1-9]*-*/README.md"))
	var steps []step
	for _, file := range pages {
		page, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		folder := filepath.Base(filepath.Dir(file))
		number, program, _ := strings.Cut(folder, "-")
		s := step{dir: stepsDir + "/" + folder, program: program, page: string(page)}
		if s.number, err = strconv.Atoi(number); err != nil {
			return nil, err
		}
		_, noProgram := os.Stat(filepath.Join(filepath.Dir(file), "main.go"))
		_, noFaults := os.Stat(filepath.Join(filepath.Dir(file), "faults.txt"))
		s.hasProgram, s.needsCluster = noProgram == nil, noFaults != nil
		steps = append(steps, s)
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.number, b.number) })
	return steps, err
}

// scenes returns the scenes of the page: the test TestPlays plays them, too.
func (s step) scenes() []play.Scene { return play.Scenes(s.page, "TestPlays") }
