package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An openAPI is the part of an OpenAPI schema that decides which values a field has.
type openAPI struct {
	Type       string              `json:"type"`
	Format     string              `json:"format"`
	Properties map[string]*openAPI `json:"properties"`
	Items      *openAPI            `json:"items"`
	Values     *openAPI            `json:"additionalProperties"`
}

// A field is a place in an object. Its path has the names of the fields above it, 0 for the first item of a list, and
// "key" for a value of a map.
type field struct {
	path   []string
	schema *openAPI
}

func (f field) String() string { return strings.Join(f.path, ".") }

// fieldsOf returns the field at path with all fields below it, in the order of their names.
func fieldsOf(s *openAPI, path ...string) []field {
	fields := []field{{path: path, schema: s}}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		fields = append(fields, fieldsOf(s.Properties[name], append(slices.Clone(path), name)...)...)
	}
	if s.Items != nil {
		fields = append(fields, fieldsOf(s.Items, append(slices.Clone(path), "0")...)...)
	}
	if s.Values != nil {
		fields = append(fields, fieldsOf(s.Values, append(slices.Clone(path), "key")...)...)
	}
	return fields
}

// schemaOfType returns the schema of a Go type. The schemas of custom resources do not have the fields of metadata.
func schemaOfType(t reflect.Type) *openAPI {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return &openAPI{Type: "string", Format: "date-time"}
	case reflect.TypeFor[metav1.FieldsV1]():
		return &openAPI{Type: "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOfType(t.Elem())
	case reflect.Slice:
		return &openAPI{Type: "array", Items: schemaOfType(t.Elem())}
	case reflect.Map:
		return &openAPI{Type: "object", Values: schemaOfType(t.Elem())}
	case reflect.Struct:
		s := &openAPI{Type: "object", Properties: map[string]*openAPI{}}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			s.Properties[name] = schemaOfType(f.Type)
		}
		return s
	case reflect.Bool:
		return &openAPI{Type: "boolean"}
	case reflect.String:
		return &openAPI{Type: "string"}
	case reflect.Int64:
		return &openAPI{Type: "integer", Format: "int64"}
	}
	panic(fmt.Sprintf("no schema for %v: write one", t))
}

// generators have, by type and format, the values of a field at and beyond the edges of what it accepts, as JSON.
var generators = map[string]func(*rand.Rand) string{
	"integer int32":    numbers(31),
	"integer int64":    numbers(63),
	"string ":          words,
	"string date-time": func(r *rand.Rand) string { return quote(oddTime(r)) },
	"boolean ":         choice("true", "false", `"true"`, "0", "1"),
	"array ":           choice("[]", "[null]", "[[]]", "[{}]", "{}", `"[]"`),
	"object ":          choice("{}", `{"a":null}`, `{"":{}}`, `{"key":1}`, "[]", `"{}"`),
}

// generatorOf returns the generator of a field, nil if nobody has written one.
func generatorOf(f field) func(*rand.Rand) string {
	return generators[f.schema.Type+" "+f.schema.Format]
}

// odd are values that may be of another type than the field. The empty one removes the field.
var odd = choice("", "null", "true", "0", "-1", "1.5", `""`, `"x"`, "[]", "{}", `["x"]`, `{"key":"x"}`)

// valueFor returns a value for a field, as JSON, or "" to remove it.
func valueFor(r *rand.Rand, f field) string {
	if r.IntN(8) == 0 {
		return odd(r)
	}
	return generatorOf(f)(r)
}

func choice(values ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return anyOf(r, values...) }
}

func anyOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// mostly returns the first value in four of five cases, otherwise one of the others.
func mostly(r *rand.Rand, usual string, others ...string) string {
	if r.IntN(5) > 0 {
		return usual
	}
	return anyOf(r, others...)
}

