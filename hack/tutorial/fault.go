package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// faultFiles describe faults. hack/mutants/planted.go documents the form; `make mutants` plants those of the first one.
var faultFiles = []string{"hack/mutants/planted.txt", stepsDir + "/7-real-life/faults.txt"}

// A fault replaces a text of a file.
type fault struct{ name, file, before, after string }

// readFaults returns the faults of all files by their names.
func readFaults(root string) (map[string]fault, error) {
	faults := map[string]fault{}
	for _, file := range faultFiles {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		for _, block := range strings.Split(string(text), "\n\n") {
			if f := parseFault(block); f.name != "" {
				faults[f.name] = f
			}
		}
	}
	return faults, nil
}

// parseFault returns the fault that a block describes, and one without a name if it has only comments.
func parseFault(block string) fault {
	var f fault
	var before, after []string
	for _, line := range splitLines(block) {
		switch {
		case line == "", line[0] == '#', strings.HasPrefix(line, "seen by "):
		case line[0] == '-':
			before = append(before, line[1:])
		case line[0] == '+':
			after = append(after, line[1:])
		case f.name == "":
			f.name = line
		default:
			f.file = strings.TrimPrefix(line, "in ")
		}
	}
	f.before, f.after = strings.Join(before, "\n"), strings.Join(after, "\n")
	return f
}

// overlay writes the file with the fault, and returns the name of a file for Go's flag -overlay. With it, Go reads that
// file, and the source stays as it is.
func (f fault) overlay(root, dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(root, f.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(f.before)); n != 1 {
		return "", fmt.Errorf("%q: %s has its text %d times, not once", f.name, f.file, n)
	}
	replaced := filepath.Join(dir, "fault.go")
	source = bytes.Replace(source, []byte(f.before), []byte(f.after), 1)
	if err := os.WriteFile(replaced, source, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// A lesson is a row of the table of step 7: a rule, and the fault and the scenario that show why it is there.
type lesson struct{ number, fault, scenario string }

// lessonRow matches a row of that table. Its last two columns are the scenario and the fault.
var lessonRow = regexp.MustCompile(`(?m)^\| (\d+) \|.*\| \[([a-z-]+)\]\([^)]+\.txt\) \| ([^|]+) \|$`)

// readLessons returns the lessons of a page.
func readLessons(page string) []lesson {
	var lessons []lesson
	for _, row := range lessonRow.FindAllStringSubmatch(page, -1) {
		lessons = append(lessons, lesson{number: row[1], scenario: row[2], fault: row[3]})
	}
	return lessons
}

// plant plays the scenario of a lesson with its fault, and prints what differs. It returns an error if nothing does.
func plant(ctx context.Context, root, number string, out io.Writer) error {
	steps, err := readSteps(root)
	if err != nil {
		return err
	}
	lessons := readLessons(steps[len(steps)-1].page)
	faults, err := readFaults(root)
	if err != nil {
		return err
	}
	for _, l := range lessons {
		if l.number == number {
			return l.play(ctx, root, faults[l.fault], out)
		}
	}
	return fmt.Errorf("there is no fault %s: choose 1 to %d", number, len(lessons))
}

func (l lesson) play(ctx context.Context, root string, f fault, out io.Writer) error {
	dir, err := os.MkdirTemp("", "foo-fault-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := f.overlay(root, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The fault: %s.\nIn %s:\n%s%s", f.name, f.file, prefixed("- ", f.before), prefixed("+ ", f.after))
	fmt.Fprintf(out, "Playing docs/scenarios/%s.txt with it ...\n", l.scenario)
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay="+overlay, "-count=1", "-vet=off", "-ldflags=-s -w",
		"-timeout=3m", "-run=^TestScenarios$/^"+l.scenario+"$", ".")
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // Then go test ends its tests, too.
	output, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return fmt.Errorf("the scenario is green with the fault %q", f.name)
	case !strings.Contains(string(output), "--- FAIL: TestScenarios/"+l.scenario):
		return fmt.Errorf("go test: %w\n%s", err, output)
	}
	fmt.Fprintf(out, "It is red:\n%s", firstDifference(string(output)))
	return nil
}

func prefixed(prefix, text string) string {
	var lines strings.Builder
	for _, line := range splitLines(text) {
		lines.WriteString("  " + prefix + strings.ReplaceAll(line, "\t", "    ") + "\n")
	}
	return lines.String()
}

// firstDifference returns the first block of a failed scenario: its steps, and the lines that are missing, with "-", or
// too much, with "+". Long lines are cut.
func firstDifference(output string) string {
	_, output, found := strings.Cut(output, "when events come after answers, block ")
	_, output, _ = strings.Cut(output, " is\n")
	have, want, hasWant := strings.Cut(output, "\n            want\n")
	if !found || !hasWant {
		return "  a check of the player fails, see the test's output\n"
	}
	var text strings.Builder
	for _, line := range diff(blockLines(want), blockLines(have)) {
		if runes := []rune(line); len(runes) > maxColumns {
			line = string(runes[:maxColumns]) + " ..."
		}
		text.WriteString("  " + line + "\n")
	}
	return text.String()
}

// diff returns all lines of want, with "- " before those that have lacks, and those that only have has, with "+ ".
func diff(want, have []string) []string {
	// common[i][j] is the number of lines that the rests want[i:] and have[j:] have in common, in their order.
	common := make([][]int, len(want)+1)
	for i := range common {
		common[i] = make([]int, len(have)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(have) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if want[i] == have[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var lines []string
	i, j := 0, 0
	for i < len(want) || j < len(have) {
		switch {
		case i < len(want) && j < len(have) && want[i] == have[j]:
			lines = append(lines, "  "+want[i])
			i, j = i+1, j+1
		case j == len(have) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, "- "+want[i])
			i++
		default:
			lines = append(lines, "+ "+have[j])
			j++
		}
	}
	return lines
}

// maxColumns is where the lines of a difference are cut.
const maxColumns = 200

// blockLines returns the lines of a block in the output of a test, which indents them, without comments.
func blockLines(text string) []string {
	var lines []string
	for _, line := range splitLines(text) {
		line, isIndented := strings.CutPrefix(line, "            ")
		if !isIndented {
			break // The output of the test continues with something else.
		}
		if line != "" && !strings.HasPrefix(line, "# ") {
			lines = append(lines, line)
		}
	}
	return lines
}
