// Command names counts what a reader must know to follow a path through the controller: the functions on it, and the
// names of this module that they mention (functions, types, variables, constants, methods and fields; not what they
// declare themselves). Run it in the root of the repository:
//
//	go run ./hack/tools/names fooChanged,enqueueFoo    two functions of the controller
//	go run ./hack/tools/names syncHandler,pkg/plan/    one function, and all of the files whose path begins so
//
// docs/decisions/0013-what-we-took-away.md has the figures.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fail("names: want one argument: names of functions and beginnings of paths, with commas between them")
	}
	wanted := strings.Split(os.Args[1], ",")
	root, err := os.Getwd()
	check(err)
	list := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles", ".", "./pkg/...")
	output, err := list.Output()
	check(err)
	fset, compiled := token.NewFileSet(), map[string]string{}
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	imports := importer.ForCompiler(fset, "gc", open)
	functions, names := 0, map[string]bool{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); { // Packages come after their imports.
		var pkg struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
		}
		check(decoder.Decode(&pkg))
		compiled[pkg.ImportPath] = pkg.Export
		if dir, err := filepath.Rel(root, pkg.Dir); err != nil || dir != "." && !strings.HasPrefix(dir, "pkg") {
			continue
		}
		var files []*ast.File
		for _, name := range pkg.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
			check(err)
			files = append(files, file)
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
		_, err := (&types.Config{Importer: imports}).Check(pkg.ImportPath, fset, files, info)
		check(err)
		isWanted := func(fn *ast.FuncDecl) bool {
			path, _ := filepath.Rel(root, fset.Position(fn.Pos()).Filename)
			return slices.ContainsFunc(wanted, func(s string) bool {
				return s == fn.Name.Name || strings.Contains(s, "/") && strings.HasPrefix(path, s)
			})
		}
		for ident, object := range info.Uses {
			fn := functionAt(files, ident.Pos())
			at := fset.Position(object.Pos())
			if _, isPackage := object.(*types.PkgName); isPackage || fn == nil || !isWanted(fn) ||
				!strings.HasPrefix(at.Filename, root+"/") || fn.Pos() <= object.Pos() && object.Pos() < fn.End() {
				continue
			}
			names[fmt.Sprint(object.Name(), at.Filename, at.Line)] = true
		}
		for _, fn := range functionsOf(files) {
			if isWanted(fn) {
				functions++
			}
		}
	}
	fmt.Println(functions, "functions mention", len(names), "names")
}

func functionsOf(files []*ast.File) (all []*ast.FuncDecl) {
	for _, file := range files {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				all = append(all, fn)
			}
		}
	}
	return all
}

// functionAt returns the function around a position, or nil.
func functionAt(files []*ast.File, pos token.Pos) *ast.FuncDecl {
	for _, fn := range functionsOf(files) {
		if fn.Pos() <= pos && pos < fn.End() {
			return fn
		}
	}
	return nil
}

func check(err error) {
	if err != nil {
		fail("names: " + err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
