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

// report prints the survivors and the counts, and returns the problems.
func report(
	out io.Writer, root string, mutants []mutant, outcomes []outcome, reasons map[string]string,
) (found problems) {
	counts := map[outcome]int{}
	for i, m := range mutants {
		counts[outcomes[i]]++
		reason, listed := reasons[m.key]
		if outcomes[i] != survived {
			if listed {
				found = append(found, fmt.Sprintf("listed as a survivor, but now %s: %s", outcomes[i], m.key))
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
	fmt.Fprintf(out, "%d killed, %d survived; %d more did not compile\n",
		counts[killed], counts[survived], counts[notCompiled])
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
