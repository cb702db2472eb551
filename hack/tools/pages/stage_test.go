package pages

import "testing"

func TestLinesAreCompared(t *testing.T) {
	programs := []string{"[a] 1", "[b] 1", "...", "[a] 2", "[b] 2"}
	for _, c := range []struct {
		name       string
		want, have []string
		refused    bool // The last line is not accepted.
		missing    bool // Lines are missing after the last one.
	}{
		{name: "the same lines", want: []string{"a", "b"}, have: []string{"a", "b"}},
		{name: "another line", want: []string{"a", "b"}, have: []string{"a", "c"}, refused: true, missing: true},
		{name: "a line is missing", want: []string{"a", "b"}, have: []string{"a"}, missing: true},
		{name: "one line more", want: []string{"a"}, have: []string{"a", "b"}, refused: true},
		{name: "the wrong order", want: []string{"a", "b"}, have: []string{"b"}, refused: true, missing: true},
		{name: "a placeholder", want: []string{"<time> ago."}, have: []string{"12 s ago."}},
		{name: "two placeholders", want: []string{"uid <uid> of <n>"}, have: []string{"uid 1-2 of 3"}},
		{name: "a number", want: []string{"<n> bytes"}, have: []string{"12 bytes"}},
		{name: "no number", want: []string{"<n> bytes"}, have: []string{"1x bytes"}, refused: true, missing: true},
		{name: "nothing for a placeholder", want: []string{"<x> b"}, have: []string{" b"}, refused: true, missing: true},
		{name: "a dot is a dot", want: []string{"a.b"}, have: []string{"axb"}, refused: true, missing: true},
		{name: "skipped lines", want: []string{"...", "z"}, have: []string{"a", "b", "z"}},
		{name: "no lines to skip", want: []string{"...", "z"}, have: []string{"z"}},
		{name: "skipped to the end", want: []string{"a", "..."}, have: []string{"a", "b"}},
		{name: "the line after skipped ones is missing", want: []string{"...", "z"}, have: []string{"a"}, missing: true},
		{name: "more in the line", want: []string{"a"}, have: []string{"a b"}, refused: true, missing: true},
		{name: "more before it", want: []string{"a"}, have: []string{"b a"}, refused: true, missing: true},
		{name: "no lines"},

		{name: "programs, as in the page", want: programs, have: []string{"[a] 1", "[b] 1", "[a] 2", "[b] 2"}},
		{name: "programs, one after the other", want: programs, have: []string{"[b] 1", "[b] 2", "[a] 1", "[a] 2"}},
		{name: "skipped lines of a", want: programs, have: []string{"[a] 1", "[a] x", "[b] 1", "[b] 2", "[a] 2"}},
		{name: "a line of b, of which none is skipped", want: programs, have: []string{"[b] 1", "[b] x"}, refused: true,
			missing: true},
		{name: "the wrong order in b", want: programs, have: []string{"[b] 2"}, refused: true, missing: true},
		{name: "an unknown program", want: programs, have: []string{"[c] 1"}, refused: true, missing: true},
		{name: "lines of a are missing", want: programs, have: []string{"[a] 1", "[b] 1", "[b] 2"}, missing: true},
		{name: "skipped lines before a program are not those of the command", want: []string{"done", "...", "[a] 1"},
			have: []string{"done", "[a] x", "[a] 1", "more"}, refused: true},
	} {
		m := newMatcher(c.want)
		for i, line := range c.have {
			if accepted, want := m.accept(line), !c.refused || i < len(c.have)-1; accepted != want {
				t.Errorf("%s: %q is accepted: %t, want %t", c.name, line, accepted, want)
			}
		}
		if missing := m.missing(); len(missing) > 0 != c.missing {
			t.Errorf("%s: %q are missing, want some: %t", c.name, missing, c.missing)
		}
	}
}

func TestEachCommandOfAScriptMustSucceed(t *testing.T) {
	s := &Stage{Root: "/", Out: t.Output()}
	for command, fails := range map[string]bool{"true": false, "false\ntrue": true} {
		err := s.Play(t.Context(), []Scene{{Command: command, Lines: []string{skipLines}, IsScript: true}})
		if (err != nil) != fails {
			t.Errorf("%q: %v, want an error: %t", command, err, fails)
		}
	}
}
