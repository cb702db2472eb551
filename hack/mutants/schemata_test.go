package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A change is a fault of a small program, and what the program prints with it.
type change struct {
	from, to, want string
	// reason is why it cannot be woven.
	reason string
}

// TestWeave compiles small programs, each with several faults, and runs them once with each of their faults.
func TestWeave(t *testing.T) {
	for _, test := range []struct {
		name, src string
		want      string // What it prints without a fault.
		changes   []change
	}{
		{
			name: "a function without results does not go on to the original body",
			src:  "func f() {\n\tprint(1)\n\tif n > 0 {\n\t\treturn\n\t}\n\tprint(2)\n}\n\nvar n int\n\nfunc main() { f() }",
			want: "12",
			changes: []change{
				{from: "print(2)", to: "if false { print(2) }", want: "1"},
				{from: "n > 0", to: "true", want: "1"},
				{from: "print(1)", to: "print(3)", want: "32"},
			},
		},
		{
			name: "a function with results",
			src: "func f(n int) int {\n\tif n > 1 {\n\t\treturn n * f(n-1) // Calls itself.\n\t}\n\treturn 1\n}\n\n" +
				"func main() { print(f(4)) }",
			want: "24",
			changes: []change{
				{from: "n * f", to: "n + f", want: "10"},
				{from: "return 1", to: "return 2", want: "48"},
				{from: "return 1", to: "if false { return 1 }", reason: wrongType},
				{from: "n > 1", to: "n > \"1\"", reason: wrongType},
				{from: "n > 1", to: "n >", reason: wrongType},
			},
		},
		{
			name: "named results that a deferred function changes",
			src: "func f() (n int, ok bool) {\n\tdefer func() { n *= 10 }()\n\tn = 3\n\tok = true\n\treturn\n}\n\n" +
				"func main() { print(f()) }",
			want: "30true",
			changes: []change{
				{from: "n = 3", to: "n = 4", want: "40true"},
				{from: "n *= 10", to: "n += 10", want: "13true"},
				{from: "return\n", to: "return n, false\n", want: "30false"},
			},
		},
		{
			name: "a deferred function that recovers",
			src: "func rescue() {\n\tif v := recover(); v != nil {\n\t\tprint(\"rescued\")\n\t}\n}\n\n" +
				"func main() {\n\tdefer rescue()\n\tpanic(1)\n}",
			want: "rescued",
			changes: []change{
				{from: "\"rescued\"", to: "\"saved\"", want: "saved"},
				{from: "panic(1)", to: "print(2)", want: "2"},
			},
		},
		{
			name: "a function inside of another one",
			src: "func f() func() int {\n\tn := 0\n\treturn func() int {\n\t\tn++\n\t\treturn n\n\t}\n}\n\n" +
				"func main() {\n\tg := f()\n\tprint(g(), g())\n}",
			want: "12",
			changes: []change{
				{from: "n++", to: "n--", want: "-1-2"},
				{from: "n := 0", to: "n := 5", want: "67"},
			},
		},
		{
			name: "a generic function, and a method of a generic type",
			src: "func first[T any](all ...T) T {\n\treturn all[0]\n}\n\ntype pair[K comparable] struct{ a, b K }\n\n" +
				"func (p *pair[K]) same() bool {\n\treturn p.a == p.b\n}\n\n" +
				"func main() { print(first(1, 2), first(\"a\", \"b\"), (&pair[int]{1, 1}).same()) }",
			want: "1atrue",
			changes: []change{
				{from: "all[0]", to: "all[1]", want: "2btrue"},
				{from: "p.a == p.b", to: "p.a != p.b", want: "1afalse"},
			},
		},
		{
			name: "the functions init and main",
			src:  "var n int\n\nfunc init() {\n\tn = 1\n}\n\nfunc main() { print(n) }",
			want: "1",
			changes: []change{
				{from: "n = 1", to: "n = 2", want: "2"},
				{from: "print(n)", to: "print(n, n)", want: "11"},
			},
		},
		{
			name: "the values of variables",
			src: "type rule struct {\n\tname string\n\tf func() int\n}\n\nvar rules = []rule{\n\t{\"a\", one},\n\t{\"b\", " +
				"func() int { return 2 }},\n}\n\nvar last, g = &rule{name: \"c\"}, func() int { return 3 }\n\n" +
				"func one() int { return 1 }\n\n" +
				"func main() {\n\tfor _, r := range rules {\n\t\tprint(r.name, r.f())\n\t}\n\tprint(last.name, g())\n}",
			want: "a1b2c3",
			changes: []change{
				{from: "\t{\"a\", one},\n", to: "", want: "b2c3"},
				{from: "return 2", to: "return 4", want: "a1b4c3"},
				{from: "\"c\"", to: "\"d\"", want: "a1b2d3"},
				{from: "return 3", to: "return 5", want: "a1b2c5"},
				{from: "return 1", to: "return 6", want: "a6b2c3"},
				{from: "[]rule{", to: "[2]rule{", reason: noPlace},
			},
		},
		{
			name: "what is neither inside of a function nor of a value",
			src: "const n = 1\n\nvar all = [...]int{1, 2}\n\nfunc f() int {\n\treturn n\n}\n\n" +
				"func main() { print(f(), len(all)) }",
			want: "12",
			changes: []change{
				{from: "const n = 1", to: "const n = 2", reason: noPlace},
				{from: "1, 2", to: "1", reason: noPlace},
				{from: "f() int {", to: "f() int8 {", reason: noPlace},
				{from: "\treturn n\n}\n", to: "\treturn 0\n}\n", reason: noPlace},
				{from: "return n", to: "return 0 }; func g() int { return n", reason: noPlace},
				{from: "return n", to: "return 3", want: "32"},
			},
		},
		{
			name: "what a switch would change",
			src: "func f(n int) int {\n\tn, m := n+1, n\nagain:\n\tif n < 5 {\n\t\tn++\n\t\tgoto again\n\t}\n" +
				"\treturn n + m\n}\n\nfunc main() { print(f(1)) }",
			want: "6",
			changes: []change{
				{from: "n++", to: "n += 2", reason: hasRedefined},
				{from: "n, m := n+1, n", to: "m := n", reason: hasLabel},
				{from: "again:\n\tif n < 5 {\n\t\tn++\n\t\tgoto again\n\t}", to: "", reason: hasRedefined},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("compiles a program")
			}
			src := "package main\n\n" + test.src + "\n"
			root := writeFiles(t, map[string]string{"go.mod": "module tiny\n\ngo 1.26\n", "main.go": src})
			var mutants []mutant
			for _, c := range test.changes {
				if strings.Count(src, c.from) != 1 {
					t.Fatalf("the program has %q %d times", c.from, strings.Count(src, c.from))
				}
				from := strings.Index(src, c.from)
				mutants = append(mutants, mutant{file: "main.go", from: from, to: from + len(c.from), text: c.to})
			}
			check, err := newChecker(t.Context(), root, []string{"."})
			if err != nil {
				t.Fatal(err)
			}
			versions, reasons := check.versions(mutants)
			var woven []version
			for i, c := range test.changes {
				if reasons[i] != c.reason {
					t.Errorf("%q instead of %q: reason %q, want %q", c.to, c.from, reasons[i], c.reason)
				}
				if reasons[i] == "" {
					woven = append(woven, versions[i])
				}
			}
			program := filepath.Join(writeFiles(t, map[string]string{
				"go.mod": "module tiny\n\ngo 1.26\n", "main.go": string(weave([]byte(src), woven)),
				selectorName: string(selectorFile("main")),
			}), "program")
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program)
			build.Dir = filepath.Dir(program)
			if output, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			got, want := map[int]string{0: printed(t, program, 0)}, map[int]string{0: test.want}
			for i, c := range test.changes {
				if c.reason == "" {
					got[i+1], want[i+1] = printed(t, program, i+1), c.want
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("printed (-want +got):\n%s\nby\n%s", diff, weave([]byte(src), woven))
			}
		})
	}
}

