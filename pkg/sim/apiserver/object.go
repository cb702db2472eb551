package apiserver

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	rules "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// namedBody reads the object in the request body, which must have the namespace and the name of the path.
func (c *call) namedBody(into runtime.Object, fieldValidation string) error {
	if err := c.decodeBody(into, fieldValidation); err != nil {
		return err
	}
	if err := c.inNamespace(into); err != nil {
		return err
	}
	return c.checkName(into)
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
	if obj != nil {
		err = c.withoutUnknown(err, fieldValidation)
	}
	if err == nil && obj != into {
		err = fmt.Errorf("it is a %s", kind.Kind)
	}
	return *kind, err
}

// withoutUnknown returns the error of a decoding, unless it is only about unknown fields and the client is not strict.
func (c *call) withoutUnknown(err error, fieldValidation string) error {
	strict, is := runtime.AsStrictDecodingError(err)
	if !is || fieldValidation == metav1.FieldValidationStrict {
		return err
	}
	if fieldValidation != metav1.FieldValidationIgnore {
		for _, unknown := range strict.Errors() {
			c.warnings = append(c.warnings, unknown.Error())
		}
	}
	return nil
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
	more := ""
	if len(body) > longest {
		body, more = body[:longest], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(body) + more
	}
	return hex.EncodeToString(body) + more
}

// section returns a top-level field of an object, such as Spec. The value is not valid if the object has no such field.
func section(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// copySection copies a top-level field from another object of the same type. The copy may share data with the other
// object, which is never modified.
func copySection(to, from runtime.Object, name string) {
	if u, ok := to.(*unstructured.Unstructured); ok {
		name = strings.ToLower(name)
		value, found := from.(*unstructured.Unstructured).Object[name]
		if !found {
			delete(u.Object, name)
			return
		}
		u.Object[name] = runtime.DeepCopyJSONValue(value)
		return
	}
	if have := section(from, name); have.IsValid() {
		section(to, name).Set(have)
	}
}

// hasStatus reports whether the status is not empty.
func hasStatus(obj runtime.Object) bool {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object["status"] != nil
	}
	status := section(obj, "Status")
	return status.IsValid() && !status.IsZero()
}

// newGeneration reports whether the change from old to obj starts a new generation.
func (r *resource) newGeneration(obj, old runtime.Object) bool {
	switch {
	case !r.generations:
		return false
	case r.NewGeneration != nil:
		return r.NewGeneration(obj, old)
	case !r.custom && section(obj, "Spec").IsValid():
		return !equality.Semantic.DeepEqual(section(obj, "Spec").Interface(), section(old, "Spec").Interface())
	}
	return !equalOutsideMetadata(obj, old)
}

// equalOutsideMetadata reports whether two objects are equal except for their metadata.
func equalOutsideMetadata(a, b runtime.Object) bool {
	x, errX := content(a)
	y, errY := content(b)
	delete(x, "metadata")
	delete(y, "metadata")
	return errX == nil && errY == nil && equality.Semantic.DeepEqual(x, y)
}

// prepareCreate clears the fields of a new object that a client may not set.
func (r *resource) prepareCreate(obj runtime.Object) {
	if r.isNamespaces() {
		prepareNamespace(obj)
	} else if r.Status && r.Resource != corev1.SchemeGroupVersion.WithResource("nodes") { // A kubelet creates its Node.
		copySection(obj, r.empty(), "Status")
	}
	m := accessor(obj)
	m.SetManagedFields(nil)
	if r.generations {
		m.SetGeneration(1)
	}
	if r.PrepareCreate != nil {
		r.PrepareCreate(obj)
	}
}

// prepareUpdate copies the fields from old that an update of the object or of the subresource may not change.
func (r *resource) prepareUpdate(obj, old runtime.Object, subresource string) runtime.Object {
	m := accessor(obj)
	m.SetManagedFields(nil)
	switch {
	case subresource == "finalize":
		copySection(obj, old, "Status")
		return obj
	case subresource == "status" && r.custom:
		kept := old.DeepCopyObject()
		copySection(kept, obj, "Status")
		accessor(kept).SetResourceVersion(m.GetResourceVersion())
		r.setDefaults(kept)
		return kept
	case subresource == "status":
		copySection(obj, old, "Spec")
		if r.PrepareStatus != nil {
			r.PrepareStatus(obj, old)
		}
		return obj
	}
	if r.isNamespaces() {
		copySection(obj, old, "Spec")
	}
	if r.Status {
		copySection(obj, old, "Status")
	}
	if r.PrepareUpdate != nil {
		r.PrepareUpdate(obj, old)
	}
	if r.newGeneration(obj, old) {
		m.SetGeneration(accessor(old).GetGeneration() + 1)
	}
	return obj
}

