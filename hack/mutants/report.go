package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reportPlanted prints the test that noticed each fault, and returns the problems.
func reportPlanted(out io.Writer, root string, mutants []mutant, results []result) (found problems) {
	for i, m := range mutants {
		fmt.Fprintf(out, "%s: %s", results[i].outcome, m.key)
		if results[i].outcome == killed {
			fmt.Fprintf(out, " (%s)\n", results[i].by)
			continue
		}
		fmt.Fprintf(out, "\n%s", m.diff(root))
		found = append(found, fmt.Sprintf("planted, but %s: %s", results[i].outcome, m.key))
	}
	return found
}

// reportAutomatic prints the survivors and the counts, and returns the problems.
func reportAutomatic(
	out io.Writer, root string, mutants []mutant, results []result, reasons map[string]string,
) (found problems) {
	counts := map[outcome]int{}
	for i, m := range mutants {
		counts[results[i].outcome]++
		reason, listed := reasons[m.key]
		if results[i].outcome != survived {
			if listed {
				found = append(found, fmt.Sprintf("listed as a survivor, but now %s: %s", results[i].outcome, m.key))
			}
			continue
		}
		fmt.Fprintf(out, "survived: %s\n%s", m.key, m.diff(root))
		if !listed {
			found = append(found, "survives, and is not listed: "+m.key)
			continue
		}
		fmt.Fprintf(out, "    as listed: %s\n", reason)
	}
	if len(mutants) > 0 {
		fmt.Fprintf(out, "automatic: %d killed, %d survived; %d more did not compile\n",
			counts[killed], counts[survived], counts[notCompiled])
	}
	return found
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

// describe returns how many faults were tried in shared test binaries, and why the others were not.
func describe(reasons []string) string {
	counts := map[string]int{}
	for _, reason := range reasons {
		counts[reason]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults ran in shared test binaries, %d in one of their own:\n", counts[""],
		len(reasons)-counts[""])
	delete(counts, "")
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "    %d %s\n", counts[reason], reason)
	}
	return b.String()
}
