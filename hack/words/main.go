// Command words reports phrases in documents, comments and string literals for which Kubernetes or plain English has a
// better word. `make verify` runs it in the root of the repository:
//
//	go run ./hack/words
//
// Each finding is a line "file:line: phrase -> what to write instead". The rules are in rules.go. A sentence that
// needs the phrase nevertheless is listed in exceptions.txt with a reason.
//
// It checks Go files, tests included, Markdown without what is set as code, and the comments of scenarios, manifests
// and scripts. It does not check generated files, the simulated API server in pkg/apisim, and itself.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	// exceptionsFile is where exceptions are listed.
	exceptionsFile = "hack/words/exceptions.txt"
	// scenarios is the directory of the scenarios.
	scenarios = "docs/scenarios"
)

func main() {
	if err := run(os.DirFS("."), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

func run(root fs.FS, out io.Writer) error {
	exceptions, err := readExceptions(root)
	if err != nil {
		return err
	}
	findings, err := check(root, exceptions)
	if err != nil {
		return err
	}
	findings = append(findings, unused(exceptions)...)
	for _, finding := range findings {
		fmt.Fprintln(out, finding)
	}
	if len(findings) > 0 {
		return errors.New("write it in the words of Kubernetes, or list it with a reason in " + exceptionsFile)
	}
	return nil
}

// check returns a line for each phrase in the files of root that a rule forbids and no exception allows.
func check(root fs.FS, exceptions []*exception) ([]string, error) {
	var findings []string
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && !isChecked(name):
			return fs.SkipDir
		case entry.IsDir() || strings.HasPrefix(path.Base(name), "zz_generated") || name == "docs/api.md":
			return nil
		}
		source, err := fs.ReadFile(root, name)
		for _, prose := range proseIn(name, source) {
			findings = append(findings, checkProse(name, prose, exceptions)...)
		}
		return err
	})
	return findings, err
}

// isChecked reports whether the files of a directory are checked.
func isChecked(dir string) bool {
	base := path.Base(dir)
	switch {
	case dir == ".":
		return true
	case strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata":
		return false // The go command ignores these too.
	}
	return !slices.Contains([]string{"bin", "pkg/apisim", "pkg/generated", "artifacts/crd", "hack/words"}, dir)
}

// checkProse returns a line for each forbidden phrase of one comment or string literal.
func checkProse(file string, p prose, exceptions []*exception) []string {
	var findings []string
	allowed := allowedSpans(file, p.text, exceptions)
	for _, r := range rules {
		for _, at := range r.pattern.FindAllStringIndex(p.text, -1) {
			phrase := p.text[at[0]:at[1]]
			if r.ordinary != nil && r.ordinary.MatchString(phrase) || allowed.contain(at) {
				continue
			}
			findings = append(findings, fmt.Sprintf("%s:%d: %s -> %s", file, p.line(at[0]), phrase, r.instead))
		}
	}
	return findings
}
