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

func TestEveryReasonIsExplainedInTheOperationsGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var explained []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(string(guide), -1) {
		explained = append(explained, row[1])
	}
	slices.Sort(explained)

	declared := declared(t, "Reason", "Event")
	if len(declared) < 10 {
		t.Fatalf("found only %v in conditions.go", declared)
	}
	if !slices.Equal(declared, explained) {
		t.Errorf("conditions.go has %v,\ndocs/operations.md has %v", declared, explained)
	}
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
