package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"example.com/foo-controller/hack/tools/faults"
)

// faultsFile describes the faults of step 9, in the order of its tables.
const faultsFile = stepsDir + "/9-real-life/faults.txt"

// overlay returns the name of a file for Go's flag -overlay, with which Go reads the file with the fault.
func overlay(root, dir string, f faults.Fault) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, f.File))
	if err != nil {
		return "", err
	}
	changed, err := f.Apply(source)
	if err != nil {
		return "", fmt.Errorf("%q: %w", f.Name, err)
	}
	return faults.Overlay(root, dir, "fault", map[string][]byte{f.File: changed})
}

// A lesson is a row of the tables of step 9: a rule, and the fault and the scenario that show why it is there.
type lesson struct {
	number, scenario string
	fault            faults.Fault
}

// lessonRow matches a row of these tables. Its last column is the scenario.
var lessonRow = regexp.MustCompile(`(?m)^\| (\d+) \|.*\| \[([a-z-]+)\]\([^)]+\.txt\) \|$`)

// readLessons returns the lessons of step 9, which have the numbers 1, 2, 3 and so on.
func readLessons(root string) ([]lesson, error) {
	page, err := os.ReadFile(filepath.Join(root, filepath.Dir(faultsFile), "README.md"))
	if err != nil {
		return nil, err
	}
	all, err := faults.Read(filepath.Join(root, faultsFile))
	if err != nil {
		return nil, err
	}
	rows := lessonRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(all) {
		return nil, fmt.Errorf("the page has %d rules, and %s has %d faults", len(rows), faultsFile, len(all))
	}
	var lessons []lesson
	for i, row := range rows {
		if number := strconv.Itoa(i + 1); row[1] != number {
			return nil, fmt.Errorf("the number of rule %s must be %s, that of its fault", row[1], number)
		}
		lessons = append(lessons, lesson{number: row[1], scenario: row[2], fault: all[i]})
	}
	return lessons, nil
}

// plant plays the scenario of a lesson with its fault, and prints what differs. It returns an error if nothing does.
func plant(ctx context.Context, root, number string, out io.Writer) error {
	lessons, err := readLessons(root)
	if err != nil {
		return err
	}
	for _, l := range lessons {
		if l.number == number {
			return l.play(ctx, root, out)
		}
	}
	return fmt.Errorf("there is no fault %s: choose 1 to %d", number, len(lessons))
}

func (l lesson) play(ctx context.Context, root string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "foo-fault-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlaid, err := overlay(root, dir, l.fault)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The fault: %s.\nIn %s:\n%s%s", l.fault.Name, l.fault.File,
		prefixed("- ", l.fault.Before), prefixed("+ ", l.fault.After))
	fmt.Fprintf(out, "Playing docs/scenarios/%s.txt with it ...\n", l.scenario)
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay="+overlaid, "-count=1", "-vet=off", "-ldflags=-s -w",
		"-timeout=3m", "-run=^TestScenarios$/^"+l.scenario+"$", ".")
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // Then go test ends its tests, too.
	output, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return fmt.Errorf("the scenario is green with the fault %q", l.fault.Name)
	case !strings.Contains(string(output), "--- FAIL: TestScenarios/"+l.scenario):
		return fmt.Errorf("go test: %w\n%s", err, output)
	}
	fmt.Fprintf(out, "It is red:\n%s", firstDifference(string(output)))
	return nil
}

func prefixed(prefix, text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		lines.WriteString("  " + prefix + strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ") + "\n")
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

// diff returns the lines in which both begin and end and, between these, the other lines of want with "- ", and those
// of have with "+ ".
func diff(want, have []string) (lines []string) {
	first, last := 0, 0
	for first < min(len(want), len(have)) && want[first] == have[first] {
		lines = append(lines, "  "+want[first])
		first++
	}
	for last < min(len(want), len(have))-first && want[len(want)-1-last] == have[len(have)-1-last] {
		last++
	}
	for _, line := range want[first : len(want)-last] {
		lines = append(lines, "- "+line)
	}
	for _, line := range have[first : len(have)-last] {
		lines = append(lines, "+ "+line)
	}
	for _, line := range want[len(want)-last:] {
		lines = append(lines, "  "+line)
	}
	return lines
}

// maxColumns is where the lines of a difference are cut.
const maxColumns = 200

// blockLines returns the lines of a block in the output of a test, which indents them, without comments.
func blockLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line, isIndented := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "            ")
		if !isIndented {
			break // The output of the test continues with something else.
		}
		if line != "" && !strings.HasPrefix(line, "# ") {
			lines = append(lines, line)
		}
	}
	return lines
}
