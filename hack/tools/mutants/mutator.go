package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one small fault: text replaces the bytes from..to of file.
type mutant struct {
	// key identifies the mutant in lists. It has no line number, so that it stays valid if other lines change.
	key      string
	file     string
	from, to int
	text     string
}

// mutate returns the mutants of a Go file in the order of its text.
//
// The operators are few, because test runs are expensive and many of the usual operators find the same gaps. A
// condition becomes true, and false. In a && b each part becomes true, in a || b each part becomes false. Tests that
// notice these faults also notice == instead of !=, || instead of &&, and a missing !. The other operators replace < by
// <= and the like. They leave out a statement, a case, an element of a literal, or all iterations of a loop except the
// first. They empty a result or a string, add one to a number or subtract one, change the unit of a time, replace + by
// - and the like, and min by max.
//
// Code that is left out becomes unreachable instead, because a name that is no longer used does not compile.
func mutate(file string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	m := &mutator{file: file, src: src, base: fset.File(tree.Pos()).Base(), done: map[ast.Node]bool{}}
	for _, group := range tree.Comments {
		m.comments = append(m.comments, m.offset(group.Pos()))
	}
	for _, decl := range tree.Decls {
		m.declaration(decl)
	}
	slices.SortStableFunc(m.found, func(a, b mutant) int { return cmp.Compare(a.from, b.from) })
	occurrences := map[string]int{}
	for i := range m.found {
		key := m.found[i].key
		occurrences[key]++
		if n := occurrences[key]; n > 1 {
			m.found[i].key = fmt.Sprintf("%s | occurrence %d", key, n)
		}
	}
	return m.found, nil
}

// mutator walks through the syntax tree of a file and collects its mutants.
type mutator struct {
	file     string
	src      []byte
	base     int
	comments []int // The offsets at which comment groups begin.
	// where is the name of the current declaration, signature that of the innermost function around the current node.
	where     string
	signature *ast.FuncType
	// done are the nodes that visit skips, because their mutants exist already.
	done  map[ast.Node]bool
	found []mutant
}

func (m *mutator) offset(pos token.Pos) int { return int(pos) - m.base }
func (m *mutator) source(node ast.Node) string {
	return string(m.src[m.offset(node.Pos()):m.offset(node.End())])
}

// replace adds the mutant in which text replaces node.
func (m *mutator) replace(node ast.Node, text, change string) {
	m.add(m.offset(node.Pos()), m.offset(node.End()), text, change)
}

func (m *mutator) add(from, to int, text, change string) {
	first, last := lineAround(m.src, from, from)
	for _, comment := range m.comments {
		if from < comment && comment < last {
			last = comment
		}
	}
	key := strings.Join([]string{m.file, m.where, oneLine(string(m.src[first:last])), change}, " | ")
	m.found = append(m.found, mutant{key: key, file: m.file, from: from, to: to, text: text})
}

// lineAround extends from..to to whole lines, without the last newline.
func lineAround(src []byte, from, to int) (first, last int) {
	first = strings.LastIndexByte(string(src[:from]), '\n') + 1
	last = len(src)
	if end := strings.IndexByte(string(src[to:]), '\n'); end >= 0 {
		last = to + end
	}
	return first, last
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// short shortens text for a key, which also has the whole line.
func short(text string) string {
	const limit = 50
	if line := []rune(oneLine(text)); len(line) > limit {
		return string(line[:limit]) + "..."
	}
	return oneLine(text)
}

func (m *mutator) declaration(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		m.where, m.signature = decl.Name.Name, decl.Type
		if decl.Recv != nil {
			// Methods Error and String return texts for logs, which no test should have to repeat.
			if decl.Name.Name == "Error" || decl.Name.Name == "String" {
				return
			}
			m.where = strings.Trim(m.source(decl.Recv.List[0].Type), "*") + "." + m.where
		}
		if decl.Body != nil {
			ast.Inspect(decl.Body, m.visit)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok {
				m.where = decl.Tok.String() + " " + value.Names[0].Name
				ast.Inspect(value, m.visit)
			}
		}
	}
}

