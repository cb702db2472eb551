// Package decode makes clients for custom resources that decode them at less cost.
//
// client-go reads the JSON of a custom resource in a watch event about ten times: to find the end of the event, its
// type, its object, the kind of the object, and the fields. Before most of these steps, it also checks that the text is
// valid. The API server writes the type first, and sorts the keys of an object, so nearly every object begins with
// apiVersion and kind. The decoders of this package recognize that beginning, and decode the object at once. Everything
// else is left to client-go: bookmarks, errors, lists, answers to requests, other kinds, a text with another order or
// with spaces, and a kind with a field that is sorted before "kind", such as "data".
//
// The result is that of client-go, and an error where client-go has one, with one exception: client-go also takes
// "KIND" for kind. If such a key comes after kind, it is ignored here. An API server writes it in front of kind.
//
// It is for JSON only. Types that Kubernetes has built in are read as protobuf, which needs no such thing.
package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// NewClient returns a client for the custom resources of version, whose types are in scheme. It is for the function New
// of a clientset that has this version only, in place of NewForConfigAndClient: all its requests go to this version. It
// can be used concurrently, and so can the clientset.
func NewClient(
	config *rest.Config, client *http.Client, scheme *runtime.Scheme, version schema.GroupVersion,
) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &version
	codecs := rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme))
	config.NegotiatedSerializer = newSerializer(codecs.WithoutConversion(), scheme, version)
	return rest.RESTClientForConfigAndClient(config, client)
}

// newSerializer returns a serializer that does what next does, at less cost.
func newSerializer(
	next runtime.NegotiatedSerializer, scheme *runtime.Scheme, version schema.GroupVersion,
) runtime.NegotiatedSerializer {
	return &negotiated{next, scheme, version, fmt.Appendf(nil, `{"apiVersion":%q,"kind":"`, version)}
}

type negotiated struct {
	runtime.NegotiatedSerializer
	scheme  *runtime.Scheme
	version schema.GroupVersion
	start   []byte // How the JSON of an object begins, up to the name of its kind.
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (n *negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(n.NegotiatedSerializer.SupportedMediaTypes())
	for i := range infos {
		info := &infos[i]
		if info.MediaType != runtime.ContentTypeJSON || info.StreamSerializer == nil {
			continue
		}
		stream := *info.StreamSerializer
		stream.Serializer = events{stream.Serializer}
		info.Serializer, info.StreamSerializer = &objects{info.Serializer, n}, &stream
	}
	return infos
}

// objects decodes the object of a watch event. An answer to a request comes with an object to decode into. client-go
// decodes that itself, and leaves it as it was if the answer is something else.
type objects struct {
	runtime.Serializer
	*negotiated
}

// Decode implements runtime.Decoder.
func (o *objects) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		kind := o.version.WithKind(o.kindOf(data))
		obj, err := o.scheme.New(kind)
		// Another kind may come later, in the same text.
		if err == nil && kjson.Unmarshal(data, obj) == nil && obj.GetObjectKind().GroupVersionKind() == kind {
			return obj, &kind, nil
		}
	}
	return o.Serializer.Decode(data, defaults, into)
}

// kindOf returns the kind of the object in data, or "" if data does not begin as usual.
func (o *objects) kindOf(data []byte) string {
	data, found := bytes.CutPrefix(data, o.start)
	if end := bytes.IndexByte(data, '"'); found && end >= 0 {
		return string(data[:end])
	}
	return ""
}

// events decodes a watch event up to its object, of which it returns the text.
type events struct{ runtime.Serializer }

var types = []watch.EventType{watch.Modified, watch.Added, watch.Deleted}

// Decode implements runtime.Decoder.
func (e events) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	event, isEvent := into.(*metav1.WatchEvent)
	for _, t := range types {
		object, begins := bytes.CutPrefix(data, []byte(`{"type":"`+t+`","object":`))
		object, ends := bytes.CutSuffix(object, []byte("}"))
		if isEvent && begins && ends && json.Valid(object) { // Then the event has no other keys.
			event.Type, event.Object.Raw = string(t), bytes.Clone(object)
			return event, defaults, nil
		}
	}
	return e.Serializer.Decode(data, defaults, into)
}
