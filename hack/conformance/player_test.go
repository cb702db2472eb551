package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
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
	// Without a last write, a watch would not end.
	closing := !slices.ContainsFunc(sequence, func(op operation) bool { return op.kind == namespaceKind })
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
		if !closing || !slices.ContainsFunc(sequence, func(op operation) bool { return op.kind == k }) {
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
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": p.namespace},
	})
	if err != nil {
		return err
	}
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
	if op.kind == namespaceKind {
		name = p.namespace
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
