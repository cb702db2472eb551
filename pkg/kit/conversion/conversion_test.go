package conversion_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/kit/conversion"
	"example.com/foo-controller/pkg/kit/conversion/conversiontest"
)

// A field moves into a struct, one gets another type, and each version has one that the other lacks.
type (
	oldWidget struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              struct {
			Image string            `json:"image,omitempty"`
			Lines string            `json:"lines,omitempty"`
			Debug *bool             `json:"debug,omitempty"`
			Extra map[string][]bool `json:"extra,omitempty"`
		} `json:"spec"`
		Status *metav1.Condition `json:"status,omitempty"`
	}
	newWidget struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              struct {
			Container *container `json:"container,omitempty"`
			Lines     []string   `json:"lines,omitempty"`
			Color     string     `json:"color,omitempty"`
		} `json:"spec"`
		Status *metav1.Condition `json:"status,omitempty"`
	}
	container struct {
		Image string `json:"image"`
		Pull  string `json:"pull,omitempty"`
	}
)

var widgets = conversion.New(
	schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Widget"},
	conversion.VersionOf("v1alpha1", toV1, toV1alpha1))

func toV1(old *oldWidget) (*newWidget, error) {
	w := &newWidget{Status: old.Status}
	if old.Spec.Image != "" {
		w.Spec.Container = &container{Image: old.Spec.Image}
	}
	if old.Spec.Lines != "" {
		w.Spec.Lines = strings.Split(old.Spec.Lines, "\n")
	}
	return w, nil
}

func toV1alpha1(w *newWidget) (*oldWidget, error) {
	if w.Spec.Color == "panic" {
		panic("as asked")
	}
	old := &oldWidget{Status: w.Status}
	old.Spec.Lines = strings.Join(w.Spec.Lines, "\n")
	if w.Spec.Container != nil {
		old.Spec.Image = w.Spec.Container.Image
	}
	return old, nil
}

func FuzzRoundTrips(f *testing.F) { conversiontest.Fuzz(f, widgets) }

// A client of the old version reads an object, changes what it knows, and writes it back.
func ExampleConversion_Convert() {
	stored := `{"apiVersion":"acme.example.com/v1","kind":"Widget","metadata":{"name":"a"},` +
		`"spec":{"container":{"image":"nginx:1","pull":"Always"}}}`
	read, _ := widgets.Convert([]byte(stored), "acme.example.com/v1alpha1")
	fmt.Println(string(read))
	edited := strings.Replace(string(read), "nginx:1", "nginx:2", 1)
	written, _ := widgets.Convert([]byte(edited), "acme.example.com/v1")
	fmt.Println(string(written))
	// Output:
	// {"apiVersion":"acme.example.com/v1alpha1","kind":"Widget","metadata":{"annotations":{"acme.example.com/only-in-v1":"[{\"path\":[\"spec\",\"container\",\"pull\"],\"is\":\"Always\"}]"},"name":"a"},"spec":{"image":"nginx:1"}}
	// {"apiVersion":"acme.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"container":{"image":"nginx:2","pull":"Always"}}}
}

// widget returns a widget of a version in JSON, with a spec.
func widget(version, spec string) string {
	return `{"apiVersion":"acme.example.com/` + version + `","kind":"Widget","metadata":{"name":"a","uid":"1"},"spec":` +
		spec + `}`
}

// convert returns what a widget is in another version.
func convert(t *testing.T, encoded, version string) string {
	t.Helper()
	converted, err := widgets.Convert([]byte(encoded), "acme.example.com/"+version)
	if err != nil {
		t.Fatal(err)
	}
	return string(converted)
}

