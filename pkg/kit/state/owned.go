package state

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CheckPaths returns an error if one of the paths of Drift cannot be parsed, or if T has no such field.
func CheckPaths[T metav1.Object](owned ...string) error {
	if len(owned) == 0 {
		return nil
	}
	zero := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	_, err := without(zero, zero, owned)
	return err
}

// without returns a copy of have without what is at the owned paths and not in want: have itself if nothing is owned.
func without[T metav1.Object](have, want T, owned []string) (T, error) {
	if len(owned) == 0 {
		return have, nil
	}
	left := any(have).(runtime.Object).DeepCopyObject().(T)
	for _, path := range owned {
		if err := remove(reflect.ValueOf(left), reflect.ValueOf(want), listKind{}, "."+path); err != nil {
			return left, fmt.Errorf("the path %q: %w", path, err)
		}
	}
	return left, nil
}

// remove removes from have what is at path and not in want. Where there is nothing, both have the zero value, so that
// the whole path is checked. list is how have is merged, if it is a list.
func remove(have, want reflect.Value, list listKind, path string) error {
	if path == "" && (!list.merged || list.key != "") {
		have.Set(want)
		return nil
	}
	name, rest, isKey := cutPlace(path)
	switch kind := have.Kind(); {
	case name == "" && path != "[]": // Malformed.
	case kind == reflect.Pointer:
		return remove(elemOf(have), elemOf(want), list, path)
	case kind == reflect.Map && rest == "":
		removeEntries(have, want, name)
		return nil
	case kind == reflect.Slice && list.key != "" && isKey:
		return removeElement(have, want, list, name, rest)
	case kind == reflect.Struct && !isKey:
		if f, index := fieldNamed(have.Type(), name); index != nil {
			return remove(have.FieldByIndex(index), want.FieldByIndex(index), f.list, rest)
		}
	}
	return fmt.Errorf("%v has no %q", have.Type(), path)
}

// elemOf returns what the pointer v points to, the zero value if it is nil.
func elemOf(v reflect.Value) reflect.Value {
	if v.IsNil() {
		return reflect.New(v.Type().Elem()).Elem()
	}
	return v.Elem()
}

// removeEntries removes the entry of have with this key or, without a key, all entries, unless want has them.
func removeEntries(have, want reflect.Value, key string) {
	for _, k := range have.MapKeys() {
		w := want.MapIndex(k)
		isAbsent := !w.IsValid() || w.Kind() == reflect.Slice && w.IsNil() // Its JSON is null.
		if isAbsent && (key == "" || key == k.String()) {
			have.SetMapIndex(k, reflect.Value{})
		}
	}
}

// removeElement removes what is at rest in the element of have with this key or, without a key, all elements that want
// lacks.
func removeElement(have, want reflect.Value, list listKind, key, rest string) error {
	keyAt := func(elements reflect.Value, i int) string { return fmt.Sprint(keyOf(elements.Index(i), list.key)) }
	zero, wanted := reflect.New(have.Type().Elem()).Elem(), map[string]reflect.Value{}
	for i := range want.Len() {
		wanted[keyAt(want, i)] = want.Index(i)
	}
	for i := have.Len() - 1; i >= 0; i-- {
		w, isWanted := wanted[keyAt(have, i)]
		switch {
		case key != "" && key != keyAt(have, i):
		case !isWanted && rest == "":
			have.Set(reflect.AppendSlice(have.Slice(0, i), have.Slice(i+1, have.Len())))
		case isWanted && key != "":
			return remove(have.Index(i), w, listKind{}, rest)
		case key != "":
			return remove(have.Index(i), zero, listKind{}, rest)
		}
	}
	if key == "" {
		return nil
	}
	return remove(zero, zero, listKind{}, rest) // Only to check it.
}

// cutPlace returns the first place of a path, .name or [key], and what is after it. The name is "" in a malformed path.
func cutPlace(path string) (name, rest string, isKey bool) {
	if name, isKey = strings.CutPrefix(path, "["); isKey {
		name, rest, isKey = strings.Cut(name, "]")
		return name, rest, isKey
	}
	if name, isKey = strings.CutPrefix(path, "."); !isKey {
		return "", path, false
	}
	end := strings.IndexAny(name+".", ".[")
	return name[:end], name[end:], false
}

// fieldNamed returns the field of a type of structs with this name in JSON, perhaps in a struct that is inlined.
func fieldNamed(t reflect.Type, name string) (field, []int) {
	for _, f := range fieldsOfType(t) {
		if f.name == name {
			return f, []int{f.index}
		}
		if inner := t.Field(f.index).Type; f.name == "" && inner.Kind() == reflect.Struct {
			if found, index := fieldNamed(inner, name); index != nil {
				return found, append([]int{f.index}, index...)
			}
		}
	}
	return field{}, nil
}
