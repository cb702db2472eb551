package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/generated/clientset/versioned/scheme"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

// values is the number of values to store in Foos.
var values = fromEnvironment("CONFORMANCE_VALUES", 500)

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.samplecontroller.k8s.io"

// fooFields returns the fields of Foos: those of the schema that the server has, and those of metadata.
func fooFields(t *testing.T, s server) []field {
	t.Helper()
	body, code := (&writer{server: s}).send(t.Context(), http.MethodGet, crdPath, "", nil)
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Schema *openAPI `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(body, &crd); err != nil || code != http.StatusOK {
		t.Fatalf("read the CustomResourceDefinition: %d, %v", code, err)
	}
	root := crd.Spec.Versions[0].Schema.Schema
	root.Properties["metadata"] = schemaOfType(reflect.TypeFor[metav1.ObjectMeta]())
	return fieldsOf(root)[1:] // Without the object itself.
}

// TestEveryFieldHasAGeneratorOfValues fails for a new field whose type the search does not know.
func TestEveryFieldHasAGeneratorOfValues(t *testing.T) {
	fields := fooFields(t, againstRealServer(t))
	for _, field := range fields {
		if generatorOf(field) == nil {
			t.Errorf("%s is of type %q, format %q: write a generator of values for it", field, field.schema.Type,
				field.schema.Format)
		}
	}
	for _, want := range []string{
		"spec.replicas", "status.conditions.0.lastTransitionTime", "metadata.labels.key", "metadata.managedFields.0.time",
	} {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.String() == want }) {
			t.Errorf("the search does not find %s", want)
		}
	}
}

// TestEverythingThatTheServerStoresCanBeRead stores values at and beyond the edges of each field, in every way in which
// a client can write. Whatever the server accepts, the Go type must decode, and the controller must be able to write a
// status to it.
func TestEverythingThatTheServerStoresCanBeRead(t *testing.T) {
	s := againstRealServer(t)
	found := &findings{accepted: map[string]int{}, unreadable: map[string][]string{}}
	defer found.report(t)
	fields := fooFields(t, s)
	var writers sync.WaitGroup
	for shard := range shards {
		w := &writer{
			server: s, namespace: "default", name: fmt.Sprintf("%s-%d", newNamespace(), shard), findings: found,
			random: rand.New(rand.NewPCG(1, uint64(shard))),
		}
		writers.Go(func() { w.write(t, fields, (values+shards-1)/shards) })
	}
	writers.Wait()
	if t.Failed() {
		return
	}
	list, code := (&writer{server: s}).send(t.Context(), http.MethodGet, foos.path("default"), "", nil)
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(list, nil, &v1alpha1.FooList{}); err != nil ||
		code != http.StatusOK {
		t.Errorf("a list of all of them: %d, %v", code, err)
	}
	for _, field := range fields {
		if found.accepted[field.String()] == 0 && values >= 200*len(fields) {
			t.Errorf("no value of %s was accepted: the search does not test it", field)
		}
	}
}

// findings are what the writers have found. They may be used concurrently.
type findings struct {
	mu         sync.Mutex
	accepted   map[string]int // By field.
	refused    int
	unreadable map[string][]string
	statuses   int // How many values were followed by a status of the controller.
}

// add counts the values of one write. problem is why they are unreadable, or "".
func (f *findings) add(changed []string, accepted bool, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, change := range changed {
		name, _, _ := strings.Cut(change, "=")
		if !accepted {
			f.refused++
			continue
		}
		f.accepted[name]++
	}
	if problem != "" {
		f.unreadable[problem] = append(f.unreadable[problem], strings.Join(changed, " and "))
	}
}

func (f *findings) report(t *testing.T) {
	t.Helper()
	bad := 0
	for _, problem := range slices.Sorted(maps.Keys(f.unreadable)) {
		at := f.unreadable[problem]
		bad += len(at)
		slices.SortFunc(at, func(a, b string) int { return len(a) - len(b) })
		t.Errorf("%d times: %s\n\t%.400s", len(at), problem, strings.Join(at[:min(len(at), 4)], "\n\t"))
	}
	accepted := 0
	for _, count := range f.accepted {
		accepted += count
	}
	t.Logf("%d values accepted, %d refused, %d of them unreadable; %d statuses written to odd ones", accepted, f.refused,
		bad, f.statuses)
}

// A writer writes odd values to Foos of its own.
type writer struct {
	server          server
	namespace, name string
	random          *rand.Rand
	*findings
	// version and uid are those of the Foo that exists, or empty.
	version, uid string
	created      int
}

// write writes n odd values.
func (w *writer) write(t *testing.T, fields []field, n int) {
	ctx := t.Context()
	for i := range n {
		if i%100 == 0 || w.version == "" { // What is left of earlier values must not decide on the answers.
			w.startOver(ctx, t)
		}
		object := any(w.usual())
		var changed []string
		var last field
		for range 1 + w.random.IntN(4)/3 {
			last = anyOf(w.random, fields...)
			if last.path[0] == "metadata" && w.random.IntN(2) == 0 { // It has the most fields, and the server knows them.
				last = anyOf(w.random, fields...)
			}
			value := valueFor(w.random, last)
			object = put(object, last.path, value)
			changed = append(changed, fmt.Sprintf("%s=%s", last, value))
		}
		w.writeOne(ctx, object.(map[string]any), last, changed)
		if t.Failed() {
			return
		}
	}
}

// startOver creates the usual Foo under a new name.
func (w *writer) startOver(ctx context.Context, t *testing.T) {
	w.created++
	w.version, w.uid = "", ""
	body, code := w.send(ctx, http.MethodPost, w.path(false), "", encode(w.usual()))
	if code != http.StatusCreated {
		t.Errorf("create the usual Foo: %d %s", code, body)
		return
	}
	w.note(body)
	if body, code := w.send(ctx, http.MethodPut, w.path(true)+"/status", "", encode(w.usual())); code == http.StatusOK {
		w.note(body)
	}
}

// usual returns a Foo with all fields.
func (w *writer) usual() map[string]any {
	metadata := map[string]any{
		"name": fmt.Sprintf("%s-%d", w.name, w.created), "namespace": w.namespace,
		"labels": map[string]any{"key": "value"}, "annotations": map[string]any{"key": "value"},
		"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}},
	}
	if w.version != "" {
		metadata["resourceVersion"], metadata["uid"] = w.version, w.uid
	}
	return map[string]any{
		"apiVersion": foos.apiVersion(), "kind": "Foo", "metadata": metadata,
		"spec": map[string]any{"deploymentName": "web", "replicas": 1, "image": "nginx:1.29", "paused": false},
		"status": map[string]any{
			"observedGeneration": 1, "replicas": 1, "availableReplicas": 1, "selector": "app=nginx",
			"conditions": []any{map[string]any{
				"type": "Other", "status": "True", "reason": "Reason", "message": "", "observedGeneration": 1,
				"lastTransitionTime": "2020-01-01T00:00:00Z",
			}},
		},
	}
}

// writeOne sends an object with odd values in one of the ways that a client has, and reads what the server stored. last
// is the field with the last of them.
func (w *writer) writeOne(ctx context.Context, object map[string]any, last field, changed []string) {
	path := w.path(true)
	if last.path[0] == "status" {
		path += "/status"
	}
	method, contentType := http.MethodPatch, ""
	switch how := w.random.IntN(10); {
	case how == 0 && last.path[0] != "status":
		w.created++
		method, path = http.MethodPost, w.path(false)
		w.rename(object, last)
	case how < 5:
		method = http.MethodPut
	case how < 8:
		contentType = mergePatch
		w.rename(object, last)
	case how == 8:
		path += "?fieldManager=odd&force=true"
		contentType = applyPatch
		w.rename(object, last)
	default:
		contentType = jsonPatch
		changed = changed[len(changed)-1:]
	}
	content := encode(object)
	if contentType == jsonPatch {
		content = patchOf(last, changed[0])
	}
	body, code := w.send(ctx, method, path, contentType, content)
	if method == http.MethodPost {
		w.version = "" // It may have another name: start over.
	}
	if code >= http.StatusMultipleChoices || code == 0 {
		w.add(changed, false, "")
		return
	}
	if method != http.MethodPost {
		w.note(body)
	}
	problem := w.read(ctx, body)
	w.add(changed, true, problem)
	if problem != "" { // It stays in the Foo whatever else is written.
		w.version = ""
	}
}

// rename gives object the name of the present Foo and no resourceVersion, unless last is one of these.
func (w *writer) rename(object map[string]any, last field) {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return
	}
	if last.String() != "metadata.name" {
		metadata["name"] = fmt.Sprintf("%s-%d", w.name, w.created)
	}
	if last.String() != "metadata.resourceVersion" {
		delete(metadata, "resourceVersion")
	}
}

// patchOf returns a JSON patch of one field. change is "field=value".
func patchOf(f field, change string) []byte {
	_, value, _ := strings.Cut(change, "=")
	pointer := quote("/" + strings.Join(f.path, "/"))
	if value == "" {
		return []byte(`[{"op":"remove","path":` + pointer + `}]`)
	}
	return []byte(`[{"op":"add","path":` + pointer + `,"value":` + value + `}]`)
}

// read decodes what the server stored. It returns what is wrong, or "".
func (w *writer) read(ctx context.Context, stored []byte) string {
	type plain v1alpha1.Foo // Has no UnmarshalJSON, which might accept more.
	var foo plain
	if err := utiljson.Unmarshal(stored, &foo); err != nil {
		return "cannot be decoded: " + withoutValues(err)
	}
	if foo.DeletionTimestamp != nil || foo.UID == "" {
		return ""
	}
	var have struct{ Status json.RawMessage }
	again, err := json.Marshal(&foo.Status)
	if err != nil || json.Unmarshal(stored, &have) != nil {
		return fmt.Sprintf("cannot be encoded: %v", err)
	}
	if reflect.DeepEqual(treeOf(have.Status, "application/json"), treeOf(again, "application/json")) {
		return ""
	}
	return w.reportOn(ctx, (*v1alpha1.Foo)(&foo))
}

// reportOn writes the status that the controller reports of a Foo. It returns why that fails, or "".
func (w *writer) reportOn(ctx context.Context, foo *v1alpha1.Foo) string {
	at := time.Unix(1700000000, 0)
	sync := plan.Foos.Sync(&plan.Input{Foo: foo})
	sync.Begin(reconcile.Memory{}, at, 0)
	step := sync.Next()
	for ; step != nil && step.Verb != reconcile.UpdateStatus; step = sync.Next() {
		answer, _ := plan.Trim(step.Body)
		obj, _ := answer.(metav1.Object)
		sync.Record(step, reconcile.Reply{Object: obj}, at)
	}
	if step == nil {
		return ""
	}
	w.mu.Lock()
	w.statuses++
	w.mu.Unlock()
	path := foos.path(foo.Namespace) + "/" + foo.Name + "/status?dryRun=All"
	patch, err := step.StatusPatch()
	if err != nil {
		return err.Error()
	}
	if body, code := w.send(ctx, http.MethodPatch, path, string(types.JSONPatchType), patch); code != http.StatusOK &&
		code != http.StatusConflict {
		var status metav1.Status
		_ = json.Unmarshal(body, &status) // Then the message is empty.
		return fmt.Sprintf("cannot be reported on: %d %s", code, withoutValues(fmt.Errorf("%s", status.Message)))
	}
	return ""
}

// withoutValues returns the message of err without what differs from value to value.
func withoutValues(err error) string {
	message := err.Error()
	if _, after, found := strings.Cut(message, "is invalid: "); found {
		message = after
	}
	if before, _, found := strings.Cut(message, ": Invalid value"); found {
		return before + ": Invalid value"
	}
	if i := strings.Index(message, `"`); i >= 0 {
		return message[:i]
	}
	return message
}

