package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A printer prints tables as kubectl does.
type printer struct {
	out     io.Writer
	columns []metav1.TableColumnDefinition // Of the first table: the next ones come without.
	widths  []int                          // They only grow, so that most rows are aligned.
	last    []string                       // The last row.
}

// print prints the rows of a table, the first time under the names of the columns.
func (p *printer) print(table *metav1.Table) {
	var lines [][]string
	if p.columns == nil {
		p.columns, p.widths = table.ColumnDefinitions, make([]int, len(table.ColumnDefinitions))
		var names []string
		for _, column := range p.columns {
			names = append(names, strings.ToUpper(column.Name))
		}
		lines = append(lines, names)
	}
	for _, row := range table.Rows {
		p.last = nil
		for _, cell := range row.Cells {
			p.last = append(p.last, text(cell))
		}
		lines = append(lines, p.last)
	}
	const gap = 3
	for _, line := range lines {
		for i, text := range line {
			p.widths[i] = max(p.widths[i], len(text)+gap)
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, text := range line {
			fmt.Fprintf(&b, "%-*s", p.widths[i], text)
		}
		fmt.Fprintln(p.out, strings.TrimRight(b.String(), " "))
	}
}

func text(cell any) string {
	if cell == nil {
		return ""
	}
	return fmt.Sprint(cell)
}

// cell returns the cell of the last row in a column.
func (p *printer) cell(column string) string {
	i := slices.IndexFunc(p.columns, func(c metav1.TableColumnDefinition) bool { return c.Name == column })
	if i < 0 || i >= len(p.last) {
		return ""
	}
	return p.last[i]
}
