package v1alpha1

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// An UnreadField is a stored field with a value that the Go type cannot have. The API server may have stored it before
// there was a rule for it.
//
// +kubebuilder:ac:generate=false
type UnreadField struct {
	// Path is the place of the field, such as status.conditions[0].lastTransitionTime.
	Path string
	// Value is the beginning of its JSON.
	Value string
	// Want describes what the Go type takes, such as "a string".
	Want string
}

// valueLimit is how many bytes of a value that could not be decoded are kept.
const valueLimit = 64

// UnmarshalJSON decodes a Foo. If a field cannot be decoded, it decodes all others and adds the field to Unread. An
// error would end the list or watch that has the Foo, and so stop the controller for all Foos.
func (in *Foo) UnmarshalJSON(data []byte) error {
	type fields Foo // Does not have this method.
	in.Unread = nil
	err := json.Unmarshal(data, (*fields)(in))
	if err == nil {
		return nil
	}
	r := reader{}
	if !r.readParts(data, reflect.ValueOf((*fields)(in)).Elem(), "") {
		return err // It is not a JSON object.
	}
	in.Unread = r.unread
	return nil
}

// A reader decodes as much of a value as possible.
type reader struct{ unread []UnreadField }

// read decodes data, which is JSON, into v. If that fails, it decodes the parts of v that it can, and adds the others
// to unread. It returns false if nothing was decoded.
func (r *reader) read(data []byte, v reflect.Value, path string) bool {
	if json.Unmarshal(data, v.Addr().Interface()) == nil {
		return true
	}
	v.SetZero()
	if !decodesItself(v.Type()) && r.readParts(data, v, path) {
		return true
	}
	r.unread = append(r.unread, UnreadField{Path: path, Value: clip(data), Want: wanted(v.Type())})
	return false
}

// readParts reads the fields of a struct, or the items of a list or map, one by one. It returns false if data is of
// another type.
func (r *reader) readParts(data []byte, v reflect.Value, path string) bool {
	switch v.Kind() {
	case reflect.Struct:
		var fields map[string]stdjson.RawMessage
		return json.Unmarshal(data, &fields) == nil && r.readStruct(fields, v, path)
	case reflect.Slice:
		var items []stdjson.RawMessage
		return json.Unmarshal(data, &items) == nil && r.readSlice(items, v, path)
	case reflect.Map:
		var values map[string]stdjson.RawMessage
		return json.Unmarshal(data, &values) == nil && r.readMap(values, v, path)
	}
	return false
}

func (r *reader) readStruct(fields map[string]stdjson.RawMessage, v reflect.Value, path string) bool {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		value, found := fields[name]
		switch {
		case name == "" && field.Anonymous: // Its fields are those of v, in JSON.
			r.readStruct(fields, v.Field(i), path)
		case found && name != "-":
			r.readField(value, v.Field(i), strings.TrimPrefix(path+"."+name, "."))
		}
	}
	return true
}

// readField is read for a field, which may be a pointer.
func (r *reader) readField(data []byte, v reflect.Value, path string) {
	if v.Kind() != reflect.Pointer {
		r.read(data, v, path)
		return
	}
	target := reflect.New(v.Type().Elem())
	if string(data) != "null" && r.read(data, target.Elem(), path) {
		v.Set(target)
	}
}

func (r *reader) readSlice(items []stdjson.RawMessage, v reflect.Value, path string) bool {
	for i, data := range items {
		item := reflect.New(v.Type().Elem()).Elem()
		if r.read(data, item, fmt.Sprintf("%s[%d]", path, i)) {
			v.Set(reflect.Append(v, item))
		}
	}
	return true
}

func (r *reader) readMap(values map[string]stdjson.RawMessage, v reflect.Value, path string) bool {
	v.Set(reflect.MakeMap(v.Type()))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := reflect.New(v.Type().Elem()).Elem()
		if r.read(values[key], value, fmt.Sprintf("%s[%q]", path, key)) {
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
		}
	}
	return true
}

// decodesItself reports whether values of type t decide how they are decoded, as times do.
func decodesItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[stdjson.Unmarshaler]())
}

// wanted describes the values of type t.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer of at most %d bits", t.Bits())
	}
	if t == reflect.TypeFor[metav1.Time]() {
		return `a time such as "2026-01-31T12:00:00Z"`
	}
	return "an object"
}

// clip returns the beginning of data.
func clip(data []byte) string {
	if len(data) <= valueLimit {
		return string(data)
	}
	end := valueLimit
	for !utf8.RuneStart(data[end]) {
		end--
	}
	return string(data[:end]) + "..."
}
