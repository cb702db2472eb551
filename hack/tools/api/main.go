// Command api compares what the packages for makers export with what has been promised.
//
// api/kit.txt has a line for each exported name, with its type, like the files in Go's own directory api. It only
// grows. What goes or changes stays there, and gets a line in api/except.txt, under a comment with the reason. The
// command fails if a name is in neither. With -update it adds new names to api/kit.txt. Run it at the root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const promisedFile, exceptFile = "api/kit.txt", "api/except.txt"

// public are the directories of the packages for makers, with those below.
var public = []string{"pkg/kit", "pkg/sim"}

func main() {
	update := flag.Bool("update", false, "add new names to "+promisedFile)
	flag.Parse()
	if err := run(*update); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(update bool) error {
	exported := map[string]bool{}
	for _, root := range public {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return addFile(exported, path)
		})
		if err != nil {
			return err
		}
	}
	promised, promisedErr := readLines(promisedFile)
	except, exceptErr := readLines(exceptFile)
	if err := errors.Join(promisedErr, exceptErr); err != nil {
		return err
	}
	if update {
		maps.Copy(promised, exported)
		lines := slices.Sorted(maps.Keys(promised))
		return os.WriteFile(promisedFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	return compare(exported, promised, except)
}

// readLines returns the lines of a file, without comments and empty ones.
func readLines(file string) (map[string]bool, error) {
	text, err := os.ReadFile(file)
	lines := map[string]bool{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines[line] = true
		}
	}
	return lines, err
}

// compare returns an error with a line for each name that is not as promised.
func compare(exported, promised, except map[string]bool) error {
	var errs []error
	for _, line := range slices.Sorted(maps.Keys(exported)) {
		switch {
		case except[line]:
			errs = append(errs, fmt.Errorf("it is in %s, and exported: %s", exceptFile, line))
		case !promised[line]:
			errs = append(errs, fmt.Errorf("it is new: run `go run ./hack/tools/api -update`: %s", line))
		}
	}
	for _, line := range slices.Sorted(maps.Keys(promised)) {
		if !exported[line] && !except[line] {
			errs = append(errs, fmt.Errorf("it is gone: add it to %s, with the reason: %s", exceptFile, line))
		}
	}
	return errors.Join(errs...)
}

// addFile adds a line for each name that a file exports.
func addFile(lines map[string]bool, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.FileExports(file)
	add := func(texts ...any) {
		line := strings.TrimPrefix(filepath.Dir(path), "pkg/") + ":"
		for _, text := range texts {
			line += " " + source(text)
		}
		lines[line] = true
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Body = nil; isExported(decl.Recv) {
				add(decl)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				addSpec(add, decl.Tok.String(), spec)
			}
		}
	}
	return nil
}

// isExported reports whether a receiver, or none, is of an exported type.
func isExported(receiver *ast.FieldList) bool {
	if receiver == nil {
		return true
	}
	base := receiver.List[0].Type
	if pointer, is := base.(*ast.StarExpr); is {
		base = pointer.X
	}
	if generic, is := base.(*ast.IndexExpr); is {
		base = generic.X
	}
	name, is := base.(*ast.Ident)
	return !is || name.IsExported()
}

// addSpec adds the lines of a constant, a variable or a type. The fields and methods of a type have lines of their own.
func addSpec(add func(texts ...any), keyword string, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for i, name := range spec.Names {
			texts := []any{keyword, name.Name}
			if spec.Type != nil {
				texts = append(texts, spec.Type)
			}
			if keyword == "const" && i < len(spec.Values) {
				texts = append(texts, "=", spec.Values[i])
			}
			add(texts...)
		}
	case *ast.TypeSpec:
		var members *ast.FieldList
		switch t := spec.Type.(type) {
		case *ast.StructType:
			members, t.Fields, t.Incomplete = t.Fields, &ast.FieldList{}, false
		case *ast.InterfaceType:
			members, t.Methods, t.Incomplete = t.Methods, &ast.FieldList{}, false
		}
		add(keyword, spec)
		if members == nil {
			return
		}
		for _, member := range members.List {
			for _, name := range member.Names {
				add(keyword, spec.Name.Name+"."+name.Name, member.Type)
			}
			if member.Names == nil {
				add(keyword, spec.Name.Name, "embeds", member.Type)
			}
		}
	}
}

// source returns a part of a Go file in one line.
func source(node any) string {
	if text, is := node.(string); is {
		return text
	}
	var out strings.Builder
	if err := printer.Fprint(&out, token.NewFileSet(), node); err != nil {
		panic(err) // It was parsed.
	}
	return strings.Join(strings.Fields(out.String()), " ")
}
