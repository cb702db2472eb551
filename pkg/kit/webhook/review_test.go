package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/kit/conversion"
)

// A gadgetObject is a gadget of each version.
type gadgetObject struct {
	Spec struct {
		Size  int    `json:"size,omitempty"`
		Text  string `json:"text,omitempty"`
		Color string `json:"color,omitempty"`
		Panic bool   `json:"panic,omitempty"`
	} `json:"spec"`
}

var (
	gadgetKind = schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Gadget"}
	converts   = Convert(conversion.New(gadgetKind, conversion.VersionOf("v1alpha1", asked, asked)))
)

// asked converts a gadget that does not ask for another answer.
func asked(gadget *gadgetObject) (*gadgetObject, error) {
	switch {
	case gadget.Spec.Panic:
		panic("as asked")
	case gadget.Spec.Size < 0:
		return nil, fmt.Errorf("the size is %d", gadget.Spec.Size)
	}
	return gadget, nil
}

// gadget returns a gadget of a version in JSON, with a spec.
func gadget(version, spec string) string {
	return `{"apiVersion":"acme.example.com/` + version + `","kind":"Gadget","metadata":{"name":"a"},"spec":` + spec + `}`
}

// equal fails unless two texts are the same JSON.
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

// post returns what a webhook answers.
func post(handler http.Handler, body string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	return answer
}

// conversionOf is a ConversionReview of objects.
func conversionOf(desired string, objects ...string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"7","desiredAPIVersion":"` +
		desired + `","objects":[` + strings.Join(objects, ",") + `]}}`
}

func TestConversionReviews(t *testing.T) {
	for _, test := range []struct {
		name, desired string
		objects       []string
		want          []string // The objects that are returned.
		message       string
	}{
		{
			name: "a list", desired: "acme.example.com/v1",
			objects: []string{gadget("v1alpha1", `{"text":"x"}`), gadget("v1", `{"color":"red"}`)},
			want:    []string{gadget("v1", `{"text":"x"}`), gadget("v1", `{"color":"red"}`)},
		},
		{name: "no objects", desired: "acme.example.com/v1"},
		{
			name: "an error for each object", desired: "acme.example.com/v1",
			objects: []string{
				gadget("v1alpha1", `{"size":-1}`), gadget("v1alpha1", `{}`), gadget("v1alpha1", `{"text":3}`),
				gadget("v1alpha1", `{"panic":true}`), gadget("v2", `{}`),
				strings.Replace(gadget("v1alpha1", `{}`), "Gadget", "Other", 1),
			},
			message: "a: the size is -1; " +
				"a: json: cannot unmarshal number into Go struct field .spec.text of type string; " +
				"a: the conversion panicked, see the log of the controller; " +
				"a: cannot convert Gadget of acme.example.com/v2; " +
				"a: cannot convert Other of acme.example.com/v1alpha1",
		},
		{
			name: "another group", desired: "example.com/v1", objects: []string{gadget("v1alpha1", `{}`)},
			message: "a: cannot convert Gadget of example.com/v1",
		},
		{
			name: "another version", desired: "acme.example.com/v3", objects: []string{gadget("v1alpha1", `{}`)},
			message: "a: cannot convert Gadget of acme.example.com/v3",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer := post(converts, conversionOf(test.desired, test.objects...))
			if answer.Code != http.StatusOK {
				t.Fatalf("%d: %s", answer.Code, answer.Body)
			}
			review := &apiextensionsv1.ConversionReview{}
			if err := json.Unmarshal(answer.Body.Bytes(), review); err != nil {
				t.Fatal(err)
			}
			if review.Kind != "ConversionReview" || review.Request != nil || review.Response.UID != "7" {
				t.Errorf("not the answer to this review: %+v", review)
			}
			status := metav1.StatusSuccess
			if test.message != "" {
				status = metav1.StatusFailure
			}
			if result := review.Response.Result; result.Status != status || result.Message != test.message {
				t.Errorf("%s: %q, want %s: %q", result.Status, result.Message, status, test.message)
			}
			if len(review.Response.ConvertedObjects) != len(test.want) {
				t.Fatalf("%d objects, want %d", len(review.Response.ConvertedObjects), len(test.want))
			}
			for i, want := range test.want {
				equal(t, string(review.Response.ConvertedObjects[i].Raw), want)
			}
		})
	}
}

// What is no review gets an error of HTTP, and never more memory than a review may need.
func TestWhatIsNoReview(t *testing.T) {
	tooLarge := `{"request":{"uid":"` + strings.Repeat("x", maxBody) + `"}}`
	for name, test := range map[string]struct {
		method, body string
		code         int
	}{
		"a GET":        {http.MethodGet, "", http.StatusMethodNotAllowed},
		"nothing":      {http.MethodPost, "", http.StatusBadRequest},
		"text":         {http.MethodPost, "x", http.StatusBadRequest},
		"no request":   {http.MethodPost, "{}", http.StatusBadRequest},
		"another type": {http.MethodPost, `{"request":[]}`, http.StatusBadRequest},
		"too large":    {http.MethodPost, tooLarge, http.StatusRequestEntityTooLarge},
		"too deep":     {http.MethodPost, strings.Repeat("[", 20_000), http.StatusBadRequest},
	} {
		for _, handler := range []http.Handler{converts, validated} {
			for _, sized := range []bool{true, false} {
				request := httptest.NewRequest(test.method, "/", strings.NewReader(test.body))
				if !sized {
					request.ContentLength = -1
				}
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, request)
				if answer.Code != test.code {
					t.Errorf("%s: %T answers %d: %s, want %d", name, handler, answer.Code, answer.Body, test.code)
				}
			}
		}
	}
	if !large.TryAcquire(maxLarge) {
		t.Error("a large review still counts")
	}
}

