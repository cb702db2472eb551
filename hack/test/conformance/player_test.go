package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// A player plays one sequence of operations against one server, in a namespace of its own.
type player struct {
	server    server
	namespace string
	memory    *memory
	binary    bool   // The current operation may use protobuf.
	accept    string // The header of the current operation, if it has its own.
	// shared is true if other players use the same kinds without namespaces at the same time. Then the names of their
	// objects begin with the namespace of the player.
	shared bool
	record record
	open   []*stream
	used   []*kind
}

// A server is an API server that a player sends requests to.
type server struct {
	url       string
	transport http.RoundTripper
	// staleReads is true if reads from the cache of the server may be stale, so that the player has to wait for the cache.
	staleReads bool
	// binary makes the player use protobuf for kinds that support it.
	binary bool
	// watchTimeout is the longest time until a watch has seen the last write. Only a watch that misses an event takes so
	// long.
	watchTimeout time.Duration
}

// A record has the answers to a sequence.
type record struct {
	namespace string
	histories int // The number of answers at the beginning that are watches of a whole kind.
	answers   []answer
}

// An answer is the response to one operation.
type answer struct {
	op       operation
	code     int
	media    string
	warnings []string
	body     any
	events   []any // The events of a watch.
}

// endMark is the annotation of the last write, with which a watch has seen everything.
const (
	endMark = "end"
	endName = "zz-end"
)

// play returns the answers to all operations, the events of their watches, and the history of their kinds. An error
// means that the server cannot be reached.
func play(ctx context.Context, server server, namespace string, sequence []operation) (record, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &player{server: server, namespace: namespace, record: record{namespace: namespace}}
	if slices.ContainsFunc(sequence, func(op operation) bool { return op.kind == gadgets }) {
		if err := p.sweep(ctx, gadgets); err != nil {
			return record{}, fmt.Errorf("delete old objects: %w", err)
		}
	}
	if err := p.begin(ctx); err != nil {
		return record{}, fmt.Errorf("begin: %w", err)
	}
	for _, k := range append(slices.Clone(kinds), gadgets, gizmos) {
		if !slices.ContainsFunc(sequence, func(op operation) bool { return op.kind == k }) {
			continue
		}
		p.used = append(p.used, k)
		p.record.histories++
		if err := p.perform(ctx, historyOf(k)); err != nil {
			return record{}, err
		}
	}
	for _, op := range slices.Concat(sequence, p.lastWrites(sequence)) {
		if err := p.perform(ctx, op); err != nil {
			return record{}, fmt.Errorf("%s: %w", op, err)
		}
	}
	for _, s := range p.open {
		events := s.wait(p.server.watchTimeout)
		if p.server.staleReads && s.expired(events) {
			return record{}, fmt.Errorf("%s: %w", s.op, errExpired)
		}
		p.record.answers[s.answer].events = events
	}
	return p.record, nil
}

// errExpired is the error if a real server does not have a version of the same sequence any more. That happens when the
// server is so busy that it has to fill its cache again.
var errExpired = errors.New("the version has expired")

