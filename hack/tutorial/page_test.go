package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/foo-controller/hack/tools/declared"
)

// pages returns the steps of the tutorial.
func pages(t *testing.T) []step {
	t.Helper()
	steps, err := readSteps(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) == 0 {
		t.Fatal("no steps")
	}
	return steps
}

// questions matches a question with its answer.
var questions = regexp.MustCompile(
	`(?m)^\*\*[123]\. .*\n(?:.+\n)*\n<details><summary>Answer</summary>\n\n(?:.+\n|\n)+?</details>$`)

func TestEachPageHasAllItsParts(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(root, stepsDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range pages(t) {
		for _, part := range []string{
			"](picture.svg)", "\n## The idea\n", "\n## The code\n", "\n## Run it\n", "\n## What you should see\n",
			"make tutorial STEP=" + strconv.Itoa(step.number) + "\n", "\n## Questions\n", "[All steps](../README.md)",
		} {
			if !strings.Contains(step.page, part) {
				t.Errorf("%s/README.md lacks %q", step.dir, part)
			}
		}
		if n := len(questions.FindAllString(step.page, -1)); n != 3 {
			t.Errorf("%s/README.md has %d questions with answers, not 3", step.dir, n)
		}
		if !strings.Contains(string(index), "]("+filepath.Base(step.dir)+"/README.md)") {
			t.Errorf("%s/README.md does not list %s", stepsDir, step.dir)
		}
	}
}

// TestCodeInPagesIsInThePrograms checks that Go code in a page is in the program of the step, except for the
// indentation.
func TestCodeInPagesIsInThePrograms(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, step := range pages(t) {
		source, found := sourceOf(t, step)
		if !found {
			continue
		}
		for _, block := range blocks.FindAllStringSubmatch(step.page, -1) {
			if !strings.Contains(withoutIndentation(source), withoutIndentation(block[1])) {
				t.Errorf("%s/README.md has code that is not in the program:\n%s", step.dir, block[1])
			}
		}
	}
}

// TestTheGeneratorsOfThePageAreThoseOfTheScript compares the table of step 5 with the programs that `make generate` runs.
func TestTheGeneratorsOfThePageAreThoseOfTheScript(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "hack/generate.sh"))
	if err != nil {
		t.Fatal(err)
	}
	page := pages(t)[4].page
	run := map[string]bool{}
	for _, found := range regexp.MustCompile(`go (?:tool(?: -modfile=\S+)?|run) (?:\S*/)?([a-z-]+) `).
		FindAllStringSubmatch(string(script), -1) {
		run[found[1]] = true
		if !strings.Contains(page, "\n| `"+found[1]) {
			t.Errorf("step 5 has no row for %s", found[1])
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)").FindAllStringSubmatch(page, -1) {
		if !run[row[1]] {
			t.Errorf("step 5 has a row for %s, which hack/generate.sh does not run", row[1])
		}
	}
	if len(run) < 8 {
		t.Errorf("hack/generate.sh runs only %d programs: are they still found?", len(run))
	}
}

// TestProgramsAreShort counts the lines of the programs that have code, without imports.
func TestProgramsAreShort(t *testing.T) {
	for _, step := range pages(t) {
		source, found := sourceOf(t, step)
		if !found {
			continue
		}
		_, source, _ = strings.Cut(source, "\n)\n") // The end of the imports.
		lines := 0
		for line := range strings.Lines(source) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
		if lines < 20 || lines > 150 {
			t.Errorf("%s/main.go has %d lines of code; a reader expects 20 to 150", step.dir, lines)
		}
	}
}

// TestPicturesNameWhatExists checks that what a picture sets as code is an identifier of the step's program.
func TestPicturesNameWhatExists(t *testing.T) {
	code := regexp.MustCompile(`<text class="code[^"]*"[^>]*>([^<]+)<`)
	for _, step := range pages(t) {
		picture, err := os.ReadFile(filepath.Join(root, step.dir, "picture.svg"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(picture), "prefers-color-scheme: dark") {
			t.Errorf("%s/picture.svg has no colours for dark pages", step.dir)
		}
		known := identifiers(t, step)
		matches := code.FindAllStringSubmatch(string(picture), -1)
		if len(matches) < 2 {
			t.Errorf("%s/picture.svg names %d parts of the program: are they still found?", step.dir, len(matches))
		}
		for _, match := range matches {
			if !known[match[1]] {
				t.Errorf("%s/picture.svg names %s, which is not in the program", step.dir, match[1])
			}
		}
	}
}

// TestNamesInPagesExist checks that a link [`name`](file.go) leads to a file that declares name.
func TestNamesInPagesExist(t *testing.T) {
	links := regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\(([^)]+\\.go)\\)")
	for _, step := range pages(t) {
		for _, match := range links.FindAllStringSubmatch(step.page, -1) {
			file := filepath.Join(root, step.dir, match[2])
			name := match[1][strings.LastIndex(match[1], ".")+1:]
			names, err := declared.In(file)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(names, name) {
				t.Errorf("%s/README.md: %s does not declare %s", step.dir, match[2], name)
			}
		}
	}
}

// sourceOf returns the source of the program of a step.
func sourceOf(t *testing.T, step step) (source string, found bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, step.dir, "main.go"))
	if os.IsNotExist(err) {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text), true
}

func withoutIndentation(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// identifiers returns all identifiers in the program of a step. A step without a program reads the controller's own.
func identifiers(t *testing.T, step step) map[string]bool {
	t.Helper()
	files := []string{filepath.Join(root, step.dir, "main.go")}
	if _, found := sourceOf(t, step); !found {
		files = []string{filepath.Join(root, "controller.go")}
		for _, pattern := range []string{"pkg/*/*.go", "pkg/*/*/*.go", "pkg/apis/*/*/*.go"} {
			more, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, more...)
		}
	}
	names := map[string]bool{}
	for _, file := range files {
		ast.Inspect(parse(t, file), func(node ast.Node) bool {
			if identifier, ok := node.(*ast.Ident); ok {
				names[identifier.Name] = true
			}
			return true
		})
	}
	return names
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