// specOf returns the spec of an object in JSON.
func specOf(t *testing.T, encoded string) string {
	t.Helper()
	var object struct{ Spec json.RawMessage }
	if err := json.Unmarshal([]byte(encoded), &object); err != nil {
		t.Fatal(err)
	}
	return string(object.Spec)
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(got), &x), json.Unmarshal([]byte(want), &y)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(y, x); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A client of the old version reads an object, edits it, and writes it back.
func TestAWriteByAnOlderClient(t *testing.T) {
	for _, test := range []struct{ name, spec, seen, edited, want string }{
		{
			name: "what both have", spec: `{"container":{"image":"x"}}`,
			seen: `{"image":"x"}`, edited: `{"image":"y"}`, want: `{"container":{"image":"y"}}`,
		},
		{
			name: "a field that only the new one has", spec: `{"color":"red","container":{"image":"x"}}`,
			seen: `{"image":"x"}`, edited: `{"image":"y"}`, want: `{"color":"red","container":{"image":"y"}}`,
		},
		{
			name: "a field beside the one that is edited", spec: `{"container":{"image":"x","pull":"mono"}}`,
			seen: `{"image":"x"}`, edited: `{"image":"y"}`, want: `{"container":{"image":"y","pull":"mono"}}`,
		},
		{
			name: "what it is part of is removed", spec: `{"container":{"image":"x","pull":"mono"}}`,
			seen: `{"image":"x"}`, edited: `{}`, want: `{}`,
		},
		{
			name: "a field that no type of this program knows", spec: `{"shape":{"sides":[3,4]},"container":{"image":"x"}}`,
			seen: `{"image":"x"}`, edited: `{"image":"y"}`, want: `{"shape":{"sides":[3,4]},"container":{"image":"y"}}`,
		},
		{
			name: "zero and null", spec: `{"color":"","container":{"image":"x","pull":null}}`,
			seen: `{"image":"x"}`, edited: `{"image":"x"}`, want: `{"color":"","container":{"image":"x","pull":null}}`,
		},
		{
			name: "a text with many brackets", spec: `{"color":"` + strings.Repeat("[", 2000) + `"}`,
			seen: `{}`, edited: `{}`, want: `{"color":"` + strings.Repeat("[", 2000) + `"}`,
		},
		{
			name: "a text for HTML that nearly fills the annotations", spec: `{"color":"` + strings.Repeat("<", 200<<10) + `"}`,
			seen: `{}`, edited: `{}`, want: `{"color":"` + strings.Repeat("<", 200<<10) + `"}`,
		},
		{
			name: "a text for which the annotations have no room", spec: `{"color":"` + strings.Repeat("x", 256<<10) + `"}`,
			seen: `{}`, edited: `{}`, want: `{}`,
		},
		{
			name: "a field that the old one has in another way", spec: `{"lines":["a\nb"]}`,
			seen: `{"lines":"a\nb"}`, edited: `{"lines":"a\nb"}`, want: `{"lines":["a\nb"]}`,
		},
		{
			name: "a field that the old one has in another way is edited", spec: `{"lines":["a\nb"]}`,
			seen: `{"lines":"a\nb"}`, edited: `{"lines":"c"}`, want: `{"lines":["c"]}`,
		},
		{
			name: "large numbers", spec: `{"count":9007199254740993}`,
			seen: `{}`, edited: `{}`, want: `{"count":9007199254740993}`,
		},
		{
			name: "a field that only the old one has", spec: `{"container":{"image":"x"}}`,
			seen: `{"image":"x"}`, edited: `{"image":"x","debug":true}`, want: `{"container":{"image":"x"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := convert(t, widget("v1", test.spec), "v1alpha1")
			equal(t, specOf(t, read), test.seen)
			written := convert(t, strings.Replace(read, `"spec":`+test.seen, `"spec":`+test.edited, 1), "v1")
			equal(t, specOf(t, written), test.want)
			// And the old client reads what it has written.
			equal(t, specOf(t, convert(t, written, "v1alpha1")), test.edited)
		})
	}
}

// The API server takes the metadata of the object that it sent, except for labels and annotations.
func TestMetadataStays(t *testing.T) {
	const metadata = `{"name":"a","labels":{"x":"y"},"annotations":{"z":"1"},"managedFields":[{"manager":"m"}]}`
	object := `{"apiVersion":"acme.example.com/v1alpha1","kind":"Widget","metadata":` + metadata + `,"spec":{"image":"x"}}`
	equal(t, convert(t, object, "v1"),
		strings.NewReplacer("v1alpha1", "v1", `"image":"x"`, `"container":{"image":"x"}`).Replace(object))
}

// What is carried between two versions is that of the hub, so a client of a third one sees it.
func TestThreeVersions(t *testing.T) {
	type middle struct {
		Spec struct {
			Image string `json:"image,omitempty"`
			Color string `json:"color,omitempty"`
		} `json:"spec"`
	}
	three := conversion.New(schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Widget"},
		conversion.VersionOf("v1alpha1", toV1, toV1alpha1),
		conversion.VersionOf("v1beta1",
			func(m *middle) (*newWidget, error) {
				w, err := toV1(&oldWidget{})
				w.Spec.Container, w.Spec.Color = &container{Image: m.Spec.Image}, m.Spec.Color
				return w, err
			},
			func(w *newWidget) (*middle, error) {
				m := &middle{}
				m.Spec.Image, m.Spec.Color = w.Spec.Container.Image, w.Spec.Color
				return m, nil
			}))
	object := widget("v1", `{"container":{"image":"x","pull":"Always"},"color":"red"}`)
	for _, step := range []struct{ version, old, new, spec string }{
		{version: "v1alpha1", spec: `{"image":"x"}`}, // That is stored.
		{version: "v1beta1", spec: `{"image":"x","color":"red"}`},
		{version: "v1alpha1", old: "red", new: "blue", spec: `{"image":"x"}`},
		{version: "v1", spec: `{"container":{"image":"x","pull":"Always"},"color":"blue"}`},
	} {
		if step.old != "" {
			object = strings.Replace(object, `"color":"`+step.old, `"color":"`+step.new, 1)
		}
		converted, err := three.Convert([]byte(object), "acme.example.com/"+step.version)
		if err != nil {
			t.Fatal(err)
		}
		object = string(converted)
		equal(t, specOf(t, object), step.spec)
	}
}

// annotated returns a widget of the old version whose annotation is a text.
func annotated(text string) string {
	quoted, _ := json.Marshal(text) // A text always has a JSON.
	return `{"apiVersion":"acme.example.com/v1alpha1","kind":"Widget","metadata":{"annotations":` +
		`{"acme.example.com/only-in-v1":` + string(quoted) + `}},"spec":{}}`
}

// A conversion writes each field once. If an annotation has one more often, or a field of it, each entry could cost as
// much work as the whole object, so it counts as nothing.
func TestFieldsAreCarriedOnce(t *testing.T) {
	for entries, color := range map[string]string{
		`{"path":["spec","color"],"is":"red"}`:                                              `"color":"red"`,
		`{"path":["spec","color"],"is":"red"},{"path":["spec","color"],"is":"red"}`:         ``,
		`{"path":["status"],"is":{"type":"Ready"}}`:                                         ``,
		`{"path":["spec"],"was":{},"is":{}},{"path":["spec","color"],"is":"red"}`:           ``,
		`{"path":["spec","color"],"is":"red"},{"path":["spec","colo"],"is":"out of order"}`: ``,
	} {
		got := convert(t, annotated("["+entries+"]"), "v1")
		equal(t, got, `{"apiVersion":"acme.example.com/v1","kind":"Widget","metadata":{},"spec":{`+color+`}}`)
	}
}

// Who may write an object may write any annotation. It must not keep others from reading a list.
func TestTheAnnotationMayHaveAnything(t *testing.T) {
	for _, text := range []string{
		`[{"path":["spec","color"],"is":"panic"}]`, ``, `x`, `{}`, `null`, `[]`, `[null]`, `[1]`, `[{}]`, `[{"path":[]}]`,
		`[{"path":null,"is":1}]`,
		`[{"path":["spec"],"is":1}]`, `[{"path":["spec","container"],"is":"a text"}]`,
		`[{"path":["spec","container"],"was":{`,
		`[{"path":["metadata","uid"],"was":"1","is":"2"}]`, `[{"path":["spec"],"was":{},"is":1}]`,
		`[{"path":["spec","shape"],"is":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + `}]`,
		`[{"path":["spec","color"],"is":` + strings.Repeat("[", 9000) + `}]`,
	} {
		converted, err := widgets.Convert([]byte(annotated(text)), "acme.example.com/v1")
		if err != nil {
			t.Errorf("with %.60s: %v", text, err)
		}
		if strings.Contains(string(converted), "[[[[") { // The API server might not read it.
			t.Errorf("with %.60s, the object is deep", text)
		}
		if _, err := widgets.Convert(converted, "acme.example.com/v1alpha1"); err != nil {
			t.Errorf("with %.60s, back: %v", text, err)
		}
	}
}
