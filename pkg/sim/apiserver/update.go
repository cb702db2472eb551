package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A change returns the new object for a stored one. The old object is nil if it does not exist. The new object must not
// share data with others.
type change func(old runtime.Object) (runtime.Object, error)

func (c *call) update() (*answer, error) {
	opts, err := options(c, &metav1.UpdateOptions{}, "UpdateOptions", metav1validation.ValidateUpdateOptions)
	if err != nil {
		return nil, err
	}
	c.dryRun = len(opts.DryRun) > 0
	obj, err := c.bodyObject(opts.FieldValidation)
	if err != nil {
		return nil, err
	}
	if err := c.inNamespace(obj); err != nil {
		return nil, err
	}
	if err := c.checkName(obj); err != nil {
		return nil, err
	}
	c.dropDuplicateOwners(obj, "")
	replace := func(runtime.Object) (runtime.Object, error) { return copyOf(obj), nil }
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
	return apierrors.NewConflict(c.kind.gr, c.request.Name, storageError(c.storageKey(key), why))
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
	grace := accessor(old).GetDeletionGracePeriodSeconds()
	return len(accessor(obj).GetFinalizers()) == 0 && accessor(old).GetDeletionTimestamp() != nil &&
		(grace == nil || *grace == 0) && (!c.kind.isNamespaces() || !holdsContent(obj))
}

// finish removes an object, and returns the object of the client's update for the answer.
func (c *call) finish(key string, have *Revision, obj runtime.Object) (*Revision, error) {
	deleted, err := c.commit(key, have, nil)
	if deleted == nil || err != nil {
		return nil, err
	}
	return c.kind.newRevision("", obj, have.Object)
}
