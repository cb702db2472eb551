package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// playHeading is the heading of the section that is played.
const playHeading = "## What you should see"

// A scene is a command of a play and the output that follows. In a page, a play is a transcript of a terminal in blocks
// ```console, for example:
//
//	# A sentence for the reader.
//	$ kubectl run web --image=nginx
//	pod/web created
//	$ ask-again --every=2s &
//	[ask-again] list 1: Pods: 1; so far: requests: 1, bytes: <n>
//	[ask-again]   default/web Running
//
// The output of a command comes first. Lines of programs that run in the background begin with the name in brackets. A
// line that begins with "> " continues a command.
type scene struct {
	// comments are the sentences before the command.
	comments []string
	// command is what the shell runs. It is empty if a block begins with lines of programs.
	command string
	// output has the lines of the command.
	output []string
	// background has the lines of the programs in the background, with their names.
	background []string
}

// parsePlay returns the scenes of a page.
func parsePlay(page string) ([]scene, error) {
	_, section, found := strings.Cut(page, playHeading+"\n")
	if !found {
		return nil, fmt.Errorf("no section %q", playHeading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var scenes []scene
	for i, block := range strings.Split(section, "```console\n") {
		block, _, closed := strings.Cut(block, "```")
		if i == 0 {
			continue
		}
		if !closed {
			return nil, errors.New("a block of the play has no end")
		}
		scenes = append(scenes, parseBlock(block)...)
	}
	if len(scenes) == 0 {
		return nil, fmt.Errorf("section %q has no block ```console", playHeading)
	}
	return scenes, nil
}

// programLine matches a line of a program in the background.
var programLine = regexp.MustCompile(`^\[[a-z-]+\] `)

// addBackground adds a line of a program. If it is the first one, a line skipLines before it stands for lines of
// programs, too.
func (s *scene) addBackground(line string) {
	if n := len(s.output); len(s.background) == 0 && n > 0 && s.output[n-1] == skipLines {
		s.output, s.background = s.output[:n-1], []string{skipLines}
	}
	s.background = append(s.background, line)
}

func parseBlock(block string) []scene {
	scenes := []scene{{}}
	last := func() *scene { return &scenes[len(scenes)-1] }
	var comments []string
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		comment, isComment := strings.CutPrefix(line, "# ")
		command, isCommand := strings.CutPrefix(line, "$ ")
		continued, isContinued := strings.CutPrefix(line, "> ")
		switch {
		case isComment:
			comments = append(comments, comment)
		case isCommand:
			scenes = append(scenes, scene{comments: comments, command: command})
			comments = nil
		case isContinued && len(last().output) == 0:
			last().command += "\n" + continued
		case programLine.MatchString(line):
			last().addBackground(line)
		case line == skipLines && len(last().background) > 0:
			last().background = append(last().background, line)
		default:
			last().output = append(last().output, line)
		}
	}
	if len(comments) > 0 {
		scenes = append(scenes, scene{comments: comments})
	}
	if first := scenes[0]; first.output == nil && first.background == nil {
		scenes = scenes[1:]
	}
	return scenes
}
