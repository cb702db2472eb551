package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	applyv1alpha1 "example.com/foo-controller/pkg/generated/applyconfiguration/samplecontroller/v1alpha1"
	typedv1alpha1 "example.com/foo-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

// This file tests the validation and the subresources of the API on a real API server, with the messages that users of
// kubectl see. No controller runs here: the API behaves like this without our controller.

const (
	crdFile = "artifacts/crd/samplecontroller.k8s.io_foos.yaml"
	crdName = "crd/foos.samplecontroller.k8s.io"

	specRequired = "spec: Required value: set at least spec.deploymentName, the name of the Deployment to create"
	nameRule     = `deploymentName must be a name that a Deployment can have: lowercase letters, digits, '-' and '.', ` +
		`beginning and ending with a letter or digit, for example "web-1"`
	imageRule = `image must not contain spaces: give a reference such as "nginx:1.29"`

	// notAllChecked is the error that the server adds to a schema error (required, too long, wrong type) if the schema
	// also has CEL rules. We cannot change its text.
	notAllChecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; " +
		"correct the existing errors to complete validation"
	// notInt32 accompanies each error about a number beyond 32 bits.
	notInt32 = "Checked value must be of type integer with format int32 in spec.replicas"
)

// fooManifest returns the manifest of a Foo. fields are the fields beside its metadata.
func fooManifest(name, fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return fmt.Sprintf(`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":%q}%s}`,
		name, fields)
}

// waitingForController are the conditions of a Foo that was not reconciled yet.
func waitingForController() []metav1.Condition {
	return []metav1.Condition{{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionUnknown,
		Reason:             v1alpha1.ReasonPending,
		Message:            "No controller has seen this Foo yet. Is foo-controller running?",
		LastTransitionTime: metav1.Unix(0, 0),
	}}
}

// reported is a status as the controller writes it.
func reported(generation int64) v1alpha1.FooStatus {
	return v1alpha1.FooStatus{
		ObservedGeneration: generation,
		Replicas:           2,
		AvailableReplicas:  1,
		Selector:           "app=nginx,controller=web",
		Conditions: []metav1.Condition{
			{
				Type:               v1alpha1.ConditionReady,
				Status:             metav1.ConditionFalse,
				Reason:             v1alpha1.ReasonProgressing,
				Message:            "1 of 3 available",
				ObservedGeneration: generation,
				LastTransitionTime: metav1.Unix(1700000000, 0),
			},
			{
				Type:               v1alpha1.ConditionReconciling,
				Status:             metav1.ConditionTrue,
				Reason:             v1alpha1.ReasonProgressing,
				Message:            "1 of 3 available",
				ObservedGeneration: generation,
				LastTransitionTime: metav1.Unix(1700000000, 0),
			},
		},
	}
}

// fooClient is a typed client for the Foos of one namespace. It also gives tests access to the JSON of requests.
type fooClient struct {
	typedv1alpha1.FooInterface
	client    typedv1alpha1.SamplecontrollerV1alpha1Interface
	namespace string
}

func (c *cluster) foosIn(namespace string) *fooClient {
	client := c.samples.SamplecontrollerV1alpha1()
	return &fooClient{FooInterface: client.Foos(namespace), client: client, namespace: namespace}
}

// create creates a Foo with these fields beside its metadata.
func (f *fooClient) create(ctx context.Context, name, fields string) error {
	return f.client.RESTClient().Post().Namespace(f.namespace).Resource("foos").Body([]byte(fooManifest(name, fields))).
		Do(ctx).Error()
}

// patch sends a merge patch. Like kubectl, it does not decode the response.
func (f *fooClient) patch(ctx context.Context, name, patch string) error {
	return f.client.RESTClient().Patch(types.MergePatchType).Namespace(f.namespace).Resource("foos").Name(name).
		Body([]byte(patch)).Do(ctx).Error()
}

// get returns the Foo as a Go object.
func (f *fooClient) get(t *testing.T, name string) *v1alpha1.Foo {
	t.Helper()
	foo, err := f.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return foo
}

// stored returns a part of the stored Foo, such as "spec" or "status", nil if it is absent.
func (f *fooClient) stored(t *testing.T, name, part string) any {
	t.Helper()
	body, err := f.client.RESTClient().Get().Namespace(f.namespace).Resource("foos").Name(name).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(body))[part]
}

func decode(t *testing.T, object string) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := json.Unmarshal([]byte(object), &decoded); err != nil {
		t.Fatalf("%v:\n%s", err, object)
	}
	return decoded
}

