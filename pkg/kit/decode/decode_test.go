package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
)

// A gadget is decoded by its fields.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              spec `json:"spec"`
}

// A widget decodes itself: one whose spec cannot be decoded has none.
type widget gadget

type spec struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Any   any    `json:"any"`
}

func (w *widget) UnmarshalJSON(data []byte) error {
	if kjson.Unmarshal(data, (*gadget)(w)) == nil {
		return nil
	}
	w.Spec = spec{}
	return kjson.Unmarshal(data, &metav1.PartialObjectMetadata{TypeMeta: w.TypeMeta, ObjectMeta: w.ObjectMeta})
}

func (w *widget) DeepCopyObject() runtime.Object { panic("not used") }
func (g *gadget) DeepCopyObject() runtime.Object { panic("not used") }

var version = schema.GroupVersion{Group: "acme.example.com", Version: "v1"}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	metav1.AddToGroupVersion(scheme, version)
	scheme.AddKnownTypeWithName(version.WithKind("Widget"), &widget{})
	scheme.AddKnownTypeWithName(version.WithKind("Gadget"), &gadget{})
	return scheme
}

// A decoded is what an informer gets: an event or an error.
type decoded struct {
	Type   watch.EventType
	Object runtime.Object
	Failed bool
}

// A reader reads texts as a client with its serializer does.
type reader struct{ runtime.ClientNegotiator }

var theirs, ours = newReaders()

func newReaders() (theirs, ours reader) {
	scheme := newScheme()
	next := serializer.NewCodecFactory(scheme).WithoutConversion()
	return reader{runtime.NewClientNegotiator(next, version)},
		reader{runtime.NewClientNegotiator(newSerializer(next, scheme, version), version)}
}

// watch reads events up to the first error, or the end.
func (r reader) watch(stream []byte) (events []decoded) {
	decoder, eventDecoder, framer, err := r.StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		panic(err)
	}
	frames := framer.NewFrameReader(io.NopCloser(bytes.NewReader(stream)))
	watcher := restwatch.NewDecoder(streaming.NewDecoder(frames, eventDecoder), decoder)
	for {
		kind, obj, err := watcher.Decode()
		if err != nil {
			return append(events, decoded{Failed: true})
		}
		events = append(events, decoded{Type: kind, Object: obj})
	}
}

// check fails unless both read the same.
func check(t *testing.T, text []byte) {
	t.Helper()
	if hasOtherCase(text) {
		return
	}
	if diff := cmp.Diff(theirs.watch(text), ours.watch(text)); diff != "" {
		t.Errorf("%.300s\n(-client-go +decode):\n%.3000s", text, diff)
	}
}

// A kindKey is a key that client-go takes for kind or apiVersion. One with an escape may be such a key, too.
var kindKey = regexp.MustCompile(`(?i)"(kind|apiversion)"|"[^"]*\\u[^"]*"\s*:`)

// hasOtherCase reports whether text may have such a key in another case: the exception that the documentation of the
// package has.
func hasOtherCase(text []byte) bool {
	return slices.ContainsFunc(kindKey.FindAll(text, -1), func(key []byte) bool {
		return string(key) != `"kind"` && string(key) != `"apiVersion"`
	})
}

