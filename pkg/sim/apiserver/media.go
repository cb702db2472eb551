package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"mime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// A media is a media type for a body.
type media string

const (
	mediaJSON   = media(runtime.ContentTypeJSON)
	mediaYAML   = media(runtime.ContentTypeYAML)
	mediaBinary = media(runtime.ContentTypeProtobuf)
)

// binaryPrefix is the beginning of every object in protobuf.
var binaryPrefix = []byte{0x6b, 0x38, 0x73, 0x00}

// marshaler is implemented by types that can be sent as protobuf.
type marshaler interface{ Marshal() ([]byte, error) }
type unmarshaler interface{ Unmarshal([]byte) error }

// stream returns the content type of a watch.
func (m media) stream() string {
	if m == mediaBinary {
		return string(m) + ";stream=watch"
	}
	return string(m)
}

func isUnstructured(obj runtime.Object) bool {
	_, is := obj.(runtime.Unstructured)
	return is
}

// supportsProtobuf reports whether the kind can be sent as protobuf.
func (r *resource) supportsProtobuf() bool {
	_, can := r.Object.(marshaler)
	return can && !r.custom
}

// medias returns the media types that the server accepts for the request.
func (c *call) medias() []string {
	types := []string{string(mediaJSON), string(mediaYAML)}
	if allowsProtobuf(c.request, c.kind) {
		types = append(types, string(mediaBinary))
	}
	return types
}

// allowsProtobuf reports whether the request and its response may be protobuf. A Scale may be, because it is no custom
// resource.
func allowsProtobuf(r *Request, kind *resource) bool {
	return kind != nil && (kind.supportsProtobuf() || r.Subresource == "scale" && kind.Scale != nil)
}

// An encoding is what a client accepts as a response.
type encoding struct {
	media
	// as is PartialObjectMetadata or PartialObjectMetadataList of meta.k8s.io if objects are to be reduced to their
	// metadata, and Table if they are to be the rows of a table.
	as       schema.GroupVersionKind
	include  metav1.IncludeObjectPolicy // What the rows have of the objects.
	noHeader bool                       // A table lacks the definitions of its columns.
}

// accepted returns the encoding of the response, and whether the client accepts one that the server has.
func (c *call) accepted() (encoding, bool) {
	for name, params := range acceptedTypes(c.request) {
		e := encoding{
			as:      schema.GroupVersionKind{Group: params["g"], Version: params["v"], Kind: params["as"]},
			include: metav1.IncludeObjectPolicy(c.request.Query.Get("includeObject")),
		}
		switch {
		case isTable(e.as) && name != mediaBinary && c.request.Subresource != "scale":
		case !e.as.Empty() && !metadataOnly(e.as):
			continue
		case name == mediaBinary && e.as.Empty() && !c.kind.supportsProtobuf():
			continue
		}
		if e.media = known(name); e.media != "" {
			return e, true
		}
	}
	return encoding{}, false
}

// acceptedTypes yields the media types of the Accept header with their parameters.
func acceptedTypes(r *Request) iter.Seq2[media, map[string]string] {
	return func(yield func(media, map[string]string) bool) {
		header := cmp.Or(r.HTTP.Header.Get("Accept"), string(mediaJSON))
		for clause := range strings.SplitSeq(header, ",") {
			if name, params, err := mime.ParseMediaType(clause); err == nil && !yield(media(name), params) {
				return
			}
		}
	}
}

// known returns the media type that answers a request for name, "" if there is none.
func known(name media) media {
	switch name {
	case mediaJSON, mediaYAML, mediaBinary:
		return name
	case "*/*", "application/*":
		return mediaJSON
	}
	return ""
}

// metadataOnly reports whether a kind is that of objects, or of lists of objects, that are reduced to their metadata.
func metadataOnly(kind schema.GroupVersionKind) bool {
	return (kind.Kind == partialKind || kind.Kind == partialListKind) && isMeta(kind.GroupVersion())
}

// isTable reports whether a kind is that of tables.
func isTable(kind schema.GroupVersionKind) bool {
	return kind.Kind == tableKind && isMeta(kind.GroupVersion())
}

func isMeta(version schema.GroupVersion) bool {
	return version == metav1.SchemeGroupVersion || version == metav1beta1.SchemeGroupVersion
}

