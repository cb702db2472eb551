package main

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// The tests of the module do not distinguish n >= 0 from n > 0.
	tinySource = "package tiny\n\nfunc positive(n int) bool {\n\treturn n > 0\n}\n"
	tinyTests  = "package tiny\n\nimport \"testing\"\n\n" +
		"func TestPositive(t *testing.T) {\n\tif !positive(5) || positive(-5) {\n\t\tt.Fail()\n\t}\n}\n"

	walkOfUser = "package user\n\nimport (\n\t\"testing\"\n\t\"tiny/tiny\"\n)\n\n" +
		"func TestWalk(t *testing.T) {\n\tif tiny.Positive(-5) {\n\t\tt.Fail()\n\t}\n}\n"

	survivor       = "tiny/tiny.go | positive | return n > 0 | >= for > in n > 0"
	listedSurvivor = "# Known.\n" + survivor + "\n\tNobody asks\n\tabout 0.\n"
	atTheBoundary  = "tiny/tiny.go | positive | return n > 0 | 0 is 1\n\tNobody asks about 1.\n"
	// alwaysTrue matches the name of the fault with which negative numbers are positive.
	alwaysTrue = "n > 0 is true"
	oneKilled  = "1 killed, 0 survived; 0 more did not compile\nno problems\n"
)

// A commandTest is a run of the command on a module with one function.
type commandTest struct {
	name                        string
	source, tests, survivors    string
	user                        string // The tests of another package.
	args                        []string
	wantOut, wantErr, unwantErr string
	// onlyShared is true if the run with --alone takes too long.
	onlyShared bool
}

