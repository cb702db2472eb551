package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// wrongType returns the schema error of a custom resource for a value of a wrong type, nil if err is another error. For
// built-in kinds, servers return the error of Go's decoder instead.
func (c *call) wrongType(err error, into runtime.Object) error {
	var wrong *json.UnmarshalTypeError
	typed := into.GetObjectKind().GroupVersionKind() == c.kind.gvk && !isUnstructured(into)
	if !c.kind.custom || !typed || !errors.As(err, &wrong) {
		return nil
	}
	have, want := wrong.Value, schemaType(wrong.Type)
	path := field.NewPath(wrong.Field)
	detail := fmt.Sprintf("%s in body must be of type %s: %q", wrong.Field, want, have)
	name := cmp.Or(c.request.Name, accessor(into).GetName())
	return apierrors.NewInvalid(c.kind.gvk.GroupKind(), name, field.ErrorList{field.TypeInvalid(path, have, detail)})
}

// schemaType returns the name that a schema has for a Go type.
func schemaType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.String:
		return "string"
	}
	return "object"
}
