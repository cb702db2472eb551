package main

import (
	"strings"
	"testing"
)

func TestWhatChangesNeedsAReason(t *testing.T) {
	set := func(names string) map[string]bool {
		lines := map[string]bool{}
		for _, name := range strings.Fields(names) {
			lines[name] = true
		}
		return lines
	}
	for _, test := range []struct{ name, exported, promised, except, want string }{
		{name: "as promised", exported: "a b", promised: "a b"},
		{name: "new", exported: "a b", promised: "a", want: "it is new"},
		{name: "gone", exported: "a", promised: "a b", want: "it is gone: add it to api/except.txt"},
		{name: "gone, with a reason", exported: "a", promised: "a b", except: "b"},
		{name: "back again", exported: "a b", promised: "a b", except: "b", want: "it is in api/except.txt, and exported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := compare(set(test.exported), set(test.promised), set(test.except))
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
