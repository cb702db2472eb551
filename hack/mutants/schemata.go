package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
)

const (
	// selector is a variable that a woven package has in addition. Its value is the number of the mutant that a test
	// binary has in this run, or 0 for none.
	selector = "numberOfTheMutant"
	// selectorVariable is the environment variable that sets it.
	selectorVariable = "MUTANT"
	// selectorName is the name of the file that declares selector.
	selectorName = "zz_number_of_the_mutant.go"
)

// selectorFile returns the text of the file selectorName.
func selectorFile(packageName string) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"os"
	"strconv"
)

var %s, _ = strconv.Atoi(os.Getenv(%q))
`, packageName, selector, selectorVariable)
}

// A version is the text of one place of a file with one fault in it.
type version struct {
	place
	// number is the value of selector that selects it.
	number int
	text   string
}

// A place is a part of a file that can have versions. It is either the inside of a function's body, or the value of a
// package's variable.
type place struct {
	from, to int // The offsets of the original text.
	// valueType is the type of a value as it is in the source, "" for a body.
	valueType string
	// function is the function of a body, nil for a value.
	function *function
}

type function struct {
	receiver  *ast.FieldList
	signature *ast.FuncType
	body      *ast.BlockStmt
}

// weave returns the text of a file that has all these versions, so that one compilation serves all of them. A function
// begins with a switch, such as
//
//	func (s *State) Next() *Step {
//		switch numberOfTheMutant {
//		case 17:
//			... the body with fault 17, which ends with a return
//		case 18:
//			... the body with fault 18
//		}
//		... the original body
//	}
//
// The value of a variable becomes the call of such a function.
func weave(src []byte, versions []version) []byte {
	places := map[int][]version{}
	for _, v := range versions {
		places[v.from] = append(places[v.from], v)
	}
	var woven bytes.Buffer
	done := 0
	for _, from := range slices.Sorted(maps.Keys(places)) {
		at := places[from][0].place
		woven.Write(src[done:from])
		done = at.to
		original := string(src[from:at.to])
		if at.function != nil {
			fmt.Fprintf(&woven, "\n%s%s", choice(places[from]), original)
			continue
		}
		fmt.Fprintf(&woven, "func() %s {\n%sreturn %s\n}()", at.valueType, choice(places[from]), original)
	}
	woven.Write(src[done:])
	return woven.Bytes()
}

// choice returns a switch that has all versions of a place.
func choice(versions []version) string {
	var b strings.Builder
	fmt.Fprintf(&b, "switch %s {\n", selector)
	for _, v := range versions {
		format := "case %d:\n%s\n"
		switch {
		case v.function == nil:
			format = "case %d:\nreturn %s\n"
		case v.function.signature.Results == nil:
			format = "case %d:\n%s\nreturn\n" // With results, the body has a return at its end.
		}
		fmt.Fprintf(&b, format, v.number, v.text)
	}
	b.WriteString("}\n")
	return b.String()
}

// The reasons why a fault is not woven. Its tests have a binary of their own then.
const (
	notInPackage = "not in a Go file of a package of this module"
	noPlace      = "neither in one function nor in the value of one variable"
	wrongType    = "with an error of syntax or of types"
	hasLabel     = "with a label"
	hasRedefined = "with := for a parameter"
	notBuilt     = "in a shared binary that does not compile"
	asked        = "because of --alone"
)

// versionOf returns the version that has a mutant, or the reason why the mutant cannot be woven. original and faulty
// are the file without and with the mutant.
func versionOf(m mutant, original, faulty *source) (v version, reason string) {
	before, after := original.placeAround(m.from, m.to), faulty.placeAround(m.from, m.from+len(m.text))
	if before == nil || after == nil || before.valueType != after.valueType {
		return version{}, noPlace
	}
	if grown := len(m.text) - (m.to - m.from); before.from != after.from || before.to+grown != after.to {
		return version{}, noPlace // The text of the mutant ends the function, and begins another one.
	}
	if after.function != nil {
		reason = after.function.immovable()
	}
	return version{place: *before, text: string(faulty.text[after.from:after.to])}, reason
}

// A source is a Go file and its syntax tree.
type source struct {
	text []byte
	tree *ast.File
	file *token.File
}

// placeAround returns the place that has these offsets, or nil.
func (s *source) placeAround(from, to int) *place {
	for _, decl := range s.tree.Decls {
		for _, p := range s.places(decl) {
			if p.from <= from && to <= p.to {
				return &p
			}
		}
	}
	return nil
}

// places returns the places of a declaration. No place is inside of another one.
func (s *source) places(decl ast.Decl) (found []place) {
	if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
		return []place{s.inside(function{f.Recv, f.Type, f.Body})}
	}
	variables, ok := decl.(*ast.GenDecl)
	if !ok || variables.Tok != token.VAR {
		return nil
	}
	for _, spec := range variables.Specs {
		for _, value := range spec.(*ast.ValueSpec).Values {
			if f, ok := value.(*ast.FuncLit); ok {
				found = append(found, s.inside(function{nil, f.Type, f.Body}))
			}
			if name := s.typeOf(value); name != "" {
				found = append(found, place{from: s.file.Offset(value.Pos()), to: s.file.Offset(value.End()), valueType: name})
			}
		}
	}
	return found
}

// typeOf returns the type that a literal names, or "".
func (s *source) typeOf(value ast.Expr) string {
	switch n := value.(type) {
	case *ast.UnaryExpr:
		if name := s.typeOf(n.X); n.Op == token.AND && name != "" {
			return "*" + name
		}
	case *ast.CompositeLit:
		name := string(s.text[s.file.Offset(n.Pos()):s.file.Offset(n.Type.End())])
		if !strings.Contains(name, "...") { // It stands for a number, and is no type outside of a literal.
			return name
		}
	}
	return ""
}

func (s *source) inside(f function) place {
	return place{from: s.file.Offset(f.body.Lbrace) + 1, to: s.file.Offset(f.body.Rbrace), function: &f}
}

// immovable returns the reason why the body must not be moved into a switch, or "".
func (f *function) immovable() (reason string) {
	ast.Inspect(f.body, func(node ast.Node) bool {
		if _, ok := node.(*ast.LabeledStmt); ok {
			reason = hasLabel // Each version would define it again.
		}
		return true
	})
	parameters := f.parameters()
	for _, stmt := range f.body.List {
		define, ok := stmt.(*ast.AssignStmt)
		if !ok || define.Tok != token.DEFINE {
			continue
		}
		for _, left := range define.Lhs {
			if parameters[left.(*ast.Ident).Name] {
				reason = hasRedefined // Here it sets the parameter. In the switch it would declare another variable.
			}
		}
	}
	return reason
}

// parameters returns the names of the receiver, the parameters and the results.
func (f *function) parameters() map[string]bool {
	names := map[string]bool{}
	for _, list := range []*ast.FieldList{f.receiver, f.signature.Params, f.signature.Results} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			for _, name := range field.Names {
				names[name.Name] = name.Name != "_"
			}
		}
	}
	return names
}
