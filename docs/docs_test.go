// Package docs_test checks the documents against the code.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/foo-controller/hack/tools/pages"
)

const root = ".."

// TestArchitectureNamesWhatExists checks that every file, package and Go name exists that the architecture page and its
// picture mention.
func TestArchitectureNamesWhatExists(t *testing.T) {
	all := declarations(t)
	for _, document := range []struct {
		file string
		// code matches text that is set as code.
		code *regexp.Regexp
	}{
		{file: "architecture.md", code: regexp.MustCompile("`([^`\n]+)`")},
		{file: "architecture.svg", code: regexp.MustCompile(`<text class="code[^"]*"[^>]*>([^<]+)<`)},
	} {
		text, err := os.ReadFile(document.file)
		if err != nil {
			t.Fatal(err)
		}
		names := 0
		for _, match := range document.code.FindAllStringSubmatch(string(text), -1) {
			known, isName := exists(all, match[1])
			if isName {
				names++
			}
			if isName && !known {
				t.Errorf("%s names %s, which does not exist", document.file, match[1])
			}
		}
		if names < 10 {
			t.Errorf("%s names only %d files and functions: are they still found?", document.file, names)
		}
	}
}

var (
	filePath   = regexp.MustCompile(`^(pkg|hack|docs|artifacts)/\S+$|^\w+\.go$`)
	identifier = regexp.MustCompile(`^([a-z]+\.)?([A-Za-z]*[a-z][A-Z]\w*|[A-Z][a-z]\w*|[a-z]{6,})$`)
	// fieldsOfObjects are names in the API of Kubernetes, not in our code.
	fieldsOfObjects = map[string]bool{"replicas": true, "resourceVersion": true, "observedGeneration": true}
)

// exists reports whether text, which a document sets as code, is the name of a file or of a declaration, and whether
// there is one.
func exists(declarations map[string]bool, text string) (known, isName bool) {
	if fieldsOfObjects[text] {
		return false, false
	}
	if filePath.MatchString(text) {
		for _, dir := range []string{".", "pkg/plan"} {
			if _, err := os.Stat(filepath.Join(root, dir, text)); err == nil {
				return true, true
			}
		}
		return false, true
	}
	if parts := identifier.FindStringSubmatch(text); parts != nil {
		return declarations[parts[2]], true
	}
	return false, false
}

// declarations returns the names of all functions, methods, types, constants and variables of the controller.
func declarations(t *testing.T) map[string]bool {
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "hack" || entry.Name() == "generated" || entry.Name() == ".git"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		found, err := pages.Declared(path)
		for _, name := range found {
			names[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// glossaryTerms are the words that a newcomer meets in any text about controllers. Each has a row in the glossary.
var glossaryTerms = []string{
	"reconcile", "informer", "reflector", "lister", "indexer", "workqueue", "key", "level-triggered", "owner reference",
	"garbage collection", "finalizer", "generation", "resourceVersion", "optimistic concurrency", "conflict", "condition",
	"subresource", "bookmark", "resync", "leader election", "ServiceAccount", "RBAC scope", "admission", "code generation",
}

// glossaryRow matches a row of the glossary: the word, and the name and file of its place.
var glossaryRow = regexp.MustCompile("(?m)^\\| ([^|]+) \\| [^|]+ \\| (?:\\[`([^`]+)`\\]\\(([^)]+)\\))? ?\\|$")

// TestTheGlossaryNamesPlacesThatExist checks that each word of the two glossaries has a place, and that this file
// declares what the place names.
func TestTheGlossaryNamesPlacesThatExist(t *testing.T) {
	words := map[string]bool{}
	for _, page := range []string{"architecture.md", "tutorial/glossary.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		_, glossary, _ := strings.Cut(string(text), "| word | meaning | place |\n| --- | --- | --- |\n")
		checked := 0
		for _, row := range glossaryRow.FindAllStringSubmatch(glossary, -1) {
			word, name, file := row[1], row[2], row[3]
			if words[word] {
				t.Errorf("%s has two rows", word)
			}
			words[word] = true
			checked++
			if err := placeExists(name, filepath.Join(filepath.Dir(page), file)); err != nil {
				t.Errorf("%s: %s: %v", page, word, err)
			}
		}
		if rows := strings.Count("\n"+glossary, "\n| "); rows != checked || rows < 10 {
			t.Errorf("%s: %d of %d rows were checked", page, checked, rows)
		}
	}
	for _, term := range glossaryTerms {
		if !words[term] {
			t.Errorf("the glossaries have no row for %q", term)
		}
	}
}

// placeExists returns an error unless the file declares name. For a file without Go code, name is its path.
func placeExists(name, file string) error {
	if filepath.Ext(file) != ".go" {
		if filepath.Join("..", name) != filepath.Clean(file) {
			return fmt.Errorf("the name %q is not the path %q", name, file)
		}
		_, err := os.Stat(file)
		return err
	}
	names, err := pages.Declared(file)
	if err != nil {
		return err
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("%s does not declare %s", file, name)
	}
	return nil
}