// accepts returns the encoding of the response. The kinds that come with Kubernetes have an error of their own for
// media types that no kind has.
func (c *call) accepts() (encoding, error) {
	if e, ok := c.accepted(); ok {
		return e, nil
	}
	have := []string{string(mediaJSON), string(mediaYAML), string(mediaBinary)}
	for name := range acceptedTypes(c.request) {
		if c.kind.custom || known(name) != "" {
			return encoding{}, notAcceptable(have)
		}
	}
	return encoding{}, noRepresentation(have, c.request.Verb)
}

// acceptsEvents returns the encoding of the events of a watch. There are none in YAML.
func (c *call) acceptsEvents() (encoding, error) {
	e, err := c.accepts()
	if err == nil {
		err = e.checkTable()
	}
	if err == nil && e.media == mediaYAML {
		err = notAcceptable([]string{string(mediaJSON) + ";stream=watch", string(mediaBinary) + ";stream=watch"})
	}
	return e, err
}

// errorMedia returns the media type for an error. It is JSON if the client accepts none that the server has.
func errorMedia(r *Request) media {
	for name, params := range acceptedTypes(r) {
		if m := known(name); m != "" && params["as"] == "" {
			return m
		}
	}
	return mediaJSON
}

// encode returns the body of an answer of a kind.
func (e encoding) encode(kind *resource, got *answer) ([]byte, error) {
	obj, rev := got.object, got.revision
	if rev != nil {
		shown, err := kind.shown(rev)
		if err != nil {
			return nil, err
		}
		got, obj, rev = &answer{revision: shown}, shown.Object, shown
	}
	if _, isStatus := obj.(*metav1.Status); isStatus {
		if err := e.checkTable(); err != nil { // The object is deleted all the same.
			return nil, err
		}
		return e.media.encode(got)
	}
	switch {
	case e.as.Empty(), got.encoded != nil:
		return e.media.encode(got)
	case e.as.Kind == partialListKind:
		return nil, notList(kind, obj)
	case e.as.Kind == tableKind:
		return e.encodeTable(kind, obj, rev)
	}
	return e.media.encode(&answer{object: partial(obj, e.as)})
}

// encode returns the body of an answer.
func (m media) encode(got *answer) ([]byte, error) {
	switch {
	case got.encoded != nil:
		return got.encoded, nil
	case m == mediaBinary && got.revision != nil:
		return got.revision.binary()
	case m == mediaBinary:
		return encodeBinary(got.object.GetObjectKind().GroupVersionKind(), got.object)
	case got.revision != nil:
		return m.text(got.revision.encoded)
	}
	encoded, err := json.Marshal(got.object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", got.object, err)
	}
	return m.text(encoded)
}

// text converts JSON to YAML if that is what the client accepts.
func (m media) text(encoded []byte) ([]byte, error) {
	if m != mediaYAML {
		return encoded, nil
	}
	var b bytes.Buffer
	raw := &runtime.Unknown{Raw: encoded, ContentType: runtime.ContentTypeJSON}
	if err := yamlSerializer.Encode(raw, &b); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return b.Bytes(), nil
}

var yamlSerializer = serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, nil, nil,
	serializerjson.SerializerOptions{Yaml: true})

// encodeBinary returns an object as protobuf in its envelope.
func encodeBinary(kind schema.GroupVersionKind, obj any) ([]byte, error) {
	m, ok := obj.(marshaler)
	if !ok {
		return nil, fmt.Errorf("%T cannot be sent as protobuf", obj)
	}
	raw, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %T as protobuf: %w", obj, err)
	}
	return envelope(kind, raw)
}

func envelope(kind schema.GroupVersionKind, raw []byte) ([]byte, error) {
	unknown := &runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}, Raw: raw,
	}
	encoded, err := unknown.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode the envelope of a %s: %w", kind.Kind, err)
	}
	return append(bytes.Clone(binaryPrefix), encoded...), nil
}

// decodeBinary reads an object in its envelope.
func decodeBinary(body []byte, into runtime.Object) (schema.GroupVersionKind, error) {
	rest, found := bytes.CutPrefix(body, binaryPrefix)
	if !found {
		return schema.GroupVersionKind{}, fmt.Errorf("provided data does not appear to be a protobuf message, "+
			"expected prefix %v", binaryPrefix)
	}
	unknown := &runtime.Unknown{}
	if err := unknown.Unmarshal(rest); err != nil {
		return schema.GroupVersionKind{}, err
	}
	kind := schema.FromAPIVersionAndKind(unknown.APIVersion, unknown.Kind)
	message, ok := into.(unmarshaler)
	if !ok {
		return kind, fmt.Errorf("%T cannot be read from protobuf", into)
	}
	return kind, message.Unmarshal(unknown.Raw)
}
