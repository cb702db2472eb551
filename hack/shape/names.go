package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// printNames prints the names of this module that each of the functions uses: functions, types, variables, constants,
// methods and fields. Local declarations, parameters and names of packages do not count. Names are resolved as in the
// compiler, so two fields called Name are two names.
func printNames(out io.Writer, wanted []string) error {
	packages, err := listPackages()
	if err != nil {
		return err
	}
	compiled := map[string]string{}
	for _, pkg := range packages {
		compiled[pkg.ImportPath] = pkg.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(compiled[path])
	})
	found := 0
	for _, pkg := range packages {
		if !pkg.isCore() {
			continue
		}
		checked, err := checkPackage(fset, imports, pkg)
		if err != nil {
			return err
		}
		for _, fn := range checked.functions(wanted) {
			names := checked.mentions(fn)
			fmt.Fprintf(out, "%s:%d: %s mentions %d: %s\n",
				checked.path(fn), fset.Position(fn.Pos()).Line, funcName(fn), len(names), strings.Join(names, " "))
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("no function fits %s", strings.Join(wanted, ","))
	}
	return nil
}

// A listedPackage is the output of go list for a package.
type listedPackage struct {
	Dir, ImportPath, Export string // Export is the file with the export data of the compiler.
	GoFiles                 []string
	Module                  *struct {
		Path, Dir string
		Main      bool
	}
}

// isCore reports whether the package belongs to the core.
func (p listedPackage) isCore() bool {
	if p.Module == nil || !p.Module.Main || len(p.GoFiles) == 0 || strings.Contains(p.ImportPath, "/pkg/generated/") {
		return false
	}
	file, err := filepath.Rel(p.Module.Dir, filepath.Join(p.Dir, p.GoFiles[0]))
	return err == nil && isCore(filepath.ToSlash(file))
}

// listPackages returns the packages of this module and all their dependencies, compiled.
func listPackages() ([]listedPackage, error) {
	fields := "-json=Dir,ImportPath,Export,GoFiles,Module"
	list := exec.Command("go", "list", "-export", "-deps", fields, ".", "./pkg/...")
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []listedPackage
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var pkg listedPackage
		err := decoder.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the output of go list: %w", err)
		}
		packages = append(packages, pkg)
	}
}

// A checkedPackage is a package whose names are resolved.
type checkedPackage struct {
	fset   *token.FileSet
	root   string // The directory of the module.
	module string
	types  *types.Package
	files  []*ast.File
	uses   map[*ast.Ident]types.Object
	owners map[*types.Var]string // The types that declare the fields.
}

func checkPackage(fset *token.FileSet, imports types.Importer, pkg listedPackage) (*checkedPackage, error) {
	checked := &checkedPackage{fset: fset, root: pkg.Module.Dir, module: pkg.Module.Path}
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		checked.files = append(checked.files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	var err error
	checked.types, err = config.Check(pkg.ImportPath, fset, checked.files, info)
	checked.uses = info.Uses
	checked.owners = map[*types.Var]string{}
	if err == nil {
		checked.findOwners(checked.types, map[*types.Package]bool{})
	}
	return checked, err
}

// findOwners records the fields of the structs in pkg and in the packages of this module that it imports.
func (p *checkedPackage) findOwners(pkg *types.Package, seen map[*types.Package]bool) {
	if seen[pkg] || !p.isOurs(pkg) {
		return
	}
	seen[pkg] = true
	for _, name := range pkg.Scope().Names() {
		if declared, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok {
			p.addFields(p.qualified(pkg, name), declared.Type())
		}
	}
	for _, imported := range pkg.Imports() {
		p.findOwners(imported, seen)
	}
}

func (p *checkedPackage) addFields(owner string, t types.Type) {
	structure, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for field := range structure.Fields() {
		if p.owners[field] == "" { // In "type A B", the fields belong to the type that comes first.
			p.owners[field] = owner
		}
	}
}

func (p *checkedPackage) isOurs(pkg *types.Package) bool {
	return pkg != nil && (pkg == p.types || pkg.Path() == p.module || strings.HasPrefix(pkg.Path(), p.module+"/"))
}

func (p *checkedPackage) path(fn *ast.FuncDecl) string {
	name, err := filepath.Rel(p.root, p.fset.Position(fn.Pos()).Filename)
	if err != nil {
		return p.fset.Position(fn.Pos()).Filename
	}
	return filepath.ToSlash(name)
}

// functions returns the selected functions of the package.
func (p *checkedPackage) functions(wanted []string) []*ast.FuncDecl {
	var found []*ast.FuncDecl
	for _, file := range p.files {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && slices.ContainsFunc(wanted, func(name string) bool { return p.isNamed(fn, name) }) {
				found = append(found, fn)
			}
		}
	}
	return found
}

func (p *checkedPackage) isNamed(fn *ast.FuncDecl, name string) bool {
	if strings.Contains(name, "/") {
		return strings.HasPrefix(p.path(fn), name)
	}
	return name == fn.Name.Name || name == funcName(fn)
}

// mentions returns the names of this module in fn, sorted, each once.
func (p *checkedPackage) mentions(fn *ast.FuncDecl) []string {
	names := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		if ident, ok := n.(*ast.Ident); ok {
			names[p.name(fn, p.uses[ident])] = true
		}
		return true
	})
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// name returns how an object is called in the package, or "" for an object that does not count in fn.
func (p *checkedPackage) name(fn *ast.FuncDecl, object types.Object) string {
	if object == nil || !p.isOurs(object.Pkg()) || fn.Pos() <= object.Pos() && object.Pos() < fn.End() {
		return ""
	}
	switch o := object.(type) {
	case *types.PkgName, *types.Label:
		return ""
	case *types.Var:
		if o.IsField() {
			return cmp.Or(p.owners[o.Origin()], "struct") + "." + o.Name()
		}
	case *types.Func:
		if receiver := o.Origin().Signature().Recv(); receiver != nil {
			return p.typeName(receiver.Type()) + "." + o.Name()
		}
	}
	return p.qualified(object.Pkg(), object.Name())
}

func (p *checkedPackage) typeName(t types.Type) string {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return p.qualified(named.Obj().Pkg(), named.Obj().Name())
	}
	return "interface"
}

func (p *checkedPackage) qualified(pkg *types.Package, name string) string {
	if pkg == p.types {
		return name
	}
	return pkg.Name() + "." + name
}
