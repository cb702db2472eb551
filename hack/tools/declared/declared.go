// Package declared finds the names that Go files declare, so that tests can check the names in documents.
package declared

import (
	"go/ast"
	"go/parser"
	"go/token"
)

// In returns the functions, methods, types, constants and variables that a file declares, without those within
// functions.
func In(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, decl := range parsed.Decls {
		names = append(names, namesOf(decl)...)
	}
	return names, nil
}

func namesOf(decl ast.Decl) (names []string) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		names = append(names, decl.Name.Name)
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}
