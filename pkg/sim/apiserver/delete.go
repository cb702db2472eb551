package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
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
	} else if _, err := options(c, opts, "", nil); err != nil {
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
	} else if _, err = serializerjson.DefaultMetaFactory.Interpret(c.request.Body); err == nil {
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
		if err := c.checkPreconditions(accessor(have.Object), opts); err != nil {
			return nil, false, err
		}
		if err := c.review("DELETE", nil, have.Object); err != nil {
			return nil, false, err
		}
		if obj := c.markDeleted(have.Object, opts); obj != nil {
			rev, err := c.commitChange(key, have, obj)
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

func (c *call) checkPreconditions(m metav1.Object, opts *metav1.DeleteOptions) error {
	switch want := opts.Preconditions; {
	case want == nil:
	case want.UID != nil && *want.UID != m.GetUID():
		return c.conflict(m, "UID", *want.UID, m.GetUID(), "The object might have been deleted and then recreated")
	case want.ResourceVersion != nil && *want.ResourceVersion != m.GetResourceVersion():
		return c.conflict(m, "ResourceVersion", *want.ResourceVersion, m.GetResourceVersion(),
			"The object might have been modified")
	}
	return nil
}

// conflict returns the error for a precondition of a deletion. Namespaces have one of their own.
func (c *call) conflict(m metav1.Object, name string, want, have any, hint string) error {
	if c.kind.isNamespaces() {
		return apierrors.NewConflict(c.kind.gr, m.GetName(), errors.New(preconditionFailed(name, want, have)))
	}
	resource := schema.GroupResource{Group: c.kind.gvk.Group, Resource: c.kind.gvk.Kind} // As in real servers.
	return apierrors.NewConflict(resource, m.GetName(), fmt.Errorf(
		"the %s in the precondition (%v) does not match the %s in record (%v). %s", name, want, name, have, hint))
}

// lostPrecondition reproduces a bug of real servers. If the propagation policy removes the last finalizers, the server
// compares the stored version with an empty one instead of the one in the preconditions, and so reports a conflict.
func (c *call) lostPrecondition(key string, obj runtime.Object, opts *metav1.DeleteOptions) error {
	m := accessor(obj)
	if len(m.GetFinalizers()) == 0 || opts.Preconditions == nil || opts.Preconditions.ResourceVersion == nil {
		return nil
	}
	why := preconditionFailed("ResourceVersion", "", m.GetResourceVersion())
	return c.storageConflict(key, m.GetName(), why)
}

// markDeleted returns obj with a deletion timestamp, nil if it has no finalizers and can be removed at once.
func (c *call) markDeleted(obj runtime.Object, opts *metav1.DeleteOptions) runtime.Object {
	finalizers := c.kind.finalizersFor(accessor(obj).GetFinalizers(), opts)
	if len(finalizers) == 0 {
		return nil
	}
	obj = obj.DeepCopyObject()
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

// finalizersFor returns the finalizers of an object that is deleted with these options: its own, and those for the
// garbage collector.
func (r *resource) finalizersFor(have []string, opts *metav1.DeleteOptions) []string {
	if r.noPropagation {
		return withoutCollector(have)
	}
	orphan, foreground := r.policy(have, opts)
	want := withoutCollector(have)
	if orphan {
		want = append(want, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		want = append(want, metav1.FinalizerDeleteDependents)
	}
	if sets.New(want...).Equal(sets.New(have...)) {
		return have
	}
	return want
}

func withoutCollector(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

// policy returns what the garbage collector must do before the object can be removed.
func (r *resource) policy(have []string, opts *metav1.DeleteOptions) (orphan, foreground bool) {
	//lint:ignore SA1019 Clients may still send it.
	if dependents := opts.OrphanDependents; dependents != nil {
		return *dependents, false
	}
	if policy := opts.PropagationPolicy; policy != nil {
		return *policy == metav1.DeletePropagationOrphan, *policy == metav1.DeletePropagationForeground
	}
	for _, f := range have {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return true, false
		case metav1.FinalizerDeleteDependents:
			return false, true
		}
	}
	return r.orphans, false
}

// prepareNamespace makes a new namespace active and adds the finalizer that delays its deletion until it is empty.
func prepareNamespace(obj runtime.Object) {
	namespace := obj.(*corev1.Namespace)
	namespace.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// labelNamespace sets the label that every namespace has.
func labelNamespace(obj runtime.Object) {
	namespace := obj.(*corev1.Namespace)
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, corev1.LabelMetadataName, namespace.Name)
}

// holdsContent reports whether a namespace must not be removed before its contents.
func holdsContent(obj runtime.Object) bool {
	return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0
}

// terminate sets the deletion timestamp of a namespace, which is removed when its contents are. It returns nil if the
// namespace can be removed now, or has changed meanwhile.
func (c *call) terminate(key string, have *Revision, opts *metav1.DeleteOptions) (*Revision, error) {
	namespace := have.Object.(*corev1.Namespace)
	if slices.Contains([]string{"default", "kube-system", "kube-public"}, namespace.Name) {
		return nil, apierrors.NewForbidden(c.kind.gr, namespace.Name, errors.New("this namespace may not be deleted"))
	}
	if err := c.checkPreconditions(namespace, opts); err != nil {
		return nil, err
	}
	if namespace.DeletionTimestamp != nil {
		if holdsContent(namespace) {
			return have, nil
		}
		return nil, nil
	}
	if err := c.review("DELETE", nil, have.Object); err != nil {
		return nil, err
	}
	obj := namespace.DeepCopy()
	obj.DeletionTimestamp = new(c.server.now())
	obj.Status.Phase = corev1.NamespaceTerminating
	obj.Finalizers = c.kind.finalizersFor(obj.Finalizers, opts)
	return c.commit(key, have, obj)
}

// deleteCollection deletes the selected objects one after the other, and returns them. As in a real server, an error
// may occur after some of them are deleted.
func (c *call) deleteCollection() (*answer, error) {
	listOpts, selected, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	opts, err := c.deleteOptions()
	if err != nil {
		return nil, err
	}
	page, err := c.page(listOpts, selected)
	if err != nil {
		return nil, err
	}
	for _, rev := range page.items {
		// Each object has its own call, because the collection may contain several namespaces.
		one := *c.request
		one.Namespace = rev.Namespace
		single := &call{server: c.server, request: &one, kind: c.kind, dryRun: c.dryRun}
		_, _, err := single.deleteObject(rev.Name, opts.DeepCopy())
		c.request.committed, c.request.entry = one.committed, one.entry
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return &answer{code: http.StatusOK, page: page}, nil
}