// errorsOf returns the errors in the output of kubectl for a Foo that the server refuses.
func errorsOf(output string) []string {
	_, rest, isInvalid := strings.Cut(strings.TrimSpace(output), "is invalid: ")
	if !isInvalid {
		return []string{output}
	}
	return strings.Split(strings.TrimPrefix(rest, "\n* "), "\n* ")
}

func TestAPIValidatesEachField(t *testing.T) {
	c := apiCluster.get(t)
	ns := c.namespace(t)
	name := func(value string) string { return fmt.Sprintf(`"spec":{"deploymentName":%s}`, value) }
	with := func(field, value string) string {
		return fmt.Sprintf(`"spec":{"deploymentName":"web",%q:%s}`, field, value)
	}
	quoted := func(length int) string { return `"` + strings.Repeat("a", length) + `"` }
	badName := func(value string) []string {
		return []string{"spec.deploymentName: Invalid value: " + value + ": " + nameRule}
	}
	badImage := func(value string) []string {
		return []string{"spec.image: Invalid value: " + value + ": " + imageRule}
	}

	for i, test := range []struct {
		name       string
		fields     string
		spec       string   // The stored spec if it differs from the sent one.
		wantErrors []string // A part of each error, in order. None if the Foo is accepted.
	}{
		{name: "no spec", wantErrors: []string{specRequired}},
		{name: "spec null", fields: `"spec":null`, wantErrors: []string{specRequired}},
		{
			name:       "spec of no fields",
			fields:     `"spec":{}`,
			wantErrors: []string{"spec.deploymentName: Required value", notAllChecked},
		},
		{
			name:       "spec that is not an object",
			fields:     `"spec":"web"`,
			wantErrors: []string{"spec in body must be of type object", ".spec.replicas accessor error", notAllChecked},
		},
		{name: "all fields", fields: `"spec":{"deploymentName":"web","replicas":2,"image":"nginx:1.29","paused":true}`},

		{name: "deploymentName alone", fields: name(`"web"`)},
		{
			name:       "deploymentName null",
			fields:     name(`null`),
			wantErrors: []string{"spec.deploymentName: Required value", notAllChecked},
		},
		{name: "deploymentName empty", fields: name(`""`), wantErrors: badName(`""`)},
		{
			name:       "deploymentName that is a number",
			fields:     name(`5`),
			wantErrors: []string{"spec.deploymentName in body must be of type string", notAllChecked},
		},
		{name: "deploymentName of one digit", fields: name(`"1"`)},
		{name: "deploymentName with dots and dashes", fields: name(`"a.b-1"`)},
		{name: "deploymentName with capitals", fields: name(`"Web"`), wantErrors: badName(`"Web"`)},
		{name: "deploymentName with an underscore", fields: name(`"web_1"`), wantErrors: badName(`"web_1"`)},
		{name: "deploymentName with a slash", fields: name(`"default/web"`), wantErrors: badName(`"default/web"`)},
		{name: "deploymentName that ends with a dot", fields: name(`"web."`), wantErrors: badName(`"web."`)},
		{name: "deploymentName that begins with a dash", fields: name(`"-web"`), wantErrors: badName(`"-web"`)},
		{name: "deploymentName of 253 characters", fields: name(quoted(253))},
		{
			name:       "deploymentName of 254 characters",
			fields:     name(quoted(254)),
			wantErrors: []string{"spec.deploymentName: Too long: may not be more than 253 bytes", notAllChecked},
		},

		{name: "replicas 0", fields: with("replicas", "0")},
		{name: "replicas 2147483647", fields: with("replicas", "2147483647")},
		{
			name:   "replicas 2147483648",
			fields: with("replicas", "2147483648"),
			wantErrors: []string{
				notInt32, ".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
			},
		},
		{
			name:   "replicas -1",
			fields: with("replicas", "-1"),
			wantErrors: []string{
				"spec.replicas in body should be greater than or equal to 0",
				".spec.replicas: Invalid value: -1: should be a non-negative integer",
			},
		},
		{
			name:   "replicas that are a string",
			fields: with("replicas", `"3"`),
			wantErrors: []string{
				"spec.replicas in body must be of type integer", ".spec.replicas accessor error", notAllChecked,
			},
		},
		{
			name:   "replicas that are a fraction",
			fields: with("replicas", "1.5"),
			wantErrors: []string{
				"spec.replicas in body must be of type int32", notInt32, ".spec.replicas accessor error", notAllChecked,
			},
		},
		{name: "replicas without a value", fields: with("replicas", "null"), spec: `{"deploymentName":"web"}`},

		{name: "image of one character", fields: with("image", `"a"`)},
		{name: "image with registry, tag and digest", fields: with("image", `"registry.example.com:5000/a/b:1@sha256:0123"`)},
		{name: "image of 1024 characters", fields: with("image", quoted(1024))},
		{
			name:       "image of 1025 characters",
			fields:     with("image", quoted(1025)),
			wantErrors: []string{"spec.image: Too long: may not be more than 1024 bytes", notAllChecked},
		},
		{name: "image of 1024 characters in 2048 bytes", fields: with("image", `"`+strings.Repeat("é", 1024)+`"`)},
		{
			name:       "image empty",
			fields:     with("image", `""`),
			wantErrors: []string{"spec.image in body should be at least 1 chars long"},
		},
		{name: "image of a space", fields: with("image", `" "`), wantErrors: badImage(`" "`)},
		{name: "image with a space", fields: with("image", `"a b"`), wantErrors: badImage(`"a b"`)},
		{name: "image with a tab", fields: with("image", `"a\tb"`), wantErrors: badImage(`"a\tb"`)},
		{name: "image that ends with a newline", fields: with("image", `"a\n"`), wantErrors: badImage(`"a\n"`)},
		{
			name: "image that begins with a no-break space", fields: with("image", `"\u00a0a"`),
			wantErrors: badImage(`"\u00a0a"`),
		},
		{
			name:       "image that is a number",
			fields:     with("image", "5"),
			wantErrors: []string{"spec.image in body must be of type string", notAllChecked},
		},
		{name: "image without a value", fields: with("image", "null"), spec: `{"deploymentName":"web"}`},

		{name: "paused true", fields: with("paused", "true")},
		{name: "paused false", fields: with("paused", "false")},
		{
			name:       "paused that is a string",
			fields:     with("paused", `"true"`),
			wantErrors: []string{"spec.paused in body must be of type boolean", notAllChecked},
		},
		{
			name:       "paused that is a number",
			fields:     with("paused", "1"),
			wantErrors: []string{"spec.paused in body must be of type boolean", notAllChecked},
		},
		{name: "paused without a value", fields: with("paused", "null"), spec: `{"deploymentName":"web"}`},

		{
			name:       "a field misspelt",
			fields:     with("replica", "3"),
			wantErrors: []string{`strict decoding error: unknown field "spec.replica"`},
		},
		{
			name:       "a field beside spec",
			fields:     name(`"web"`) + `,"replicas":3`,
			wantErrors: []string{`strict decoding error: unknown field "replicas"`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := c.try(fooManifest(fmt.Sprintf("row-%d", i), test.fields), "create", "-n", ns, "-f", "-", "-o", "json")
			if len(test.wantErrors) > 0 {
				if err == nil {
					t.Fatalf("accepted, want the errors %q", test.wantErrors)
				}
				if *kubernetesFile != "" {
					return // Other versions have other errors beside those of the rules, which they do not check then.
				}
				got := errorsOf(out)
				if len(got) != len(test.wantErrors) {
					t.Fatalf("kubectl prints\n%s\nwant %d errors: %q", out, len(test.wantErrors), test.wantErrors)
				}
				for i, want := range test.wantErrors {
					if !strings.Contains(got[i], want) {
						t.Errorf("error %d is %q, want one that contains %q", i, got[i], want)
					}
				}
				return
			}
			if err != nil {
				t.Fatalf("refused: %s", out)
			}
			want := decode(t, "{"+test.fields+"}")["spec"]
			if test.spec != "" {
				want = decode(t, test.spec)
			}
			if diff := cmp.Diff(want, decode(t, out)["spec"]); diff != "" {
				t.Errorf("the spec is not as sent (-sent +stored):\n%s", diff)
			}
		})
	}
}

