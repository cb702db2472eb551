package apiserver

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	rules "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// section returns a top-level field of an object, such as Spec. The value is not valid if the object has no such field.
func section(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// sections has the JSON names of the top-level fields that most kinds have.
var sections = map[string]string{"Spec": "spec", "Status": "status"}

// copySection copies a top-level field from another object of the same type. The copy may share data with the other
// object, which is never modified.
func copySection(to, from runtime.Object, name string) {
	if u, ok := to.(*unstructured.Unstructured); ok {
		value, found := from.(*unstructured.Unstructured).Object[sections[name]]
		if !found {
			delete(u.Object, sections[name])
			return
		}
		u.Object[sections[name]] = runtime.DeepCopyJSONValue(value)
		return
	}
	if have := section(from, name); have.IsValid() {
		section(to, name).Set(have)
	}
}

// clearStatus removes the status.
func clearStatus(obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		delete(u.Object, "status")
		return
	}
	if status := section(obj, "Status"); status.IsValid() {
		status.SetZero()
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
	if u, ok := a.(*unstructured.Unstructured); ok {
		x, y := maps.Clone(u.Object), maps.Clone(b.(*unstructured.Unstructured).Object)
		delete(x, "metadata")
		delete(y, "metadata")
		return equality.Semantic.DeepEqual(x, y)
	}
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		field := x.Type().Field(i)
		if field.Name == "TypeMeta" || field.Name == "ObjectMeta" || field.Tag.Get("json") == "-" {
			continue
		}
		if !equality.Semantic.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// prepareCreate clears the fields of a new object that a client may not set.
func (r *resource) prepareCreate(obj runtime.Object) {
	if r.isNamespaces() {
		prepareNamespace(obj)
	} else if r.Status && r.Resource != corev1.SchemeGroupVersion.WithResource("nodes") { // A kubelet creates its Node.
		clearStatus(obj)
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
		return obj
	case subresource == "status" && r.custom:
		kept := copyOf(old)
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
