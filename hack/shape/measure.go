package main

import (
	"go/ast"
	"go/token"
)

// A function has the measurements of a function, a method, or a function literal outside of both.
type function struct {
	name, base string // "Controller.syncHandler" and "syncHandler".
	pos        token.Position
	lines      int // From the line of "func" to the line of the closing brace.
	complexity int
	nesting    int
	deepest    token.Position // The position of the first statement with this nesting.
}

func measure(src source) []function {
	var functions []function
	for _, decl := range src.file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			functions = append(functions, measureOne(src.fset, funcName(fn), fn.Name.Name, fn))
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			literal, ok := n.(*ast.FuncLit)
			if ok {
				functions = append(functions, measureOne(src.fset, "function literal", "", literal))
			}
			return !ok
		})
	}
	return functions
}

func measureOne(fset *token.FileSet, name, base string, node ast.Node) function {
	fn := function{name: name, base: base, pos: fset.Position(node.Pos()), complexity: complexity(node)}
	fn.pos.Column = 0 // Findings have only the line.
	fn.lines = fset.Position(node.End()).Line - fn.pos.Line + 1
	depth, deepest := nesting(node)
	fn.nesting, fn.deepest = depth, fset.Position(deepest)
	fn.deepest.Column = 0
	return fn
}

// funcName returns the name of a function, and for a method the type before it.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// complexity is 1 for the function and 1 for each branch: if, for, each expression of a case, each communication of a
// select, && and ||. The branches of a function literal count for the function around it, because a reader reads both,
// and because otherwise moving a branch into a literal would hide it.
func complexity(node ast.Node) int {
	count := 1
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			count++
		case *ast.CaseClause:
			count += len(n.List) // The list of default is empty.
		case *ast.CommClause:
			if n.Comm != nil {
				count++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				count++
			}
		}
		return true
	})
	return count
}

// nesting returns the deepest nesting of statements, and the first place with it. if, for, switch, select and a bare
// block are one level each. "else if" is on the level of its if. The body of a function literal starts from 0 again,
// because its indentation depends on the call that it is passed to.
func nesting(node ast.Node) (int, token.Pos) {
	max, deepest := 0, node.Pos()
	var walk func(n ast.Node, level int)
	walk = func(n ast.Node, level int) {
		if level > max {
			max, deepest = level, n.Pos()
		}
		for _, child := range children(n) {
			walk(child, level+deeper(n, child, level))
		}
	}
	walk(node, 0)
	return max, deepest
}

// deeper returns the additional level of child below its parent, which is on the given level.
func deeper(parent, child ast.Node, level int) int {
	switch child.(type) {
	case *ast.FuncLit:
		return -level
	case *ast.IfStmt:
		if outer, ok := parent.(*ast.IfStmt); ok && outer.Else == child {
			return 0
		}
		return 1
	case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
		return 1
	case *ast.BlockStmt:
		switch parent.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause, *ast.LabeledStmt:
			return 1 // A bare block. Other blocks are bodies of statements that were counted already.
		}
	}
	return 0
}

func children(node ast.Node) []ast.Node {
	var found []ast.Node
	ast.Inspect(node, func(n ast.Node) bool {
		if n == nil || n == node {
			return true
		}
		found = append(found, n)
		return false
	})
	return found
}
