package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// survivors returns the keys of the mutants that are known to survive, with the reasons. In the file each
// key is a line, and the reason the indented lines below it; # begins a comment.
func survivors(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	key := ""
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		_, known := reasons[trimmed]
		switch {
		case trimmed == "" || line[0] == '#':
		case line[0] != ' ' && line[0] != '\t':
			if known {
				return nil, fmt.Errorf("%s: listed twice: %s", path, trimmed)
			}
			key = trimmed
			reasons[key] = ""
		case key == "":
			return nil, fmt.Errorf("%s: a reason, but no mutant above it: %s", path, trimmed)
		default:
			reasons[key] = strings.TrimSpace(reasons[key] + " " + trimmed)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if reasons[key] == "" {
			return nil, fmt.Errorf("%s: no reason, in indented lines below: %s", path, key)
		}
	}
	return reasons, nil
}

// problems are the reasons for which a run fails.
type problems []string

func (c problems) err() error {
	if len(c) == 0 {
		return nil
	}
	return fmt.Errorf("%d problems\n%s", len(c), strings.Join(c, "\n"))
}

// unknownSurvivors returns a problem for each listed survivor that no generated mutant matches any more.
func unknownSurvivors(reasons map[string]string, mutants []mutant) (found problems) {
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.key == key }) {
			found = append(found, "listed as a survivor, but there is no such mutant any more: "+key)
		}
	}
	return found
}
