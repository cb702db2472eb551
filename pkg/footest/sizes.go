package footest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// sizes returns the number of elements in each map, slice and channel that value refers to, by the path of fields that
// leads there. Elements of one kind are added up. The fields of value that without names are left out, with all that
// they refer to. Functions, and atomic pointers, hide what they refer to. Nothing may change value meanwhile.
func sizes(value any, without ...string) map[string]int {
	s := &sizer{sizes: map[string]int{}, seen: map[reference]bool{}, without: without}
	s.add("", reflect.ValueOf(value))
	return s.sizes
}

type sizer struct {
	sizes   map[string]int
	seen    map[reference]bool
	without []string
}

// A reference is a pointer or a map that was followed already. A struct and its first field have the same address.
type reference struct {
	kind    reflect.Type
	address uintptr
}

func (s *sizer) add(path string, v reflect.Value) {
	if slices.Contains(s.without, strings.TrimPrefix(path, ".")) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && !s.followed(v) {
			s.add(path, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			s.add(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Chan:
		s.addElements(path, v)
	}
}

func (s *sizer) addElements(path string, v reflect.Value) {
	if v.Kind() == reflect.Map && s.followed(v) {
		return
	}
	s.sizes[path] += v.Len()
	switch v.Kind() {
	case reflect.Map:
		for elements := v.MapRange(); elements.Next(); {
			s.add(path+"[]", elements.Value())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			s.add(path+"[]", v.Index(i))
		}
	}
}

func (s *sizer) followed(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		return false // What it contains may be a pointer.
	}
	ref := reference{v.Type(), v.Pointer()}
	before := s.seen[ref]
	s.seen[ref] = true
	return before
}

// compareSizes returns the paths at which two sizes differ.
func compareSizes(before, after map[string]int) string {
	var lines []string
	for path, size := range after {
		if size != before[path] {
			lines = append(lines, fmt.Sprintf("%s has %d elements, before %d", path, size, before[path]))
		}
	}
	return strings.Join(lines, "\n")
}