const (
	object = `{"apiVersion":"acme.example.com/v1","kind":"Widget","metadata":{"name":"web","uid":"1","labels":{"a":"b"},` +
		`"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{}}}]},"spec":{"name":"x","count":3,"any":{"a":[1,2.5]}}}`
	status = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`
)

func event(t watch.EventType, object string) string {
	return fmt.Sprintf("{\"type\":%q,\"object\":%s}\n", t, object)
}

// texts are what an API server sends, and what it does not send.
func texts() map[string]string {
	gadget := strings.Replace(object, "Widget", "Gadget", 1)
	nested := func(levels int) string {
		return strings.Replace(object, `"b"`, strings.Repeat(`{"a":`, levels)+`1`+strings.Repeat(`}`, levels), 1)
	}
	texts := map[string]string{
		"nothing": "", "no JSON": "not found\n", "null": "null", "a number": "1", "a list": "[]",
		"an event of a list":      event(watch.Added, "["+object+"]"),
		"an event of nothing":     event(watch.Added, "null"),
		"an event without object": `{"type":"ADDED"}`,
		"an event without type":   `{"object":` + object + `}`,
		"an unknown type":         event("MOVED", object),
		"an error":                event(watch.Error, status),
		"an error with an object": event(watch.Error, object),
		"a bookmark": event(watch.Bookmark,
			`{"apiVersion":"acme.example.com/v1","kind":"Widget","metadata":{"resourceVersion":"7"}}`),
		"a Status":              event(watch.Modified, status),
		"an unknown kind":       event(watch.Added, strings.Replace(object, "Widget", "Other", 1)),
		"another version":       event(watch.Added, strings.Replace(object, "/v1", "/v2", 1)),
		"another group":         event(watch.Added, strings.Replace(object, "acme", "other", 1)),
		"no kind":               event(watch.Added, strings.Replace(object, `"kind":"Widget",`, "", 1)),
		"a kind with an escape": event(watch.Added, strings.Replace(object, "Widget", `\u0057idget`, 1)),
		"an empty kind":         event(watch.Added, strings.Replace(object, "Widget", "", 1)),
		"a list of objects": `{"apiVersion":"acme.example.com/v1","kind":"WidgetList","metadata":{},"items":[` +
			object + `]}`,
		"a key after the object":  `{"type":"ADDED","object":` + object + `,"more":1}`,
		"two types":               `{"type":"ADDED","object":` + object + `,"type":"DELETED"}`,
		"two objects":             `{"type":"ADDED","object":` + object + `,"object":` + gadget + `}`,
		"an event in an event":    event(watch.Added, event(watch.Added, object)),
		"two kinds":               event(watch.Added, object[:len(object)-1]+`,"kind":"Gadget"}`),
		"two versions":            event(watch.Added, object[:len(object)-1]+`,"apiVersion":"acme.example.com/v2"}`),
		"a kind that is a number": event(watch.Added, object[:len(object)-1]+`,"kind":1}`),
		"a kind that fails, then another": event(watch.Added,
			strings.Replace(gadget[:len(gadget)-1], `"count":3`, `"count":"3"`, 1)+`,"kind":"Widget"}`),
		"two names":                  event(watch.Added, object[:len(object)-1]+`,"metadata":{"name":"other"}}`),
		"an unknown field":           event(watch.Added, object[:len(object)-1]+`,"more":{"a":1},"Spec":{"name":"no"}}`),
		"a field of another type":    event(watch.Added, strings.Replace(object, `"count":3`, `"count":"3"`, 1)),
		"a number that is too large": event(watch.Added, strings.Replace(object, ":3", ":9223372036854775808", 1)),
		"no UTF-8":                   event(watch.Added, strings.Replace(object, `"web"`, "\"\xff\xc3\"", 1)),
		"escapes":                    event(watch.Added, strings.Replace(object, `"web"`, `"\u003c\"\\\ud83d"`, 1)),
		"deep":                       event(watch.Added, nested(9_000)),
		"too deep in an event":       event(watch.Added, nested(9_998)),
		"too deep":                   event(watch.Added, nested(10_001)),
		"spaces":                     event(watch.Added, strings.ReplaceAll(object, ":", " :\n\t")),
		"spaces before the end":      strings.Replace(event(watch.Added, object), "}\n", " }\n", 1),
		"a line with a return":       strings.Replace(event(watch.Added, object), "\n", "\r\n", 1),
		"large":                      event(watch.Added, strings.Replace(object, "web", strings.Repeat("x", 100_000), 1)),
		"something after the end":    event(watch.Added, object) + "}" + event(watch.Deleted, object),
		"several": event(watch.Added, object) + event(watch.Modified, gadget) + event(watch.Deleted, object) +
			event(watch.Modified, object) + event(watch.Error, status) + event(watch.Modified, object),
	}
	for name, text := range map[string]string{"a widget": object, "a gadget": gadget, "a status": status} {
		texts[name], texts[name+" without an event"] = event(watch.Modified, text), text
	}
	return texts
}

func TestTheResultIsThatOfClientGo(t *testing.T) {
	for name, text := range texts() {
		t.Run(name, func(t *testing.T) { check(t, []byte(text)) })
	}
}

// FuzzDecode looks for a text that client-go decodes in another way.
func FuzzDecode(f *testing.F) {
	for _, text := range texts() {
		if len(text) < 10_000 { // With longer ones it is too slow.
			f.Add([]byte(text))
		}
	}
	f.Fuzz(check)
}

// A refuser is a serializer that decodes nothing.
type refuser struct{ runtime.Serializer }

func (refuser) Decode([]byte, *schema.GroupVersionKind, runtime.Object) (
	runtime.Object, *schema.GroupVersionKind, error) {
	return nil, nil, errors.New("left to client-go")
}

type refusers struct{ runtime.NegotiatedSerializer }

func (r refusers) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(r.NegotiatedSerializer.SupportedMediaTypes())
	for i := range infos {
		infos[i].Serializer = refuser{infos[i].Serializer}
		if stream := infos[i].StreamSerializer; stream != nil {
			infos[i].StreamSerializer = &runtime.StreamSerializerInfo{
				Serializer: refuser{stream.Serializer}, Framer: stream.Framer,
			}
		}
	}
	return infos
}

func TestWhatAnAPIServerSendsIsNotLeftToClientGo(t *testing.T) {
	scheme := newScheme()
	next := refusers{serializer.NewCodecFactory(scheme).WithoutConversion()}
	ours := reader{runtime.NewClientNegotiator(newSerializer(next, scheme, version), version)}
	for _, kind := range []string{"Widget", "Gadget"} {
		object := strings.Replace(object, "Widget", kind, 1)
		stream := event(watch.Added, object) + event(watch.Modified, object) + event(watch.Deleted, object)
		if events := ours.watch([]byte(stream)); len(events) != 4 { // The last one is the end.
			t.Errorf("%s: events %v, want three and the end", kind, events)
		}
	}
}

func TestAnEventStaysWhenItsBufferIsUsedAgain(t *testing.T) {
	buffer, kept := []byte(event(watch.Added, object)), &metav1.WatchEvent{}
	if _, _, err := (events{}).Decode(bytes.TrimSpace(buffer), nil, kept); err != nil {
		t.Fatal(err)
	}
	clear(buffer)
	if string(kept.Object.Raw) != object {
		t.Errorf("the event has %q", kept.Object.Raw)
	}
}
