package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// measureText measures the only function of a file.
func measureText(t *testing.T, text string) function {
	t.Helper()
	src, err := parse("pkg/a/a.go", []byte("package a\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	functions := measure(src)
	if len(functions) != 1 {
		t.Fatalf("%d functions, want one", len(functions))
	}
	return functions[0]
}

func TestComplexityAndNesting(t *testing.T) {
	tests := []struct {
		name                string
		text                string
		complexity, nesting int
	}{
		{name: "a straight function", text: `func f() { g() }`, complexity: 1, nesting: 0},
		{name: "if, with conditions", text: `func f() { if a && b || c { g() } }`, complexity: 4, nesting: 1},
		{name: "else costs nothing", text: `func f() { if a { g() } else { h() } }`, complexity: 2, nesting: 1},
		{name: "else if is no deeper", text: `func f() { if a { } else if b { } else if c { g() } }`,
			complexity: 4, nesting: 1},
		{name: "an if in an else is", text: `func f() { if a { } else { if b { g() } } }`, complexity: 3, nesting: 2},
		{name: "loops", text: `func f() { for { for range x { g() } } }`, complexity: 3, nesting: 2},
		{name: "each expression of a case, default none",
			text:       `func f() { switch x { case 1, 2: case 3: default: g() } }`,
			complexity: 4, nesting: 1},
		{name: "cases with their own branches", text: `func f() { switch { case a && b: if c { g() } } }`,
			complexity: 4, nesting: 2},
		{name: "a switch over types", text: `func f() { switch x.(type) { case A, B: case C: } }`,
			complexity: 4, nesting: 1},
		{name: "a select, default not counted", text: `func f() { select { case <-a: case b <- 1: default: } }`,
			complexity: 3, nesting: 1},
		{name: "a bare block", text: `func f() { { g() } }`, complexity: 1, nesting: 1},
		{name: "a label is no block", text: `func f() { again: for { break again } }`, complexity: 2, nesting: 1},
		{name: "a literal's branches count, its depth starts again",
			text:       `func f() { for { if a { g(func() { for { if b { } } }) } } }`,
			complexity: 5, nesting: 2},
		{name: "a literal may be the deepest", text: `func f() { g(func() { for { if a { if b { } } } }) }`,
			complexity: 4, nesting: 3},
		{name: "a literal outside of functions", text: `var f = func() { if a { } }`, complexity: 2, nesting: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fn := measureText(t, tt.text)
			if fn.complexity != tt.complexity || fn.nesting != tt.nesting {
				t.Errorf("complexity %d, nesting %d; want %d, %d", fn.complexity, fn.nesting, tt.complexity, tt.nesting)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		`func f() {}`:                 "f",
		`func (c *C) f() {}`:          "C.f",
		`func (c C[K, V]) f() {}`:     "C.f",
		`func (*C[K]) f() {}`:         "C.f",
		`var rules = []any{func(){}}`: "function literal",
	} {
		if got := measureText(t, text).name; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// long returns a function with this number of lines.
func long(name string, lines int) string {
	return "func " + name + "() {" + strings.Repeat("\n", lines-1) + "}\n"
}

const deep = `
func f() {
	for {
		if a {
			if b {
				g()
			}
		}
	}
}
`

func TestCheck(t *testing.T) {
	wide := "var a = 1 // " + strings.Repeat("é", 108) // 121 columns, more bytes.
	ifs := "func f() {" + strings.Repeat("if a { }\n", maxComplexity) + "}\n"
	tests := []struct {
		name string
		path string
		text string
		want []string
	}{
		{name: "within all limits", path: "pkg/a/a.go", text: long("f", 60) + wide[:len(wide)-2]},
		{name: "too long", path: "pkg/a/a.go", text: long("f", 61), want: []string{
			"pkg/a/a.go:2: f has 61 lines, 60 are allowed"}},
		{name: "too complex", path: "a.go", text: ifs, want: []string{
			"a.go:2: f has a cyclomatic complexity of 13, 12 is allowed"}},
		{name: "too deep, where it is", path: "a.go", text: deep, want: []string{
			"a.go:6: f nests statements 3 deep here, 2 is allowed"}},
		{name: "a tighter limit for syncHandler", path: "controller.go", text: "type C int\n" +
			strings.Replace(long("syncHandler", 31), "func ", "func (c *C) ", 1), want: []string{
			"controller.go:3: C.syncHandler has 31 lines, 30 are allowed"}},
		{name: "main and run have a limit together", path: "main.go", text: long("main", 10) + long("run", 80)},
		{name: "and reach it", path: "main.go", text: long("main", 10) + long("run", 81), want: []string{
			"main.go:12: main and run together have 91 lines, 90 are allowed"}},
		{name: "elsewhere run is as others", path: "controller.go", text: long("run", 61), want: []string{
			"controller.go:2: run has 61 lines, 60 are allowed"}},
		{name: "a line too wide", path: "pkg/a/a.go", text: wide, want: []string{
			"pkg/a/a.go:2: the line has 121 columns, 120 are allowed"}},
		{name: "a tab is one column", path: "pkg/a/a.go",
			text: "var a = []int{\n\t1, // " + strings.Repeat("x", 114) + "\n}",
			want: []string{"pkg/a/a.go:3: the line has 121 columns, 120 are allowed"}},
		{name: "wide lines are found everywhere", path: "hack/x/a_test.go", text: wide, want: []string{
			"hack/x/a_test.go:2: the line has 121 columns, 120 are allowed"}},
		{name: "tests have any shape", path: "pkg/a/a_test.go", text: deep},
		{name: "so has the simulated API server", path: "pkg/apisim/a.go", text: deep},
		{name: "so have programs in hack", path: "hack/x/main.go", text: deep},
		{name: "generated code is not read", path: "pkg/generated/x/a.go", text: wide},
		{name: "nor are generated files", path: "pkg/a/zz_generated.deepcopy.go", text: wide},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sources, err := load(fstest.MapFS{tt.path: {Data: []byte("package a\n" + tt.text)}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, check(sources)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLinesThatMayBeWide(t *testing.T) {
	wide := strings.Repeat("x", 130)
	tests := []struct {
		name, text string
		mayBe      bool
	}{
		{name: "one quoted literal", text: fmt.Sprintf("var a = []string{\n%q,\n}", wide), mayBe: true},
		{name: "one that is joined to others", text: fmt.Sprintf("var a = `x` +\n%q +\n`y`", wide), mayBe: true},
		{name: "a literal and more", text: fmt.Sprintf("var a = %q", wide)},
		{name: "two literals", text: fmt.Sprintf("var a = []string{\n%q, %q,\n}", wide, "b")},
		{name: "a literal and a comment", text: fmt.Sprintf("var a = []string{\n%q, // why\n}", wide)},
		{name: "a line of a raw literal", text: "var a = `\n" + wide + "\n`", mayBe: true},
		{name: "the first line of a raw literal, after code", text: "var a = `" + wide + "\n`"},
		{name: "a comment", text: "// " + wide},
		{name: "a block of comment", text: "/*\n" + wide + "\n*/"},
		{name: "a marker", text: "// +kubebuilder:validation:" + wide + "\nvar a int", mayBe: true},
		{name: "output of an example", text: "func Example() {\n// Output:\n// a\n// " + wide + "\n}", mayBe: true},
		{name: "a comment after it", text: "func Example() {\n\t// Output:\n\t// a\n}\n\n// " + wide},
		{name: "a directive", text: "//go:generate " + wide + "\nvar a int", mayBe: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src, err := parse("a.go", []byte("package a\n"+tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if findings := wideLines(src); (len(findings) == 0) != tt.mayBe {
				t.Errorf("findings %q, want some: %v", findings, !tt.mayBe)
			}
		})
	}
}

func TestTableHasTheMostComplexFirst(t *testing.T) {
	sources, err := load(fstest.MapFS{
		"a.go":      {Data: []byte("package a\nfunc one() {}\nfunc (c *C) two() { if a { } }\n")},
		"a_test.go": {Data: []byte("package a\n" + deep)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printTable(&out, sources); err != nil {
		t.Fatal(err)
	}
	want := `function  lines  complexity  nesting  place
C.two     1      2           1        a.go:3
one       1      1           0        a.go:2
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestMentionedNames(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"controller.go": `package main

import (
	"fmt"

	"example.com/m/pkg/plan"
)

type controller struct {
	state plan.State
	size  int
}

const limit = 3

func (c *controller) sync(extra int) {
	local := struct{ n int }{extra + limit}
	for step := c.state.Next(); step != nil; step = c.state.Next() {
		fmt.Println(step.Verb, c.state.Verb, local.n, limit)
	}
}

func main() { new(controller).sync(1) }
`,
		"pkg/plan/plan.go": `package plan

type Step struct{ Verb string }

type State struct{ Step }

func (s *State) Next() *Step { return first(s) }
`,
		"pkg/plan/rules_first.go": `package plan

func first(s *State) *Step { return &s.Step }
`,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out strings.Builder
	if err := printNames(&out, []string{"sync", "State.Next", "pkg/plan/rules"}); err != nil {
		t.Fatal(err)
	}
	want := `pkg/plan/plan.go:7: State.Next mentions 3: State Step first
pkg/plan/rules_first.go:3: first mentions 3: State State.Step Step
controller.go:16: controller.sync mentions 5: controller controller.state limit plan.State.Next plan.Step.Verb
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if err := printNames(&out, []string{"nobody"}); err == nil {
		t.Error("no error for a name that no function has")
	}
}
