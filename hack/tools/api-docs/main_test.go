package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const types = `package v1

// Foo is a Foo.
//
// +marker
type Foo struct{}

// FooSpec is wanted.
type FooSpec struct{}

// Words that are printed. docs/operations.md explains.
const (
	// WordYes is the opposite of WordNo,
	// in short.
	WordYes = "Yes"
	// WordNo is final.
	WordNo = "No"
)
`

const crd = `
spec:
  group: g.example.com
  names: {kind: Foo, plural: foos}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [names]
            properties:
              count: {type: integer, format: int32, default: 3, minimum: 0, maximum: 9}
              names:
                type: array
                description: names are many.
                minItems: 1
                maxItems: 2
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                x-kubernetes-validations:
                - {rule: self != oldSelf, fieldPath: .name, message: name something new, optionalOldSelf: true}
                - {rule: size(self) > 0}
                items:
                  type: object
                  properties:
                    name: {type: string, minLength: 1, maxLength: 5, pattern: '^[a](b)?', enum: [a, ab]}
                    tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
`

// The quotes stand for backticks.
const want = `
FooSpec is wanted.

### 'spec.count'

- integer (int32), optional, default '3'
- at least 0
- at most 9

### 'spec.names'

names are many.

- list of objects, required
- number of items at least 1
- number of items at most 2
- no two items with the same 'name'
- 'name': name something new (an update is compared with what is stored)
- 'size(self) > 0'

### 'spec.names[]'

- object, item of the list

### 'spec.names[].name'

- string, optional
- length at least 1
- length at most 5
- one of 'a', 'ab'
- matches '^[a]'<wbr>'(b)?'

### 'spec.names[].tags'

- list of strings, optional
- no item twice

### 'spec.names[].tags[]'

- string, item of the list

## Words that are printed

[docs/operations.md](operations.md) explains.

- 'Yes' is the opposite of 'No',
  in short.
- 'No' is final.
`

// TestPage has one of each kind of rule, because a reader takes a rule that the page omits for missing.
func TestPage(t *testing.T) {
	page, err := renderText(t, types, crd)
	if err != nil {
		t.Fatal(err)
	}
	_, have, _ := strings.Cut(page, "## FooSpec\n")
	if diff := cmp.Diff(strings.ReplaceAll(want, "'", "`"), have); diff != "" {
		t.Errorf("(-want +have)\n%s", diff)
	}
}

func TestNothingIsLeftOut(t *testing.T) {
	for name, tt := range map[string]struct{ types, crd string }{
		"a rule without words":       {types, strings.Replace(crd, "maximum: 9", "multipleOf: 9", 1)},
		"a second version":           {types, crd + "  - name: v2\n"},
		"a constant without comment": {strings.Replace(types, "// WordNo is final.", "", 1), crd},
		"a group without comment":    {strings.Replace(types, "explains.\n", "explains.\n\n", 1), crd},
	} {
		if _, err := renderText(t, tt.types, tt.crd); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func renderText(t *testing.T, types, crd string) (string, error) {
	dir := t.TempDir()
	for name, text := range map[string]string{"types.go": types, "crd.yaml": crd, "example.yaml": "kind: Foo\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page, err := render(dir, filepath.Join(dir, "crd.yaml"), filepath.Join(dir, "example.yaml"))
	return string(page), err
}
