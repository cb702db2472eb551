package apiserver

import (
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file and builtin_deployments.go have the kinds that come with Kubernetes and that many controllers work with.
// All of them except Events are compared with those of a real server. Tests can define other kinds in the same way.

// Namespaces returns the kind of Namespaces of v1. If it is registered, the namespace "default" exists but not the
// others of a cluster, such as kube-system, objects can be created only in existing namespaces, and RunNamespaces
// deletes the contents of terminating ones.
func Namespaces() Kind {
	return Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", Object: &corev1.Namespace{},
		ClusterScoped: true, Status: true, ShortNames: []string{"ns"},
	}
}

// ConfigMaps returns the kind of ConfigMaps of v1, with the validation of a real server.
func ConfigMaps() Kind {
	return Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap",
		Object: &corev1.ConfigMap{}, ShortNames: []string{"cm"},
		Validate: func(obj, old runtime.Object) field.ErrorList {
			cm := obj.(*corev1.ConfigMap)
			errs := finalizerNames(&cm.ObjectMeta)
			if old != nil {
				errs = append(errs, configMapUpdate(cm, old.(*corev1.ConfigMap))...)
				// A real server validates all metadata again.
				name := validation.NameIsDNSSubdomain
				errs = append(errs,
					validation.ValidateObjectMeta(&cm.ObjectMeta, true, name, field.NewPath("metadata"))...)
				errs = append(errs, finalizerNames(&cm.ObjectMeta)...)
			}
			return append(errs, configMapKeys(cm)...)
		},
	}
}

func configMapUpdate(cm, old *corev1.ConfigMap) field.ErrorList {
	if old.Immutable == nil || !*old.Immutable {
		return nil
	}
	const message = "field is immutable when `immutable` is set"
	var errs field.ErrorList
	if cm.Immutable == nil || !*cm.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), message))
	}
	if !equality.Semantic.DeepEqual(cm.Data, old.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), message))
	}
	if !equality.Semantic.DeepEqual(cm.BinaryData, old.BinaryData) {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), message))
	}
	return errs
}

func configMapKeys(cm *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	for key := range cm.Data {
		path := field.NewPath("data").Key(key)
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(path, key, message))
		}
		if _, both := cm.BinaryData[key]; both {
			errs = append(errs, field.Invalid(path, key, "duplicate of key present in binaryData"))
		}
	}
	for key := range cm.BinaryData {
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("binaryData").Key(key), key, message))
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// finalizerNames checks the rule that only built-in kinds have for finalizers: their names must have a domain.
func finalizerNames(m *metav1.ObjectMeta) field.ErrorList {
	standard := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents,
		metav1.FinalizerDeleteDependents}
	var errs field.ErrorList
	for i, name := range m.Finalizers {
		if !strings.Contains(name, "/") && !slices.Contains(standard, name) {
			path := field.NewPath("metadata", "finalizers").Index(i)
			errs = append(errs,
				field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// Leases returns the kind of Leases of coordination.k8s.io/v1, with the validation of a real server for the fields that
// leader election writes.
func Leases() Kind {
	return Kind{
		Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease",
		Object:        &coordinationv1.Lease{},
		PrepareCreate: func(obj runtime.Object) { dropAlphaFields(obj, &coordinationv1.Lease{}) },
		PrepareUpdate: dropAlphaFields,
		Validate: func(obj, _ runtime.Object) field.ErrorList {
			spec, path := &obj.(*coordinationv1.Lease).Spec, field.NewPath("spec")
			var errs field.ErrorList
			if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
				errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
			}
			if n := spec.LeaseTransitions; n != nil && *n < 0 {
				errs = append(errs,
					field.Invalid(path.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
			}
			return errs
		},
	}
}

// dropAlphaFields drops the fields of coordinated leader election, which is an alpha feature, unless the Lease has
// them.
func dropAlphaFields(obj, old runtime.Object) {
	spec, before := &obj.(*coordinationv1.Lease).Spec, &old.(*coordinationv1.Lease).Spec
	if before.Strategy == nil {
		spec.Strategy = nil
	}
	if before.PreferredHolder == nil {
		spec.PreferredHolder = nil
	}
}

func notNegative(n int64, path *field.Path) field.ErrorList {
	return validation.ValidateNonnegativeField(n, path)
}

func orDefault[T any](have **T, value T) {
	if *have == nil {
		*have = &value
	}
}

func orElse[T comparable](have *T, value T) {
	var none T
	if *have == none {
		*have = value
	}
}
