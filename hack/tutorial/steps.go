package main

import (
	"os"
	"path/filepath"

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
	needsCluster bool   // False for the last step, which reads the controller.
}

// readSteps returns all steps in their order.
func readSteps(root string) ([]step, error) {
	pages, err := filepath.Glob(filepath.Join(root, stepsDir, "[1-9]-*/README.md"))
	var steps []step
	for i, file := range pages { // Sorted by name, so by number.
		page, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		folder := filepath.Base(filepath.Dir(file))
		_, err = os.Stat(filepath.Join(filepath.Dir(file), "main.go"))
		steps = append(steps, step{number: i + 1, dir: stepsDir + "/" + folder, program: folder[len("1-"):],
			page: string(page), hasProgram: err == nil, needsCluster: i < len(pages)-1})
	}
	return steps, err
}

// scenes returns the scenes of the page: the test TestPlays plays them, too.
func (s step) scenes() []play.Scene { return play.Scenes(s.page, "TestPlays") }
