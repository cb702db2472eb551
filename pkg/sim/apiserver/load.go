package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

// Load stores copies of objects without admission, defaults and validation, as the restore of a backup does. It
// replaces objects with the same names. Uids, generations, timestamps and statuses do not change, and each object gets
// the next resourceVersion. So a test can begin with objects that no client could create.
//
// Load returns an error if an object belongs to no registered Kind, or has no name, or has a namespace exactly if its
// kind has none. The objects before it are stored. An object belongs to the Kind of its Go type, or else to an
// unstructured one with its own kind and apiVersion.
func (s *Server) Load(objects ...runtime.Object) error {
	for _, obj := range objects {
		r := s.kindOf(obj)
		if r == nil {
			return fmt.Errorf("load %T (%s): it is of no registered kind", obj, obj.GetObjectKind().GroupVersionKind())
		}
		stored := obj.DeepCopyObject()
		if isUnstructured(r.Object) {
			fields, err := content(obj)
			if err != nil {
				return fmt.Errorf("load %T: %w", obj, err)
			}
			stored = &unstructured.Unstructured{Object: fields}
		}
		if err := s.load(r, stored, nil); err != nil {
			return err
		}
	}
	return nil
}

// load stores obj. The caller must not use it afterwards. raw has the fields of its JSON if they are to be kept.
func (s *Server) load(r *resource, obj runtime.Object, raw map[string]json.RawMessage) error {
	obj.GetObjectKind().SetGroupVersionKind(r.gvk)
	m := accessor(obj)
	if m.GetName() == "" || r.ClusterScoped != (m.GetNamespace() == "") {
		return fmt.Errorf("load a %s with the namespace %q and the name %q", r.gvk.Kind, m.GetNamespace(), m.GetName())
	}
	by := &Request{
		User: "apiserver", Verb: "load", Resource: r.Resource, Namespace: m.GetNamespace(), Name: m.GetName(),
		server: s, raw: raw,
	}
	key := r.key(m.GetNamespace(), m.GetName())
	for stored := (*Revision)(nil); stored == nil; { // Again after a conflict.
		var err error
		if stored, err = s.commit(r, key, s.find(r, key), obj, by); err != nil {
			return fmt.Errorf("load %s: %w", key, err)
		}
	}
	return nil
}

// LoadJSON stores an object like Load. Its JSON may have values that the Go type cannot decode: a real server may have
// stored it before there were rules; the type must decode the rest without an error. Clients read these values,
// except those of metadata, until the next write: of the status for values in it, any other for all others.
func (s *Server) LoadJSON(resource schema.GroupVersionResource, object []byte) error {
	r := s.byPath[resource]
	if r == nil {
		return fmt.Errorf("load %s: no such kind is registered", resource)
	}
	obj, raw := r.empty(), map[string]json.RawMessage{}
	if err := errors.Join(utiljson.Unmarshal(object, obj), utiljson.Unmarshal(object, &raw)); err != nil {
		return fmt.Errorf("load %s: %w", resource, err)
	}
	return s.load(r, obj, raw)
}

// keepRaw gives rev, which replaces have, the parts of the JSON that LoadJSON stored and that were not written since.
func (rev *Revision) keepRaw(have *Revision, by *Request) error {
	raw := by.raw
	if raw == nil && have != nil {
		raw = have.raw
	}
	if raw == nil {
		return nil
	}
	if err := utiljson.Unmarshal(rev.encoded, &rev.raw); err != nil {
		return err
	}
	for name, value := range raw {
		written := (name == "status") == (by.Subresource == "status")
		if name != "metadata" && (by.raw != nil || rev.Type == watch.Deleted || !written) {
			rev.raw[name] = value
		}
	}
	var err error
	if rev.encoded, err = json.Marshal(rev.raw); err != nil {
		return err
	}
	rev.Object = rev.kind.empty()
	return utiljson.Unmarshal(rev.encoded, rev.Object)
}

// kindOf returns the kind of obj, nil if it is not registered.
func (s *Server) kindOf(obj runtime.Object) *resource {
	gvk := obj.GetObjectKind().GroupVersionKind()
	for _, r := range s.kinds {
		typed := reflect.TypeOf(obj) == reflect.TypeOf(r.Object)
		if typed && (gvk.Empty() || gvk == r.gvk) || isUnstructured(r.Object) && gvk == r.gvk {
			return r
		}
	}
	return nil
}
