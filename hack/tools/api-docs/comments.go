package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// A group is a block of exported constants: its comment, split after the first sentence, and the comments of the
// constants, in which values replace names.
type group struct {
	Title, Text string
	Constants   []string
}

var word = regexp.MustCompile(`\w+`)

// comments returns the comments of the types in dir, by name, and the groups of constants.
func comments(dir string) (map[string]string, []group, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "[^z]*.go")) // The page needs nothing from zz_generated files.
	if err != nil {
		return nil, nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		return nil, nil, err
	}

	types, values := map[string]string{}, map[string]string{}
	blocks := pkg.Consts
	for _, t := range pkg.Types {
		text, _, _ := strings.Cut(t.Doc, "\n+") // The comment ends where the markers begin.
		types[t.Name] = strings.TrimSpace(text)
		blocks = append(blocks, t.Consts...)
	}
	var groups []group
	for _, block := range blocks {
		title, text, _ := strings.Cut(strings.Join(strings.Fields(block.Doc), " "), ". ")
		g := group{Title: strings.TrimSuffix(title, "."), Text: text}
		for _, spec := range block.Decl.Specs {
			constant := spec.(*ast.ValueSpec)
			name := constant.Names[0].Name
			if g.Title == "" || constant.Doc == nil || len(constant.Values) != 1 {
				return nil, nil,
					fmt.Errorf("%s: constant %s needs a value, a comment and a group with a comment", dir, name)
			}
			if literal, ok := constant.Values[0].(*ast.BasicLit); ok {
				values[name] = "`" + strings.Trim(literal.Value, `"`) + "`"
			}
			g.Constants = append(g.Constants, strings.TrimSpace(constant.Doc.Text()))
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		for i, text := range g.Constants {
			g.Constants[i] = word.ReplaceAllStringFunc(text, func(w string) string { return cmp.Or(values[w], w) })
		}
	}
	return types, groups, nil
}
