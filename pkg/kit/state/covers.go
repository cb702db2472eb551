package state

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// covers reports whether have has all fields of want, so that there is nothing to correct. Most objects do, and to see
// that in the structs takes a tenth of the time of a comparison of their JSON. It may return false for an object that
// has them: then the JSON decides.
func covers(have, want reflect.Value, list listKind) bool {
	if marshals(want.Type()) { // Its JSON is not that of its fields.
		isAbsent := want.Type() == reflect.TypeFor[metav1.Time]() && want.IsZero()
		return isAbsent || reflect.DeepEqual(have.Interface(), want.Interface())
	}
	switch want.Kind() {
	case reflect.Pointer:
		return want.IsNil() || !have.IsNil() && covers(have.Elem(), want.Elem(), list)
	case reflect.Struct:
		return coversStruct(have, want)
	case reflect.Map:
		return coversMap(have, want)
	case reflect.Slice:
		return want.IsNil() || coversList(have, want, list)
	}
	return want.Comparable() && have.Equal(want)
}

func coversStruct(have, want reflect.Value) bool {
	for _, f := range fieldsOfType(want.Type()) {
		w := want.Field(f.index)
		if isAbsent := f.omitEmpty && isEmpty(w); !isAbsent && !covers(have.Field(f.index), w, f.list) {
			return false
		}
	}
	return true
}

func coversMap(have, want reflect.Value) bool {
	for _, key := range want.MapKeys() {
		h := have.MapIndex(key)
		if !h.IsValid() || !reflect.DeepEqual(h.Interface(), want.MapIndex(key).Interface()) {
			return false
		}
	}
	return true
}

// coversList reports whether have has all elements of want.
func coversList(have, want reflect.Value, list listKind) bool {
	if !list.merged {
		return reflect.DeepEqual(have.Interface(), want.Interface())
	}
	var keys []any
	for i := range want.Len() {
		w := want.Index(i)
		key, found := keyOf(w, list.key), false
		if key == nil || !reflect.TypeOf(key).Comparable() || slices.Contains(keys, key) {
			return false
		}
		keys = append(keys, key)
		for j := range have.Len() {
			if h := have.Index(j); keyOf(h, list.key) == key {
				found = covers(h, w, listKind{})
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// keyOf returns the key by which an element of a list is merged, nil if it has none.
func keyOf(element reflect.Value, name string) any {
	if element.Kind() != reflect.Struct {
		return element.Interface()
	}
	for _, f := range fieldsOfType(element.Type()) {
		if f.name == name {
			return element.Field(f.index).Interface()
		}
	}
	return nil
}

// A field of a struct, as it is in JSON.
type field struct {
	index     int
	name      string
	omitEmpty bool
	list      listKind
}

// A listKind is how a strategic merge patch treats a list: it replaces it, or merges its elements by a key.
type listKind struct {
	merged bool
	key    string
}

// fieldsOfType returns the fields of a type of structs that are in its JSON.
func fieldsOfType(t reflect.Type) []field {
	if known, found := types.Load(t); found {
		return known.([]field)
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		strategies := strings.Split(f.Tag.Get("patchStrategy"), ",")
		fields = append(fields, field{
			index: i, name: name, omitEmpty: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"),
			list: listKind{merged: slices.Contains(strategies, "merge"), key: f.Tag.Get("patchMergeKey")},
		})
	}
	types.Store(t, fields)
	return fields
}

// types has the fields of each type of structs.
var types sync.Map

// marshals reports whether values of t have JSON of their own.
func marshals(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	if known, found := marshalers.Load(t); found {
		return known.(bool)
	}
	is := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
	marshalers.Store(t, is)
	return is
}

var marshalers sync.Map

// isEmpty reports whether a field with omitempty is left out of the JSON. A struct never is.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
