package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		return "", statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the simulated API server has no server-side apply: use client-side apply")
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
	return "", generic(http.StatusUnsupportedMediaType, "415: Unsupported Media Type")
}

func (c *call) patch() (*answer, error) {
	patchType, err := c.patchType()
	if err != nil {
		return nil, err
	}
	if _, err := c.accepts(); err != nil {
		return nil, err
	}
	validate := func(opts *metav1.PatchOptions) field.ErrorList {
		return metav1validation.ValidatePatchOptions(opts, patchType)
	}
	opts, err := options(c, &metav1.PatchOptions{}, "PatchOptions", validate)
	if err != nil {
		return nil, err
	}
	if !json.Valid(c.request.Body) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	change := func(old runtime.Object) (runtime.Object, error) {
		return c.patched(old, c.empty(), patchType, opts.FieldValidation)
	}
	if c.request.Subresource == "scale" {
		return c.storeScale("", change)
	}
	return c.store("", false, change)
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
		return nil, generic(http.StatusUnprocessableEntity, err.Error())
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
	if err = c.withoutUnknown(err, fieldValidation); err != nil {
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
		return generic(http.StatusUnprocessableEntity, err.Error())
	}
	return err
}

func invalidPatch(value string, err error) error {
	errs := field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())}
	return apierrors.NewInvalid(schema.GroupKind{}, "", errs)
}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// noReplicas is the value of spec.replicas if the object does not have it.
const noReplicas = math.MinInt32

func emptyScale() *autoscalingv1.Scale {
	obj := &autoscalingv1.Scale{}
	obj.SetGroupVersionKind(scaleKind)
	return obj
}

// empty returns a new, empty object of the kind that the request reads and writes.
func (c *call) empty() runtime.Object {
	if c.request.Subresource == "scale" {
		return emptyScale()
	}
	return c.kind.empty()
}

func (c *call) getScale() (*answer, error) {
	got, err := c.get()
	if err != nil {
		return nil, err
	}
	scale, err := c.kind.scaleOf(got.revision.Object)
	if err == nil && scale.Spec.Replicas == noReplicas {
		err = apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", c.kind.Scale.SpecReplicas))
	}
	return &answer{code: http.StatusOK, object: scale}, err
}

// storeScale changes an object through its scale.
func (c *call) storeScale(uid types.UID, change change) (*answer, error) {
	got, err := c.store(uid, false, func(old runtime.Object) (runtime.Object, error) {
		before, err := c.kind.scaleOf(old)
		if err != nil {
			return nil, err
		}
		after, err := change(before)
		if err != nil {
			return nil, err
		}
		if err := c.admit("UPDATE", after, before); err != nil {
			return nil, err
		}
		scale := after.(*autoscalingv1.Scale)
		if err := c.checkScale(scale, before); err != nil {
			return nil, err
		}
		if err := c.review("UPDATE", scale, before); err != nil {
			return nil, err
		}
		return c.kind.scaled(old, scale)
	})
	if err != nil {
		return nil, err
	}
	scale, err := c.kind.scaleOf(got.revision.Object)
	return &answer{code: http.StatusOK, object: scale}, err
}

func (c *call) checkScale(scale, before *autoscalingv1.Scale) error {
	if c.kind.custom {
		if scale.Spec.Replicas == noReplicas {
			why := fmt.Sprintf("the spec replicas field %q cannot be empty", c.kind.Scale.SpecReplicas)
			return apierrors.NewBadRequest(why)
		}
		return nil
	}
	metadata := field.NewPath("metadata")
	errs := validation.ValidateObjectMeta(&scale.ObjectMeta, true, validation.NameIsDNSSubdomain, metadata)
	replicas := field.NewPath("spec", "replicas")
	errs = append(errs, validation.ValidateNonnegativeField(int64(scale.Spec.Replicas), replicas)...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(
			schema.GroupKind{Group: scaleKind.Group, Kind: scaleKind.Kind}, c.request.Name, errs)
	}
	if scale.UID != "" && scale.UID != before.UID {
		gr := schema.GroupResource{Group: c.kind.gr.Group, Resource: c.kind.gr.Resource + "/scale"}
		return apierrors.NewConflict(gr, c.request.Name, errors.New(preconditionFailed("UID", scale.UID, before.UID)))
	}
	return nil
}

