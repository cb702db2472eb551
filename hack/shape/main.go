// Command shape measures functions and lines. `make verify` runs it, so that code can be read from top to bottom. Run
// it in the root of the repository:
//
//	go run ./hack/shape          report functions and lines that are too large, as lines "file:line: problem"
//	go run ./hack/shape -table   print the functions of the core with the highest complexity
//	go run ./hack/shape -names   print the names of this module that a reader of these functions meets
//
// The core is the root and pkg, without tests, generated code and the simulated API server in pkg/apisim. The length of
// lines is checked everywhere.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

const (
	maxLines      = 60
	maxNesting    = 2
	maxComplexity = 12
	maxColumns    = 120

	syncHandler         = "syncHandler"
	maxSyncHandlerLines = 30 // It fits on one screen together with the types that it uses.
	maxMainLines        = 90 // main and run of main.go together, instead of maxLines: they are a table of contents.
)

// readers are the functions that a reader of the core starts with. They are the default of -of.
const readers = "syncHandler,perform,observe,Next,Record,pkg/plan/rules"

// tableRows is the number of functions that -table prints.
const tableRows = 10

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("shape", flag.ExitOnError)
	table := flags.Bool("table", false, "only print the functions of the core with the highest complexity")
	names := flags.Bool("names", false, "only print which names of this module the functions of -of mention")
	of := flags.String("of", readers, "`functions` for -names: names of functions, and paths with a /, "+
		"which stand for all functions of the files that begin so")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *names {
		return printNames(out, strings.Split(*of, ","))
	}
	sources, err := load(os.DirFS("."))
	if err != nil {
		return err
	}
	if *table {
		return printTable(out, sources)
	}
	findings := check(sources)
	for _, finding := range findings {
		fmt.Fprintln(out, finding)
	}
	if len(findings) > 0 {
		return errors.New("code is larger than allowed; hack/shape/main.go has the limits")
	}
	return nil
}

// A source is one Go file.
type source struct {
	path string // With slashes, from the root of the repository.
	text []byte
	file *ast.File
	fset *token.FileSet
}

// load parses all Go files of the repository except generated ones.
func load(root fs.FS) ([]source, error) {
	var sources []source
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isSkipped(name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go" || strings.HasPrefix(path.Base(name), "zz_generated"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parsed, err := parse(name, text)
		sources = append(sources, parsed)
		return err
	})
	return sources, err
}

// isSkipped reports whether a directory is skipped: its code is generated, or the go command ignores it.
func isSkipped(dir string) bool {
	base := path.Base(dir)
	hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata"
	return dir != "." && (hidden || dir == "bin" || dir == "pkg/generated")
}

func parse(name string, text []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{name, text, file, fset}, err
}

// isCore reports whether the functions of a file have limits.
func isCore(file string) bool {
	dir := path.Dir(file)
	switch {
	case strings.HasSuffix(file, "_test.go"):
		return false
	case dir == "pkg/apisim":
		return false
	}
	return dir == "." || strings.HasPrefix(dir, "pkg/")
}

// check returns a line for each function and line that exceeds a limit.
func check(sources []source) []string {
	var findings []string
	for _, src := range sources {
		findings = append(findings, wideLines(src)...)
		if !isCore(src.path) {
			continue
		}
		functions := measure(src)
		for _, fn := range functions {
			findings = append(findings, tooLarge(fn)...)
		}
		findings = append(findings, mainTooLong(functions)...)
	}
	return findings
}

func tooLarge(fn function) []string {
	var findings []string
	limit := maxLines
	if fn.base == syncHandler {
		limit = maxSyncHandlerLines
	}
	if fn.lines > limit && !fn.isMain() {
		findings = append(findings, fmt.Sprintf("%v: %s has %d lines, %d are allowed",
			fn.pos, fn.name, fn.lines, limit))
	}
	if fn.complexity > maxComplexity {
		findings = append(findings, fmt.Sprintf("%v: %s has a cyclomatic complexity of %d, %d is allowed",
			fn.pos, fn.name, fn.complexity, maxComplexity))
	}
	if fn.nesting > maxNesting {
		findings = append(findings, fmt.Sprintf("%v: %s nests statements %d deep here, %d is allowed",
			fn.deepest, fn.name, fn.nesting, maxNesting))
	}
	return findings
}

// isMain reports whether fn is main or run of main.go, which have a limit of their own.
func (fn function) isMain() bool {
	return fn.pos.Filename == "main.go" && (fn.name == "main" || fn.name == "run")
}

func mainTooLong(functions []function) []string {
	lines, pos := 0, token.Position{}
	for _, fn := range functions {
		if fn.isMain() {
			lines, pos = lines+fn.lines, fn.pos
		}
	}
	if lines <= maxMainLines {
		return nil
	}
	return []string{fmt.Sprintf("%v: main and run together have %d lines, %d are allowed", pos, lines, maxMainLines)}
}

func printTable(out io.Writer, sources []source) error {
	var functions []function
	for _, src := range sources {
		if isCore(src.path) {
			functions = append(functions, measure(src)...)
		}
	}
	slices.SortStableFunc(functions, func(a, b function) int {
		return cmp.Or(b.complexity-a.complexity, b.nesting-a.nesting, b.lines-a.lines)
	})
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "function\tlines\tcomplexity\tnesting\tplace")
	for _, fn := range functions[:min(tableRows, len(functions))] {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s:%d\n",
			fn.name, fn.lines, fn.complexity, fn.nesting, fn.pos.Filename, fn.pos.Line)
	}
	return table.Flush()
}