func TestAPIDropsUnknownFieldsOfClientsThatDoNotAskForErrors(t *testing.T) {
	c := apiCluster.get(t)
	out := c.kubectl(t, fooManifest("web", `"other":1,"spec":{"deploymentName":"web","replica":3}`),
		"create", "-n", c.namespace(t), "-f", "-", "-o", "json", "--validate=ignore")
	foo := decode(t, out)
	if diff := cmp.Diff(map[string]any{"deploymentName": "web"}, foo["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if other, found := foo["other"]; found {
		t.Errorf("an unknown field beside spec was stored: %v", other)
	}
}

func TestAPIUpdatesCannotRemoveRequiredFields(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	if err := foos.create(t.Context(), "web", `"spec":{"deploymentName":"web","replicas":1}`); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":null}`:                              specRequired,
		`{"spec":{"deploymentName":null}}`:           "spec.deploymentName: Required value",
		`{"spec":{"deploymentName":""}}`:             nameRule,
		`{"spec":{"deploymentName":"Web"}}`:          nameRule,
		`{"spec":{"replicas":-1}}`:                   "should be greater than or equal to 0",
		`{"spec":{"image":"a b"}}`:                   imageRule,
		`{"spec":{"deploymentName":"-","paused":0}}`: "spec.paused in body must be of type boolean",
	} {
		if out, err := c.try("", "patch", "foo/web", "-n", foos.namespace, "--type=merge", "-p", patch); err == nil ||
			!strings.Contains(out, want) {
			t.Errorf("patch %s: kubectl prints %q (%v), want the error %q", patch, out, err, want)
		}
	}
	want := map[string]any{"deploymentName": "web", "replicas": 1.0}
	if diff := cmp.Diff(want, foos.stored(t, "web", "spec")); diff != "" {
		t.Errorf("the spec has changed (-want +got):\n%s", diff)
	}
	if err := foos.patch(t.Context(), "web", `{"spec":{"deploymentName":"other"}}`); err != nil {
		t.Errorf("deploymentName cannot be changed: %v", err)
	}
}

