package crd_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/crd"
)

// widgets is a definition. hack/conformance compares the answers for a larger one with those of a real server.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 1, maximum: 9}
              color:
                type: string
                maxLength: 9
                x-kubernetes-validations: [{rule: self == oldSelf, message: the color is final}]
`

// A client creates and updates a Widget, and notes the warnings.
type client struct {
	dynamic.ResourceInterface
	warnings []string
}

func (c *client) HandleWarningHeader(_ int, _, text string) { c.warnings = append(c.warnings, text) }

func newClient(t *testing.T) (*client, *apiserver.Server) {
	t.Helper()
	kind, err := crd.Kind([]byte(widgets), "")
	if err != nil {
		t.Fatal(err)
	}
	server, c := apiserver.New(kind), &client{}
	config := rest.CopyConfig(server.Config("alice"))
	config.WarningHandler = c
	c.ResourceInterface = dynamic.NewForConfigOrDie(config).Resource(kind.Resource).Namespace("default")
	return c, server
}

func widget(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": spec,
	}}
}

func TestUnknownFieldsArePrunedWithAWarningUnlessTheClientIsStrictOrIgnoresThem(t *testing.T) {
	for fieldValidation, warnings := range map[string][]string{
		metav1.FieldValidationWarn: {`unknown field "spec.bogus"`}, metav1.FieldValidationIgnore: nil,
	} {
		c, _ := newClient(t)
		got, err := c.Create(t.Context(), widget(map[string]any{"bogus": "b", "size": int64(2)}),
			metav1.CreateOptions{FieldValidation: fieldValidation})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"size": int64(2)}, got.Object["spec"]); diff != "" {
			t.Errorf("%s: spec (-want +got):\n%s", fieldValidation, diff)
		}
		if diff := cmp.Diff(warnings, c.warnings); diff != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", fieldValidation, diff)
		}
	}
	c, _ := newClient(t)
	_, err := c.Create(t.Context(), widget(map[string]any{"bogus": "b"}),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.bogus"`) {
		t.Errorf("a strict client gets %v", err)
	}
}

func TestDefaultsSchemaAndTransitionRulesOfADefinitionApply(t *testing.T) {
	c, _ := newClient(t)
	got, err := c.Create(t.Context(), widget(map[string]any{"color": "red"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"color": "red", "size": int64(1)}, got.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	for _, row := range []struct {
		spec map[string]any
		want string
	}{
		{map[string]any{"color": "blue"}, `spec.color: Invalid value: "blue": the color is final`},
		{map[string]any{"size": int64(10)}, `spec.size in body should be less than or equal to 9`},
		{map[string]any{"size": "x"}, `spec.size in body must be of type integer: "string"`},
	} {
		wrong := got.DeepCopy()
		wrong.Object["spec"] = row.spec
		_, err := c.Update(t.Context(), wrong, metav1.UpdateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("spec %v: got error %v, want one with %s", row.spec, err, row.want)
		}
	}
}

// A Widget is the Go type of a client, which has zeros for the fields that no client has set.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Color string `json:"color"`
	} `json:"spec"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	other := *w
	other.ObjectMeta = *w.ObjectMeta.DeepCopy()
	return &other
}

func TestLoadStoresObjectsOfAGoType(t *testing.T) {
	c, server := newClient(t)
	w := &Widget{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"}}
	w.Name, w.Namespace, w.Spec.Color = "a", "default", "red"
	if err := server.Load(w); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if color, _, _ := unstructured.NestedString(got.Object, "spec", "color"); color != "red" {
		t.Errorf("the stored Widget is %v", got.Object)
	}
}

func TestADefinitionThatAServerRefusesIsAnError(t *testing.T) {
	for name, wrong := range map[string]string{
		"an unknown field":          strings.Replace(widgets, "  scope:", "  bogus: 1\n  scope:", 1),
		"a rule that is not CEL":    strings.Replace(widgets, "self == oldSelf", "self ==", 1),
		"no schema":                 widgets[:strings.Index(widgets, "    schema:")],
		"a default that is invalid": strings.Replace(widgets, "default: 1", "default: x", 1),
		"a version that it lacks":   strings.Replace(widgets, "storage: true", "storage: false", 1),
	} {
		if _, err := crd.Kind([]byte(wrong), ""); err == nil {
			t.Errorf("Kind accepts %s", name)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustLoad accepts a file that does not exist")
		}
	}()
	crd.MustLoad("nowhere.yaml")
}

func TestDefinitionsThemselvesAreAKindWithoutNamespacesAndWithGenerations(t *testing.T) {
	types := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	server := apiserver.New(apiserver.KindOf(&apiextensionsv1.CustomResourceDefinition{}, types))
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	api := dynamic.NewForConfigOrDie(server.Config("alice")).Resource(definitions)
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	definition.SetName("widgets.example.com")
	created, err := api.Create(t.Context(), definition, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.GetGeneration() != 1 {
		t.Errorf("the definition has generation %d, want 1", created.GetGeneration())
	}
	created.SetResourceVersion("")
	if _, err := api.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update without a version: error %v, want that it is invalid", err)
	}
}

func TestTheReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, test, _ := strings.Cut(string(example), "\n)\n\n")
	if !strings.Contains(string(readme), "```go\n"+test+"```\n") {
		t.Error("pkg/sim/README.md does not have the test of example_test.go")
	}
}
