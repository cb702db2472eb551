package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// runOn runs the command on a repository and returns the lines that it prints, and its error.
func runOn(files, exceptions string) ([]string, error) {
	root := fstest.MapFS{exceptionsFile: {Data: []byte(exceptions)}}
	for part := range strings.SplitSeq(files, "-- ") {
		if name, text, ok := strings.Cut(part, " --\n"); ok {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	var out strings.Builder
	err := run(root, &out)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), err
}

// places returns "file:line: phrase" of each finding.
func places(findings []string) []string {
	var short []string
	for _, finding := range findings {
		place, _, _ := strings.Cut(finding, " -> ")
		short = append(short, place)
	}
	return short
}

func wantPlaces(t *testing.T, files, exceptions string, want ...string) {
	t.Helper()
	got, err := runOn(files, exceptions)
	if err == nil {
		t.Error("no error although there are findings")
	}
	if diff := cmp.Diff(want, places(got)); diff != "" {
		t.Errorf("wrong findings (-want +got):\n%s", diff)
	}
}

func TestPhrasesAreFoundInCommentsAndStringsOfTheRootAndPkg(t *testing.T) {
	wantPlaces(t, `
-- main.go --
package main

// shall
/* The second
line has trouble. */
var a, b = "it tells", `+"`raw\nanew`"+`
var verdict = 'x'
-- controller_test.go --
package main // whom
-- pkg/plan/plan.go --
package plan

func f() {
	// A comment whose lines end but
	// for a reason in the middle of a phrase.
	f("\nTold")
}
`, "",
		"controller_test.go:1: whom",
		"main.go:3: shall",
		"main.go:5: trouble",
		"main.go:6: tells",
		"main.go:7: anew",
		"pkg/plan/plan.go:4: but for",
		"pkg/plan/plan.go:6: Told",
	)
}

func TestPhrasesAreFoundInCommentsOfScenarios(t *testing.T) {
	wantPlaces(t, `
-- docs/scenarios/quiet.txt --
#Whoever comes first

# A comment whose lines end but
# for a reason in the middle of a phrase.
foo web deployment=tells
----
event web Normal Synced: the output of the program is not checked, whom it tells

# A Deployment goes.
`, "",
		"docs/scenarios/quiet.txt:1: Whoever",
		"docs/scenarios/quiet.txt:3: but for",
		"docs/scenarios/quiet.txt:9: goes",
	)
}

func TestPhrasesAreFoundInDocumentsManifestsAndScripts(t *testing.T) {
	wantPlaces(t, `
-- README.md --
# Told

A phrase at the end of a line, but
for a reason. `+"`tells` and [this](tells.md)"+` are no prose. <!--tells-->

`+"```sh\necho tells\n```\n"+`| a table | it says |
-- artifacts/a.yaml --
kind: A # Whoever it is.
name: tells
-- hack/a.sh --
echo "${#whom}" whom
# shall
`, "",
		"README.md:1: Told",
		"README.md:3: but for",
		"README.md:9: says",
		"artifacts/a.yaml:1: Whoever",
		"hack/a.sh:2: shall",
	)
}

func TestOtherFilesAreNotChecked(t *testing.T) {
	const text = " --\npackage p // whom\n# whom\n-- "
	files := "-- "
	for _, name := range []string{
		"pkg/apisim/a.go", "pkg/generated/clientset/a.go", "pkg/apis/v1/zz_generated.deepcopy.go", "hack/words/a.go",
		"pkg/plan/testdata/a.go", ".cache/a.go", "_old/a.go", "docs/api.md", "docs/a.txt", "pkg/plan/a.txt", "go.mod",
		"artifacts/crd/a.yaml", "bin/a.go",
	} {
		files += name + text
	}
	if got, err := runOn(files, ""); err != nil {
		t.Errorf("%v: %s", err, got)
	}
}

func TestEachRuleFindsItsPhrases(t *testing.T) {
	for text, want := range map[string]string{
		"a name is told apart":          "told",
		"what the Foo says":             "says",
		"the Deployment goes":           "goes",
		"What goes wrong otherwise":     "",
		"look at the Foo":               "look at",
		"it looks for a Foo":            "looks for",
		"it looks like a Foo":           "",
		"after a live look":             "live look",
		"a Foo's look":                  "",
		"doubtful":                      "doubtful",
		"it mended that":                "mended",
		"once anew":                     "anew",
		"a Foo shall":                   "shall",
		"for whom":                      "whom",
		"Whoever it is":                 "Whoever",
		"the verdict":                   "verdict",
		"in trouble":                    "trouble",
		"nothing but for this":          "but for",
		"nil when there is none":        "is none",
		"nothing is nonempty":           "",
		"what became of it":             "what became of",
		"foretold, essays, and marshal": "",
	} {
		t.Run(text, func(t *testing.T) {
			var got []string
			for _, finding := range checkProse("a.go", proseOf([]byte("// " + text))[0], nil) {
				got = append(got, strings.TrimPrefix(places([]string{finding})[0], "a.go:1: "))
			}
			if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("wrong phrases (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFindingHasAHint(t *testing.T) {
	got, _ := runOn("-- main.go --\npackage main // once anew\n", "")
	if diff := cmp.Diff([]string{"main.go:1: anew -> again"}, got); diff != "" {
		t.Errorf("wrong findings (-want +got):\n%s", diff)
	}
}

const twoFiles = `
-- a.go --
package main // A judge has
// a verdict, and we have a verdict.
-- b.go --
package main // A judge has a verdict.
`

func TestAnExceptionAllowsItsPhraseInItsFile(t *testing.T) {
	wantPlaces(t, twoFiles, "# As in courts.\n\na.go | A judge has a verdict\n\tThat is\n\tthe word.\n",
		"a.go:2: verdict", "b.go:1: verdict")
}

func TestAnExceptionThatMatchesNothingIsReported(t *testing.T) {
	wantPlaces(t, "-- a.go --\npackage main // A judge has a verdict.\n", `
a.go | judge has a verdict
	That is the word.
a.go | jury has a verdict
	That is the word.
b.go | judge has a verdict
	That is the word.
a.go | judge
	The phrase is there, but no rule forbids it.
`, exceptionsFile+":4: a.go has no such phrase any more",
		exceptionsFile+":6: b.go has no such phrase any more",
		exceptionsFile+":8: a.go has no such phrase any more",
	)
}

func TestExceptionsMustBeComplete(t *testing.T) {
	for exceptions, want := range map[string]string{
		"\tbecause\n":           exceptionsFile + ":1: a reason, but no exception above it",
		"a.go\n\tbecause\n":     exceptionsFile + `:1: want "file | phrase"`,
		"\na.go | x\n# No.\n\n": exceptionsFile + ":2: no reason in indented lines below",
	} {
		if _, err := runOn("", exceptions); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", exceptions, err, want)
		}
	}
}

func TestCodeWithoutFindingsPasses(t *testing.T) {
	if got, err := runOn("-- main.go --\npackage main // The server returns a message.\n", ""); err != nil {
		t.Errorf("%v: %s", err, got)
	}
}
