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

// A client creates and updates a Greeting, and notes the warnings. hack/test/conformance compares the answers for a
// larger definition with those of a real server.
type client struct {
	dynamic.ResourceInterface
	warnings []string
}

func (c *client) HandleWarningHeader(_ int, _, text string) { c.warnings = append(c.warnings, text) }

func newClient(t *testing.T) (*client, *apiserver.Server) {
	t.Helper()
	server, c := apiserver.New(crd.MustLoad("testdata/greetings.yaml")), &client{}
	config := rest.CopyConfig(server.Config("alice"))
	config.WarningHandler = c
	c.ResourceInterface = dynamic.NewForConfigOrDie(config).Resource(greetings).Namespace("default")
	return c, server
}

func greeting(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": map[string]any{"name": "a"}, "spec": spec,
	}}
}

func TestUnknownFieldsArePrunedWithAWarningUnlessTheClientIsStrictOrIgnoresThem(t *testing.T) {
	for fieldValidation, warnings := range map[string][]string{
		metav1.FieldValidationWarn: {`unknown field "spec.bogus"`}, metav1.FieldValidationIgnore: nil,
	} {
		c, _ := newClient(t)
		got, err := c.Create(t.Context(), greeting(map[string]any{"bogus": "b", "text": "hi"}),
			metav1.CreateOptions{FieldValidation: fieldValidation})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"text": "hi"}, got.Object["spec"]); diff != "" {
			t.Errorf("%s: spec (-want +got):\n%s", fieldValidation, diff)
		}
		if diff := cmp.Diff(warnings, c.warnings); diff != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", fieldValidation, diff)
		}
	}
	c, _ := newClient(t)
	_, err := c.Create(t.Context(), greeting(map[string]any{"bogus": "b"}),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.bogus"`) {
		t.Errorf("a strict client gets %v", err)
	}
}

func TestDefaultsSchemaAndTransitionRulesOfADefinitionApply(t *testing.T) {
	c, _ := newClient(t)
	got, err := c.Create(t.Context(), greeting(nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"text": "hello"}, got.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	for _, row := range []struct {
		text any
		want string
	}{
		{"", `spec.text: Invalid value: "": say something`},
		{"bye", `spec.text: Invalid value: "bye": the text is final`},
		{strings.Repeat("x", 101), `spec.text: Too long: may not be more than 100 bytes`},
		{int64(5), `spec.text in body must be of type string: "integer"`},
	} {
		wrong := got.DeepCopy()
		wrong.Object["spec"] = map[string]any{"text": row.text}
		_, err := c.Update(t.Context(), wrong, metav1.UpdateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("text %v: got error %v, want one with %s", row.text, err, row.want)
		}
	}
}

// A Greeting is the Go type of a client, which has zeros for the fields that no client has set.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Text string `json:"text"`
	} `json:"spec"`
}

func (g *Greeting) DeepCopyObject() runtime.Object {
	other := *g
	other.ObjectMeta = *g.ObjectMeta.DeepCopy()
	return &other
}

func TestLoadStoresObjectsOfAGoType(t *testing.T) {
	c, server := newClient(t)
	g := &Greeting{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Greeting"}}
	g.Name, g.Namespace, g.Spec.Text = "a", "default", "hi"
	if err := server.Load(g); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text, _, _ := unstructured.NestedString(got.Object, "spec", "text"); text != "hi" {
		t.Errorf("the stored Greeting is %v", got.Object)
	}
}

func TestADefinitionThatAServerRefusesIsAnError(t *testing.T) {
	content, err := os.ReadFile("testdata/greetings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition := string(content)
	for name, wrong := range map[string]string{
		"an unknown field":          strings.Replace(definition, "  scope:", "  bogus: 1\n  scope:", 1),
		"a rule that is not CEL":    strings.Replace(definition, "self == oldSelf", "self ==", 1),
		"no schema":                 definition[:strings.Index(definition, "      schema:")],
		"a default that is invalid": strings.Replace(definition, "default: hello", "default: 5", 1),
		"a version that it lacks":   strings.Replace(definition, "storage: true", "storage: false", 1),
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
	definition.SetName("greetings.example.com")
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
	_, test, _ := strings.Cut(string(example), "func Test")
	if !strings.Contains(string(readme), "```go\nfunc Test"+test+"```\n") {
		t.Error("pkg/sim/README.md does not have the test of example_test.go")
	}
}