// quote returns a string as JSON. Unlike json.Marshal, it keeps bytes that are not UTF-8.
func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\n", `\n`, "\x00", `\u0000`).Replace(s) + `"`
}

// numbers returns a generator of integers near the limits of an integer with so many bits, and of other numbers, in all
// forms that JSON has for them.
func numbers(bits int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(3) == 0 {
			return anyOf(r, "0", "-0", "1", "3.0", "1e0", "1E3", "10e-1", "0.0", "1e3", "1.5", "1e-400", "0e400", "1e18",
				"1e19", "9.3e18", "1e21", "1e22", "-1e18", "1e400", strings.Repeat("9", 400),
				"0."+strings.Repeat("0", 400)+"1")
		}
		edge := anyOf(r, 1<<r.IntN(64), uint64(1)<<bits, 1<<31, 1<<32, 1<<53, 1<<63)
		near := edge + uint64(r.IntN(5)) - 2
		if r.IntN(3) == 0 {
			near = edge + uint64(r.IntN(5000)) - 2500
		}
		digits := anyOf(r, "", "-") + strconv.FormatUint(near, 10)
		return digits + mostly(r, "", ".0", ".5", "e0", "E+0", "0", ".000000001")
	}
}

// words returns strings of all kinds. Some are valid names, images, reasons or types.
func words(r *rand.Rand) string {
	switch r.IntN(4) {
	case 0:
		return anyOf(r, `"\ud800"`, `"\ud83d\ude00"`, `"\u0000"`, `"a\u0000b"`, `"\u2028"`, `"\ufeff"`, `"\uffff"`,
			"\"\xff\xfe\"", "\"a\xc0\x80\"", `"\/"`, `"\t"`, `"\u007f"`, `"\u0085"`, `"é"`, `"e\u0301"`, `"\u202e"`)
	case 1:
		n := anyOf(r, 0, 1, 63, 64, 253, 254, 316, 317, 1023, 1024, 1025, 32767, 32768, 32769)
		return quote(strings.Repeat(anyOf(r, "a", "é", "A", "😀", " "), n))
	case 2:
		return quote(anyOf(r, "null", "true", "0", "1e3", "<>&", "{}", "%s", "a b", "a/b", "example.com/A", "../..",
			oddTime(r)))
	}
	return quote(anyOf(r, "web", "web-1", "True", "False", "Unknown", "Ready", "Stalled", "Available", "nginx:1.29",
		"Apply", "Update", "FieldsV1", "v1", "samplecontroller.k8s.io/v1alpha1", "ConfigMap", "app=nginx"))
}

// oddTime returns a time in one of the forms that readers of RFC 3339 do not agree on.
func oddTime(r *rand.Rand) string {
	year := mostly(r, "2020", "0000", "0001", "0999", "1969", "1970", "9998", "9999", "10000", "20", "-001", "+2020")
	month := mostly(r, anyOf(r, "01", "02", "04", "12"), "00", "13", "1")
	day := mostly(r, anyOf(r, "01", "28", "31"), "00", "29", "30", "32", "1")
	date := year + "-" + month + "-" + day
	clock := mostly(r, anyOf(r, "00", "23"), "24", "25", "7") + ":" +
		mostly(r, anyOf(r, "00", "59"), "60", "61") + ":" + mostly(r, anyOf(r, "00", "59"), "60", "61", "")
	fraction := mostly(r, "", ".0", ".5", ".999999999", ".9999999999", "."+strings.Repeat("7", 40), ",5", ":5", "x5", "5",
		".", "é5")
	zone := mostly(r, "Z", "z", "+00:00", "-00:00", "+01:00", "+14:00", "-12:34", "+23:59", "-23:59", "+24:00", "+24:59",
		"+24:60", "+25:00", "+99:99", "-99:00", "+0000", "+00", "", " Z", "Zt", "ZT00:00:00Z", "Ztail", "\n", "é")
	if r.IntN(50) == 0 {
		layout := anyOf(r, time.RFC3339Nano, time.RFC1123, time.DateTime, time.UnixDate)
		return time.UnixMilli(r.Int64N(1 << 45)).UTC().Format(layout)
	}
	return date + mostly(r, "T", "t", " ", "_", "TT", "") + clock + fraction + zone
}

// put returns object with value, which is JSON, at path. It creates what is missing above it. An empty value removes
// the field.
func put(object any, path []string, value string) any {
	if len(path) == 0 {
		return json.RawMessage(value)
	}
	name, rest := path[0], path[1:]
	if list, ok := object.([]any); ok || name == "0" {
		if len(list) == 0 {
			list = []any{nil}
		}
		if len(rest) == 0 && value == "" {
			return list[1:]
		}
		list[0] = put(list[0], rest, value)
		return list
	}
	fields, ok := object.(map[string]any)
	if !ok {
		fields = map[string]any{}
	}
	if len(rest) == 0 && value == "" {
		delete(fields, name)
		return fields
	}
	fields[name] = put(fields[name], rest, value)
	return fields
}