func TestAPIValidatesConditions(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	if err := foos.create(t.Context(), "web", `"spec":{"deploymentName":"web"}`); err != nil {
		t.Fatal(err)
	}
	conditions := func(n int) []metav1.Condition {
		all := make([]metav1.Condition, n)
		for i := range all {
			all[i] = metav1.Condition{
				Type:               fmt.Sprintf("Type%d", i),
				Status:             metav1.ConditionTrue,
				Reason:             "Reason",
				LastTransitionTime: metav1.Unix(0, 0),
			}
		}
		return all
	}
	edited := func(edit func(*metav1.Condition)) v1alpha1.FooStatus {
		one := conditions(1)
		edit(&one[0])
		return v1alpha1.FooStatus{Conditions: one}
	}
	for _, test := range []struct {
		name      string
		status    v1alpha1.FooStatus
		wantError string // Empty if the status is accepted.
	}{
		{"as the controller writes it", reported(1), ""},
		{"32 conditions", v1alpha1.FooStatus{Conditions: conditions(32)}, ""},
		{"33 conditions", v1alpha1.FooStatus{Conditions: conditions(33)},
			"status.conditions: Too many: 33: must have at most 32 items"},
		{"two conditions of one type", v1alpha1.FooStatus{Conditions: append(conditions(1), conditions(1)...)},
			"status.conditions[1]: Duplicate value"},
		{"a condition with the status Maybe", edited(func(c *metav1.Condition) { c.Status = "Maybe" }),
			`supported values: "True", "False", "Unknown"`},
		{"a condition without reason", edited(func(c *metav1.Condition) { c.Reason = "" }), "status.conditions[0].reason"},
		{"a reason that is a sentence", edited(func(c *metav1.Condition) { c.Reason = "not good" }),
			"status.conditions[0].reason"},
		{"a condition without time", edited(func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} }),
			"status.conditions[0].lastTransitionTime"},
		{"observedGeneration 0", v1alpha1.FooStatus{Conditions: conditions(1)}, ""},
		{"observedGeneration -1", v1alpha1.FooStatus{ObservedGeneration: -1},
			"status.observedGeneration: Invalid value: -1: observedGeneration in body should be greater than or equal to 0"},
	} {
		foo := foos.get(t, "web")
		foo.Status = test.status
		_, err := foos.UpdateStatus(t.Context(), foo, metav1.UpdateOptions{})
		switch {
		case test.wantError == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
			t.Errorf("%s: error %v, want %q", test.name, err, test.wantError)
		}
	}
	const odd = `{"status":{"conditions":[
		{"type":"Ready","status":"True","reason":"Available","message":"","lastTransitionTime":"yesterday"}]}}`
	out, err := c.try("", "patch", "foo/web", "-n", foos.namespace, "--subresource=status", "--type=merge", "-p", odd)
	if want := `status.conditions[0].lastTransitionTime: Invalid value: "yesterday": ` + timeRule; err == nil ||
		!hasError(out, want, timeRule) {
		t.Errorf("a condition with the time yesterday: kubectl prints %q (%v), want the error %q", out, err, want)
	}
}

