package v1alpha1_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
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
			name: "a list in place of a time",
			have: `"lastTransitionTime": "2026-01-01T00:00:01Z"`, by: `"lastTransitionTime": ["x"]`,
			want: []v1alpha1.UnreadField{{
				Path: "status.conditions[1].lastTransitionTime", Value: `["x"]`, Want: time,
			}},
			lost: func(foo *v1alpha1.Foo) { foo.Status.Conditions[1].LastTransitionTime = metav1.Time{} },
		},
		{
			name: "a word in place of a number",
			have: `"replicas": 3, "image"`, by: `"replicas": "three", "image"`,
			want: []v1alpha1.UnreadField{{Path: "spec.replicas", Value: `"three"`, Want: i32}},
			lost: func(foo *v1alpha1.Foo) { foo.Spec.Replicas = nil },
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

// TestEveryFieldMayHaveAValueOfAnotherType replaces each value of a Foo in turn, so that a new field is tested too.
func TestEveryFieldMayHaveAValueOfAnotherType(t *testing.T) {
	var whole any
	if err := json.Unmarshal([]byte(wholeFoo), &whole); err != nil {
		t.Fatal(err)
	}
	fields, tested := map[string]bool{}, 0
	places(whole, "", func(path string, have any, replace func(any)) {
		fields[path] = true
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
	for _, name := range fieldNames(reflect.TypeFor[v1alpha1.Foo](), "") {
		if !fields[name] {
			t.Errorf("the whole Foo has no %s: add it", name)
		}
	}
}

// fieldNames returns the names of the fields of t in JSON. Of a list it returns those of the first item.
func fieldNames(t reflect.Type, path string) []string {
	switch {
	case t.Kind() == reflect.Pointer:
		return fieldNames(t.Elem(), path)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return fieldNames(t.Elem(), path+"[0]")
	case t.Kind() != reflect.Struct, t == reflect.TypeFor[metav1.Time](), t == reflect.TypeFor[metav1.FieldsV1]():
		return []string{path}
	}
	var names []string
	for field := range t.Fields() {
		switch name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name {
		case "-":
		case "":
			names = append(names, fieldNames(field.Type, path)...)
		default:
			names = append(names, fieldNames(field.Type, strings.TrimPrefix(path+"."+name, "."))...)
		}
	}
	return names
}

func TestAFooThatCanBeDecodedHasNothingUnread(t *testing.T) {
	foo := &v1alpha1.Foo{Unread: []v1alpha1.UnreadField{{Path: "spec.image"}}} // Of what was decoded into it before.
	if err := json.Unmarshal([]byte(wholeFoo), foo); err != nil || foo.Unread != nil {
		t.Errorf("error %v, Unread %v", err, foo.Unread)
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

func TestWhatIsNoObjectIsAnError(t *testing.T) {
	for _, data := range []string{`"web"`, `5`, `[]`, `true`, `{`, ``} {
		if err := json.Unmarshal([]byte(data), &v1alpha1.Foo{}); err == nil {
			t.Errorf("%s was decoded", data)
		}
		if err := (&v1alpha1.Foo{}).UnmarshalJSON([]byte(data)); err == nil {
			t.Errorf("%s was decoded without its decoder", data)
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

type roundTripper func(*http.Request) string

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		Body: io.NopCloser(strings.NewReader(f(request))),
	}, nil
}

// The generated client must use UnmarshalJSON for each way in which a Foo arrives.
func TestListsAndWatchesGoOnBehindAFooThatCannotBeDecoded(t *testing.T) {
	good := strings.ReplaceAll(wholeFoo, `"name": "web"`, `"name": "good"`)
	bad := strings.ReplaceAll(wholeFoo, "2026-01-01T00:00:01Z", unreadTime)
	client := clientset.NewForConfigOrDie(&rest.Config{Transport: roundTripper(func(request *http.Request) string {
		switch {
		case request.URL.Query().Get("watch") != "":
			return `{"type":"ADDED","object":` + bad + `}{"type":"ADDED","object":` + good + `}`
		case strings.HasSuffix(request.URL.Path, "/foos"):
			return `{"kind":"FooList","apiVersion":"samplecontroller.k8s.io/v1alpha1","metadata":{"resourceVersion":"9"},
				"items":[` + bad + "," + good + `]}`
		}
		return bad
	})})
	foos := client.SamplecontrollerV1alpha1().Foos("default")
	check := func(how string, foo *v1alpha1.Foo, unread bool) {
		t.Helper()
		if (len(foo.Unread) == 1) != unread || foo.Spec.DeploymentName != "web" || foo.UID != "u" {
			t.Errorf("%s: %+v", how, foo)
		}
	}
	one, err := foos.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	check("get", one, true)
	list, err := foos.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("list: %v, %v", list, err)
	}
	check("list", &list.Items[0], true)
	check("list", &list.Items[1], false)
	watcher, err := foos.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	defer watcher.Stop()
	for i := range 2 {
		event := <-watcher.ResultChan()
		foo, ok := event.Object.(*v1alpha1.Foo)
		if !ok || event.Type != watch.Added {
			t.Fatalf("watch: event %d is %v", i, event)
		}
		check("watch", foo, i == 0)
	}
}

// BenchmarkDecode decodes an ordinary Foo as informers do. "without" is a type that does not have UnmarshalJSON.
func BenchmarkDecode(b *testing.B) {
	foo := decode(b, wholeFoo)
	foo.DeletionTimestamp, foo.ManagedFields = nil, nil
	list := v1alpha1.FooList{Items: make([]v1alpha1.Foo, 100)}
	for i := range list.Items {
		list.Items[i] = *foo
	}
	one, _ := json.Marshal(foo)
	all, _ := json.Marshal(&list)
	type plain v1alpha1.Foo
	for _, bench := range []struct {
		name string
		data []byte
		into func() any
	}{
		{"one/with", one, func() any { return new(v1alpha1.Foo) }},
		{"one/without", one, func() any { return new(plain) }},
		{"list/with", all, func() any { return new(v1alpha1.FooList) }},
		{"list/without", all, func() any {
			return new(struct {
				Items []plain `json:"items"`
			})
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := json.Unmarshal(bench.data, bench.into()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
