package main

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
}

// TestRun compares output and error of the command.
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
			wantOut:   "survived: " + survivor + "\n",
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
			name:    "a test that hangs counts as a failure",
			tests:   strings.Replace(tinyTests, "positive(-5)", "positive(-5) && func() bool { select {} }()", 1),
			args:    []string{"--only", alwaysTrue, "--timeout=500ms"},
			wantOut: oneKilled,
		},
		{
			name: "what does not compile does not count",
			source: "package tiny\n\nfunc positive(n int) bool {\n\tswitch {\n\tcase n > 0:\n\t\tprint()\n\t\t" +
				"return true\n\tdefault:\n\t\treturn false\n\t}\n}\n",
			args:    []string{"--only", `return true . left out`},
			wantOut: "0 killed, 0 survived; 1 more did not compile\nno problems\n",
		},
		{
			name:    "a constant is wrong in a binary of its own",
			source:  strings.Replace(tinySource, "n > 0\n}", "n > limit\n}\n\nconst limit = 4", 1),
			args:    []string{"--only", "const limit"},
			wantOut: "1 killed, 1 survived",
			wantErr: "survives, and is not listed: tiny/tiny.go | const limit | const limit = 4 | 4 is 3",
		},
		{
			name:    "what its own tests do not notice is tried with those of another package",
			source:  strings.ReplaceAll(tinySource, "positive", "Positive"),
			user:    walkOfUser,
			tests:   "package tiny\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n",
			args:    []string{"--only", alwaysTrue, "--also=tiny=user"},
			wantOut: oneKilled,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && !slices.Contains(test.args, "--list") {
				t.Skip("builds test binaries")
			}
			test.run(t)
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

// writeFiles writes these files to a new directory, and returns its name.
func writeFiles(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