// keepSystemFields copies the fields from old that only the server sets.
func keepSystemFields(obj, old metav1.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		obj.SetCreationTimestamp(created)
	}
	if deleted := old.GetDeletionTimestamp(); !deleted.IsZero() {
		obj.SetDeletionTimestamp(deleted)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(grace)
	}
}

// validateCreate returns the errors of a new object. Like a real server, it validates the metadata twice, the second
// time only if there was no error before.
func (r *resource) validateCreate(obj runtime.Object) field.ErrorList {
	metadata := field.NewPath("metadata")
	var errs field.ErrorList
	if r.Schema != nil {
		errs = r.Schema.Validate(obj.(*unstructured.Unstructured), nil, "")
	} else {
		if errs := r.otherKind(obj); len(errs) > 0 {
			return errs
		}
		errs = validation.ValidateObjectMetaAccessor(accessor(obj), !r.ClusterScoped, r.ValidateName, metadata)
	}
	if r.Validate != nil {
		errs = append(errs, r.Validate(obj, nil)...)
	}
	errs = append(errs, r.validateScale(obj, "")...)
	if len(errs) > 0 {
		return errs
	}
	return validation.ValidateObjectMetaAccessor(accessor(obj), !r.ClusterScoped, pathSegment, metadata)
}

// validateUpdate returns the errors of an object that is to replace old. Real servers validate the metadata several
// times. For built-in kinds they return each error once, for others twice.
func (r *resource) validateUpdate(obj, old runtime.Object, subresource string) field.ErrorList {
	metadata := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(accessor(obj), !r.ClusterScoped, pathSegment, metadata)
	ofUpdate := validation.ValidateObjectMetaAccessorUpdate(accessor(obj), accessor(old), metadata)
	errs = append(errs, ofUpdate...)
	if r.Schema != nil {
		have, before := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
		errs = append(errs, r.Schema.Validate(have, before, subresource)...)
	} else {
		if other := r.otherKind(obj); len(other) > 0 {
			return append(errs, other...)
		}
		errs = append(errs, ofUpdate...)
	}
	if r.Validate != nil && (subresource != "status" || r.custom && r.ValidateStatus == nil) {
		errs = append(errs, r.Validate(obj, old)...)
	}
	if r.ValidateStatus != nil && subresource == "status" {
		errs = append(errs, r.ValidateStatus(obj, old)...)
	}
	if r.custom {
		return append(errs, r.validateScale(obj, subresource)...)
	}
	return withoutDuplicates(errs)
}

// otherKind returns the errors of an object that claims to be of another kind or version. Only an unstructured object
// can: decoding a Go type is an error then.
func (r *resource) otherKind(obj runtime.Object) (errs field.ErrorList) {
	have := obj.GetObjectKind().GroupVersionKind()
	if have.Kind != r.gvk.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), have.Kind, "must be "+r.gvk.Kind))
	}
	if version := r.gvk.GroupVersion(); have.GroupVersion() != version {
		errs = append(errs,
			field.Invalid(field.NewPath("apiVersion"), have.GroupVersion().String(), "must be "+version.String()))
	}
	return errs
}

// invalid returns the error for an object with errors. It has the kind that the object claims to have.
func invalid(obj runtime.Object, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(obj.GetObjectKind().GroupVersionKind().GroupKind(), name, errs)
}

func withoutDuplicates(errs field.ErrorList) (unique field.ErrorList) {
	for _, err := range errs {
		if !slices.ContainsFunc(unique, func(e *field.Error) bool { return e.Error() == err.Error() }) {
			unique = append(unique, err)
		}
	}
	return unique
}

func pathSegment(name string, prefix bool) []string {
	if prefix {
		return rules.IsPathSegmentPrefix(name)
	}
	return rules.IsPathSegmentName(name)
}
