package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// patchTypes returns the types of patches that the kind supports.
func (r *resource) patchTypes() []string {
	known := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if !r.custom {
		known = append(known, string(types.StrategicMergePatchType))
	}
	return known
}

// patchType returns the type of the patch in the request.
func (c *call) patchType() (types.PatchType, error) {
	name, _, err := mime.ParseMediaType(c.request.HTTP.Header.Get("Content-Type"))
	switch types.PatchType(name) {
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return "", &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the simulated API server has no server-side apply: use client-side apply",
		}}
	}
	if err == nil {
		for _, known := range c.kind.patchTypes() {
			if name == known {
				return types.PatchType(name), nil
			}
		}
	}
	if c.kind.custom {
		return "", unsupportedMediaType(c.kind.patchTypes())
	}
	return "", unknownPatchType()
}

func (c *call) patch() (*answer, error) {
	patchType, opts, err := c.patchOptions()
	if err != nil {
		return nil, err
	}
	change := func(old runtime.Object) (runtime.Object, error) {
		return c.patched(old, c.kind.empty(), patchType, opts.FieldValidation)
	}
	return c.store("", false, change)
}

func (c *call) patchOptions() (types.PatchType, *metav1.PatchOptions, error) {
	patchType, err := c.patchType()
	if err != nil {
		return "", nil, err
	}
	if _, err := c.accepts(); err != nil {
		return "", nil, err
	}
	validate := func(opts *metav1.PatchOptions) field.ErrorList {
		return metav1validation.ValidatePatchOptions(opts, patchType)
	}
	opts, err := options(c, &metav1.PatchOptions{}, "PatchOptions", validate)
	if err != nil {
		return "", nil, err
	}
	c.dryRun = len(opts.DryRun) > 0
	if !json.Valid(c.request.Body) {
		return "", nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	return patchType, opts, nil
}

// patched applies the patch in the body to old and stores the result in into.
func (c *call) patched(old, into runtime.Object, patchType types.PatchType, fieldValidation string) (runtime.Object,
	error) {
	want := into.GetObjectKind().GroupVersionKind()
	c.warnings = nil
	var err error
	if patchType == types.StrategicMergePatchType {
		err = c.mergeStrategically(old, into, fieldValidation)
	} else {
		err = c.patchJSON(old, into, patchType, fieldValidation)
	}
	if err != nil {
		return nil, err
	}
	if !isUnstructured(into) { // It may claim to be of another kind, which its validation refuses.
		into.GetObjectKind().SetGroupVersionKind(want)
	}
	if want == c.kind.gvk {
		c.kind.setDefaults(into)
	}
	if err := c.inNamespace(into); err != nil {
		return nil, err
	}
	return into, c.checkName(into)
}

func (c *call) patchJSON(old, into runtime.Object, patchType types.PatchType, fieldValidation string) error {
	before, err := json.Marshal(old)
	if err != nil {
		return fmt.Errorf("encode %T: %w", old, err)
	}
	after, err := applyJSON(before, c.request.Body, patchType)
	if err != nil {
		return err
	}
	if c.kind.custom && c.request.Subresource == "status" && !isUnstructured(into) {
		after = asKind(after, into) // Only the status matters.
	}
	want := into.GetObjectKind().GroupVersionKind()
	kind, err := c.decodeJSON(after, into, fieldValidation)
	if err == nil && kind != want && !isUnstructured(into) {
		err = fmt.Errorf("it is a %s", kind)
	}
	if err == nil {
		return nil
	}
	if invalid := c.wrongType(err, into); invalid != nil {
		return invalid
	}
	return invalidPatch(string(after), err)
}

// asKind replaces the kind and version of an encoded object by those of obj.
func asKind(encoded []byte, obj runtime.Object) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(encoded, &fields) != nil {
		return encoded // Decoding it returns the error.
	}
	version, kind := obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	fields["apiVersion"], fields["kind"] = json.RawMessage(strconv.Quote(version)), json.RawMessage(strconv.Quote(kind))
	again, err := json.Marshal(fields)
	if err != nil {
		return encoded
	}
	return again
}

func applyJSON(before, patch []byte, patchType types.PatchType) ([]byte, error) {
	if patchType == types.MergePatchType {
		if err := utiljson.Unmarshal(patch, &map[string]any{}); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		after, err := jsonpatch.MergePatch(before, patch)
		if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return after, err
	}
	if err := utiljson.Unmarshal(patch, &[]any{}); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, unprocessable(err)
	}
	return after, nil
}

func (c *call) mergeStrategically(old, into runtime.Object, fieldValidation string) error {
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return fmt.Errorf("take apart %T: %w", old, err)
	}
	patch := map[string]any{}
	if err := utiljson.Unmarshal(c.request.Body, &patch); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	after, err := strategicpatch.StrategicMergeMapPatch(before, patch, into)
	if err != nil {
		return mergeError(err)
	}
	strict := fieldValidation != metav1.FieldValidationIgnore
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(after, into, strict)
	unknown, is := runtime.AsStrictDecodingError(err)
	switch {
	case err == nil:
	case is && fieldValidation != metav1.FieldValidationStrict:
		for _, field := range unknown.Errors() {
			c.warnings = append(c.warnings, field.Error())
		}
	default:
		return invalidPatch(fmt.Sprintf("%+v", patch), err)
	}
	return nil
}

func mergeError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys),
		errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return unprocessable(err)
	}
	return err
}

func unprocessable(err error) error {
	const code = http.StatusUnprocessableEntity
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

func invalidPatch(value string, err error) error {
	errs := field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())}
	return apierrors.NewInvalid(schema.GroupKind{}, "", errs)
}
