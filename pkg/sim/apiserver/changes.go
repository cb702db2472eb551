package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// changes returns the fields in which two objects differ: "spec.replicas 3 -> 5, spec.paused none -> true". It leaves
// out times if other fields differ too.
func changes(before, after runtime.Object) string {
	const most, longest = 8, 60
	have, want := leaves(before), leaves(after)
	all := maps.Clone(have)
	maps.Copy(all, want)
	var diffs, times []string
	for _, path := range slices.Sorted(maps.Keys(all)) {
		from, was := have[path]
		to, is := want[path]
		switch {
		case from == to && was == is:
			continue
		case !was:
			from = "none"
		case !is:
			to = "none"
		}
		change := fmt.Sprintf("%s %s -> %s", path, shorten(from, longest), shorten(to, longest))
		if strings.HasSuffix(path, "Time") {
			times = append(times, change)
			continue
		}
		diffs = append(diffs, change)
	}
	if len(diffs) == 0 {
		diffs = times
	}
	if len(diffs) > most {
		diffs = append(diffs[:most], fmt.Sprintf("and %d more", len(diffs)-most))
	}
	return strings.Join(diffs, ", ")
}

func shorten(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return s[:longest] + "..."
}

// leaves returns the values in an object by their paths, without the resourceVersion, which every write changes.
func leaves(obj runtime.Object) map[string]string {
	found := map[string]string{}
	fields, err := content(obj)
	if err != nil {
		return map[string]string{"": err.Error()}
	}
	collect(found, "", fields)
	delete(found, "metadata.resourceVersion")
	return found
}

func collect(found map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if strings.ContainsAny(key, "./") {
				key = "[" + key + "]"
			} else if path != "" {
				key = "." + key
			}
			collect(found, path+key, field)
		}
	case []any:
		for i, element := range value {
			collect(found, path+label(i, element), element)
		}
	default:
		found[path] = fmt.Sprint(value)
	}
}

// label returns the path element of an item in a list: its uid, name or type, or else its index.
func label(i int, element any) string {
	fields, _ := element.(map[string]any)
	for _, key := range []string{"uid", "name", "type"} {
		if name, ok := fields[key].(string); ok {
			return "[" + name + "]"
		}
	}
	return fmt.Sprintf("[%d]", i)
}
