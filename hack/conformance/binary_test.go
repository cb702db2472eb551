package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// Players may use protobuf for built-in kinds, as the typed clients of client-go do. The responses are decoded into the
// same trees as JSON.

const binary = "application/vnd.kubernetes.protobuf"

func (s server) inBinary() server {
	s.binary = true
	return s
}

// encode returns the body of a request and its content type. The body is protobuf if the player wants it and the kind
// supports it.
func (p *player) encode(op operation, body []byte) ([]byte, string) {
	if !p.binary || op.contentType != "application/json" || op.method == "PATCH" {
		return body, op.contentType
	}
	obj, err := decodeBody(op, body)
	if err != nil {
		return body, op.contentType // The body is malformed on purpose.
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &b); err != nil {
		return body, op.contentType
	}
	return b.Bytes(), binary
}

func decodeBody(op operation, body []byte) (runtime.Object, error) {
	if op.method == "DELETE" {
		options := &metav1.DeleteOptions{}
		version := schema.GroupVersion{Group: op.kind.group, Version: op.kind.version}
		options.SetGroupVersionKind(version.WithKind("DeleteOptions"))
		return options, json.Unmarshal(body, options)
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	return obj, err
}

// treeOf decodes content of this type into a tree. It returns content that it cannot decode as a string.
func treeOf(content []byte, contentType string) any {
	switch contentType {
	case "application/yaml":
		converted, err := yaml.ToJSON(content)
		if err != nil {
			return err.Error()
		}
		content = converted
	case binary:
		obj, _, err := codecs.UniversalDeserializer().Decode(content, nil, nil)
		if err != nil {
			return err.Error()
		}
		if content, err = json.Marshal(obj); err != nil {
			return err.Error()
		}
	}
	var tree any
	if err := json.Unmarshal(content, &tree); err != nil {
		return string(content)
	}
	return tree
}

// codecs know the kinds of client-go, and those of objects that are reduced to their metadata.
var codecs = func() serializer.CodecFactory {
	all := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(all))
	utilruntime.Must(metav1.AddMetaToScheme(all))
	utilruntime.Must(metav1beta1.AddMetaToScheme(all))
	return serializer.NewCodecFactory(all)
}()

// mediaOf returns the media type of a response without its parameters.
func mediaOf(response *http.Response) string {
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		return err.Error()
	}
	return media
}

// eventsOf returns a function that reads one event after the other from a watch.
func eventsOf(response *http.Response) func() (map[string]any, error) {
	if mediaOf(response) != binary {
		decoder := json.NewDecoder(response.Body)
		return func() (event map[string]any, err error) {
			err = decoder.Decode(&event)
			return event, err
		}
	}
	raw := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
	decoder := streaming.NewDecoder(protobuf.LengthDelimitedFramer.NewFrameReader(unclosed{response.Body}), raw)
	return func() (map[string]any, error) {
		var event metav1.WatchEvent
		if _, _, err := decoder.Decode(nil, &event); err != nil {
			return nil, fmt.Errorf("decode an event: %w", err)
		}
		return map[string]any{"type": event.Type, "object": treeOf(event.Object.Raw, binary)}, nil
	}
}

// unclosed has a Close that does nothing, because the stream closes the body.
type unclosed struct{ io.Reader }

func (unclosed) Close() error { return nil }
