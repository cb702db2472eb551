package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinesAreCompared(t *testing.T) {
	for _, c := range []struct {
		name       string
		want, have []string
		equal      bool
	}{
		{name: "the same lines", want: []string{"a", "b"}, have: []string{"a", "b"}, equal: true},
		{name: "another line", want: []string{"a", "b"}, have: []string{"a", "c"}},
		{name: "a line is missing", want: []string{"a", "b"}, have: []string{"a"}},
		{name: "one line more", want: []string{"a"}, have: []string{"a", "b"}},
		{name: "the wrong order", want: []string{"a", "b"}, have: []string{"b", "a"}},
		{name: "a placeholder", want: []string{"<n> bytes."}, have: []string{"12 bytes."}, equal: true},
		{name: "two placeholders", want: []string{"uid <uid> of <n>"}, have: []string{"uid 1-2 of 3"}, equal: true},
		{name: "nothing for a placeholder", want: []string{"<n> bytes"}, have: []string{" bytes"}},
		{name: "a dot is a dot", want: []string{"a.b"}, have: []string{"axb"}},
		{name: "more after the end", want: []string{"list <n>"}, have: []string{"list 1", "list 2"}},
		{name: "skipped lines", want: []string{"...", "z"}, have: []string{"a", "b", "z"}, equal: true},
		{name: "no lines to skip", want: []string{"...", "z"}, have: []string{"z"}, equal: true},
		{name: "skipped to the end", want: []string{"a", "..."}, have: []string{"a", "b"}, equal: true},
		{name: "the line after skipped ones is missing", want: []string{"...", "z"}, have: []string{"a"}},
		{name: "no lines", equal: true},
	} {
		if equal := matchAll(c.want, c.have); equal != c.equal {
			t.Errorf("%s: %t, want %t", c.name, equal, c.equal)
		}
	}
}

func TestAPlayIsReadFromThePage(t *testing.T) {
	scenes, err := parsePlay("# Title\n" + playHeading + `

Prose.

` + "```console" + `
# Two programs.
# They compete.
$ one --every=1s &
[one] started
$ kubectl apply -f - <<EOF
> kind: Foo
> EOF
foo created
["a"]
...
[one] seen
...
[one] done
` + "```\n\nProse.\n\n```console" + `
[one] late
# The end.
` + "```\n\n## Questions\n\n```console\n$ not played\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []scene{
		{
			comments: []string{"Two programs.", "They compete."}, command: "one --every=1s &",
			background: []string{"[one] started"},
		},
		{
			command: "kubectl apply -f - <<EOF\nkind: Foo\nEOF", output: []string{"foo created", `["a"]`},
			background: []string{"...", "[one] seen", "...", "[one] done"},
		},
		{background: []string{"[one] late"}},
		{comments: []string{"The end."}},
	}
	if diff := cmp.Diff(want, scenes, cmp.AllowUnexported(scene{})); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	for _, page := range []string{"no section", playHeading + "\n", playHeading + "\n```console\n$ no end\n"} {
		if scenes, err := parsePlay(page); err == nil {
			t.Errorf("%q gives %v and no error", page, scenes)
		}
	}
}

func TestLinesOfDifferentProgramsHaveNoOrder(t *testing.T) {
	page := []string{"[a] 1", "[b] 1", "...", "[a] 2", "[b] 2"}
	for _, c := range []struct {
		name     string
		have     []string
		accepted bool
		done     bool
	}{
		{name: "as in the page", have: []string{"[a] 1", "[b] 1", "[a] 2", "[b] 2"}, accepted: true, done: true},
		{name: "one after the other", have: []string{"[b] 1", "[b] 2", "[a] 1", "[a] 2"}, accepted: true, done: true},
		{name: "skipped lines of a", have: []string{"[a] 1", "[a] x", "[b] 1", "[b] 2", "[a] 2"}, accepted: true, done: true},
		{name: "a line of b that is not skipped", have: []string{"[b] 1", "[b] x"}},
		{name: "the wrong order in b", have: []string{"[b] 2"}},
		{name: "an unknown program", have: []string{"[c] 1"}},
		{name: "lines are missing", have: []string{"[a] 1", "[b] 1", "[b] 2"}, accepted: true},
	} {
		m, accepted := newMatchers(page), true
		for _, line := range c.have {
			accepted = accepted && m.accept(line)
		}
		if accepted != c.accepted || accepted && m.done() != c.done {
			t.Errorf("%s: accepted %t, done %t", c.name, accepted, m.done())
		}
	}
}