// note keeps the version of the Foo in a response, so that the next update has it.
func (w *writer) note(body []byte) {
	var foo struct {
		Metadata struct{ UID, ResourceVersion string }
	}
	if json.Unmarshal(body, &foo) == nil {
		w.version, w.uid = foo.Metadata.ResourceVersion, foo.Metadata.UID
	}
}

// path returns the path of the Foo, or of all Foos of the namespace.
func (w *writer) path(one bool) string {
	path := foos.path(w.namespace)
	if one {
		path += fmt.Sprintf("/%s-%d", w.name, w.created)
	}
	return path
}

// send sends a request and returns the body and the code of the answer, which is 0 without an answer.
func (w *writer) send(ctx context.Context, method, path, contentType string, body []byte) ([]byte, int) {
	response, err := (&player{server: w.server}).request(ctx, method, path, cmp.Or(contentType, plainJSON), body)
	if err != nil {
		return []byte(err.Error()), 0
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return []byte(err.Error()), 0
	}
	return content, response.StatusCode
}

// encode returns object as JSON. Numbers and strings in it may be in any form that JSON has, as a json.RawMessage.
func encode(object any) []byte {
	encoded, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return encoded
}

// An openAPI is the part of an OpenAPI schema that decides which values a field has.
type openAPI struct {
	Type       string              `json:"type"`
	Format     string              `json:"format"`
	Properties map[string]*openAPI `json:"properties"`
	Items      *openAPI            `json:"items"`
	Values     *openAPI            `json:"additionalProperties"`
}

