// Package recipes_test applies the diffs of docs/make-it-yours.md to the starter, and tests the result.
package recipes_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/foo-controller/hack/tools/markdown"
)

const (
	root    = "../../.."
	starter = root + "/hack/mine/starter"
	page    = root + "/docs/make-it-yours.md"
)

// recipes returns the text of each recipe by the name of its file.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.diff")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are %d recipes: %v", len(files), err)
	}
	texts := map[string]string{}
	for _, file := range files {
		texts[file] = read(t, file)
	}
	return texts
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRecipes applies each recipe to a copy of the starter, and runs the tests that the starter has then.
func TestRecipes(t *testing.T) {
	dir := copyStarter(t)
	for _, file := range slices.Sorted(maps.Keys(recipes(t))) {
		t.Run(file, func(t *testing.T) {
			diff, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, isCluster := dir, file == "cluster.diff"
			if isCluster { // It changes what is generated.
				dir = copyStarter(t)
			}
			run(t, dir, "git", "apply", "--whitespace=error-all", diff)
			defer run(t, dir, "git", "apply", "--reverse", diff)
			if out := run(t, dir, "gofmt", "-l", "."); out != "" {
				t.Errorf("not formatted:\n%s", out)
			}
			if testing.Short() {
				t.Skip("it applies; run without -short for its tests")
			}
			if isCluster {
				run(t, dir, "bash", "hack/generate.sh")
			}
			run(t, dir, "go", "test", "-short", "-vet=all", "-ldflags=-s -w", "./...")
		})
	}
}

// copyStarter returns a copy of the starter. All recipes use the same, so that Go compiles what they leave alone once.
func copyStarter(t *testing.T) string {
	t.Helper()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := run(t, starter, "git", "ls-files", "--cached", "--others", "--exclude-standard")
	for file := range strings.SplitSeq(files, "\n") {
		text := read(t, filepath.Join(starter, file))
		if file == "go.mod" {
			text = strings.Replace(text, "=> "+root, "=> "+absolute, 1)
		}
		to := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run returns the output of a command in a directory, which has nothing to do with the repository of this test.
func run(t *testing.T, dir string, name string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestThePageShowsTheRecipes compares the diffs of the page with the recipes. Before each of them, the page links to
// its recipe.
func TestThePageShowsTheRecipes(t *testing.T) {
	text, recipes := read(t, page), recipes(t)
	blocks := map[string]int{}
	for _, block := range markdown.Parse(text).Blocks {
		if block.Language != "diff" {
			continue
		}
		file := lastRecipe(text, block.Line)
		blocks[file]++
		for line := range strings.SplitSeq(strings.TrimSuffix(block.Text, "\n"), "\n") {
			if !strings.Contains("\n"+recipes[file], "\n"+line+"\n") {
				t.Errorf("the page shows %q, which is not a line of %s", line, file)
			}
		}
	}
	for file := range recipes {
		if blocks[file] == 0 {
			t.Errorf("the page shows nothing of %s", file)
		}
	}
}

// lastRecipe returns the last recipe that the page links to before a line.
func lastRecipe(text string, line int) string {
	before := strings.Join(strings.Split(text, "\n")[:line], "\n")
	links := recipeLink.FindAllStringSubmatch(before, -1)
	if len(links) == 0 {
		return ""
	}
	return links[len(links)-1][1]
}

var recipeLink = regexp.MustCompile(`\]\(\.\./hack/mine/recipes/(\w+\.diff)\)`)

// TestTheKitShowsTheStarter compares the code of the kit's first page with the starter.
func TestTheKitShowsTheStarter(t *testing.T) {
	starter := read(t, root+"/hack/mine/starter/pkg/plan/plan.go") + read(t, root+"/hack/mine/starter/pkg/plan/status.go")
	shown := 0
	for _, block := range markdown.Parse(read(t, root+"/pkg/kit/README.md")).Blocks {
		if block.Language != "go" {
			continue
		}
		for line := range strings.SplitSeq(block.Text, "\n") {
			shown++
			if !strings.Contains("\n"+starter, "\n"+line+"\n") {
				t.Errorf("the page has %q, which is not a line of the starter", line)
			}
		}
	}
	if shown == 0 {
		t.Error("the page shows no code any more")
	}
}
