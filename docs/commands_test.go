package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/foo-controller/hack/tools/pages"
)

// TestCommandsAreExecutedOrHaveAReason checks every block of commands in every document. The line before the block is
// a comment that readers do not see:
//
//	<!-- run: TestTryWithMakeRun -->    this test executes the block, and compares the output that the document shows
//	<!-- not run: needs a registry -->  no test executes it, for this reason
func TestCommandsAreExecutedOrHaveAReason(t *testing.T) {
	tests := testFiles(t)
	executed, explained := 0, 0
	for file, doc := range documents(t) {
		for _, block := range doc.Blocks {
			if problem := problemOf(file, block, tests); problem != "" {
				t.Errorf("%s:%d: %s", file, block.Line, problem)
			}
			if block.RunBy() != "" {
				executed++
			}
			if block.NotRun() != "" {
				explained++
			}
		}
	}
	if executed < 10 {
		t.Errorf("only %d blocks are executed: are they still found?", executed)
	}
	t.Logf("%d blocks are executed, %d are not and have a reason", executed, explained)
}

// problemOf returns why a block may be wrong without a failing test, or nothing. tests has the text of the files with
// each test.
func problemOf(file string, block pages.Block, tests map[string]string) string {
	test, reason := block.RunBy(), block.NotRun()
	switch {
	case !block.IsCommand() && block.Marker != "" && test+reason != "":
		return "only commands can be executed"
	case !block.IsCommand():
		return ""
	case test == "" && reason == "":
		return "write <!-- run: NAME OF A TEST --> or <!-- not run: REASON --> in the line before the block; " +
			"or, if it has no commands, give it a language such as text"
	case test != "" && tests[test] == "":
		return "there is no " + test
	case test != "" && !strings.Contains(tests[test], filepath.Base(file)):
		return fmt.Sprintf("the file of %s does not mention %s: does the test read it?", test, filepath.Base(file))
	}
	return ""
}

