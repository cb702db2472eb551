package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	obj := c.kind.empty()
	if err := c.decodeBody(obj, opts.FieldValidation); err != nil {
		return nil, err
	}
	c.kind.setDefaults(obj)
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
			trial = obj.DeepCopyObject()
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

// A change returns the new object for a stored one. The old object is nil if it does not exist. The new object must not
// share data with others.
type change func(old runtime.Object) (runtime.Object, error)

func (c *call) update() (*answer, error) {
	opts, err := options(c, &metav1.UpdateOptions{}, "UpdateOptions", metav1validation.ValidateUpdateOptions)
	if err != nil {
		return nil, err
	}
	obj := c.empty()
	if err := c.namedBody(obj, opts.FieldValidation); err != nil {
		return nil, err
	}
	replace := func(runtime.Object) (runtime.Object, error) { return obj.DeepCopyObject(), nil }
	if c.request.Subresource == "scale" {
		return c.storeScale(accessor(obj).GetUID(), replace)
	}
	c.kind.setDefaults(obj)
	c.dropDuplicateOwners(obj, "")
	return c.store(accessor(obj).GetUID(), c.kind.createOnUpdate && c.request.Subresource == "", replace)
}

// checkName compares an object's name with the one in the path.
func (c *call) checkName(obj runtime.Object) error {
	switch name := accessor(obj).GetName(); name {
	case c.request.Name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: "+
			"name must be provided", c.request.Name))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", name, c.request.Name))
	}
}

// store changes the object that the path names. After a conflict with another write, it tries again. Unless it is
// empty, uid must be that of the stored object.
func (c *call) store(uid types.UID, mayCreate bool, change change) (*answer, error) {
	key := c.kind.key(c.request.Namespace, c.request.Name)
	for {
		have := c.server.find(c.kind, key)
		if have == nil && !mayCreate {
			return nil, apierrors.NewNotFound(c.kind.gr, c.request.Name)
		}
		if err := c.checkUID(key, have, uid); err != nil {
			return nil, err
		}
		if have == nil {
			rev, err := c.createOnUpdate(change)
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			return &answer{code: http.StatusCreated, revision: rev}, err
		}
		rev, err := c.replace(key, have, change)
		if err != nil || rev != nil {
			return &answer{code: http.StatusOK, revision: rev}, err
		}
	}
}

func (c *call) checkUID(key string, have *Revision, uid types.UID) error {
	var stored types.UID
	if have != nil {
		stored = accessor(have.Object).GetUID()
	}
	if uid == "" || uid == stored {
		return nil
	}
	why := preconditionFailed("UID", uid, stored)
	return c.storageConflict(key, c.request.Name, why)
}

func (c *call) createOnUpdate(change change) (*Revision, error) {
	obj, err := change(nil)
	if err != nil {
		return nil, err
	}
	if err := c.admit("CREATE", obj, nil); err != nil {
		return nil, err
	}
	if version := accessor(obj).GetResourceVersion(); version != "" {
		if _, err := strconv.ParseUint(version, 10, 64); err != nil {
			return nil, err
		}
	}
	if !c.dryRun { // A dry run responds with the version that the client sent.
		accessor(obj).SetResourceVersion("")
	}
	wipeSystemFields(accessor(obj))
	return c.insertOnce(obj)
}

// replace applies change to have and stores the result. It returns nil if the object has changed since have was read,
// and have if nothing changes.
func (c *call) replace(key string, have *Revision, change change) (*Revision, error) {
	old, subresource := have.Object, c.request.Subresource
	obj, err := change(old)
	if err != nil {
		return nil, err
	}
	if subresource != "scale" { // storeScale has called admission with the Scale.
		if err := c.admit("UPDATE", obj, old); err != nil {
			return nil, err
		}
	}
	c.dropDuplicateOwners(obj, " after mutating admission happens")
	if err := c.checkVersion(obj, old); err != nil {
		return nil, err
	}
	if err := c.inNamespace(obj); err != nil {
		return nil, err
	}
	accessor(obj).SetGeneration(accessor(old).GetGeneration())
	obj = c.kind.prepareUpdate(obj, old, subresource)
	keepSystemFields(accessor(obj), accessor(old))
	accessor(obj).SetSelfLink("")
	if errs := c.kind.validateUpdate(obj, old, subresource); len(errs) > 0 {
		return nil, invalid(obj, c.request.Name, errs)
	}
	c.warnAboutFinalizers(accessor(obj).GetFinalizers(), accessor(old).GetFinalizers())
	if c.kind.isNamespaces() {
		labelNamespace(obj)
	}
	if subresource != "scale" {
		if err := c.review("UPDATE", obj, old); err != nil {
			return nil, err
		}
	}
	if c.completesDeletion(obj, old) {
		return c.finish(key, have, obj)
	}
	return c.commitChange(key, have, obj)
}

// commitChange stores obj like commit, unless nothing changes.
func (c *call) commitChange(key string, have *Revision, obj runtime.Object) (*Revision, error) {
	written, err := c.kind.newRevision("", obj, nil)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(written.encoded, have.encoded) && !have.missingDefaults {
		return have, nil
	}
	return c.commit(key, have, obj)
}

// checkVersion compares the resourceVersion of obj with that of the stored object, and sets it if obj has none.
func (c *call) checkVersion(obj, old runtime.Object) error {
	have, want := accessor(old).GetResourceVersion(), accessor(obj).GetResourceVersion()
	if want == "" {
		want = "0"
	}
	number, err := strconv.ParseUint(want, 10, 64)
	switch {
	case err != nil:
		return err
	case number == 0 && (c.kind.custom || c.kind.requireVersion):
		kind := schema.GroupKind{Group: c.kind.gr.Group, Kind: c.kind.gr.Resource}
		return apierrors.NewInvalid(kind, c.request.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), number, "must be specified for an update"),
		})
	case number != 0 && strconv.FormatUint(number, 10) != have:
		return apierrors.NewConflict(c.kind.gr, c.request.Name, errors.New(modifiedMessage))
	}
	accessor(obj).SetResourceVersion(have)
	return nil
}

// completesDeletion reports whether an update removes the last finalizer of an object that is being deleted.
func (c *call) completesDeletion(obj, old runtime.Object) bool {
	return len(accessor(obj).GetFinalizers()) == 0 && accessor(old).GetDeletionTimestamp() != nil &&
		orZero(accessor(old).GetDeletionGracePeriodSeconds()) == 0 && (!c.kind.isNamespaces() || !holdsContent(obj))
}

// finish removes an object, and returns the object of the client's update for the answer.
func (c *call) finish(key string, have *Revision, obj runtime.Object) (*Revision, error) {
	deleted, err := c.commit(key, have, nil)
	if deleted == nil || err != nil {
		return nil, err
	}
	return c.kind.newRevision("", obj, have.Object)
}