// validated refuses what the tests ask for.
var validated = Validate(gadgetKind, func(r Request[gadgetObject]) Decision {
	spec := field.NewPath("spec")
	switch {
	case r.Operation == admissionv1.Delete && r.Old.Spec.Color == "gold":
		return Decision{Err: errors.New("gold is not deleted")}
	case r.Object == nil:
		return Decision{}
	case r.Object.Spec.Panic:
		panic("as asked")
	case r.Old != nil && r.Old.Spec.Color != r.Object.Spec.Color:
		return Decision{Err: field.Forbidden(spec.Child("color"), "cannot be changed by "+r.User.Username)}
	case r.Object.Spec.Color == "two errors":
		return Decision{Err: errors.Join(field.Required(spec.Child("a"), ""), field.Required(spec.Child("b"), ""))}
	case r.Object.Spec.Color == "two errors of a list":
		missing := field.ErrorList{field.Required(spec.Child("a"), ""), field.Required(spec.Child("b"), "")}
		return Decision{Err: missing.ToAggregate()}
	case r.DryRun:
		return Decision{Warnings: []string{"only a dry run"}}
	}
	return Decision{}
})

func TestAdmissionReviews(t *testing.T) {
	object := func(spec string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(gadget("v1", spec))} }
	for _, test := range []struct {
		name    string
		request admissionv1.AdmissionRequest
		want    string
	}{
		{name: "admitted", want: "true",
			request: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: object(`{}`)}},
		{
			name: "a warning", request: admissionv1.AdmissionRequest{Object: object(`{}`), DryRun: new(true)},
			want: "true [only a dry run]",
		},
		{
			name: "a field", request: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Object: object(`{"color":"red"}`), OldObject: object(`{}`), Name: "a",
				UserInfo: authenticationv1.UserInfo{Username: "anna"},
			},
			want: `false 422 Invalid Gadget.acme.example.com "a" is invalid: spec.color: Forbidden: cannot be changed by anna`,
		},
		{
			name: "two fields", request: admissionv1.AdmissionRequest{Object: object(`{"color":"two errors"}`), Name: "a"},
			want: `false 422 Invalid Gadget.acme.example.com "a" is invalid: [spec.a: Required value, spec.b: Required value]`,
		},
		{
			name:    "two fields of a list",
			request: admissionv1.AdmissionRequest{Object: object(`{"color":"two errors of a list"}`), Name: "a"},
			want: `false 422 Invalid Gadget.acme.example.com "a" is invalid: ` +
				`[spec.a: Required value, spec.b: Required value]`,
		},
		{
			name: "a deletion", request: admissionv1.AdmissionRequest{
				Operation: admissionv1.Delete, OldObject: object(`{"color":"gold"}`), Name: "a",
				Resource: metav1.GroupVersionResource{Group: "acme.example.com", Resource: "gadgets"},
			},
			want: `false 403 Forbidden gadgets.acme.example.com "a" is forbidden: gold is not deleted`,
		},
		{
			name: "a panic", request: admissionv1.AdmissionRequest{Object: object(`{"panic":true}`)},
			want: "false 500 InternalError Internal error occurred: the validation panicked, see the log of the controller",
		},
		{
			name: "what cannot be read", request: admissionv1.AdmissionRequest{Object: object(`{"color":3}`)},
			want: "false 400 BadRequest read object: json: cannot unmarshal number into Go struct field .spec.color " +
				"of type string",
		},
		{
			name: "another version", request: admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Version: "v2"}},
			want: "false 400 BadRequest this webhook is for acme.example.com/v1, Kind=Gadget, and was asked about /v2, Kind=",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.request.UID = types.UID("7")
			if test.request.Kind == (metav1.GroupVersionKind{}) {
				test.request.Kind = metav1.GroupVersionKind(gadgetKind)
			}
			body, _ := json.Marshal(admissionv1.AdmissionReview{Request: &test.request})
			answer := post(validated, string(body))
			review := &admissionv1.AdmissionReview{}
			if err := json.Unmarshal(answer.Body.Bytes(), review); err != nil || review.Response == nil {
				t.Fatalf("%d %s: %v", answer.Code, answer.Body, err)
			}
			got := fmt.Sprint(review.Response.Allowed)
			if result := review.Response.Result; result != nil {
				got += fmt.Sprintf(" %d %s %s", result.Code, result.Reason, result.Message)
			}
			if warnings := review.Response.Warnings; warnings != nil {
				got += fmt.Sprintf(" %v", warnings)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || review.Response.UID != "7" {
				t.Errorf("uid %s (-want +got):\n%s", review.Response.UID, diff)
			}
		})
	}
}

// No review, whatever it has, ends the process, or gets an answer that is no review.
func FuzzReviews(f *testing.F) {
	f.Add(conversionOf("acme.example.com/v1", gadget("v1alpha1", `{"text":"x"}`)))
	f.Add(conversionOf("acme.example.com/v1alpha1", gadget("v1", `{"text":"x"}`)))
	f.Add(`{"request":{"uid":"7","kind":{"group":"acme.example.com","version":"v1","kind":"Gadget"},"object":` +
		gadget("v1", `{"color":"red"}`) + `}}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, handler := range []http.Handler{converts, validated} {
			answer := post(handler, body)
			review := map[string]json.RawMessage{}
			err := json.Unmarshal(answer.Body.Bytes(), &review)
			if answer.Code == http.StatusOK && (err != nil || review["response"] == nil) {
				t.Errorf("%T answers %s", handler, answer.Body)
			}
		}
	})
}

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
