package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEachExportedNameHasALine: what is not exported, and the bodies of functions, are no part of a promise.
func TestEachExportedNameHasALine(t *testing.T) {
	t.Chdir(t.TempDir())
	const file = `package shop

const Open, closed = "open", "closed"

var Stock = map[string]int{"a": 1}

// A Shop sells.
type Shop struct {
	Owner
	Name string // For people.
	open bool
}

type Seller[T any] interface {
	Sell(T, ...string) error
	note()
}

type stand struct{ Size int }

func (s *Shop) Sell(what string) error { return nil }
func (s *stand) Sell(what string) error { return nil }
func Find[T comparable](
	in []T,
) *Shop { return nil }
func find() {}
`
	if err := os.MkdirAll("pkg/kit/shop", 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("pkg/kit/shop", "shop.go")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	if err := addFile(lines, path); err != nil {
		t.Fatal(err)
	}
	const want = `kit/shop: const Open = "open"
kit/shop: func (s *Shop) Sell(what string) error
kit/shop: func Find[T comparable](in []T) *Shop
kit/shop: type Seller.Sell func(T, ...string) error
kit/shop: type Seller[T any] interface { }
kit/shop: type Shop embeds Owner
kit/shop: type Shop struct { }
kit/shop: type Shop.Name string
kit/shop: var Stock`
	if diff := cmp.Diff(strings.Split(want, "\n"), slices.Sorted(maps.Keys(lines))); diff != "" {
		t.Error(diff)
	}
}

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
