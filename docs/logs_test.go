package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// messageArgument has, for each function that logs at level 0, the index of the message among its arguments. Info and
// Error are those of loggers, info is in pkg/kit/logging, the others are in pkg/kit/preflight.
var messageArgument = map[string]int{"Info": 0, "Error": 1, "info": 2, "resolve": 1, "report": 2, "reportAfter": 3,
	"problem": 0}

// TestOperationsHasTheLinesOfTheDefaultLog compares the tables of log lines in operations.md with the code.
func TestOperationsHasTheLinesOfTheDefaultLog(t *testing.T) {
	text, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedLines(string(text))
	logged := defaultLines(t)
	if len(documented) < 10 || len(logged) < 10 {
		t.Fatalf("%d lines are documented and %d logged: are they still found?", len(documented), len(logged))
	}
	for _, line := range documented {
		if !slices.ContainsFunc(logged, func(message string) bool { return strings.HasPrefix(message, line) }) {
			t.Errorf("operations.md has the log line %q, which the code does not log", line)
		}
	}
	for _, message := range logged {
		if !slices.ContainsFunc(documented, func(line string) bool { return strings.HasPrefix(message, line) }) {
			t.Errorf("operations.md lacks the log line %q", message)
		}
	}
}

// documentedLines returns the first column of the tables whose header begins with "log line".
func documentedLines(text string) []string {
	var lines []string
	tables := regexp.MustCompile(`(?m)^\| log line \|.*\n\| ---.*\n((?:\|.*\n)+)`)
	for _, table := range tables.FindAllStringSubmatch(text, -1) {
		for row := range strings.Lines(table[1]) {
			lines = append(lines, strings.TrimSpace(strings.Split(row, "|")[1]))
		}
	}
	return lines
}

// defaultLines returns the messages that the program logs at level 0 or as errors.
func defaultLines(t *testing.T) []string {
	t.Helper()
	var messages []string
	for _, pattern := range []string{"*.go", "pkg/*/*.go", "pkg/*/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(filepath.Dir(file), "test") && !strings.HasSuffix(file, "_test.go") {
				messages = append(messages, messagesIn(t, file)...)
			}
		}
	}
	return messages
}

func messagesIn(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			messages = append(messages, messageOf(node)...)
		case *ast.CompositeLit:
			messages = append(messages, messageOfProblem(node)...)
		}
		return true
	})
	return messages
}

// messageOf returns the message that call logs at level 0, if it does.
func messageOf(call *ast.CallExpr) []string {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	at, logs := messageArgument[function.Sel.Name]
	if !logs || at >= len(call.Args) || isVerbose(function.X) {
		return nil
	}
	literal, ok := call.Args[at].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	message, err := strconv.Unquote(literal.Value)
	if err != nil {
		return nil
	}
	return []string{message}
}

// messageOfProblem returns the message of a preflight.Problem, which is logged.
func messageOfProblem(problem *ast.CompositeLit) []string {
	if name, ok := problem.Type.(*ast.Ident); !ok || name.Name != "Problem" {
		return nil
	}
	for _, element := range problem.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		name, ok := field.Key.(*ast.Ident)
		literal, is := field.Value.(*ast.BasicLit)
		if ok && is && name.Name == "Message" {
			message, _ := strconv.Unquote(literal.Value)
			return []string{message}
		}
	}
	return nil
}

// isVerbose reports whether logger is a call of V: its lines are not in the log by default.
func isVerbose(logger ast.Expr) bool {
	call, ok := logger.(*ast.CallExpr)
	if !ok {
		return false
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	return ok && function.Sel.Name == "V"
}
