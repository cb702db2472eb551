package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// nameAttempts is how many generated names a real server tries until one is free.
const nameAttempts = 8

func (c *call) create() (*answer, error) {
	if _, err := c.bodyMedia(); err != nil {
		return nil, err
	}
	opts, err := options(c, &metav1.CreateOptions{}, "CreateOptions", metav1validation.ValidateCreateOptions)
	if err != nil {
		return nil, err
	}
	c.dryRun = len(opts.DryRun) > 0
	obj, err := c.bodyObject(opts.FieldValidation)
	if err != nil {
		return nil, err
	}
	wipeSystemFields(accessor(obj))
	if err := c.inNamespace(obj); err != nil {
		return nil, err
	}
	c.dropDuplicateOwners(obj, "")
	rev, err := c.insert(obj)
	if err != nil {
		return nil, err
	}
	return &answer{code: http.StatusCreated, revision: rev}, nil
}

// insert stores a new object. The caller must not use obj afterwards.
func (c *call) insert(obj runtime.Object) (*Revision, error) {
	if err := c.admit("CREATE", obj, nil); err != nil {
		return nil, err
	}
	c.dropDuplicateOwners(obj, " after mutating admission happens")
	m := accessor(obj)
	generate := m.GetName() == "" && m.GetGenerateName() != ""
	for attempt := 1; ; attempt++ {
		trial := obj
		if generate && attempt < nameAttempts {
			trial = copyOf(obj)
		}
		rev, err := c.insertOnce(trial)
		if !generate || !apierrors.IsAlreadyExists(err) || attempt == nameAttempts {
			return rev, err
		}
	}
}

func (c *call) insertOnce(obj runtime.Object) (*Revision, error) {
	m := accessor(obj)
	m.SetCreationTimestamp(c.server.now())
	m.SetUID(c.server.nextUID())
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(c.server.nextName(m.GetGenerateName()))
	}
	if err := c.inNamespace(obj); err != nil {
		return nil, err
	}
	c.kind.prepareCreate(obj)
	c.kind.setDefaults(obj)
	if errs := c.kind.validateCreate(obj); len(errs) > 0 {
		return nil, invalid(obj, m.GetName(), errs)
	}
	c.warnAboutFinalizers(m.GetFinalizers(), nil)
	if c.kind.isNamespaces() {
		labelNamespace(obj)
	}
	if err := c.review("CREATE", obj, nil); err != nil {
		return nil, err
	}
	// A real server does not check the version in a dry run.
	version := m.GetResourceVersion()
	if !c.dryRun && version != "" && version != "0" && strings.Trim(version, "0123456789") == "" {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	key := c.kind.key(m.GetNamespace(), m.GetName())
	for {
		if have := c.server.find(c.kind, key); have != nil {
			return nil, c.alreadyExists(m, have)
		}
		rev, err := c.commit(key, nil, obj)
		if err != nil || rev != nil {
			return rev, err
		}
	}
}

// commit stores obj unless the call is a dry run. It returns nil if the object has changed since have was read.
func (c *call) commit(key string, have *Revision, obj runtime.Object) (*Revision, error) {
	if !c.dryRun {
		return c.server.commit(c.kind, key, have, obj, c.request)
	}
	if obj == nil {
		return have, nil
	}
	var before runtime.Object
	if have != nil {
		before = have.Object
		accessor(obj).SetResourceVersion(accessor(before).GetResourceVersion())
	}
	return c.kind.newRevision("", obj, before)
}

// alreadyExists returns the error for a name that is taken. As in real servers, the error claims that the name was
// generated whenever the object has a generateName.
func (c *call) alreadyExists(m metav1.Object, have *Revision) error {
	err := apierrors.NewAlreadyExists(c.kind.gr, m.GetName())
	if m.GetGenerateName() != "" {
		err = apierrors.NewGenerateNameConflict(c.kind.gr, m.GetName(), 1)
	}
	if accessor(have.Object).GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// wipeSystemFields clears the fields of a new object that a client cannot set.
func wipeSystemFields(m metav1.Object) {
	m.SetCreationTimestamp(metav1.Time{})
	m.SetUID("")
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
}

// inNamespace sets the namespace of an object to that of the request. It returns an error if the object has another.
func (c *call) inNamespace(obj runtime.Object) error {
	m, want := accessor(obj), c.request.Namespace
	switch have := m.GetNamespace(); {
	case have == want:
	case have == "", c.kind.ClusterScoped:
		m.SetNamespace(want)
	default:
		return apierrors.NewBadRequest(
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// dropDuplicateOwners removes duplicate owner references and adds a warning.
func (c *call) dropDuplicateOwners(obj runtime.Object, when string) {
	var kept []metav1.OwnerReference
	var duplicates []string
	for _, ref := range accessor(obj).GetOwnerReferences() {
		same := func(other metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(ref, other) }
		if slices.ContainsFunc(kept, same) {
			duplicates = append(duplicates, string(ref.UID))
			continue
		}
		kept = append(kept, ref)
	}
	if len(duplicates) == 0 {
		return
	}
	accessor(obj).SetOwnerReferences(kept)
	c.warn(fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server "+
		"dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "+
		"duplicate UID(s) observed: %s", when, strings.Join(duplicates, ", ")))
}

// warnAboutFinalizers warns about the names of new finalizers of a custom resource. The kinds that come with Kubernetes
// refuse such names.
func (c *call) warnAboutFinalizers(have, before []string) {
	if !c.kind.custom {
		return
	}
	standard := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, "kubernetes"}
	for _, name := range slices.Sorted(slices.Values(have)) {
		if slices.Contains(before, name) {
			continue
		}
		for _, message := range utilvalidation.IsQualifiedName(name) {
			c.warn(fmt.Sprintf("metadata.finalizers: %q: %s", name, message))
		}
		if strings.Contains(name, "/") || slices.Contains(standard, name) {
			continue
		}
		with := ""
		if strings.Contains(name, ".") {
			with = "including a path (/) "
		}
		c.warn(fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name %sto avoid accidental "+
			"conflicts with other finalizer writers", name, with))
	}
}

// warn adds a warning to the response, once.
func (c *call) warn(warning string) {
	if !slices.Contains(c.warnings, warning) {
		c.warnings = append(c.warnings, warning)
	}
}