func (m *mutator) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.FuncLit:
		outer := m.signature
		m.signature = n.Type
		ast.Inspect(n.Body, m.visit)
		m.signature = outer
		return false
	case *ast.StructType, *ast.ArrayType, *ast.FuncType, *ast.InterfaceType:
		return false
	case *ast.BlockStmt:
		m.statements(n.List)
	case *ast.CaseClause:
		m.statements(n.Body)
		m.lastReturn(n.Body)
	case *ast.CommClause:
		m.statements(n.Body)
	case *ast.IfStmt:
		m.condition(n.Cond, true, false)
		m.lastReturn(n.Body.List)
	case *ast.ForStmt:
		if n.Cond != nil {
			m.condition(n.Cond, false) // With true, the loop would never end.
		}
		m.once(n.Body)
	case *ast.RangeStmt:
		m.once(n.Body)
	case *ast.ReturnStmt:
		m.results(n)
	case *ast.BinaryExpr:
		m.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT && !m.done[n] {
			m.condition(n, true, false)
		}
	case *ast.CompositeLit:
		m.elements(n)
	case *ast.CallExpr:
		m.call(n)
	case *ast.BasicLit:
		m.literal(n)
	case *ast.SelectorExpr:
		if unit := m.source(n); units[unit] != "" {
			m.replace(n, units[unit], unit+" is "+units[unit])
		}
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
			m.replace(n, other, n.Name+" is "+other)
		}
	}
	return true
}

// statements leaves out one statement after the other.
func (m *mutator) statements(list []ast.Stmt) {
	for _, stmt := range list {
		switch s := stmt.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && m.source(s.Lhs[0]) != "_" {
				m.drop(s)
			}
		case *ast.BranchStmt:
			if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
				m.drop(s)
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.RangeStmt:
			m.drop(s)
		case *ast.SwitchStmt:
			m.cases(s.Body, s.Tag == nil)
		case *ast.TypeSwitchStmt:
			m.cases(s.Body, false)
		}
	}
}

func (m *mutator) drop(stmt ast.Stmt) {
	m.replace(stmt, "if false { "+m.source(stmt)+" }", "left out")
}

// lastReturn leaves out the return at the end of an if or case that has other statements too.
func (m *mutator) lastReturn(list []ast.Stmt) {
	if len(list) > 1 {
		if last, ok := list[len(list)-1].(*ast.ReturnStmt); ok {
			m.drop(last)
		}
	}
}

// once ends a loop after its first iteration.
func (m *mutator) once(body *ast.BlockStmt) {
	if len(body.List) > 0 {
		end := m.offset(body.Rbrace)
		m.add(m.offset(body.Lbrace), end, string(m.src[m.offset(body.Lbrace):end])+"; break ", "only once")
	}
}

// cases leaves out cases. Cases that are conditions are treated as conditions.
func (m *mutator) cases(body *ast.BlockStmt, conditions bool) {
	for _, stmt := range body.List {
		clause, ok := stmt.(*ast.CaseClause)
		if !ok {
			continue
		}
		switch {
		case conditions:
			for _, cond := range clause.List {
				m.condition(cond, true, false)
			}
		case len(clause.List) < 2: // Without a value it is the default case.
			m.replace(clause, "", "case left out")
		default:
			for i, value := range clause.List {
				from, to := m.offset(value.Pos()), m.pastComma(value)
				if i == len(clause.List)-1 { // There must be no comma before the colon.
					from = m.offset(clause.List[i-1].End())
				}
				m.add(from, to, "", short(m.source(value))+" left out")
			}
		}
	}
}

// condition replaces e by each of the values. A condition of several parts is replaced by the value that one part can
// force, and each part by the value with which the other parts decide.
func (m *mutator) condition(e ast.Expr, values ...bool) {
	m.done[e] = true
	switch n := e.(type) {
	case *ast.ParenExpr:
		m.condition(n.X, values...)
		return
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			m.condition(n.X, values...)
			return
		}
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			force := n.Op == token.LOR
			if slices.Contains(values, force) {
				m.always(n, force)
			}
			for _, part := range m.parts(n, n.Op) {
				m.condition(part, !force)
			}
			return
		}
	}
	for _, value := range values {
		m.always(e, value)
	}
}

// parts returns the operands of a chain of the same operator.
func (m *mutator) parts(e ast.Expr, op token.Token) []ast.Expr {
	if n, ok := e.(*ast.BinaryExpr); ok && n.Op == op {
		m.done[n] = true
		return append(m.parts(n.X, op), m.parts(n.Y, op)...)
	}
	return []ast.Expr{e}
}

func (m *mutator) always(e ast.Expr, value bool) {
	text := m.source(e)
	if text == "true" || text == "false" {
		return // The mutator of constants handles it.
	}
	op := map[bool]string{true: "true || ", false: "false && "}[value]
	m.replace(e, "("+op+"("+text+"))", fmt.Sprintf("%s is %t", short(text), value))
}

