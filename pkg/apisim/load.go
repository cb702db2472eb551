package apisim

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// Load stores copies of objects without admission, defaults and validation, as the restore of a backup does. It
// replaces objects with the same names. Uids, generations, timestamps and statuses do not change, and each object gets
// the next resourceVersion. So a test can begin with objects that no client could create.
//
// Load returns an error if the Go type of an object belongs to no registered Kind. The objects before it are stored.
func (s *Server) Load(objects ...runtime.Object) error {
	for _, obj := range objects {
		r := s.kindOf(obj)
		if r == nil {
			return fmt.Errorf("load %T: no kind of that type is registered", obj)
		}
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(r.gvk)
		m := accessor(obj)
		by := &Request{
			User: "apisim", Verb: "load", Resource: r.Resource, Namespace: m.GetNamespace(), Name: m.GetName(),
			server: s,
		}
		key := r.key(m.GetNamespace(), m.GetName())
		for stored := (*Revision)(nil); stored == nil; { // Again after a conflict.
			var err error
			if stored, err = s.commit(r, key, s.find(r, key), obj, by); err != nil {
				return fmt.Errorf("load %s: %w", key, err)
			}
		}
	}
	return nil
}

// kindOf returns the kind of obj, nil if it is not registered.
func (s *Server) kindOf(obj runtime.Object) *resource {
	for _, r := range s.kinds {
		gvk := obj.GetObjectKind().GroupVersionKind()
		if reflect.TypeOf(obj) == reflect.TypeOf(r.Object) && (gvk.Empty() || gvk == r.gvk) {
			return r
		}
	}
	return nil
}