// TestRun compares output and error of the command. They are the same with --alone.
func TestRun(t *testing.T) {
	for _, test := range []commandTest{
		{
			name:      "listed survivors are no problem",
			survivors: listedSurvivor + atTheBoundary,
			wantOut:   "2 killed, 2 survived; 0 more did not compile\nno problems\n",
		},
		{
			name:      "a survivor that is not listed is shown, and a problem",
			survivors: atTheBoundary,
			wantOut:   "survived: " + survivor + "\n    tiny/tiny.go:4\n    -\treturn n > 0\n    +\treturn n >= 0\n",
			wantErr:   "survives, and is not listed: " + survivor,
			unwantErr: "0 is 1",
		},
		{
			name:      "a listed survivor that is noticed is a problem",
			tests:     strings.Replace(tinyTests, "positive(-5)", "positive(-5) || positive(0)", 1),
			survivors: listedSurvivor + atTheBoundary,
			wantErr:   "listed as a survivor, but now killed: " + survivor,
			unwantErr: "0 is 1",
		},
		{
			name:      "a listed survivor that is not generated any more is a problem",
			survivors: listedSurvivor + atTheBoundary + "tiny/tiny.go | gone | gone | gone\n\tIt was here.\n",
			args:      []string{"--list"},
			wantErr:   "listed as a survivor, but there is no such mutant any more: tiny/tiny.go | gone | gone | gone",
			unwantErr: "0 is 1",
		},
		{
			name:      "a run of some mutants ignores the other survivors",
			survivors: listedSurvivor + atTheBoundary + "tiny/tiny.go | gone | gone | gone\n\tIt was here.\n",
			args:      []string{"--only", "for >"},
			wantOut:   "0 killed, 1 survived; 0 more did not compile\n",
		},
		{
			name:      "a survivor without a reason is an error",
			survivors: survivor + "\n",
			wantErr:   "no reason, in indented lines below: " + survivor,
		},
		{
			name:    "a fault that does not compile does not count",
			source:  tinySource + "\nfunc double(s string) string {\n\treturn s + s\n}\n",
			args:    []string{"--only", "- for [+]"},
			wantOut: "0 killed, 0 survived; 1 more did not compile\nno problems\n",
		},
		{
			name:    "tests that fail without a fault end the run",
			tests:   strings.Replace(tinyTests, "positive(-5)", "positive(5)", 1),
			args:    []string{"--only", alwaysTrue},
			wantErr: "the tests fail without any fault",
		},
		{
			name: "sources that change during the run make it fail",
			tests: strings.Replace(tinyTests, "\"testing\"", "(\n\t\"os\"\n\t\"testing\"\n)", 1) +
				"\nfunc init() {\n\tf, _ := os.OpenFile(\"tiny.go\", os.O_APPEND|os.O_WRONLY, 0)\n\tf.WriteString(\"\\n\")\n}\n",
			args:    []string{"--only", alwaysTrue},
			wantErr: "the sources changed while the tests ran",
		},
		{
			name:    "a test that hangs counts as a failure",
			tests:   strings.Replace(tinyTests, "positive(-5)", "positive(-5) && func() bool { select {} }()", 1),
			args:    []string{"--only", alwaysTrue, "--timeout=500ms"},
			wantOut: oneKilled,
		},
		{
			name:       "a test binary that hangs before its first test is killed",
			tests:      tinyTests + "\nfunc init() {\n\tfor positive(-5) {\n\t}\n}\n",
			args:       []string{"--only", alwaysTrue, "--timeout=500ms"},
			wantOut:    oneKilled,
			onlyShared: true, // A `go test` waits another minute before it kills a test binary.
		},
		{
			name: "a test that passes only after another one is not run before it",
			tests: "package tiny\n\nimport (\n\t\"testing\"\n\t\"time\"\n)\n\nvar first bool\n\n" +
				"func TestFirst(*testing.T) {\n\tfirst = true\n}\n\n" +
				"func TestSecond(t *testing.T) {\n\tif !first || positive(-5) {\n\t\tt.Fail()\n\t}\n}\n\n" +
				"func TestSlow(*testing.T) {\n\ttime.Sleep(200 * time.Millisecond)\n}\n",
			args:    []string{"--only", alwaysTrue + "|for >", "--parallel=1"},
			wantOut: "1 killed, 1 survived; 0 more did not compile\n",
			wantErr: "survives, and is not listed: " + survivor,
		},
		{
			name:      "only the tests of that name run, and the list of survivors is not about them",
			tests:     tinyTests + "\nfunc TestWalk(*testing.T) {}\n",
			survivors: listedSurvivor,
			args:      []string{"--only", alwaysTrue, "--run=TestWalk"},
			wantErr:   "survives, and is not listed: tiny/tiny.go | positive | return n > 0 | " + alwaysTrue,
		},
		{
			name:    "the tests of another package",
			source:  strings.ReplaceAll(tinySource, "positive", "Positive"),
			user:    walkOfUser,
			tests:   "package tiny\n",
			args:    []string{"--only", alwaysTrue, "--tests=user"},
			wantOut: oneKilled,
		},
		{
			name:    "what its own tests do not notice is tried with those of another package",
			source:  strings.ReplaceAll(tinySource, "positive", "Positive"),
			user:    walkOfUser,
			tests:   "package tiny\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n",
			args:    []string{"--only", alwaysTrue, "--also=tiny=user"},
			wantOut: oneKilled,
		},
		{
			name:    "a panic before the first test counts as a failure",
			tests:   tinyTests + "\nfunc init() {\n\tif positive(-5) {\n\t\tpanic(1)\n\t}\n}\n",
			args:    []string{"--only", alwaysTrue},
			wantOut: oneKilled,
		},
		{
			name:    "a panic in a goroutine counts as a failure",
			tests:   strings.Replace(tinyTests, "positive(-5)", "positive(-5) && func() bool { go panic(1); select {} }()", 1),
			args:    []string{"--only", alwaysTrue},
			wantOut: oneKilled,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(test.args, "--list") {
				test.run(t)
				return
			}
			if testing.Short() {
				t.Skip("builds test binaries")
			}
			t.Run("shared", test.run)
			if !test.onlyShared {
				test.args = append([]string{"--alone"}, test.args...)
				t.Run("alone", test.run)
			}
		})
	}
}

func (test *commandTest) run(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"go.mod": "module tiny\n\ngo 1.26\n", "tiny/tiny.go": cmp.Or(test.source, tinySource),
		"tiny/tiny_test.go": cmp.Or(test.tests, tinyTests), survivorsFile: test.survivors,
		"user/user_test.go": cmp.Or(test.user, "package user\n"),
	})
	var out bytes.Buffer
	err := run(t.Context(), root, slices.Concat(test.args, []string{"tiny"}), &out)
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case !strings.Contains(out.String(), test.wantOut):
		t.Errorf("printed:\n%s\nwant:\n%s", &out, test.wantOut)
	case test.wantErr == "" && err != nil, !strings.Contains(text, test.wantErr):
		t.Errorf("error %q, want %q; printed:\n%s", text, test.wantErr, &out)
	case test.unwantErr != "" && strings.Contains(text, test.unwantErr):
		t.Errorf("error %q, which should not have %q", text, test.unwantErr)
	}
	if left, err := filepath.Glob(filepath.Join(root, "tiny", "*")); err != nil || len(left) != 2 {
		t.Errorf("the run left %v, %v", left, err)
	}
}

func TestProgressEstimatesWhatIsLeft(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, total: 8, started: time.Now().Add(-time.Minute), counts: map[outcome]int{killed: 1}}
	p.done("a fault", survived)
	const want = "survived: a fault\n2 of 8: 1 killed, 1 survived, 0 not compiled; 1m0s so far, about 3m0s to go\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}
