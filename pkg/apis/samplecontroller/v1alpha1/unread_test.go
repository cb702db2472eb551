package v1alpha1_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/generated/clientset/versioned/scheme"
)

// wholeFoo is a Foo as the API server sends it, with a value in each field.
const wholeFoo = `{
	"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
	"metadata": {
		"name": "web", "generateName": "w", "namespace": "default", "selfLink": "/x", "uid": "u", "resourceVersion": "7",
		"generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
		"deletionGracePeriodSeconds": 3, "labels": {"a": "b", "c": "d"}, "annotations": {"e": "f"},
		"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "p", "controller": true,
			"blockOwnerDeletion": true}],
		"finalizers": ["example.com/one", "example.com/two"],
		"managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
			"fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}, "subresource": "status"}]
	},
	"spec": {"deploymentName": "web", "replicas": 3, "image": "nginx:1.29", "paused": true},
	"status": {
		"observedGeneration": 2, "replicas": 3, "availableReplicas": 2, "selector": "app=nginx",
		"conditions": [
			{"type": "Ready", "status": "True", "reason": "Available", "message": "3 of 3", "observedGeneration": 2,
				"lastTransitionTime": "2026-01-01T00:00:00Z"},
			{"type": "Other", "status": "False", "reason": "Reason", "message": "", "observedGeneration": 1,
				"lastTransitionTime": "2026-01-01T00:00:01Z"}
		]
	}
}`

// unreadTime is a time that API servers took for the format date-time.
const unreadTime = "2020-01-01t00:00:00z"

func decode(t testing.TB, data string) *v1alpha1.Foo {
	t.Helper()
	foo := &v1alpha1.Foo{}
	if err := json.Unmarshal([]byte(data), foo); err != nil {
		t.Fatal(err)
	}
	return foo
}