func TestAPINewFooWaitsForController(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	manifest := fooManifest("web", `"spec":{"deploymentName":"web"},"status":{"observedGeneration":7,"conditions":[
		{"type":"Ready","status":"True","reason":"Available","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`)
	c.kubectl(t, manifest, "create", "-n", foos.namespace, "-f", "-")

	want := v1alpha1.FooStatus{Conditions: waitingForController()}
	if diff := cmp.Diff(want, foos.get(t, "web").Status); diff != "" {
		t.Errorf("status, which a user must not be able to set (-want +got):\n%s", diff)
	}
	status, _ := foos.stored(t, "web", "status").(map[string]any)
	for field := range status {
		if field != "conditions" {
			t.Errorf("a new Foo has status.%s", field)
		}
	}
	if out, err := c.try("", "wait", "--for=condition=Ready", "foo/web", "-n", foos.namespace, "--timeout=0"); err == nil {
		t.Errorf("kubectl wait reports the new Foo as ready: %s", out)
	}
	c.kubectl(t, "", "wait", "--for=condition=Ready=Unknown", "foo/web", "-n", foos.namespace, "--timeout=0")
}

func TestAPIKubectlGetColumns(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	for name, fields := range map[string]string{
		"new": `"spec":{"deploymentName":"free"}`,
		"old": `"spec":{"deploymentName":"web","replicas":3}`,
	} {
		if err := foos.create(t.Context(), name, fields); err != nil {
			t.Fatal(err)
		}
	}
	foo := foos.get(t, "old")
	foo.Status = reported(1)
	if _, err := foos.UpdateStatus(t.Context(), foo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	age := regexp.MustCompile(`^\d+s$`)
	get := func(args ...string) [][]string {
		var table [][]string
		for line := range strings.Lines(c.kubectl(t, "", append([]string{"get", "-n", foos.namespace}, args...)...)) {
			cells := strings.Fields(line)
			if last := len(cells) - 1; age.MatchString(cells[last]) {
				cells[last] = "<age>"
			}
			table = append(table, cells)
		}
		return table
	}
	for _, test := range []struct {
		args []string
		want [][]string
	}{
		{[]string{"foos"}, [][]string{
			{"NAME", "DEPLOYMENT", "DESIRED", "CURRENT", "AVAILABLE", "READY", "REASON", "AGE"},
			{"new", "free", "Unknown", "Pending", "<age>"},
			{"old", "web", "3", "2", "1", "False", "Progressing", "<age>"},
		}},
		{[]string{"fo", "-o", "name"},
			[][]string{{"foo.samplecontroller.k8s.io/new"}, {"foo.samplecontroller.k8s.io/old"}}},
		{[]string{"foo", "-o", "name", "--field-selector", "spec.deploymentName=web"},
			[][]string{{"foo.samplecontroller.k8s.io/old"}}},
		{[]string{"foo", "-o", "name", "--field-selector", "spec.deploymentName!=web"},
			[][]string{{"foo.samplecontroller.k8s.io/new"}}},
	} {
		if diff := cmp.Diff(test.want, get(test.args...)); diff != "" {
			t.Errorf("kubectl get %s (-want +got):\n%s", strings.Join(test.args, " "), diff)
		}
	}
}

func TestAPIScaleChangesOnlyReplicas(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	if err := foos.create(t.Context(), "web",
		`"spec":{"deploymentName":"web","replicas":1,"image":"nginx:1.29"}`); err != nil {
		t.Fatal(err)
	}
	foo := foos.get(t, "web")
	foo.Status = reported(1)
	if _, err := foos.UpdateStatus(t.Context(), foo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	c.kubectl(t, "", "scale", "foo/web", "--replicas=3", "-n", foos.namespace)
	foo = foos.get(t, "web")
	if diff := cmp.Diff(v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(3)), Image: "nginx:1.29"},
		foo.Spec); diff != "" {
		t.Errorf("spec after kubectl scale (-want +got):\n%s", diff)
	}
	if foo.Generation != 2 {
		t.Errorf("generation after kubectl scale = %d, want 2", foo.Generation)
	}

	scale, err := foos.GetScale(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 3 {
		t.Errorf("the scale asks for %d replicas, want 3", scale.Spec.Replicas)
	}
	if diff := cmp.Diff(autoscalingv1.ScaleStatus{Replicas: 2, Selector: "app=nginx,controller=web"},
		scale.Status); diff != "" {
		t.Errorf("status of the scale (-want +got):\n%s", diff)
	}
	scale.Spec.Replicas, scale.Status.Replicas = 0, 9
	if _, err := foos.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	foo = foos.get(t, "web")
	if *foo.Spec.Replicas != 0 || foo.Generation != 3 || foo.Status.Replicas != 2 {
		t.Errorf("after an update of the scale: spec.replicas %d, generation %d, status.replicas %d; want 0, 3, 2",
			*foo.Spec.Replicas, foo.Generation, foo.Status.Replicas)
	}
	scale, err = foos.GetScale(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = -1
	if _, err := foos.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("scale to -1: %v, want it refused", err)
	}
}

// Autoscalers read the scale before they write it. Therefore the description of spec.replicas asks users to set it for
// them, although kubectl scale works without it.
func TestAPIScaleOfFooWithoutReplicasCanBeSetButNotRead(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	if err := foos.create(t.Context(), "web", `"spec":{"deploymentName":"web"}`); err != nil {
		t.Fatal(err)
	}
	const want = `the spec replicas field ".spec.replicas" does not exist`
	if _, err := foos.GetScale(t.Context(), "web", metav1.GetOptions{}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("read the scale: %v, want the error %q", err, want)
	}
	c.kubectl(t, "", "scale", "foo/web", "--replicas=3", "-n", foos.namespace)
	if got := foos.get(t, "web").Spec.Replicas; got == nil || *got != 3 {
		t.Errorf("spec.replicas after kubectl scale = %v, want 3", got)
	}
}

func TestAPISpecAndStatusAreWrittenSeparatelyAndOnlySpecChangesTheGeneration(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1alpha1.FooSpec{DeploymentName: "web"}}
	foo, err := foos.Create(t.Context(), foo, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if foo.Generation != 1 {
		t.Errorf("generation of a new Foo = %d, want 1", foo.Generation)
	}
	spec := foo.Spec

	foo.Spec.Replicas, foo.Status, foo.Labels = new(int32(5)), reported(1), map[string]string{"a": "b"}
	foo, err = foos.UpdateStatus(t.Context(), foo, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, foo.Spec); diff != "" || foo.Generation != 1 || len(foo.Labels) > 0 {
		t.Errorf("a status update has changed more than status: generation %d, labels %v, spec (-want +got):\n%s",
			foo.Generation, foo.Labels, diff)
	}
	if diff := cmp.Diff(reported(1), foo.Status); diff != "" {
		t.Errorf("status (-written +stored):\n%s", diff)
	}

	foo.Labels = map[string]string{"a": "b"}
	foo, err = foos.Update(t.Context(), foo, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if foo.Generation != 1 {
		t.Errorf("generation after a change of labels = %d, want 1", foo.Generation)
	}

	foo.Spec.Replicas, foo.Status = new(int32(5)), v1alpha1.FooStatus{AvailableReplicas: 9}
	foo, err = foos.Update(t.Context(), foo, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reported(1), foo.Status); diff != "" {
		t.Errorf("an update of the spec has changed the status (-want +got):\n%s", diff)
	}
	if *foo.Spec.Replicas != 5 || foo.Generation != 2 {
		t.Errorf("after an update of the spec: %d replicas, generation %d; want 5, 2", *foo.Spec.Replicas, foo.Generation)
	}
}

func TestAPIEveryFieldIsExplained(t *testing.T) {
	c := apiCluster.get(t)
	crd := decode(t, c.kubectl(t, "", "get", crdName, "-o", "json"))
	root := dig[map[string]any](t, crd, "spec", "versions", 0, "schema", "openAPIV3Schema")
	marker := regexp.MustCompile(`(?m)^\s*\+[a-zA-Z]|\+(optional|required|kubebuilder|k8s|listType)`)
	explained := map[string]string{} // By path.
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		description, _ := schema["description"].(string)
		if strings.TrimSpace(description) == "" {
			t.Errorf("%s has no description", path)
		}
		if found := marker.FindString(description); found != "" {
			t.Errorf("the description of %s has the code generators' marker %q in it:\n%s", path, found, description)
		}
		explained[path] = description
		if items, ok := schema["items"].(map[string]any); ok {
			schema = items
		}
		properties, _ := schema["properties"].(map[string]any)
		for name := range properties {
			if path == "foo" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
				continue // These fields are the same for all kinds.
			}
			walk(path+"."+name, dig[map[string]any](t, properties, name))
		}
	}
	walk("foo", root)
	for _, path := range []string{
		"foo.spec.deploymentName", "foo.spec.replicas", "foo.spec.image", "foo.spec.paused", "foo.status.conditions.reason",
	} {
		if explained[path] == "" {
			t.Fatalf("%s is not among the fields: %v", path, explained)
		}
	}

	oneLine := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	// The server publishes schemas asynchronously.
	until(t, "kubectl knows the kind", func(context.Context) (bool, error) {
		_, err := c.try("", "explain", "foo.spec.deploymentName")
		return err == nil, nil
	})
	for path, description := range explained {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if out := c.kubectl(t, "", "explain", path); !strings.Contains(oneLine(out), oneLine(description)) {
				t.Errorf("kubectl explain does not show %q:\n%s", description, out)
			}
		})
	}
}