// validateScale returns the errors in the fields of a custom resource that its scale shows, unless its Schema does. A
// write of the status concerns only fields of the status.
func (r *resource) validateScale(obj runtime.Object, subresource string) field.ErrorList {
	if !r.custom || r.Scale == nil || r.Schema != nil {
		return nil
	}
	fields, err := content(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	var errs field.ErrorList
	if subresource != "status" {
		errs = validateReplicas(fields, r.Scale.SpecReplicas)
	}
	errs = append(errs, validateReplicas(fields, r.Scale.StatusReplicas)...)
	if r.Scale.Selector != "" {
		selector, _, err := unstructured.NestedString(fields, fieldsOfPath(r.Scale.Selector)...)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(r.Scale.Selector), selector, err.Error()))
		}
	}
	return errs
}

func validateReplicas(fields map[string]any, path string) field.ErrorList {
	replicas, _, err := unstructured.NestedInt64(fields, fieldsOfPath(path)...)
	var message string
	switch {
	case err != nil:
		message = err.Error()
	case replicas < 0:
		message = "should be a non-negative integer"
	case replicas > math.MaxInt32:
		message = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), replicas, message)}
}

// content returns the fields of an object.
func content(obj runtime.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.DeepCopy().Object, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("take apart %T: %w", obj, err)
	}
	return fields, nil
}

// scaleOf returns the scale of an object.
func (r *resource) scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	fields, err := content(obj)
	if err != nil {
		return nil, err
	}
	replicas, found, err := unstructured.NestedInt64(fields, fieldsOfPath(r.Scale.SpecReplicas)...)
	if !found {
		replicas = noReplicas
	}
	current, _, currentErr := unstructured.NestedInt64(fields, fieldsOfPath(r.Scale.StatusReplicas)...)
	selector, selectorErr := selectorOf(fields, r.Scale.Selector)
	if err := errors.Join(err, currentErr, selectorErr); err != nil {
		return nil, err
	}
	m, scale := accessor(obj), emptyScale()
	scale.ObjectMeta = metav1.ObjectMeta{
		Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
		CreationTimestamp: m.GetCreationTimestamp(),
	}
	scale.Spec.Replicas = int32(replicas)
	scale.Status = autoscalingv1.ScaleStatus{Replicas: int32(current), Selector: selector}
	return scale, nil
}

// selectorOf reads a selector: the string that the scale shows, or a LabelSelector.
func selectorOf(fields map[string]any, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	value, _, err := unstructured.NestedFieldNoCopy(fields, fieldsOfPath(path)...)
	if err != nil {
		return "", err
	}
	selector := &metav1.LabelSelector{}
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case map[string]any:
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(value, selector); err != nil {
			return "", fmt.Errorf("read the selector: %w", err)
		}
	default:
		return "", fmt.Errorf("the selector is a %T", value)
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return "", err
	}
	return parsed.String(), nil
}

// scaled returns old with the replicas of scale and, unless it is empty, the resourceVersion of scale.
func (r *resource) scaled(old runtime.Object, scale *autoscalingv1.Scale) (runtime.Object, error) {
	fields, err := content(old)
	if err != nil {
		return nil, err
	}
	replicas := int64(scale.Spec.Replicas)
	if err := unstructured.SetNestedField(fields, replicas, fieldsOfPath(r.Scale.SpecReplicas)...); err != nil {
		return nil, err
	}
	obj := r.empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj); err != nil {
		return nil, fmt.Errorf("put together %T: %w", obj, err)
	}
	if scale.ResourceVersion != "" {
		accessor(obj).SetResourceVersion(scale.ResourceVersion)
	}
	return obj, nil
}
