package conversion

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An old gadget has a size, and a text that is a struct in the new one. The new one has a color, too.
type (
	oldGadget struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              struct {
			Size int    `json:"size,omitempty"`
			Text string `json:"text,omitempty"`
		} `json:"spec"`
	}
	newGadget struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              struct {
			Label *label `json:"label,omitempty"`
			Color string `json:"color,omitempty"`
			Panic bool   `json:"panic,omitempty"`
		} `json:"spec"`
	}
	label struct {
		Text string `json:"text"`
		Font string `json:"font,omitempty"`
	}
)

var gadgets = New(
	schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Gadget"},
	VersionOf("v1alpha1", newer, older),
)

func newer(old *oldGadget) (*newGadget, error) {
	gadget := &newGadget{}
	if old.Spec.Text != "" {
		gadget.Spec.Label = &label{Text: old.Spec.Text}
	}
	return gadget, nil
}

func older(gadget *newGadget) (*oldGadget, error) {
	if gadget.Spec.Panic {
		panic("as asked")
	}
	old := &oldGadget{}
	if gadget.Spec.Label != nil {
		old.Spec.Text = gadget.Spec.Label.Text
	}
	return old, nil
}

// gadget returns a gadget of a version in JSON, with a spec.
func gadget(version, spec string) string {
	return `{"apiVersion":"acme.example.com/` + version + `","kind":"Gadget","metadata":{"name":"a","uid":"1"},"spec":` +
		spec + `}`
}

// convert returns what a gadget is in another version.
func convert(t *testing.T, encoded, version string) string {
	t.Helper()
	converted, err := gadgets.Convert([]byte(encoded), "acme.example.com/"+version)
	if err != nil {
		t.Fatal(err)
	}
	return string(converted)
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(got), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &y); err != nil {
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
			name: "what both have", spec: `{"label":{"text":"x"}}`,
			seen: `{"text":"x"}`, edited: `{"text":"y"}`, want: `{"label":{"text":"y"}}`,
		},
		{
			name: "a field that only the new one has", spec: `{"color":"red","label":{"text":"x"}}`,
			seen: `{"text":"x"}`, edited: `{"text":"y"}`, want: `{"color":"red","label":{"text":"y"}}`,
		},
		{
			name: "a field beside the one that is edited", spec: `{"label":{"text":"x","font":"mono"}}`,
			seen: `{"text":"x"}`, edited: `{"text":"y"}`, want: `{"label":{"text":"y","font":"mono"}}`,
		},
		{
			name: "what it is part of is removed", spec: `{"label":{"text":"x","font":"mono"}}`,
			seen: `{"text":"x"}`, edited: `{}`, want: `{}`,
		},
		{
			name: "a field that no type of this program knows", spec: `{"shape":{"sides":[3,4]},"label":{"text":"x"}}`,
			seen: `{"text":"x"}`, edited: `{"text":"y"}`, want: `{"shape":{"sides":[3,4]},"label":{"text":"y"}}`,
		},
		{
			name: "zero and null", spec: `{"color":"","label":{"text":"x","font":null}}`,
			seen: `{"text":"x"}`, edited: `{"text":"x"}`, want: `{"color":"","label":{"text":"x","font":null}}`,
		},
		{
			name: "large numbers", spec: `{"count":9007199254740993}`,
			seen: `{}`, edited: `{}`, want: `{"count":9007199254740993}`,
		},
		{
			name: "a field that only the old one has", spec: `{"label":{"text":"x"}}`,
			seen: `{"text":"x"}`, edited: `{"text":"x","size":3}`, want: `{"label":{"text":"x"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored := gadget("v1", test.spec)
			var read map[string]json.RawMessage
			if err := json.Unmarshal([]byte(convert(t, stored, "v1alpha1")), &read); err != nil {
				t.Fatal(err)
			}
			equal(t, string(read["spec"]), test.seen)
			read["spec"] = json.RawMessage(test.edited)
			written, _ := json.Marshal(read)
			var after map[string]json.RawMessage
			if err := json.Unmarshal([]byte(convert(t, string(written), "v1")), &after); err != nil {
				t.Fatal(err)
			}
			equal(t, string(after["spec"]), test.want)
			// And the old client reads what it has written.
			again := convert(t, string(mustMarshal(t, after)), "v1alpha1")
			if err := json.Unmarshal([]byte(again), &read); err != nil {
				t.Fatal(err)
			}
			equal(t, string(read["spec"]), test.edited)
		})
	}
}

func mustMarshal(t *testing.T, value any) []byte {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// The API server takes the metadata of the object that it sent, but for labels and annotations.
func TestMetadataStays(t *testing.T) {
	const metadata = `{"name":"a","labels":{"x":"y"},"annotations":{"z":"1"},"managedFields":[{"manager":"m"}]}`
	object := `{"apiVersion":"acme.example.com/v1alpha1","kind":"Gadget","metadata":` + metadata + `,"spec":{"text":"x"}}`
	equal(t, convert(t, object, "v1"), strings.NewReplacer("v1alpha1", "v1", `"text":"x"`, `"label":{"text":"x"}`).Replace(object))
}

// Who may write an object may write any annotation. It must not keep others from reading a list.
func TestTheAnnotationMayHaveAnything(t *testing.T) {
	for _, text := range []string{
		`[{"path":["spec","panic"],"is":true}]`, ``, `x`, `{}`, `null`, `[]`, `[null]`, `[1]`, `[{}]`, `[{"path":[]}]`, `[{"path":null,"is":1}]`,
		`[{"path":["spec"],"is":1}]`, `[{"path":["spec","label"],"is":"a text"}]`, `[{"path":["spec","label"],"was":{`,
		`[{"path":["metadata","uid"],"was":"1","is":"2"}]`, `[{"path":["spec"],"was":{},"is":1}]`,
		`[{"path":["spec","shape"],"is":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + `}]`,
		`[{"path":["spec","color"],"is":` + strings.Repeat("[", 9000) + `}]`,
	} {
		object := map[string]any{
			"apiVersion": "acme.example.com/v1alpha1", "kind": "Gadget", "spec": map[string]any{},
			"metadata": map[string]any{"name": "a", "annotations": map[string]any{"acme.example.com/only-in-v1": text}},
		}
		converted, err := gadgets.Convert(mustMarshal(t, object), "acme.example.com/v1")
		if err != nil {
			t.Errorf("with %.60s: %v", text, err)
		}
		if _, err := gadgets.Convert(converted, "acme.example.com/v1alpha1"); err != nil {
			t.Errorf("with %.60s, back: %v", text, err)
		}
	}
}
