package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

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
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// noReplicas is the value of spec.replicas if the object does not have it.
const noReplicas = math.MinInt32

func emptyScale() *autoscalingv1.Scale {
	obj := &autoscalingv1.Scale{}
	obj.SetGroupVersionKind(scaleKind)
	return obj
}

// scale answers requests for the scale subresource.
func (c *call) scale() (*answer, error) {
	switch c.request.Verb {
	case "get":
		got, err := c.get()
		if err != nil {
			return nil, err
		}
		scale, err := c.kind.scaleOf(got.revision.Object)
		if err == nil && scale.Spec.Replicas == noReplicas {
			why := fmt.Errorf("the spec replicas field %q does not exist", c.kind.Scale.SpecReplicas)
			err = apierrors.NewInternalError(why)
		}
		return &answer{code: http.StatusOK, object: scale}, err
	case "update":
		return c.updateScale()
	case "patch":
		return c.patchScale()
	}
	return nil, apierrors.NewMethodNotSupported(c.kind.gr, c.request.Verb)
}

func (c *call) updateScale() (*answer, error) {
	opts, err := options(c, &metav1.UpdateOptions{}, "UpdateOptions", metav1validation.ValidateUpdateOptions)
	if err != nil {
		return nil, err
	}
	c.dryRun = len(opts.DryRun) > 0
	scale := emptyScale()
	if err := c.decodeBody(scale, opts.FieldValidation); err != nil {
		return nil, err
	}
	if err := c.inNamespace(scale); err != nil {
		return nil, err
	}
	if err := c.checkName(scale); err != nil {
		return nil, err
	}
	return c.storeScale(scale.UID, func(runtime.Object) (runtime.Object, error) { return scale.DeepCopy(), nil })
}

func (c *call) patchScale() (*answer, error) {
	patchType, opts, err := c.patchOptions()
	if err != nil {
		return nil, err
	}
	return c.storeScale("", func(old runtime.Object) (runtime.Object, error) {
		return c.patched(old, emptyScale(), patchType, opts.FieldValidation)
	})
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
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode the selector: %w", err)
	}
	selector := &metav1.LabelSelector{}
	if err := utiljson.Unmarshal(encoded, selector); err != nil {
		return "", fmt.Errorf("read the selector: %w", err)
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