// An unused import is an error of the whole file, although the original code next to a mutant uses it.
func TestAnUnusedImportDoesNotCompile(t *testing.T) {
	const src = "package p\n\nimport \"time\"\n\nfunc f() time.Duration {\n\treturn time.Second\n}\n\n" +
		"func g() string {\n\treturn time.Now().String()\n}\n"
	only := strings.Replace(src, "() time.Duration {\n\treturn time.Second", "() int {\n\treturn 1", 1)
	for _, test := range []struct{ name, src, reason string }{
		{"another use is left", src, ""},
		{"the last use", only, wrongType},
	} {
		root := writeFiles(t, map[string]string{"go.mod": "module tiny\n\ngo 1.26\n", "p/p.go": test.src})
		check, err := newChecker(t.Context(), root, []string{"p"})
		if err != nil {
			t.Fatal(err)
		}
		const use = "time.Now().String()"
		from := strings.Index(test.src, use)
		_, reasons := check.versions([]mutant{{file: "p/p.go", from: from, to: from + len(use), text: `""`}})
		if reasons[0] != test.reason {
			t.Errorf("%s: reason %q, want %q", test.name, reasons[0], test.reason)
		}
	}
}

// writeFiles writes these files to a new directory, and returns its name.
func writeFiles(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// printed returns what a program prints with the mutant of this number.
func printed(t *testing.T, program string, number int) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), selectorVariable+"="+strconv.Itoa(number))
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("mutant %d: %v\n%s", number, err, output)
	}
	return string(output)
}