// TestLinksLeadSomewhere checks that every link to a file leads to one, and every link with a # to a heading of it.
func TestLinksLeadSomewhere(t *testing.T) {
	docs := documents(t)
	links := 0
	for file, doc := range docs {
		for _, link := range doc.Links {
			links++
			if problem := problemOfLink(file, link.Target, docs); problem != "" {
				t.Errorf("%s:%d: %s: %s", file, link.Line, link.Target, problem)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links: are they still found?", links)
	}
}

// problemOfLink returns what is wrong with a link of a document, or nothing.
func problemOfLink(file, target string, docs map[string]*pages.Document) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	path, anchor, hasAnchor := strings.Cut(target, "#")
	if path == "" {
		path = file
	} else {
		path = filepath.Join(filepath.Dir(file), path)
	}
	text, err := os.ReadFile(filepath.Join(root, path))
	if _, statErr := os.Stat(filepath.Join(root, path)); statErr != nil && docs[path] == nil {
		return "no such file"
	}
	switch doc := docs[path]; {
	case !hasAnchor:
		return ""
	case doc != nil && !doc.HasAnchor(anchor):
		return "no such heading"
	case doc != nil:
		return ""
	case err != nil:
		return err.Error()
	}
	number, err := strconv.Atoi(strings.TrimPrefix(anchor, "L"))
	if err != nil || number < 1 || number > strings.Count(string(text), "\n") {
		return "no such line"
	}
	return ""
}

// TestMakeHasTheTargetsOfTheDocuments checks every `make TARGET` in the documents. Those of the starter of make mine,
// and the pages about it, may name targets of its Makefile.
func TestMakeHasTheTargetsOfTheDocuments(t *testing.T) {
	const starter = "hack/starter/"
	targetsOfThis, targetsOfStarter := targetsIn(t, "Makefile"), targetsIn(t, starter+"Makefile")
	named := 0
	for file, doc := range documents(t) {
		targets := targetsOfThis
		if strings.HasPrefix(file, starter) || file == "docs/make-it-yours.md" || file == "CHANGELOG.md" {
			targets = slices.Concat(targetsOfThis, targetsOfStarter)
		}
		commands := slices.Clone(doc.Code)
		for _, block := range doc.Blocks {
			if block.IsCommand() {
				commands = append(commands, strings.Split(block.Text, "\n")...)
			}
		}
		for _, command := range commands {
			for _, target := range targetsOf(command) {
				named++
				if !slices.Contains(targets, target) {
					t.Errorf("%s names %q, but the Makefile has no target %s", file, command, target)
				}
			}
		}
	}
	if named < 20 {
		t.Errorf("the documents name only %d targets: are they still found?", named)
	}
}

func targetsIn(t *testing.T, makefile string) (targets []string) {
	text, err := os.ReadFile(filepath.Join(root, makefile))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^([a-z][\w/.-]*):`).FindAllStringSubmatch(string(text), -1) {
		targets = append(targets, match[1])
	}
	return targets
}

// targetsOf returns the targets of a command that calls make.
func targetsOf(command string) []string {
	command, _, _ = strings.Cut(command, " #")
	command = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(command, "") // The value of a variable.
	words := strings.Fields(strings.TrimPrefix(command, "$ "))
	if len(words) == 0 || words[0] != "make" {
		return nil
	}
	return slices.DeleteFunc(words[1:], func(word string) bool {
		return strings.Contains(word, "=") || strings.HasPrefix(word, "-")
	})
}

// TestReadmeShowsTheExample compares the Foo in README.md, and the one in its picture, with the file that
// `make run` creates.
func TestReadmeShowsTheExample(t *testing.T) {
	example, err := os.ReadFile(filepath.Join(root, "artifacts/examples/example-foo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	readme := documents(t)["README.md"]
	at := slices.IndexFunc(readme.Blocks, func(b pages.Block) bool { return b.Language == "yaml" })
	if at < 0 || strings.TrimSpace(readme.Blocks[at].Text) != strings.TrimSpace(string(example)) {
		t.Error("README.md does not show the Foo of artifacts/examples/example-foo.yaml")
	}
	picture, err := os.ReadFile("foo.svg")
	if err != nil {
		t.Fatal(err)
	}
	have := regexp.MustCompile(`<text class="code"[^>]*>([^<]+)<`).FindAllStringSubmatch(string(picture), -1)
	if len(have) < 5 {
		t.Errorf("foo.svg has only %d texts that are set as code", len(have))
	}
	for _, match := range have {
		if !strings.Contains(string(example)+"availableReplicas: 2, Ready", match[1]) {
			t.Errorf("foo.svg has %q, which is not in the example", match[1])
		}
	}
}

// TestDocumentsNameWhatExists checks the names of files and of Go declarations in the documents for newcomers, and the
// names of tests in those with promises.
func TestDocumentsNameWhatExists(t *testing.T) {
	declared := declarations(t)
	for test := range testFiles(t) {
		declared[test] = true
	}
	newcomers := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	promises := []string{"docs/security.md", "docs/reliability.md"}
	for file, doc := range documents(t) {
		for _, text := range doc.Code {
			known, isName := exists(declared, text)
			isName = isName && (slices.Contains(newcomers, file) ||
				slices.Contains(promises, file) && strings.HasPrefix(text, "Test"))
			if isName && !known && !strings.Contains(text, "*") {
				t.Errorf("%s names %s, which does not exist", file, text)
			}
		}
	}
}

// documents returns all documents of the repository, by their paths.
func documents(t *testing.T) map[string]*pages.Document {
	t.Helper()
	docs := map[string]*pages.Document{}
	walk(t, func(path, text string) { docs[path] = pages.Parse(text) }, ".md")
	return docs
}

// testFiles returns, by the name of each test, the text of the files that have a test of that name.
func testFiles(t *testing.T) map[string]string {
	t.Helper()
	tests := map[string]string{}
	walk(t, func(_, text string) {
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			tests[match[1]] += text
		}
	}, "_test.go")
	return tests
}

// walk calls visit with the path and the text of each file of the repository whose name ends in suffix.
func walk(t *testing.T, visit func(path, text string), suffix string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && entry.Name() != root
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(relative), string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
