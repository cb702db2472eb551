package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
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

// valuesVariable is the environment variable for -values.
const valuesVariable = "CONFORMANCE_VALUES"

var values = flag.Int("values", 500, "values to store in Foos; "+valuesVariable+" has precedence")

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
	n := *values
	if value := os.Getenv(valuesVariable); value != "" {
		var err error
		if n, err = strconv.Atoi(value); err != nil {
			t.Fatalf("%s: %v", valuesVariable, err)
		}
	}
	s := againstRealServer(t)
	found := &findings{accepted: map[string]int{}, refused: map[string]int{}, unreadable: map[string][]string{}}
	defer found.report(t)
	fields := fooFields(t, s)
	var writers sync.WaitGroup
	for shard := range shards {
		w := &writer{
			server: s, namespace: "default", name: fmt.Sprintf("%s-%d", newNamespace(), shard), findings: found,
			random: rand.New(rand.NewPCG(1, uint64(shard))),
		}
		writers.Go(func() { w.write(t, fields, (n+shards-1)/shards) })
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
		if found.accepted[field.String()] == 0 && n >= 200*len(fields) {
			t.Errorf("no value of %s was accepted: the search does not test it", field)
		}
	}
}

// findings are what the writers have found. They may be used concurrently.
type findings struct {
	mu                sync.Mutex
	accepted, refused map[string]int // By field.
	unreadable        map[string][]string
	statuses          int // How many values were followed by a status of the controller.
}

// add counts the values of one write. problem is why they are unreadable, or "".
func (f *findings) add(changed []string, accepted bool, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, change := range changed {
		name, _, _ := strings.Cut(change, "=")
		if !accepted {
			f.refused[name]++
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
	sum := func(counts map[string]int) (n int) {
		for _, count := range counts {
			n += count
		}
		return n
	}
	bad := 0
	for _, problem := range slices.Sorted(maps.Keys(f.unreadable)) {
		at := f.unreadable[problem]
		bad += len(at)
		slices.SortFunc(at, func(a, b string) int { return len(a) - len(b) })
		t.Errorf("%d times: %s\n\t%.400s", len(at), problem, strings.Join(at[:min(len(at), 4)], "\n\t"))
	}
	t.Logf("%d values accepted, %d refused, %d of them unreadable; %d statuses written to odd ones", sum(f.accepted),
		sum(f.refused), bad, f.statuses)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(f.accepted)) {
		lines = append(lines, fmt.Sprintf("%6d %6d %s", f.accepted[name], f.refused[name], name))
	}
	t.Logf("accepted, refused:\n%s", strings.Join(lines, "\n"))
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
	if contentType == "" {
		contentType = "application/json"
	}
	request, err := http.NewRequestWithContext(ctx, method, w.server.url+path, bytes.NewReader(body))
	if err != nil {
		return []byte(err.Error()), 0
	}
	request.Header.Set("Content-Type", contentType)
	response, err := w.server.transport.RoundTrip(request)
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

// encode returns object as JSON. Numbers and strings in it may be in any form that JSON has.
func encode(object any) []byte {
	var b bytes.Buffer
	encodeInto(&b, object)
	return b.Bytes()
}

func encodeInto(b *bytes.Buffer, value any) {
	switch value := value.(type) {
	case json.RawMessage:
		b.Write(value)
	case map[string]any:
		b.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(value)) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(key) + ":")
			encodeInto(b, value[key])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range value {
			if i > 0 {
				b.WriteByte(',')
			}
			encodeInto(b, item)
		}
		b.WriteByte(']')
	default:
		encoded, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		b.Write(encoded)
	}
}
