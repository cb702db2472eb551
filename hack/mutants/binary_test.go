package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTestPackages(t *testing.T) {
	for _, test := range []struct {
		name, args      string
		packages, flags []string
		ok              bool
	}{
		{name: "packages", args: "./pkg/plan .", packages: []string{"./pkg/plan", "."}, ok: true},
		{
			name: "flags with their values", args: "-run=TestA . -skip TestB/row", packages: []string{"."},
			flags: []string{"-test.run=TestA", "-test.skip=TestB/row"}, ok: true,
		},
		{name: "a flag of go", args: "-tags x ."},
		{name: "a flag of the test", args: ". -walk-bad=2"},
		{name: "no package", args: "-run TestA"},
	} {
		packages, flags, ok := testPackages(strings.Fields(test.args))
		if !test.ok {
			packages, flags = nil, nil
		}
		if ok != test.ok || !cmp.Equal(packages, test.packages) || !cmp.Equal(flags, test.flags) {
			t.Errorf("%s: %q, %q, %t; want %q, %q, %t", test.name, packages, flags, ok, test.packages, test.flags, test.ok)
		}
	}
}
