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
	"time"

	"example.com/foo-controller/hack/tools/controlplane"
	"example.com/foo-controller/hack/tools/pages"
)

const (
	root    = "../.."
	starter = root + "/hack/starter"
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

// generating are the recipes that change what is generated, and afterOther has those that need another one first.
var (
	generating = []string{"cluster.diff", "stored.diff", "validation.diff", "version.diff"}
	afterOther = map[string]string{"stored.diff": "version.diff", "validation.diff": "version.diff"}
)

// TestRecipes applies each recipe to a copy of the starter, and runs the tests that the starter has then.
func TestRecipes(t *testing.T) {
	dir := copyStarter(t)
	for _, file := range slices.Sorted(maps.Keys(recipes(t))) {
		t.Run(file, func(t *testing.T) {
			diff, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, generates := dir, slices.Contains(generating, file)
			if generates {
				dir = copyStarter(t)
			}
			if first := afterOther[file]; first != "" {
				run(t, dir, "git", "apply", strings.TrimSuffix(diff, file)+first)
			}
			run(t, dir, "git", "apply", "--whitespace=error-all", diff)
			defer run(t, dir, "git", "apply", "--reverse", diff)
			if out := run(t, dir, "gofmt", "-l", "."); out != "" {
				t.Errorf("not formatted:\n%s", out)
			}
			if testing.Short() {
				t.Skip("it applies; run without -short for its tests")
			}
			if generates {
				run(t, dir, "bash", "hack/generate.sh")
			}
			run(t, dir, "go", "test", "-short", "-vet=all", "-ldflags=-s -w", "./...")
			if afterOther[file] != "" { // As `make verify`. It checks the code of the other recipe, too.
				run(t, dir, "go", "tool", "-modfile=hack/tools/tools.mod", "staticcheck", ".", "./pkg/plan")
			}
			if file == "version.diff" { // Its example of the new version needs the webhook.
				useLocalCluster(t, dir)
				run(t, dir, "make", "build")
				run(t, dir, "env", "RUN_UNTIL_READY=1", "bash", "hack/run.sh")
			}
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

// useLocalCluster gives a copy of the starter the local Kubernetes of this repository.
func useLocalCluster(t *testing.T, dir string) {
	t.Helper()
	built, err := filepath.Abs(root + "/bin/localcluster")
	if err == nil {
		_, err = os.Stat(built) // make bin/localcluster
	}
	if err := errors.Join(err, os.MkdirAll(filepath.Join(dir, "bin"), 0o755),
		os.Symlink(built, filepath.Join(dir, "bin/localcluster"))); err != nil {
		t.Fatal(err)
	}
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

// twoVersions has no conversion: the fields are the same.
const twoVersions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.example.com}
spec:
  group: example.com
  names: {kind: KIND, plural: KINDs}
  scope: SCOPE
  versions:
  - {name: v1alpha1, served: SERVED, storage: OLD, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1, served: true, storage: NEW, schema: {openAPIV3Schema: {type: object}}}
`

// TestMigrate runs the script of a recipe: each object is written once, and the API server knows one stored version.
// Fields have no owners of a version that is not served any more.
func TestMigrate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server; run without -short")
	}
	dir := copyStarter(t)
	for _, file := range []string{"version.diff", "stored.diff"} {
		diff, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		run(t, dir, "git", "apply", diff)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.Start(absolute, "--components=api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	kubectl := plane.Kubectl().Args
	k := func(arguments ...string) string {
		t.Helper()
		return run(t, dir, kubectl[0], append(slices.Clone(kubectl[1:]), arguments...)...)
	}
	thereAndBack(t, dir, k, `kubectl() { `+strings.Join(kubectl, " ")+` "$@"; }; `)
	for kind, scope := range map[string]string{"anvil": "Cluster", "bell": "Namespaced"} {
		file := filepath.Join(t.TempDir(), "crd.yaml")
		apply := func(served, old, new string) {
			text := strings.NewReplacer("KIND", kind, "SCOPE", scope, "SERVED", served, "OLD", old, "NEW", new).
				Replace(twoVersions)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			k("apply", "-f", file)
			k("wait", "--for=condition=Established", "-f", file)
		}
		apply("true", "true", "false")
		object := filepath.Join(t.TempDir(), "object.yaml")
		text := "{apiVersion: example.com/v1alpha1, kind: " + kind + ", metadata: {name: a, labels: {b: c}}}"
		if err := os.WriteFile(object, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		k("apply", "--server-side", "-f", object)
		field := func(path string) string {
			return k("get", kind+"s.v1.example.com", "a", "-o", "jsonpath={.metadata."+path+"}")
		}
		before := field("resourceVersion")
		apply("true", "false", "true")
		crd, stored := kind+"s.example.com", "jsonpath={.status.storedVersions}"
		if got := k("get", "crd", crd, "-o", stored); got != `["v1alpha1","v1"]` {
			t.Errorf("%s are stored as %s before", crd, got)
		}
		time.Sleep(time.Second) // The API server hears of the new stored version.
		migrate := func() {
			t.Helper()
			run(t, dir, "env", "KUBECTL="+strings.Join(kubectl, " "), "bash", "hack/migrate.sh", crd)
		}
		migrate()
		after := field("resourceVersion")
		if got := k("get", "crd", crd, "-o", stored); got != `["v1"]` || after == before {
			t.Errorf("%s are stored as %s, and the object has the version %s, which was %s", crd, got, after, before)
		}
		const owners = "managedFields[*].apiVersion"
		if got := field(owners); got != "example.com/v1alpha1" {
			t.Errorf("while v1alpha1 is served, the owners are of %q", got)
		}
		apply("false", "false", "true")
		time.Sleep(time.Second)
		if migrate(); field(owners) != "" {
			t.Errorf("then the owners are of %q", field(owners))
		}
	}
}

// thereAndBack applies the definition with the webhook, and without it, as `make deploy` does: after the command of the
// page, because caBundle is a field of the controller.
func thereAndBack(t *testing.T, dir string, k func(...string) string, functions string) {
	t.Helper()
	const crd, name = "artifacts/crd/acme.example.com_widgets.yaml", "widgets.acme.example.com"
	before := read(t, filepath.Join(dir, crd))
	webhook := strings.Replace(before, "\nspec:\n", "\nspec:\n"+read(t, filepath.Join(dir, "hack/conversion.yaml")), 1)
	apply := func(text string, flags ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, crd), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		k(append([]string{"apply", "--server-side", "-k", "artifacts/crd"}, flags...)...)
	}
	apply(before)
	apply(webhook)
	authority := k("config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}")
	k("patch", "crd", name, "--field-manager=widget-controller", "--type=merge",
		`--patch={"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":"`+authority+`"}}}}}`)
	for _, block := range pages.Parse(read(t, page)).Blocks {
		if block.RunBy() == "TestMigrate" {
			run(t, dir, "bash", "-c", functions+block.Text)
		}
	}
	apply(before)
	if got := k("get", "crd", name, "-o", "jsonpath={.spec.conversion}"); got != `{"strategy":"None"}` {
		t.Errorf("without the webhook, the definition has the conversion %s", got)
	}
	apply(webhook, "--force-conflicts")
}

// TestThePageShowsTheRecipes compares the diffs of the page with the recipes. Before each of them, the page links to
// its recipe.
func TestThePageShowsTheRecipes(t *testing.T) {
	text, recipes := read(t, page), recipes(t)
	blocks := map[string]int{}
	for _, block := range pages.Parse(text).Blocks {
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

var recipeLink = regexp.MustCompile(`\]\(\.\./hack/recipes/(\w+\.diff)\)`)

// TestTheKitShowsTheStarter compares the code of the kit's first page with the starter.
func TestTheKitShowsTheStarter(t *testing.T) {
	starter := read(t, root+"/hack/starter/pkg/plan/plan.go") + read(t, root+"/hack/starter/pkg/plan/status.go")
	shown := 0
	for _, block := range pages.Parse(read(t, root+"/pkg/kit/README.md")).Blocks {
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
