package conversion_test

import (
	"fmt"
	"strings"
	"testing"

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
			Container struct {
				Image string `json:"image"`
				Pull  string `json:"pull,omitempty"`
			} `json:"container"`
			Lines []string `json:"lines,omitempty"`
		} `json:"spec"`
		Status *metav1.Condition `json:"status,omitempty"`
	}
)

var widgets = conversion.New(
	schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Widget"},
	conversion.VersionOf("v1alpha1",
		func(old *oldWidget) (*newWidget, error) {
			w := &newWidget{Status: old.Status}
			w.Spec.Container.Image = old.Spec.Image
			if old.Spec.Lines != "" {
				w.Spec.Lines = strings.Split(old.Spec.Lines, "\n")
			}
			return w, nil
		},
		func(w *newWidget) (*oldWidget, error) {
			old := &oldWidget{Status: w.Status}
			old.Spec.Image, old.Spec.Lines = w.Spec.Container.Image, strings.Join(w.Spec.Lines, "\n")
			return old, nil
		}))

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
