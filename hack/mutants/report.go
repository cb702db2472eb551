package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// reportPlanted prints what noticed each fault and returns what is wrong.
func reportPlanted(out io.Writer, root string, mutants []mutant, results []result) (wrong complaints) {
	for i, m := range mutants {
		fmt.Fprintf(out, "%s: %s", results[i].verdict, m.key)
		if results[i].verdict == killed {
			fmt.Fprintf(out, " (%s)\n", results[i].by)
			continue
		}
		fmt.Fprintf(out, "\n%s", m.diff(root))
		wrong = append(wrong, fmt.Sprintf("planted, but %s: %s", results[i].verdict, m.key))
	}
	return wrong
}

// reportAutomatic prints the survivors and the counts, and returns what is wrong.
func reportAutomatic(
	out io.Writer, root string, mutants []mutant, results []result, reasons map[string]string,
) (wrong complaints) {
	counts := map[verdict]int{}
	for i, m := range mutants {
		counts[results[i].verdict]++
		reason, listed := reasons[m.key]
		if results[i].verdict != survived {
			if listed {
				wrong = append(wrong, fmt.Sprintf("listed as a survivor, but now %s: %s", results[i].verdict, m.key))
			}
			continue
		}
		fmt.Fprintf(out, "survived: %s\n%s", m.key, m.diff(root))
		if !listed {
			wrong = append(wrong, "survives, and is not listed: "+m.key)
			continue
		}
		fmt.Fprintf(out, "    as listed: %s\n", reason)
	}
	if len(mutants) > 0 {
		fmt.Fprintf(out, "automatic: %d killed, %d survived; %d more did not compile\n",
			counts[killed], counts[survived], counts[notCompiled])
	}
	return wrong
}

// diff shows the lines that a mutant changes, and where.
func (m *mutant) diff(root string) string {
	src, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return err.Error()
	}
	first, last := lineAround(src, m.from, m.to)
	var b strings.Builder
	fmt.Fprintf(&b, "    %s:%d\n", m.file, 1+bytes.Count(src[:m.from], []byte("\n")))
	show := func(sign, text string) {
		const most = 8
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if i == most {
				fmt.Fprintf(&b, "    %s ... %d more lines\n", sign, len(lines)-most)
				return
			}
			fmt.Fprintf(&b, "    %s%s\n", sign, line)
		}
	}
	show("-", string(src[first:last]))
	show("+", string(src[first:m.from])+m.text+string(src[m.to:last]))
	return b.String()
}
