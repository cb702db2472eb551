package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// A selection selects the objects of a list or a watch.
type selection struct {
	kind      *resource
	namespace string // Empty for all.
	labels    labels.Selector
	fields    fields.Selector
}

// selection returns the selection of the request.
func (c *call) selection(opts *internalversion.ListOptions) (*selection, error) {
	s := &selection{
		kind: c.kind, namespace: c.request.Namespace, labels: opts.LabelSelector, fields: opts.FieldSelector,
	}
	if s.labels == nil {
		s.labels = labels.Everything()
	}
	if s.fields == nil {
		s.fields = fields.Everything()
	}
	for _, term := range s.fields.Requirements() {
		if err := c.kind.checkField(term.Field); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return s, nil
}

func (r *resource) checkField(name string) error {
	own := r.custom || r.Fields != nil
	switch {
	case name == "metadata.name", r.Fields[name] != nil, name == "metadata.namespace" && !(own && r.ClusterScoped):
		return nil
	case own:
		return fmt.Errorf("field label not supported: %s", name)
	}
	return fmt.Errorf(`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, name)
}

// everything reports whether all objects of the namespace are selected.
func (s *selection) everything() bool {
	return s.labels.Empty() && s.fields.Empty()
}

// matches reports whether obj is selected. A nil obj is not.
func (s *selection) matches(obj runtime.Object) bool {
	if obj == nil {
		return false
	}
	m := accessor(obj)
	if s.namespace != "" && m.GetNamespace() != s.namespace || !s.labels.Matches(labels.Set(m.GetLabels())) {
		return false
	}
	return s.fields.Empty() || s.fields.Matches(fieldsOf{s.kind, obj})
}

// fieldsOf are the fields of an object that a field selector may use.
type fieldsOf struct {
	kind *resource
	obj  runtime.Object
}

func (f fieldsOf) Has(name string) bool {
	return f.kind.checkField(name) == nil
}

func (f fieldsOf) Get(name string) string {
	switch name {
	case "metadata.name":
		return accessor(f.obj).GetName()
	case "metadata.namespace":
		return accessor(f.obj).GetNamespace()
	}
	if get := f.kind.Fields[name]; get != nil {
		return get(f.obj)
	}
	return ""
}
