package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// operations.md has a row for each reason, and one for each event. readiness.md has a row for each way to a reason.
func TestPagesHaveEveryReason(t *testing.T) {
	if got, want := explained(t, "operations.md", "^"), declared(t, "Reason", "Event"); !slices.Equal(got, want) {
		t.Errorf("conditions.go has %v,\ndocs/operations.md has %v", want, got)
	}
	if got, want := slices.Compact(explained(t, "readiness.md", ".* ")), declared(t, "Reason"); !slices.Equal(got, want) {
		t.Errorf("conditions.go has %v,\ndocs/readiness.md has %v", want, got)
	}
}

// explained returns what a page has between backquotes in a cell of a table, after what comes before the cell.
func explained(t *testing.T, page, before string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, row := range regexp.MustCompile("(?m)"+before+"\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		found = append(found, row[1])
	}
	slices.Sort(found)
	return found
}

func TestReadyReasonsAreAllReasons(t *testing.T) {
	if got, want := slices.Sorted(slices.Values(ReadyReasons)), declared(t, "Reason"); !slices.Equal(got, want) {
		t.Errorf("ReadyReasons are %v, conditions.go has %v", got, want)
	}
}

// declared returns the values of the constants whose names begin with one of prefixes, in order.
func declared(t *testing.T, prefixes ...string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(spec.Names[0].Name, p) }) {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, value)
		return true
	})
	slices.Sort(found)
	return found
}