// A field is a place in an object. Its path has the names of the fields above it, 0 for the first item of a list, and
// "key" for a value of a map.
type field struct {
	path   []string
	schema *openAPI
}

func (f field) String() string { return strings.Join(f.path, ".") }

// fieldsOf returns the field at path with all fields below it, in the order of their names.
func fieldsOf(s *openAPI, path ...string) []field {
	fields := []field{{path: path, schema: s}}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		fields = append(fields, fieldsOf(s.Properties[name], append(slices.Clone(path), name)...)...)
	}
	if s.Items != nil {
		fields = append(fields, fieldsOf(s.Items, append(slices.Clone(path), "0")...)...)
	}
	if s.Values != nil {
		fields = append(fields, fieldsOf(s.Values, append(slices.Clone(path), "key")...)...)
	}
	return fields
}

// schemaOfType returns the schema of a Go type. The schemas of custom resources do not have the fields of metadata.
func schemaOfType(t reflect.Type) *openAPI {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return &openAPI{Type: "string", Format: "date-time"}
	case reflect.TypeFor[metav1.FieldsV1]():
		return &openAPI{Type: "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOfType(t.Elem())
	case reflect.Slice:
		return &openAPI{Type: "array", Items: schemaOfType(t.Elem())}
	case reflect.Map:
		return &openAPI{Type: "object", Values: schemaOfType(t.Elem())}
	case reflect.Struct:
		s := &openAPI{Type: "object", Properties: map[string]*openAPI{}}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			s.Properties[name] = schemaOfType(f.Type)
		}
		return s
	case reflect.Bool:
		return &openAPI{Type: "boolean"}
	case reflect.String:
		return &openAPI{Type: "string"}
	case reflect.Int64:
		return &openAPI{Type: "integer", Format: "int64"}
	}
	panic(fmt.Sprintf("no schema for %v: write one", t))
}

