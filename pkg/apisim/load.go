package apisim

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// Load stores copies of objects as they are, in place of what there is under their names, as somebody does who
// restores a backup: nothing is admitted, defaulted or validated, and uids, generations, timestamps and statuses
// stay. So a test can begin with what no client could create. Each object gets the next resourceVersion. An error
// says that the Go type of an object is none of a registered Kind's, and which; those before it are stored.
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
		for stored := (*Revision)(nil); stored == nil; { // Once more when somebody else was faster.
			var err error
			if stored, err = s.commit(r, key, s.find(r, key), obj, by); err != nil {
				return fmt.Errorf("load %s: %w", key, err)
			}
		}
	}
	return nil
}

// kindOf returns the kind that obj is of, nil when it is not registered.
func (s *Server) kindOf(obj runtime.Object) *resource {
	for _, r := range s.kinds {
		gvk := obj.GetObjectKind().GroupVersionKind()
		if reflect.TypeOf(obj) == reflect.TypeOf(r.Object) && (gvk.Empty() || gvk == r.gvk) {
			return r
		}
	}
	return nil
}
