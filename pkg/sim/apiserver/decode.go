package apiserver

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// bodyMedia returns the media type of the request body.
func (c *call) bodyMedia() (media, error) {
	header := c.request.HTTP.Header.Get("Content-Type")
	if header == "" {
		return mediaJSON, nil
	}
	name, _, err := mime.ParseMediaType(header)
	if err == nil {
		for _, known := range c.medias() {
			if name == known {
				return media(name), nil
			}
		}
	}
	return "", unsupportedMediaType(c.medias())
}

// bodyObject returns the object in the request body, with its defaults.
func (c *call) bodyObject(fieldValidation string) (runtime.Object, error) {
	obj := c.kind.empty()
	if err := c.decodeBody(obj, fieldValidation); err != nil {
		return nil, err
	}
	c.kind.setDefaults(obj)
	return obj, nil
}

// decodeBody reads an object of the call's kind, or of the given one, from the body.
func (c *call) decodeBody(into runtime.Object, fieldValidation string) error {
	m, err := c.bodyMedia()
	if err != nil {
		return err
	}
	want := into.GetObjectKind().GroupVersionKind()
	body, kind := c.request.Body, want
	switch m {
	case mediaBinary:
		kind, err = decodeBinary(body, into)
		if err == nil && kind.Kind != want.Kind {
			err = fmt.Errorf("it is a %s", kind.Kind)
		}
	case mediaYAML:
		// A comment, because ToJSON takes everything that begins with a brace for JSON.
		if body, err = yaml.ToJSON(append([]byte("#\n"), body...)); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		fallthrough
	default:
		if c.kind.custom && want == c.kind.gvk {
			err = checkHasKind(body)
		}
		if err == nil {
			kind, err = c.decodeJSON(body, into, fieldValidation)
		} else {
			kind = schema.GroupVersionKind{}
		}
	}
	if err != nil {
		return c.decodeError(err, into, want, kind, body)
	}
	if kind.GroupVersion() != want.GroupVersion() {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)",
			kind.GroupVersion(), want.GroupVersion()))
	}
	if !isUnstructured(into) { // It may claim to be of another kind, which its validation refuses.
		into.GetObjectKind().SetGroupVersionKind(want)
	}
	return nil
}

// checkHasKind returns an error if the body has no kind. Bodies of custom resources must have one.
func checkHasKind(body []byte) error {
	var header struct {
		Kind *string `json:"kind"`
	}
	if json.Unmarshal(body, &header) == nil && header.Kind == nil {
		return fmt.Errorf("Object 'Kind' is missing in '%s'", body)
	}
	return nil
}

// decodeJSON reads an object and returns the kind in its type metadata. The client chooses whether unknown fields are
// an error, a warning, or ignored.
func (c *call) decodeJSON(body []byte, into runtime.Object, fieldValidation string) (schema.GroupVersionKind, error) {
	want := into.GetObjectKind().GroupVersionKind()
	serializer := c.server.strict
	if fieldValidation == metav1.FieldValidationIgnore {
		serializer = c.server.lenient
	}
	obj, kind, err := serializer.Decode(body, &want, into)
	if err == nil && c.kind.Strict != nil && want == c.kind.gvk {
		_, _, err = serializer.Decode(body, &want, c.kind.Strict(into))
	}
	if kind == nil {
		kind = &schema.GroupVersionKind{}
	}
	if u, is := obj.(*unstructured.Unstructured); is && (err == nil || runtime.IsStrictDecodingError(err)) {
		err = c.typeUnstructured(u, err)
	}
	strict, is := runtime.AsStrictDecodingError(err)
	if is && obj != nil && fieldValidation != metav1.FieldValidationStrict {
		for _, unknown := range strict.Errors() {
			if fieldValidation != metav1.FieldValidationIgnore {
				c.warnings = append(c.warnings, unknown.Error())
			}
		}
		err = nil
	}
	if err == nil && obj != into {
		err = fmt.Errorf("it is a %s", kind.Kind)
	}
	return *kind, err
}

// typeUnstructured removes from an unstructured object what its metadata and its schema do not have. It returns an
// error for a value that cannot be decoded, and a strict decoding error for unknown fields and for the errors of a
// strict decoding so far.
func (c *call) typeUnstructured(u *unstructured.Unstructured, strict error) error {
	var all []error
	if before, is := runtime.AsStrictDecodingError(strict); is {
		all = before.Errors()
	}
	unknown, err := c.server.typeMetadata(u)
	if err != nil {
		return err
	}
	all = slices.Concat(all, unknown)
	if c.kind.Schema != nil {
		pruned, err := c.kind.Schema.Prune(u)
		if err != nil {
			return err
		}
		for _, path := range pruned {
			all = append(all, fmt.Errorf("unknown field %q", path))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return runtime.NewStrictDecodingError(all)
}

// typeMetadata removes from the metadata of an unstructured object what metadata cannot have. It returns an error for a
// value of a wrong type, and an error for each unknown field.
func (s *Server) typeMetadata(u *unstructured.Unstructured) (unknown []error, err error) {
	untyped, found := u.Object["metadata"]
	if !found {
		return nil, nil
	}
	encoded, err := json.Marshal(untyped)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	typed := &metav1.ObjectMeta{}
	if err := utiljson.Unmarshal(encoded, typed); err != nil {
		return nil, err
	}
	u.Object["metadata"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("take apart metadata: %w", err)
	}
	whole := slices.Concat([]byte(`{"metadata":`), encoded, []byte("}"))
	_, _, err = s.strict.Decode(whole, nil, &metav1.PartialObjectMetadata{})
	if strict, is := runtime.AsStrictDecodingError(err); is {
		return strict.Errors(), nil
	}
	return nil, nil
}

// decodeError returns the error of a real server for a body of a kind that cannot be decoded into an object of the
// expected kind.
func (c *call) decodeError(err error, into runtime.Object, expected, kind schema.GroupVersionKind, body []byte) error {
	want := cmp.Or(expected.Kind, c.kind.gvk.Kind)
	if invalid := c.wrongType(err, into); invalid != nil {
		return invalid
	}
	if kind.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
			kind.Kind, kind.Version, want, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)",
		want, err, summary(body)))
}

func summary(body []byte) string {
	const longest = 30
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{' && len(body) > longest:
		return string(body[:longest]) + " ..."
	case body[0] == '{':
		return string(body)
	case len(body) > longest:
		return hex.EncodeToString(body[:longest]) + " ..."
	}
	return hex.EncodeToString(body)
}

// copyOf returns an object that may be modified.
func copyOf(obj runtime.Object) runtime.Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.DeepCopy()
	}
	return obj.DeepCopyObject()
}
