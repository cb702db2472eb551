package apiserver

import (
	"errors"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Objects that are reduced to their metadata, which the metadata client of client-go reads.
const (
	partialKind     = "PartialObjectMetadata"
	partialListKind = "PartialObjectMetadataList"
)

// partial returns the metadata of an object as an object of its own. It shares data with obj.
func partial(obj runtime.Object, as schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	reduced := meta.AsPartialObjectMetadata(accessor(obj))
	reduced.SetGroupVersionKind(as.GroupVersion().WithKind(partialKind))
	return reduced
}

// partial returns the page with its objects reduced to their metadata. As in a real server, an empty page has null for
// its items.
func (p *page) partial(as schema.GroupVersionKind) runtime.Object {
	var items []metav1.PartialObjectMetadata
	for _, rev := range p.items {
		items = append(items, *partial(rev.Object, as))
	}
	if as.GroupVersion() == metav1.SchemeGroupVersion {
		list := &metav1.PartialObjectMetadataList{ListMeta: p.meta, Items: items}
		list.SetGroupVersionKind(as)
		return list
	}
	list := &metav1beta1.PartialObjectMetadataList{ListMeta: p.meta, Items: items}
	list.SetGroupVersionKind(as)
	return list
}

// notList is the error for a client that accepts only a list and gets an object.
func notList(kind *resource, obj runtime.Object) error {
	goType := kind.internalType("")
	switch _, scale := obj.(*autoscalingv1.Scale); {
	case scale && kind.custom:
		goType = "*v1.Scale"
	case scale:
		goType = "*autoscaling.Scale"
	case kind.custom:
		return errors.New("content is not a list")
	}
	return cannotReduce("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", goType)
}

// isList is the error for a client that accepts only an object and gets a list.
func isList(kind *resource) error {
	return cannotReduce("you requested PartialObjectMetadata, but the requested object is a list (%s)",
		kind.internalType("List"))
}

func cannotReduce(format, goType string) error {
	err := notAcceptable(nil)
	err.ErrStatus.Message = fmt.Sprintf(format, goType)
	return err
}

// internalType returns the Go type that a real server has for an object or a list of the kind.
func (r *resource) internalType(list string) string {
	if r.custom {
		return "*unstructured.Unstructured" + list
	}
	name, _, _ := strings.Cut(r.gr.Group, ".")
	if name == "" {
		name = "core"
	}
	return "*" + name + "." + r.gvk.Kind + list
}