// dig returns the value at a path of keys and indexes.
func dig[T any](t *testing.T, from any, path ...any) T {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			from = from.(map[string]any)[step]
		case int:
			from = from.([]any)[step]
		}
	}
	found, ok := from.(T)
	if !ok {
		t.Fatalf("at %v is a %T", path, from)
	}
	return found
}

func TestAPICRDIsEstablishedWithoutWarnings(t *testing.T) {
	c := apiCluster.get(t)
	conditions := map[string]string{} // Status by type.
	reasons := map[string]string{}
	crd := decode(t, c.kubectl(t, "", "get", crdName, "-o", "json"))
	for _, condition := range dig[[]any](t, crd, "status", "conditions") {
		kind := dig[string](t, condition, "type")
		conditions[kind], reasons[kind] = dig[string](t, condition, "status"), dig[string](t, condition, "reason")
	}
	want := map[string]string{
		"Established":                           "True",
		"NamesAccepted":                         "True",
		"KubernetesAPIApprovalPolicyConformant": "False",
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("conditions; NonStructuralSchema must not be among them (-want +got):\n%s", diff)
	}
	if got := reasons["KubernetesAPIApprovalPolicyConformant"]; got != "UnapprovedAnnotation" {
		t.Errorf("the API is unapproved for the reason %s, want the reason of its annotation", got)
	}

	// The CRD exists already. With another group, the server handles it as a new one.
	file, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	copied := strings.NewReplacer(
		"foos.samplecontroller.k8s.io", "foos.copy.k8s.io",
		"group: samplecontroller.k8s.io", "group: copy.k8s.io",
	).Replace(string(file))
	const created = "customresourcedefinition.apiextensions.k8s.io/foos.copy.k8s.io created (server dry run)\n"
	if got := c.kubectl(t, copied, "create", "--dry-run=server", "-f", "-"); got != created {
		t.Errorf("kubectl create prints %q, want only %q", got, created)
	}
}