// begin creates the namespace.
func (p *player) begin(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"metadata":{"name":%q}}`, p.namespace)
	answer, err := p.send(ctx, "POST", "/api/v1/namespaces", "application/json", body)
	if err != nil {
		return err
	}
	if answer.code != http.StatusCreated {
		return fmt.Errorf("create a namespace: %v", answer.body)
	}
	p.memory = newMemory(text(answer.body, "metadata", "resourceVersion"))
	if p.shared {
		p.memory.prefix = p.namespace + "-"
	}
	return nil
}

// sweep deletes all objects of a kind without namespaces, which earlier sequences have left.
func (p *player) sweep(ctx context.Context, k *kind) error {
	list, err := p.send(ctx, "GET", k.path(""), "", nil)
	if err != nil {
		return err
	}
	items, _ := valueAt(list.body, "items").([]any)
	for _, item := range items {
		path := k.path("") + "/" + text(item, "metadata", "name")
		release := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := p.send(ctx, "PATCH", path, mergePatch, release); err != nil {
			return err
		}
		if _, err := p.send(ctx, "DELETE", path, "", nil); err != nil {
			return err
		}
	}
	return nil
}

// historyOf watches all objects of a kind from the beginning.
func historyOf(k *kind) operation {
	query := []parameter{{"watch", "true"}, {"resourceVersion", symbol{what: rvStart}}}
	return operation{verb: "watch", method: "GET", kind: k, query: query}
}

// lastWrites returns the last writes that the watches of a sequence see: a write of each object that a field selector
// names, and a write of one object of each kind for the other watches.
func (p *player) lastWrites(sequence []operation) []operation {
	var ending []operation
	for _, k := range p.used {
		for _, name := range slices.Concat(names, []string{endName}) {
			selected := func(op operation) bool { return op.kind == k && op.watches() && endOf(op) == name }
			if name != endName && !slices.ContainsFunc(sequence, selected) {
				continue
			}
			changes := map[string]any{"metadata": map[string]any{
				"labels":      map[string]any{"app": "x", "tier": "t", "gone": nil},
				"annotations": map[string]any{endMark: "1"},
			}}
			if k.selected != nil {
				changes["spec"] = k.selected
			}
			object := edited{base: k.object(name),
				edits: []edit{{"metadata.annotations", map[string]any{endMark: "1"}}}}
			ending = append(ending,
				operation{verb: "end", method: "POST", kind: k, contentType: "application/json", body: object},
				operation{verb: "end", method: "PATCH", kind: k, name: name, contentType: mergePatch, body: changes})
		}
	}
	return ending
}

// endOf returns the name of the object that a watch sees last.
func endOf(op operation) string {
	if name, ok := strings.CutPrefix(op.parameter("fieldSelector"), "metadata.name="); ok {
		return name
	}
	return endName
}

// dryRun is the parameter for a dry run.
const dryRun = "dryRun"

// perform sends one operation and records the answer.
func (p *player) perform(ctx context.Context, op operation) error {
	p.binary = p.server.binary && !op.kind.custom
	if p.server.staleReads && (op.watches() || op.parameter("resourceVersion") != "") {
		if err := p.settle(ctx, op.kind); err != nil {
			return fmt.Errorf("wait for the cache: %w", err)
		}
	}
	if op.watches() {
		s, answer, err := p.watch(ctx, op)
		if err != nil {
			return err
		}
		if s != nil {
			s.answer = len(p.record.answers)
			p.open = append(p.open, s)
		}
		p.record.answers = append(p.record.answers, answer)
		return nil
	}
	body, err := p.body(op)
	if err != nil {
		return err
	}
	body, contentType := p.encode(op, body)
	p.accept = op.accept
	answer, err := p.send(ctx, op.method, p.path(op), contentType, body)
	p.accept = ""
	if err != nil {
		return err
	}
	answer.op = op
	if op.parameter(dryRun) == "" {
		p.memory.recordAnswer(op.kind, answer.body)
	}
	if op.accept != "" && op.method != "GET" { // The answer may not have shown what was written.
		list, err := p.send(ctx, "GET", op.kind.path(p.namespace), "", nil)
		if err != nil {
			return err
		}
		p.memory.recordAnswer(op.kind, list.body)
	}
	p.record.answers = append(p.record.answers, answer)
	return nil
}

// settle waits until the cache of a server has all writes. A list without a resourceVersion does that, because the
// server answers it from an up-to-date cache.
func (p *player) settle(ctx context.Context, k *kind) error {
	answer, err := p.send(ctx, "GET", k.path(p.namespace), "", nil)
	if err == nil && answer.code != http.StatusOK {
		err = fmt.Errorf("list: %v", answer.body)
	}
	return err
}

// path returns the path and the query of the request of an operation.
func (p *player) path(op operation) string {
	namespace := p.namespace
	if op.nowhere {
		namespace = "no-such-namespace"
	}
	path := op.kind.path(namespace)
	switch {
	case op.misplaced && op.kind.clusterScoped:
		path = op.kind.misplacedPath(namespace)
	case op.misplaced:
		path = op.kind.misplacedPath("")
	}
	name := op.name
	if name != "" {
		name = p.memory.ownName(op.kind, name)
	}
	for _, part := range []string{name, op.sub} {
		if part != "" {
			path += "/" + part
		}
	}
	query := url.Values{}
	for _, parameter := range op.query {
		query.Add(parameter.key, fmt.Sprint(p.memory.resolve(op, parameter.value)))
	}
	if op.misplaced && !op.kind.clusterScoped && op.name == "" && op.method == "GET" {
		fields := append(query["fieldSelector"], "metadata.namespace="+p.namespace) // Others use other namespaces.
		query.Set("fieldSelector", strings.Join(fields, ","))
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

func (p *player) body(op operation) ([]byte, error) {
	switch body := op.body.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(body), nil
	}
	body := p.memory.resolve(op, op.body)
	if object, ok := valueAt(body, "metadata").(map[string]any); ok && p.shared {
		object["name"] = p.memory.ownName(op.kind, text(object, "name"))
	}
	return json.Marshal(body)
}

// send sends one request. A body that is not JSON is returned as a string.
func (p *player) send(ctx context.Context, method, path, contentType string, body []byte) (answer, error) {
	response, err := p.request(ctx, method, path, contentType, body)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	return read(response)
}

func read(response *http.Response) (answer, error) {
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	media := mediaOf(response)
	warnings := slices.Sorted(slices.Values(response.Header.Values("Warning")))
	return answer{code: response.StatusCode, media: media, warnings: warnings, body: treeOf(content, media)}, nil
}

func (p *player) request(
	ctx context.Context, method, path, contentType string, body []byte,
) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, p.server.url+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if p.binary {
		request.Header.Set("Accept", binary+",application/json")
	}
	if p.accept != "" {
		request.Header.Set("Accept", p.accept)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	client := http.Client{Transport: p.server.transport}
	return client.Do(request)
}

// A stream is an open watch.
type stream struct {
	op     operation
	answer int // The index of its answer in the record.
	cancel context.CancelFunc
	events []any
	done   chan struct{} // Closed when all events have been read.
}

// watch opens a watch. The stream is nil if the server refuses the watch.
func (p *player) watch(ctx context.Context, op operation) (*stream, answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	p.accept = op.accept
	response, err := p.request(ctx, op.method, p.path(op), "", nil)
	p.accept = ""
	if err != nil {
		cancel()
		return nil, answer{}, err
	}
	if response.StatusCode != http.StatusOK {
		defer cancel()
		defer response.Body.Close()
		a, err := read(response)
		a.op = op
		return nil, a, err
	}
	s := &stream{op: op, cancel: cancel, done: make(chan struct{})}
	go s.follow(response)
	return s, answer{op: op, code: response.StatusCode, media: mediaOf(response)}, nil
}

// follow reads events up to the last write of the sequence.
func (s *stream) follow(response *http.Response) {
	defer close(s.done)
	defer response.Body.Close()
	next := eventsOf(response)
	for {
		event, err := next()
		if err != nil {
			return // The server has ended the watch, or the player has closed it.
		}
		s.events = append(s.events, event)
		object := valueAt(event, "object")
		if text(object, "metadata", "annotations", endMark) != "" && text(object, "metadata", "name") == endOf(s.op) {
			return
		}
	}
}

// expired reports whether the server has ended the watch because its version, one of this sequence, has expired.
func (s *stream) expired(events []any) bool {
	return len(events) > 0 && valueAt(events[0], "object", "code") == 410.0 &&
		s.op.parameter("resourceVersion") != noVersion
}

// noEnd is the type of the last event of a watch that does not see the last write.
const noEnd = "no end"

// wait returns all events up to the last write of the sequence. If the watch does not see it, the last event is noEnd.
func (s *stream) wait(timeout time.Duration) []any {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	defer s.cancel()
	select {
	case <-s.done:
		return s.events
	case <-timer.C:
	}
	s.cancel()
	<-s.done
	return append(s.events, map[string]any{"type": noEnd})
}

// Players may use protobuf for built-in kinds, as the typed clients of client-go do. The responses are decoded into the
// same trees as JSON.

const binary = "application/vnd.kubernetes.protobuf"

func (s server) inBinary() server {
	s.binary = true
	return s
}

// encode returns the body of a request and its content type. The body is protobuf if the player wants it and the kind
// supports it.
func (p *player) encode(op operation, body []byte) ([]byte, string) {
	if !p.binary || op.contentType != "application/json" || op.method == "PATCH" {
		return body, op.contentType
	}
	obj, err := decodeBody(op, body)
	if err != nil {
		return body, op.contentType // The body is malformed on purpose.
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &b); err != nil {
		return body, op.contentType
	}
	return b.Bytes(), binary
}

func decodeBody(op operation, body []byte) (runtime.Object, error) {
	if op.method == "DELETE" {
		options := &metav1.DeleteOptions{}
		version := schema.GroupVersion{Group: op.kind.group, Version: op.kind.version}
		options.SetGroupVersionKind(version.WithKind("DeleteOptions"))
		return options, json.Unmarshal(body, options)
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	return obj, err
}

// treeOf decodes content of this type into a tree. It returns content that it cannot decode as a string.
func treeOf(content []byte, contentType string) any {
	switch contentType {
	case "application/yaml":
		converted, err := yaml.ToJSON(content)
		if err != nil {
			return err.Error()
		}
		content = converted
	case binary:
		obj, _, err := codecs.UniversalDeserializer().Decode(content, nil, nil)
		if err != nil {
			return err.Error()
		}
		if content, err = json.Marshal(obj); err != nil {
			return err.Error()
		}
	}
	var tree any
	if err := json.Unmarshal(content, &tree); err != nil {
		return string(content)
	}
	return tree
}

// codecs know the kinds of client-go, and those of objects that are reduced to their metadata.
var codecs = func() serializer.CodecFactory {
	all := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(all))
	utilruntime.Must(metav1.AddMetaToScheme(all))
	utilruntime.Must(metav1beta1.AddMetaToScheme(all))
	return serializer.NewCodecFactory(all)
}()

// mediaOf returns the media type of a response without its parameters.
func mediaOf(response *http.Response) string {
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		return err.Error()
	}
	return media
}

// eventsOf returns a function that reads one event after the other from a watch.
func eventsOf(response *http.Response) func() (map[string]any, error) {
	if mediaOf(response) != binary {
		decoder := json.NewDecoder(response.Body)
		return func() (event map[string]any, err error) {
			err = decoder.Decode(&event)
			return event, err
		}
	}
	raw := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
	decoder := streaming.NewDecoder(protobuf.LengthDelimitedFramer.NewFrameReader(unclosed{response.Body}), raw)
	return func() (map[string]any, error) {
		var event metav1.WatchEvent
		if _, _, err := decoder.Decode(nil, &event); err != nil {
			return nil, fmt.Errorf("decode an event: %w", err)
		}
		return map[string]any{"type": event.Type, "object": treeOf(event.Object.Raw, binary)}, nil
	}
}

// unclosed has a Close that does nothing, because the stream closes the body.
type unclosed struct{ io.Reader }

func (unclosed) Close() error { return nil }