// generators have, by type and format, the values of a field at and beyond the edges of what it accepts, as JSON.
var generators = map[string]func(*rand.Rand) string{
	"integer int32":    numbers(31),
	"integer int64":    numbers(63),
	"string ":          words,
	"string date-time": func(r *rand.Rand) string { return quote(oddTime(r)) },
	"boolean ":         choice("true", "false", `"true"`, "0", "1"),
	"array ":           choice("[]", "[null]", "[[]]", "[{}]", "{}", `"[]"`),
	"object ":          choice("{}", `{"a":null}`, `{"":{}}`, `{"key":1}`, "[]", `"{}"`),
}

// generatorOf returns the generator of a field, nil if nobody has written one.
func generatorOf(f field) func(*rand.Rand) string {
	return generators[f.schema.Type+" "+f.schema.Format]
}

// odd are values that may be of another type than the field. The empty one removes the field.
var odd = choice("", "null", "true", "0", "-1", "1.5", `""`, `"x"`, "[]", "{}", `["x"]`, `{"key":"x"}`)

// valueFor returns a value for a field, as JSON, or "" to remove it.
func valueFor(r *rand.Rand, f field) string {
	if r.IntN(8) == 0 {
		return odd(r)
	}
	return generatorOf(f)(r)
}

func choice(values ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return anyOf(r, values...) }
}

func anyOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// mostly returns the first value in four of five cases, otherwise one of the others.
func mostly(r *rand.Rand, usual string, others ...string) string {
	if r.IntN(5) > 0 {
		return usual
	}
	return anyOf(r, others...)
}

