// Package state compares the state of an object with the wanted one, and reports it.
//
// [Drift] compares an object with the fields that a controller wants it to have, and makes the patch that corrects it.
// All other fields are neither compared nor part of the patch: those that the API server has defaulted, and those of an
// autoscaler, a webhook or a user.
//
// [Conditions] sets the conditions from which tools such as kstatus, Argo CD and `kubectl wait` read the state of an
// object of any kind. Ready is always there. Reconciling and Stalled are there only while they are True.
//
// Both are pure: they send nothing, and the time is an argument.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// ErrNoPrecondition is returned for an object without a uid or a resourceVersion: the API server would take a patch
// with an empty one as a patch of any version.
var ErrNoPrecondition = errors.New("no uid or no resourceVersion")

// ErrRepeatedKey is returned if two elements of a list in want have the same merge key, such as ports of a Service that
// differ in their protocol only. Such a child needs server-side apply.
var ErrRepeatedKey = errors.New("elements of a list have the same merge key")

// A Patch corrects an object.
type Patch struct {
	// Body is a strategic merge patch. It has the uid and the resourceVersion of the object that was compared, so the
	// API server answers with a conflict if the object has changed since.
	Body []byte
	// Fields are those that it changes or removes, by path.
	Fields []Field
}

// A Field is what a write changes, for people. Path is such as spec.replicas; that of a list stands for its elements.
// Have and Want are "" if the values are not shown: those of lists, and of Secrets.
type Field struct {
	Path string `json:"path"`
	Have string `json:"have"`
	Want string `json:"want"`
}

func (f Field) String() string {
	if f.Have == "" && f.Want == "" {
		return f.Path
	}
	return f.Path + " " + f.Have + " -> " + f.Want
}

// Paths are those of the fields, for people.
func (p *Patch) Paths() string {
	var paths []string
	for _, field := range p.Fields {
		paths = append(paths, field.Path)
	}
	return strings.Join(paths, ", ")
}

// Drift returns the patch that gives have all fields of want, or nil if have has them. The types of both must be the
// same kind of Kubernetes itself, such as *appsv1.Deployment: custom resources take no strategic merge patch. Elements
// of a list are merged by their key if the type has one, as containers by their name; other lists are replaced.
//
// A field that is absent in the JSON of want belongs to others, unless it is at or below an owned path: what want lacks
// there is removed. Paths have the names of JSON, and in brackets the key of an element or of an entry of a map:
//
//	spec.template.spec.containers[web].args
//	metadata.annotations[example.com/hash]
//	spec.ports[]
//
// Of spec.ports[] only the keys are owned: which elements there are, and not what others have set in those that stay.
// want must have the defaults of the API server below an owned path: otherwise they are removed, and come back.
//
// A number, bool or text that is zero is absent, unless the field is a pointer. To change one of several alternatives
// into another, such as httpGet of a probe into exec, own the first one: the API server refuses both together. Use the
// field data of a Secret: its stringData is never stored, and would always differ.
//
// Drift changes neither argument and may be called concurrently.
func Drift[T metav1.Object](have, want T, owned ...string) (*Patch, error) {
	left, err := without(have, want, owned)
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", have.GetName(), err)
	}
	if have.GetUID() == "" || have.GetResourceVersion() == "" {
		return nil, fmt.Errorf("compare %s: %w", have.GetName(), ErrNoPrecondition)
	}
	if covers(reflect.ValueOf(have), reflect.ValueOf(want), listKind{}) &&
		(len(owned) == 0 || reflect.DeepEqual(left, have)) {
		return nil, nil
	}
	stored, body, err := changes(have, left, want, *new(T))
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", have.GetName(), err)
	}
	fields := fieldsIn("", stored, body)
	slices.SortFunc(fields, func(a, b Field) int { return strings.Compare(a.Path, b.Path) })
	if _, isSecret := any(have).(*corev1.Secret); isSecret {
		for i := range fields {
			fields[i].Have, fields[i].Want = "", ""
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = have.GetUID(), have.GetResourceVersion()
	body["metadata"] = metadata
	encoded, err := json.Marshal(body)
	return &Patch{Body: encoded, Fields: fields}, err
}

// changes returns have as JSON, and the strategic merge patch from it to left, which is what stays of it, with the
// fields of want.
func changes(have, left, want, kind any) (stored, patch map[string]any, err error) {
	stored, storedErr := fieldsOf(have)
	stays, staysErr := fieldsOf(left)
	wanted, wantedErr := fieldsOf(want)
	if err := errors.Join(storedErr, staysErr, wantedErr); err != nil {
		return nil, nil, err
	}
	// Two elements of a list with one key, such as a port for TCP and for UDP, are one for a merge: it would spoil them.
	self, err := merge(wanted, wanted, runtime.DeepCopyJSON(wanted), kind)
	if repeated := fieldsIn("", nil, self); err != nil || len(repeated) > 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("%w: %q", ErrRepeatedKey, (&Patch{Fields: repeated}).Paths()))
	}
	patch, err = merge(stored, stays, wanted, kind)
	return stored, patch, err
}

// merge returns the patch from stored to what stays of it with the fields of wanted.
func merge(stored, stays, wanted map[string]any, kind any) (map[string]any, error) {
	merged, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(stays), wanted, kind)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergeMapPatch(stored, merged, kind)
}

// fieldsOf returns obj as the JSON that it has, without nulls: some types have one for a field that is not set, and in
// a patch it would mean to remove the field.
func fieldsOf(obj any) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	dropNulls(fields)
	return fields, err
}

func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(_ string, field any) bool { return field == nil })
		for _, field := range value {
			dropNulls(field)
		}
	case []any:
		for _, element := range value {
			dropNulls(element)
		}
	}
}

// fieldsIn returns the fields of a patch that is at path of an object that has have there. Directives are left out.
func fieldsIn(path string, have, patch any) (fields []Field) {
	object, isObject := patch.(map[string]any)
	if !isObject {
		return []Field{fieldAt(path, have, patch)}
	}
	stored, _ := have.(map[string]any)
	for name, value := range object {
		if !strings.HasPrefix(name, "$") {
			fields = append(fields, fieldsIn(strings.TrimPrefix(path+"."+name, "."), stored[name], value)...)
		}
	}
	return fields
}

// maxValue is how many bytes of a value are shown.
const maxValue = 64

func fieldAt(path string, have, want any) Field {
	field := Field{Path: path}
	for value, text := range map[*string]any{&field.Have: have, &field.Want: want} {
		switch text.(type) {
		case []any, map[string]any: // A patch has only a part of it.
			return Field{Path: path}
		case nil:
			*value = "none"
		default:
			if *value = fmt.Sprint(text); len(*value) > maxValue {
				*value = strings.ToValidUTF8((*value)[:maxValue], "") + "..."
			}
			if strings.ContainsFunc(*value, func(r rune) bool { return !strconv.IsPrint(r) }) {
				*value = strconv.Quote(*value) // It must not make a line of the log, or control a terminal.
			}
		}
	}
	return field
}

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