// results replaces each result of a return by the zero value of its type.
func (m *mutator) results(n *ast.ReturnStmt) {
	var types []ast.Expr
	if m.signature.Results != nil {
		for _, field := range m.signature.Results.List {
			for range max(1, len(field.Names)) {
				types = append(types, field.Type)
			}
		}
	}
	if len(types) != len(n.Results) {
		return
	}
	for i, result := range n.Results {
		if m.source(types[i]) == "bool" {
			m.condition(result, true, false)
			continue
		}
		literal, isLiteral := result.(*ast.CompositeLit)
		_, isBasic := result.(*ast.BasicLit)
		if isBasic || isLiteral && len(literal.Elts) < 2 || m.source(result) == "nil" {
			continue // It is zero already, or another operator makes it zero.
		}
		var all []string
		for j := range n.Results {
			all = append(all, m.source(n.Results[j]))
		}
		all[i] = "*new(" + m.source(types[i]) + ")"
		m.replace(n, "{ _ = "+m.source(result)+"; return "+strings.Join(all, ", ")+" }",
			short(m.source(result))+" is not returned")
	}
}

var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND,
}

var units = map[string]string{
	"time.Nanosecond": "time.Microsecond", "time.Microsecond": "time.Millisecond", "time.Millisecond": "time.Second",
	"time.Second": "time.Minute", "time.Minute": "time.Hour", "time.Hour": "time.Minute",
}

func (m *mutator) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ, token.LAND, token.LOR:
		if !m.done[n] {
			m.condition(n, true, false)
		}
	}
	swap, ok := swaps[n.Op]
	if !ok || n.Op == token.ADD && m.isText(n) {
		return
	}
	from := m.offset(n.OpPos)
	m.add(from, from+len(n.Op.String()), swap.String(), fmt.Sprintf("%s for %s in %s", swap, n.Op, short(m.source(n))))
}

// isText reports whether e is obviously a concatenation of strings.
func (m *mutator) isText(e ast.Expr) bool {
	switch n := e.(type) {
	case *ast.BinaryExpr:
		return m.isText(n.X) || m.isText(n.Y)
	case *ast.BasicLit:
		return n.Kind == token.STRING
	}
	return false
}

// elements leaves out each element of a literal. It skips fields that are true or a string, because the mutant of that
// value has the same effect.
func (m *mutator) elements(n *ast.CompositeLit) {
	for _, element := range n.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			_, isField := pair.Key.(*ast.Ident)
			text, isBasic := pair.Value.(*ast.BasicLit)
			if isField && (isBasic && text.Kind == token.STRING || m.source(pair.Value) == "true") {
				continue
			}
		}
		m.add(m.offset(element.Pos()), m.pastComma(element), "", short(m.source(element))+" left out")
	}
}

// pastComma returns the offset after the comma that follows node, or the end of node without a comma.
func (m *mutator) pastComma(node ast.Node) int {
	end := m.offset(node.End())
	rest := strings.TrimLeft(string(m.src[end:]), " \t\n")
	if !strings.HasPrefix(rest, ",") {
		return end
	}
	return len(m.src) - len(rest) + 1
}

// call replaces min by max and max by min, and skips the texts of errors and logs.
func (m *mutator) call(n *ast.CallExpr) {
	switch name := m.source(n.Fun); {
	case name == "min":
		m.replace(n.Fun, "max", "max for min")
	case name == "max":
		m.replace(n.Fun, "min", "min for max")
	case name == "fmt.Errorf", name == "errors.New", name == "panic",
		strings.HasSuffix(name, ".Info"), strings.HasSuffix(name, ".Error"):
		for _, arg := range n.Args {
			m.done[arg] = true
		}
	}
}

func (m *mutator) literal(n *ast.BasicLit) {
	switch {
	case m.done[n]:
	case n.Kind == token.STRING && len(n.Value) == 2:
		m.replace(n, `"mutant"`, `"" is "mutant"`)
	case n.Kind == token.STRING:
		m.replace(n, `""`, short(n.Value)+` is ""`)
	case n.Kind == token.INT:
		value, err := strconv.ParseInt(n.Value, 0, 64)
		if err != nil {
			return
		}
		m.replace(n, fmt.Sprint(value+1), fmt.Sprintf("%s is %d", n.Value, value+1))
		if value > 0 {
			m.replace(n, fmt.Sprint(value-1), fmt.Sprintf("%s is %d", n.Value, value-1))
		}
	}
}