func TestAPITypedClientSupportsAllVerbs(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	ctx := t.Context()
	start, err := foos.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := foos.Watch(ctx, metav1.ListOptions{ResourceVersion: start.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	full := v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(3)), Image: "nginx:1.29", Paused: true}
	created, err := foos.Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: map[string]string{"team": "blue"}},
		Spec:       full,
	}, metav1.CreateOptions{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, created.Spec); diff != "" {
		t.Errorf("create (-sent +answered):\n%s", diff)
	}
	if diff := cmp.Diff(created, foos.get(t, "full")); diff != "" {
		t.Errorf("get (-created +got):\n%s", diff)
	}
	other := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1alpha1.FooSpec{DeploymentName: "other"}}
	if _, err := foos.Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, options := range []metav1.ListOptions{
		{LabelSelector: "team=blue"},
		{FieldSelector: "spec.deploymentName=web"},
		{FieldSelector: "metadata.name=full"},
	} {
		list, err := foos.List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != "full" {
			t.Errorf("list with %+v has %d Foos, want only \"full\"", options, len(list.Items))
		}
	}
	patched, err := foos.Patch(ctx, "full", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/paused","value":false}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if patched.Spec.Paused || patched.Generation != 2 {
		t.Errorf("after a patch: paused %t, generation %d; want false, 2", patched.Spec.Paused, patched.Generation)
	}
	stale := created.DeepCopy()
	stale.Spec.Image = "nginx:stale"
	if _, err := foos.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of a stale Foo: %v, want a conflict", err)
	}
	if _, err := foos.UpdateStatus(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a status update of a stale Foo: %v, want a conflict", err)
	}
	onlyIf := func(uid string) metav1.DeleteOptions {
		return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(uid)}
	}
	if err := foos.Delete(ctx, "full", onlyIf("00000000-0000-0000-0000-000000000000")); !apierrors.IsConflict(err) {
		t.Errorf("delete with another uid: %v, want a conflict", err)
	}
	if err := foos.Delete(ctx, "full", onlyIf(string(created.UID))); err != nil {
		t.Errorf("delete with its uid: %v", err)
	}
	if _, err := foos.Get(ctx, "full", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after delete: %v, want NotFound", err)
	}

	var seen []string
	for event := range events.ResultChan() {
		foo, ok := event.Object.(*v1alpha1.Foo)
		if !ok {
			t.Fatalf("the watch sent a %T: %v", event.Object, event.Object)
		}
		seen = append(seen, fmt.Sprintf("%s %s %s", event.Type, foo.Name, foo.Spec.DeploymentName))
		if event.Type == watch.Deleted {
			break
		}
	}
	if diff := cmp.Diff([]string{"ADDED full web", "ADDED other other", "MODIFIED full web", "DELETED full web"},
		seen); diff != "" {
		t.Errorf("watch (-want +got):\n%s", diff)
	}
}