func TestAFieldThatCannotBeDecodedIsNotedAndAllOthersAreKept(t *testing.T) {
	const time = `a time such as "2026-01-31T12:00:00Z"`
	const i32, i64 = "an integer of at most 32 bits", "an integer of at most 64 bits"
	for _, test := range []struct {
		name     string
		have, by string // What is replaced in wholeFoo.
		want     []v1alpha1.UnreadField
		lost     func(*v1alpha1.Foo) // Takes from the whole Foo what is expected to be lost.
	}{
		{
			name: "a time in a condition",
			have: `"lastTransitionTime": "2026-01-01T00:00:00Z"`, by: `"lastTransitionTime": "` + unreadTime + `"`,
			want: []v1alpha1.UnreadField{{
				Path: "status.conditions[0].lastTransitionTime", Value: `"` + unreadTime + `"`, Want: time,
			}},
			lost: func(foo *v1alpha1.Foo) { foo.Status.Conditions[0].LastTransitionTime = metav1.Time{} },
		},
		{
			name: "numbers that are too large",
			have: `"observedGeneration": 2, "replicas": 3`,
			by:   `"observedGeneration": 9223372036854775808, "replicas": 2147483648`,
			want: []v1alpha1.UnreadField{
				{Path: "status.observedGeneration", Value: `9223372036854775808`, Want: i64},
				{Path: "status.replicas", Value: `2147483648`, Want: i32},
			},
			lost: func(foo *v1alpha1.Foo) { foo.Status.ObservedGeneration, foo.Status.Replicas = 0, 0 },
		},
		{
			name: "a word in place of true",
			have: `"paused": true`, by: `"paused": "yes"`,
			want: []v1alpha1.UnreadField{{Path: "spec.paused", Value: `"yes"`, Want: "true or false"}},
			lost: func(foo *v1alpha1.Foo) { foo.Spec.Paused = false },
		},
		{
			name: "items of lists and values of maps",
			have: `"labels": {"a": "b", "c": "d"}`, by: `"labels": {"a": 1, "c": "d"}, "finalizers": 5`,
			want: []v1alpha1.UnreadField{{Path: `metadata.labels["a"]`, Value: `1`, Want: "a string"}},
			lost: func(foo *v1alpha1.Foo) { delete(foo.Labels, "a") },
		},
		{
			name: "an item of a list",
			have: `"finalizers": ["example.com/one", "example.com/two"]`, by: `"finalizers": [{}, "example.com/two"]`,
			want: []v1alpha1.UnreadField{{Path: `metadata.finalizers[0]`, Value: `{}`, Want: "a string"}},
			lost: func(foo *v1alpha1.Foo) { foo.Finalizers = foo.Finalizers[1:] },
		},
		{
			name: "the whole spec, which is long",
			have: `"spec": {"deploymentName": "web", "replicas": 3, "image": "nginx:1.29", "paused": true}`,
			by:   `"spec": "` + strings.Repeat("é", 100) + `"`,
			want: []v1alpha1.UnreadField{{Path: "spec", Value: `"` + strings.Repeat("é", 31) + "...", Want: "an object"}},
			lost: func(foo *v1alpha1.Foo) { foo.Spec = v1alpha1.FooSpec{} },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := strings.Replace(wholeFoo, test.have, test.by, 1)
			if data == wholeFoo {
				t.Fatalf("the whole Foo has no %s", test.have)
			}
			want := decode(t, wholeFoo)
			test.lost(want)
			want.Unread = test.want
			if diff := cmp.Diff(want, decode(t, data)); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

// places calls do with each place in value, which is decoded JSON, and a function that replaces what is there.
func places(value any, path string, do func(path string, have any, replace func(any))) {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			at := strings.TrimPrefix(path+"."+key, ".")
			if strings.HasSuffix(path, "labels") || strings.HasSuffix(path, "annotations") {
				at = fmt.Sprintf("%s[%q]", path, key)
			}
			do(at, below, func(other any) { value[key] = other })
			if key != "fieldsV1" { // Takes everything, like a map of any values.
				places(below, at, do)
			}
		}
	case []any:
		for i, below := range value {
			at := fmt.Sprintf("%s[%d]", path, i)
			do(at, below, func(other any) { value[i] = other })
			places(below, at, do)
		}
	}
}

// TestEveryFieldMayHaveAValueOfAnotherType replaces each value of a Foo in turn.
func TestEveryFieldMayHaveAValueOfAnotherType(t *testing.T) {
	var whole any
	if err := json.Unmarshal([]byte(wholeFoo), &whole); err != nil {
		t.Fatal(err)
	}
	tested := 0
	places(whole, "", func(path string, have any, replace func(any)) {
		defer replace(have)
		for _, other := range []any{true, "x", 1.5, []any{[]any{}}, map[string]any{"x": map[string]any{}}} {
			replace(other)
			data, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			type plain v1alpha1.Foo
			foo := decode(t, string(data))
			if json.Unmarshal(data, new(plain)) == nil {
				if foo.Unread != nil {
					t.Errorf("%s=%v can be decoded, and Unread has %v", path, other, foo.Unread)
				}
				continue
			}
			tested++
			if len(foo.Unread) == 0 || !strings.HasPrefix(foo.Unread[0].Path, path) {
				t.Errorf("%s=%v cannot be decoded, and Unread has %v", path, other, foo.Unread)
			}
			if foo.Name != "web" && !strings.HasPrefix("metadata.name", path) {
				t.Errorf("%s=%v: the name is lost", path, other)
			}
			replace(have)
			whole := decode(t, wholeFoo)
			if foo.Spec.DeploymentName != whole.Spec.DeploymentName && !strings.HasPrefix("spec.deploymentName", path) ||
				foo.Status.Selector != whole.Status.Selector && !strings.HasPrefix("status.selector", path) {
				t.Errorf("%s=%v: other fields are lost: %+v", path, other, foo)
			}
		}
	})
	if tested < 100 {
		t.Errorf("only %d values could not be decoded", tested)
	}
}

func TestAFooThatCanBeDecodedHasNothingUnreadAndWhatIsNoObjectIsAnError(t *testing.T) {
	foo := &v1alpha1.Foo{Unread: []v1alpha1.UnreadField{{Path: "spec.image"}}} // Of what was decoded into it before.
	if err := json.Unmarshal([]byte(wholeFoo), foo); err != nil || foo.Unread != nil {
		t.Errorf("error %v, Unread %v", err, foo.Unread)
	}
	for _, data := range []string{`"web"`, `[]`, `{`} {
		if err := foo.UnmarshalJSON([]byte(data)); err == nil {
			t.Errorf("%s was decoded", data)
		}
	}
}

// The names of fields count as they are written, for a Foo that can be decoded and for one that cannot.
func TestFieldsWithCapitalsAreOthers(t *testing.T) {
	for _, replicas := range []string{"1", `"one"`} {
		foo := decode(t, `{"Metadata":{"name":"other"},"metadata":{"name":"web","Name":"other"},
			"spec":{"deploymentName":"web","DeploymentName":"other","replicas":`+replicas+`},"SPEC":{"image":"other"}}`)
		if foo.Name != "web" || foo.Spec.DeploymentName != "web" || foo.Spec.Image != "" {
			t.Errorf("with %s replicas, it is %+v", replicas, foo)
		}
	}
}

// What was not decoded stays with all copies of the Foo, makes it different from others, and is not sent.
func TestWhatIsUnreadIsCopiedAndComparedAndNotSent(t *testing.T) {
	foo := decode(t, `{"metadata":{"name":"web"},"spec":{"deploymentName":"web","replicas":"three"}}`)
	clean := decode(t, `{"metadata":{"name":"web"},"spec":{"deploymentName":"web"}}`)
	copied := foo.DeepCopy()
	if !equality.Semantic.DeepEqual(foo, copied) || len(copied.Unread) != 1 || &copied.Unread[0] == &foo.Unread[0] {
		t.Errorf("a copy of %+v is %+v", foo, copied)
	}
	if equality.Semantic.DeepEqual(foo, clean) {
		t.Error("a Foo that could not be decoded is equal to one that could")
	}
	sent, err := runtime.Encode(scheme.Codecs.LegacyCodec(schema.GroupVersion(v1alpha1.GroupVersion)), foo)
	if err != nil || bytes.Contains(sent, []byte("nread")) || bytes.Contains(sent, []byte("three")) {
		t.Errorf("sent as %s, %v", sent, err)
	}
}