// quote returns a string as JSON. Unlike json.Marshal, it keeps bytes that are not UTF-8.
func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\n", `\n`, "\x00", `\u0000`).Replace(s) + `"`
}

// numbers returns a generator of integers near the limits of an integer with so many bits, and of other numbers, in all
// forms that JSON has for them.
func numbers(bits int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(3) == 0 {
			return anyOf(r, "0", "-0", "1", "3.0", "1e0", "1E3", "10e-1", "0.0", "1e3", "1.5", "1e-400", "0e400", "1e18",
				"1e19", "9.3e18", "1e21", "1e22", "-1e18", "1e400", strings.Repeat("9", 400),
				"0."+strings.Repeat("0", 400)+"1")
		}
		edge := anyOf(r, 1<<r.IntN(64), uint64(1)<<bits, 1<<31, 1<<32, 1<<53, 1<<63)
		near := edge + uint64(r.IntN(5)) - 2
		if r.IntN(3) == 0 {
			near = edge + uint64(r.IntN(5000)) - 2500
		}
		digits := anyOf(r, "", "-") + strconv.FormatUint(max(near, 1), 10) // JSON has no 00.
		return digits + mostly(r, "", ".0", ".5", "e0", "E+0", "0", ".000000001")
	}
}

// words returns strings of all kinds. Some are valid names, images, reasons or types.
func words(r *rand.Rand) string {
	switch r.IntN(4) {
	case 0:
		return anyOf(r, `"\ud800"`, `"\ud83d\ude00"`, `"\u0000"`, `"a\u0000b"`, `"\u2028"`, `"\ufeff"`, `"\uffff"`,
			"\"\xff\xfe\"", "\"a\xc0\x80\"", `"\/"`, `"\t"`, `"\u007f"`, `"\u0085"`, `"é"`, `"e\u0301"`, `"\u202e"`)
	case 1:
		n := anyOf(r, 0, 1, 63, 64, 253, 254, 316, 317, 1023, 1024, 1025, 32767, 32768, 32769)
		return quote(strings.Repeat(anyOf(r, "a", "é", "A", "😀", " "), n))
	case 2:
		return quote(anyOf(r, "null", "true", "0", "1e3", "<>&", "{}", "%s", "a b", "a/b", "example.com/A", "../..",
			oddTime(r)))
	}
	return quote(anyOf(r, "web", "web-1", "True", "False", "Unknown", "Ready", "Stalled", "Available", "nginx:1.29",
		"Apply", "Update", "FieldsV1", "v1", "samplecontroller.k8s.io/v1alpha1", "ConfigMap", "app=nginx"))
}

// oddTime returns a time in one of the forms that readers of RFC 3339 do not agree on.
func oddTime(r *rand.Rand) string {
	year := mostly(r, "2020", "0000", "0001", "0999", "1969", "1970", "9998", "9999", "10000", "20", "-001", "+2020")
	month := mostly(r, anyOf(r, "01", "02", "04", "12"), "00", "13", "1")
	day := mostly(r, anyOf(r, "01", "28", "31"), "00", "29", "30", "32", "1")
	date := year + "-" + month + "-" + day
	clock := mostly(r, anyOf(r, "00", "23"), "24", "25", "7") + ":" +
		mostly(r, anyOf(r, "00", "59"), "60", "61") + ":" + mostly(r, anyOf(r, "00", "59"), "60", "61", "")
	fraction := mostly(r, "", ".0", ".5", ".999999999", ".9999999999", "."+strings.Repeat("7", 40), ",5", ":5", "x5", "5",
		".", "é5")
	zone := mostly(r, "Z", "z", "+00:00", "-00:00", "+01:00", "+14:00", "-12:34", "+23:59", "-23:59", "+24:00", "+24:59",
		"+24:60", "+25:00", "+99:99", "-99:00", "+0000", "+00", "", " Z", "Zt", "ZT00:00:00Z", "Ztail", "\n", "é")
	if r.IntN(50) == 0 {
		layout := anyOf(r, time.RFC3339Nano, time.RFC1123, time.DateTime, time.UnixDate)
		return time.UnixMilli(r.Int64N(1 << 45)).UTC().Format(layout)
	}
	return date + mostly(r, "T", "t", " ", "_", "TT", "") + clock + fraction + zone
}

// put returns object with value, which is JSON, at path. It creates what is missing above it. An empty value removes
// the field.
func put(object any, path []string, value string) any {
	if len(path) == 0 {
		return json.RawMessage(value)
	}
	name, rest := path[0], path[1:]
	if list, ok := object.([]any); ok || name == "0" {
		if len(list) == 0 {
			list = []any{nil}
		}
		if len(rest) == 0 && value == "" {
			return list[1:]
		}
		list[0] = put(list[0], rest, value)
		return list
	}
	fields, ok := object.(map[string]any)
	if !ok {
		fields = map[string]any{}
	}
	if len(rest) == 0 && value == "" {
		delete(fields, name)
		return fields
	}
	fields[name] = put(fields[name], rest, value)
	return fields
}