func TestAPIAbsentFieldsStayAbsentThroughTheTypedClient(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Spec: v1alpha1.FooSpec{DeploymentName: "web"}}
	foo, err := foos.Create(t.Context(), foo, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"deploymentName": "web"}
	for _, test := range []struct {
		spec v1alpha1.FooSpec
		want map[string]any
	}{
		{v1alpha1.FooSpec{}, map[string]any{"metadata": map[string]any{}}},
		{v1alpha1.FooSpec{DeploymentName: "web"}, map[string]any{"metadata": map[string]any{}, "spec": want}},
	} {
		sent, err := json.Marshal(&v1alpha1.Foo{Spec: test.spec})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, decode(t, string(sent))); diff != "" {
			t.Errorf("sent for %+v (-want +got):\n%s", test.spec, diff)
		}
	}
	if diff := cmp.Diff(want, foos.stored(t, "bare", "spec")); diff != "" {
		t.Errorf("spec after create (-want +got):\n%s", diff)
	}
	foo.Status = v1alpha1.FooStatus{Conditions: waitingForController()}
	if foo, err = foos.UpdateStatus(t.Context(), foo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	foo.Annotations = map[string]string{"a": "b"}
	if _, err = foos.Update(t.Context(), foo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, foos.stored(t, "bare", "spec")); diff != "" {
		t.Errorf("spec after updates (-want +got):\n%s", diff)
	}
	status, _ := foos.stored(t, "bare", "status").(map[string]any)
	delete(status, "conditions")
	if diff := cmp.Diff(map[string]any{"replicas": 0.0, "availableReplicas": 0.0}, status); diff != "" {
		t.Errorf("status, which always has both numbers (-want +got):\n%s", diff)
	}
	empty := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}
	_, err = foos.Create(t.Context(), empty, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), specRequired) {
		t.Errorf("create without spec: %v, want the error %q", err, specRequired)
	}
}

func TestAPIApplyOwnsOnlyItsFields(t *testing.T) {
	c := apiCluster.get(t)
	foos := c.foosIn(c.namespace(t))
	apply := func(manager string, spec *applyv1alpha1.FooSpecApplyConfiguration) error {
		_, err := foos.Apply(t.Context(), applyv1alpha1.Foo("web", foos.namespace).WithSpec(spec),
			metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	if err := apply("user",
		applyv1alpha1.FooSpec().WithDeploymentName("web").WithImage("nginx:1.29").WithPaused(true)); err != nil {
		t.Fatal(err)
	}
	if err := apply("autoscaler", applyv1alpha1.FooSpec().WithDeploymentName("web").WithReplicas(3)); err != nil {
		t.Fatal(err)
	}
	if err := apply("autoscaler",
		applyv1alpha1.FooSpec().WithDeploymentName("web").WithImage("nginx:other")); !apierrors.IsConflict(err) {
		t.Errorf("apply of a field of another manager: %v, want a conflict", err)
	}
	if err := apply("user", applyv1alpha1.FooSpec().WithDeploymentName("web").WithPaused(true)); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"deploymentName": "web", "replicas": 3.0, "paused": true}
	if diff := cmp.Diff(want, foos.stored(t, "web", "spec")); diff != "" {
		t.Errorf("spec after image is no longer applied (-want +got):\n%s", diff)
	}
	own, err := applyv1alpha1.ExtractFoo(foos.get(t, "web"), "user")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(applyv1alpha1.FooSpec().WithDeploymentName("web").WithPaused(true), own.Spec); diff != "" {
		t.Errorf("what the user applied (-want +extracted):\n%s", diff)
	}

	condition := func(kind string) *applymetav1.ConditionApplyConfiguration {
		return applymetav1.Condition().WithType(kind).WithStatus(metav1.ConditionTrue).WithReason("Applied").WithMessage("").
			WithLastTransitionTime(metav1.Unix(0, 0))
	}
	for _, kind := range []string{v1alpha1.ConditionReady, "example.com/Checked"} {
		status := applyv1alpha1.FooStatus().WithConditions(condition(kind))
		if _, err := foos.ApplyStatus(t.Context(), applyv1alpha1.Foo("web", foos.namespace).WithStatus(status),
			metav1.ApplyOptions{FieldManager: kind, Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	foo := foos.get(t, "web")
	var types []string
	for _, condition := range foo.Status.Conditions {
		types = append(types, condition.Type+"="+string(condition.Status))
	}
	if diff := cmp.Diff([]string{"Ready=True", "example.com/Checked=True"}, types); diff != "" {
		t.Errorf("conditions of two managers, each of which applied one (-want +got):\n%s", diff)
	}
}
