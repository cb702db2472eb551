package docs_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/component-base/logs/json"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// messageArgument has, for each function that logs at level 0, the index of the message among its arguments. Info and
// Error are those of loggers, info is in pkg/report, the others are in pkg/kit/preflight.
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

// The runbooks begin with a command that leaves out what is no failure, in both formats of the log.
func TestTheRunbooksSelectFailures(t *testing.T) {
	text, err := os.ReadFile("monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^kubectl logs .* --prefix \| (grep .*)$`).FindSubmatch(text)
	if command == nil {
		t.Fatal("monitoring.md has no command for the log any more")
	}
	for format, logger := range map[string]func(*os.File) klog.Logger{
		"text": func(f *os.File) klog.Logger { return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(f))) },
		"json": func(f *os.File) klog.Logger { l, _ := json.NewJSONLogger(0, f, nil, nil); return l },
	} {
		t.Run(format, func(t *testing.T) {
			file, err := os.Create(filepath.Join(t.TempDir(), "log"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			logger(file).Info("Created Deployment", "image", `"v":`)
			logger(file).Error(errors.New(`no "v":0`), "Sync failed")
			logger(file).Error(nil, "Check failed")
			log, err := os.ReadFile(file.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, prefix := range []string{"", "[pod/foo-controller-a/foo-controller] "} {
				grep := exec.Command("sh", "-c", string(command[1]))
				grep.Stdin = strings.NewReader(regexp.MustCompile(`(?m)^.`).ReplaceAllString(string(log), prefix+"$0"))
				found, err := grep.Output()
				if err != nil || strings.Count(string(found), "\n") != 2 || strings.Contains(string(found), "Created") {
					t.Errorf("%s: %v, want the two failures of\n%s, not\n%s", command[1], err, log, found)
				}
			}
		})
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
			skipped := strings.HasSuffix(filepath.Dir(file), "test") || strings.Contains(file, "/pkg/sim/")
			skipped = skipped || strings.Contains(file, "/pkg/kit/webhook/") // The program does not contain it.
			if !skipped && !strings.HasSuffix(file, "_test.go") {
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
	kind, argument := "", call.Args[at]
	if sum, ok := argument.(*ast.BinaryExpr); ok { // "Created " and a kind: its lines are about Deployments.
		kind, argument = "Deployment", sum.X
	}
	literal, ok := argument.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	message, err := strconv.Unquote(literal.Value)
	if err != nil {
		return nil
	}
	return []string{message + kind}
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
