package apisim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	return can && !r.Custom
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

// accepted returns the media type of the response, "" if the client accepts none that the server has.
func accepted(r *Request, kind *resource) media {
	header := r.HTTP.Header.Get("Accept")
	if header == "" {
		return mediaJSON
	}
	for clause := range strings.SplitSeq(header, ",") {
		name, params, err := mime.ParseMediaType(clause)
		if err != nil || params["as"] != "" {
			continue // Tables and objects reduced to their metadata are not simulated.
		}
		switch {
		case name == string(mediaBinary) && allowsProtobuf(r, kind):
			return mediaBinary
		case name == string(mediaJSON), name == "*/*", name == "application/*":
			return mediaJSON
		}
	}
	return ""
}

func (c *call) accepts() (media, error) {
	if m := accepted(c.request, c.kind); m != "" {
		return m, nil
	}
	return "", notAcceptable(c.medias())
}

// acceptedMedia returns the media type of the response. It is JSON if the client accepts none that the server has.
func acceptedMedia(r *Request, kind *resource) media {
	if m := accepted(r, kind); m != "" {
		return m
	}
	return mediaJSON
}

// encode returns the body of an answer.
func (m media) encode(got *answer) ([]byte, error) {
	switch {
	case got.encoded != nil:
		return got.encoded, nil
	case got.revision != nil && m == mediaBinary:
		return got.revision.binary()
	case got.revision != nil:
		return got.revision.encoded, nil
	case m == mediaBinary:
		return encodeBinary(got.object.GetObjectKind().GroupVersionKind(), got.object)
	}
	encoded, err := json.Marshal(got.object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", got.object, err)
	}
	return encoded, nil
}

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
