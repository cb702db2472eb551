package apisim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// changes says in which fields two objects differ: "spec.replicas 3 -> 5, spec.paused none -> true". Times are left out
// when there is anything else.
func changes(before, after runtime.Object) string {
	const most, longest = 8, 60
	have, want := leaves(before), leaves(after)
	all := maps.Clone(have)
	maps.Copy(all, want)
	var words, times []string
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
		words = append(words, change)
	}
	if len(words) == 0 {
		words = times
	}
	if len(words) > most {
		words = append(words[:most], fmt.Sprintf("and %d more", len(words)-most))
	}
	return strings.Join(words, ", ")
}

func shorten(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return s[:longest] + "..."
}

// leaves returns the values in an object by their paths, without what changes with every write.
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

// label names an element of a list by what tells it from others, where there is something.
func label(i int, element any) string {
	fields, _ := element.(map[string]any)
	for _, key := range []string{"uid", "name", "type"} {
		if name, ok := fields[key].(string); ok {
			return "[" + name + "]"
		}
	}
	return fmt.Sprintf("[%d]", i)
}
