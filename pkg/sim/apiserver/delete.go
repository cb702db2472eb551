package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *call) delete() (*answer, error) {
	opts, err := c.deleteOptions()
	if err != nil {
		return nil, err
	}
	obj, deleted, err := c.deleteObject(c.request.Name, opts)
	if err != nil {
		return nil, err
	}
	obj.code = http.StatusOK
	//lint:ignore SA1019 Clients may still send it.
	if orphan := opts.OrphanDependents; !deleted && orphan != nil && !*orphan {
		obj.code = http.StatusAccepted
	}
	return obj, nil
}

// deleteOptions reads the options from the body or, without a body, from the query.
func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	if len(c.request.Body) > 0 {
		if err := c.decodeDeleteOptions(opts); err != nil {
			return nil, err
		}
	} else if _, err := options(c, opts, "", func(*metav1.DeleteOptions) field.ErrorList { return nil }); err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	c.dryRun = len(opts.DryRun) > 0
	return opts, nil
}

// decodeDeleteOptions reads the body. Clients of custom resources may send it as protobuf, too.
func (c *call) decodeDeleteOptions(opts *metav1.DeleteOptions) error {
	var err error
	if c.request.HTTP.Header.Get("Content-Type") == string(mediaBinary) {
		_, err = decodeBinary(c.request.Body, opts)
	} else {
		err = utiljson.Unmarshal(c.request.Body, opts)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if opts.Kind != "" && opts.Kind != "DeleteOptions" {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"no kind %q is registered for version %q in scheme %q", opts.Kind, opts.APIVersion, "pkg/runtime/scheme.go:111"))
	}
	return nil
}

// deleteObject deletes an object. If the object has finalizers, it only sets the deletion timestamp. It returns the
// answer, and whether the object was removed.
func (c *call) deleteObject(name string, opts *metav1.DeleteOptions) (*answer, bool, error) {
	key := c.kind.key(c.request.Namespace, name)
	for {
		have := c.server.find(c.kind, key)
		if have == nil {
			return nil, false, apierrors.NewNotFound(c.kind.gr, name)
		}
		if c.kind.isNamespaces() {
			if rev, err := c.terminate(key, have, opts); err != nil || rev != nil {
				return &answer{revision: rev}, false, err
			}
		}
		if err := c.checkPreconditions(have.Object, opts); err != nil {
			return nil, false, err
		}
		if err := c.review("DELETE", nil, have.Object); err != nil {
			return nil, false, err
		}
		if obj := c.markDeleted(have.Object, opts); obj != nil {
			rev, err := c.commitMarked(key, have, obj)
			if err != nil || rev != nil {
				return &answer{revision: rev}, false, err
			}
			continue
		}
		if err := c.lostPrecondition(key, have.Object, opts); err != nil {
			return nil, false, err
		}
		rev, err := c.commit(key, have, nil)
		if err != nil || rev != nil {
			return &answer{object: c.deletedStatus(have.Object)}, true, err
		}
	}
}

// commitMarked stores an object that is being deleted, unless it already is and nothing changes.
func (c *call) commitMarked(key string, have *Revision, obj runtime.Object) (*Revision, error) {
	marked, err := c.kind.newRevision("", obj, nil)
	if err != nil {
		return nil, err
	}
	if string(marked.encoded) == string(have.encoded) {
		return have, nil
	}
	return c.commit(key, have, obj)
}

func (c *call) checkPreconditions(obj runtime.Object, opts *metav1.DeleteOptions) error {
	m, want := accessor(obj), opts.Preconditions
	if want == nil {
		return nil
	}
	resource := schema.GroupResource{Group: c.kind.gvk.Group, Resource: c.kind.gvk.Kind} // As in real servers.
	if want.UID != nil && *want.UID != m.GetUID() {
		return apierrors.NewConflict(resource, m.GetName(),
			fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", *want.UID, m.GetUID()))
	}
	if want.ResourceVersion != nil && *want.ResourceVersion != m.GetResourceVersion() {
		return apierrors.NewConflict(resource, m.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) "+
			"does not match the ResourceVersion in record (%s). The object might have been modified",
			*want.ResourceVersion, m.GetResourceVersion()))
	}
	return nil
}

// lostPrecondition reproduces a bug of real servers. If the propagation policy removes the last finalizers, the server
// compares the stored version with an empty one instead of the one in the preconditions, and so reports a conflict.
func (c *call) lostPrecondition(key string, obj runtime.Object, opts *metav1.DeleteOptions) error {
	m := accessor(obj)
	if len(m.GetFinalizers()) == 0 || opts.Preconditions == nil || opts.Preconditions.ResourceVersion == nil {
		return nil
	}
	why := preconditionFailed("ResourceVersion", "", m.GetResourceVersion())
	return apierrors.NewConflict(c.kind.gr, m.GetName(), storageError(c.storageKey(key), why))
}

// markDeleted returns obj with a deletion timestamp, nil if it has no finalizers and can be removed at once.
func (c *call) markDeleted(obj runtime.Object, opts *metav1.DeleteOptions) runtime.Object {
	finalizers := c.kind.finalizersFor(accessor(obj).GetFinalizers(), opts)
	if len(finalizers) == 0 {
		return nil
	}
	obj = copyOf(obj)
	m := accessor(obj)
	m.SetFinalizers(finalizers)
	if m.GetDeletionTimestamp() == nil {
		if m.GetGeneration() > 0 {
			m.SetGeneration(m.GetGeneration() + 1)
		}
		m.SetDeletionTimestamp(new(c.server.now()))
	}
	m.SetDeletionGracePeriodSeconds(new(int64))
	return obj
}

// deletedStatus is the body of the response to a delete that removes an object.
func (c *call) deletedStatus(obj runtime.Object) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: accessor(obj).GetName(), Group: c.kind.gr.Group, Kind: c.kind.gr.Resource,
			UID: accessor(obj).GetUID(),
		},
	}
}
