package main

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMutate shows the lines of a function f that each operator changes.
func TestMutate(t *testing.T) {
	for _, test := range []struct {
		name, src string
		// want are the changed lines, each as "change: new text".
		want []string
	}{
		{
			name: "a condition becomes true and false, also behind ! and in parentheses",
			src:  "func f(ok bool) {\n\tif !(ok) {\n\t\tf(true)\n\t}\n}",
			want: []string{
				"ok is true: if !((true || (ok))) {",
				"ok is false: if !((false && (ok))) {",
				"left out: if false { f(true) }",
				"true is false: f(false)",
			},
		},
		{
			name: "each part of && and || loses its effect",
			src:  "func f(a, b, c bool) bool {\n\treturn a && (b || c)\n}",
			want: []string{
				"a && (b || c) is false: return (false && (a && (b || c)))",
				"a is true: return (true || (a)) && (b || c)",
				"b || c is true: return a && ((true || (b || c)))",
				"b is false: return a && ((false && (b)) || c)",
				"c is false: return a && (b || (false && (c)))",
			},
		},
		{
			name: "a boundary moves, a number is one more and one less",
			src:  "func f(n int) {\n\tok := n <= 7\n\tok2 := n > 0\n}",
			want: []string{
				"n <= 7 is true: ok := (true || (n <= 7))",
				"n <= 7 is false: ok := (false && (n <= 7))",
				"< for <= in n <= 7: ok := n < 7",
				"7 is 8: ok := n <= 8",
				"7 is 6: ok := n <= 6",
				"n > 0 is true: ok2 := (true || (n > 0))",
				"n > 0 is false: ok2 := (false && (n > 0))",
				">= for > in n > 0: ok2 := n >= 0",
				"0 is 1: ok2 := n > 1",
			},
		},
		{
			name: "statements are left out, but not declarations, which would not compile",
			src: "func f(m map[int]int) {\n\tn := len(m)\n\tn = len(m)\n\tn++\n\tdefer f(m)\n\t_ = n\n\t" +
				"delete(m, n)\n}",
			want: []string{
				"left out: if false { n = len(m) }",
				"left out: if false { n++ }",
				"left out: if false { defer f(m) }",
				"left out: if false { delete(m, n) }",
			},
		},
		{
			name: "a loop is left out, or ends after one iteration; a loop with a condition does not begin",
			src:  "func f(all []int) {\n\tfor range all { continue }\n\tfor g() { h() }\n}",
			want: []string{
				"left out: if false { for range all { continue } }",
				"only once: for range all { continue ; break }",
				"left out: for range all { if false { continue } }",
				"g() is false: for (false && (g())) { h() }",
				"only once: for g() { h() ; break }",
				"left out: for g() { if false { h() } }",
			},
		},
		{
			name: "a return after other statements is left out, and each result becomes zero",
			src:  "func f() (*T, error) {\n\tif ok {\n\t\tg()\n\t\treturn nil, err\n\t}\n\treturn t, nil\n}",
			want: []string{
				"ok is true: if (true || (ok)) {",
				"ok is false: if (false && (ok)) {",
				"left out: if false { g() }",
				"left out: if false { return nil, err }",
				"err is not returned: { _ = err; return nil, *new(error) }",
				"t is not returned: { _ = t; return *new(*T), nil }",
			},
		},
		{
			name: "a literal becomes zero, and each of several elements is left out",
			src:  "func f() T {\n\tif ok {\n\t\treturn T{A: a}\n\t}\n\treturn T{A: a, B: b}\n}",
			want: []string{
				"ok is true: if (true || (ok)) {",
				"ok is false: if (false && (ok)) {",
				"A: a left out: return T{}",
				"T{A: a, B: b} is not returned: { _ = T{A: a, B: b}; return *new(T) }",
				"A: a left out: return T{ B: b}",
				"B: b left out: return T{A: a, }",
			},
		},
		{
			name: "cases of conditions are conditions",
			src:  "func f() {\n\tswitch {\n\tcase a:\n\t\treturn\n\t}\n\tg()\n}",
			want: []string{
				"a is true: case (true || (a)):",
				"a is false: case (false && (a)):",
				"left out: if false { g() }",
			},
		},
		{
			name: "other cases are left out, value by value",
			src:  "func f(n int) {\n\tswitch n {\n\tcase x, y:\n\tcase z:\n\tdefault:\n\t}\n}",
			want: []string{
				"x left out: case y:",
				"y left out: case x:",
				"case left out: ",
				"case left out: ",
			},
		},
		{
			name: "elements of literals are left out, fields that are text or true by their value",
			src:  "func f() {\n\tt := T{A: a, B: \"b\", C: true, D: \"\"}\n\tl := []string{a,\n\t}\n}",
			want: []string{
				"A: a left out: t := T{ B: \"b\", C: true, D: \"\"}",
				`"b" is "": t := T{A: a, B: "", C: true, D: ""}`,
				"true is false: t := T{A: a, B: \"b\", C: false, D: \"\"}",
				`"" is "mutant": t := T{A: a, B: "b", C: true, D: "mutant"}`,
				"a left out: l := []string{",
			},
		},
		{
			name: "arithmetic operators are replaced, but not the concatenation of strings",
			src:  "func f() {\n\tn := a + min(b, c)*d + f(e+\"x\")\n}",
			want: []string{
				"- for + in a + min(b, c)*d: n := a - min(b, c)*d + f(e+\"x\")",
				"max for min: n := a + max(b, c)*d + f(e+\"x\")",
				"/ for * in min(b, c)*d: n := a + min(b, c)/d + f(e+\"x\")",
				`- for + in a + min(b, c)*d + f(e+"x"): n := a + min(b, c)*d - f(e+"x")`,
				`"x" is "": n := a + min(b, c)*d + f(e+"")`,
			},
		},
		{
			name: "times have another unit",
			src:  "const f = time.Second",
			want: []string{"time.Second is time.Minute: const f = time.Minute"},
		},
		{
			name: "texts of errors and logs, tags and comments do not change",
			src: "func f() error {\n\tlogger.Info(\"x\", \"y\", z) // \"no\"\n" +
				"\treturn fmt.Errorf(\"x: %w\", err)\n}\n\ntype t struct {\n\tf int `json:\"f\"`\n}\n\nfunc (t) Error() string " +
				"{ return \"x\" + \"y\" }",
			want: []string{
				`left out: if false { logger.Info("x", "y", z) } // "no"`,
				`fmt.Errorf("x: %w", err) is not returned: { _ = fmt.Errorf("x: %w", err); return *new(error) }`,
			},
		},
		{
			name: "a function literal has the results of its own signature",
			src:  "func f() error {\n\tg(func() bool { return ok })\n\treturn nil\n}",
			want: []string{
				"left out: if false { g(func() bool { return ok }) }",
				"ok is true: g(func() bool { return (true || (ok)) })",
				"ok is false: g(func() bool { return (false && (ok)) })",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			src := []byte("package p\n\n" + test.src + "\n")
			mutants, err := mutate("p.go", src)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range mutants {
				mutated := m.apply(src)
				if _, err := parser.ParseFile(token.NewFileSet(), "p.go", mutated, 0); err != nil {
					t.Errorf("%s: %v", m.key, err)
				}
				first, last := lineAround(mutated, m.from, m.from+len(m.text))
				parts := strings.Split(m.key, " | ")
				got = append(got, parts[3]+": "+oneLine(string(mutated[first:last])))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("mutants (-want +got):\n%s", diff)
			}
		})
	}
}
