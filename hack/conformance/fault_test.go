package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A fault makes the simulated server behave differently from a real server.
type fault struct {
	name string
	// request changes a request, or does something before it.
	request func(r *http.Request, send http.RoundTripper)
	// object changes the body of an answer, except on watches.
	object func(body map[string]any)
	code   func(code int) int
	// event changes an event of a watch. It returns false to drop the event. The number counts the events of the watch.
	event func(n int, event map[string]any) bool
}

// faults are faults that would break a controller or its tests.
var faults = []fault{
	{name: "accepts an update of an old version", request: func(r *http.Request, _ http.RoundTripper) {
		if r.Method == "PUT" && !strings.Contains(r.URL.Path, "/foos/") && !strings.Contains(r.URL.Path, "/leases/") {
			editBody(r, "metadata", "resourceVersion")
		}
	}},
	{name: "ignores the uid in an update", request: func(r *http.Request, _ http.RoundTripper) {
		if r.Method == "PUT" {
			editBody(r, "metadata", "uid")
		}
	}},
	{name: "ignores the uid of a deletion", request: func(r *http.Request, _ http.RoundTripper) {
		if r.Method == "DELETE" {
			editBody(r, "preconditions", "uid")
		}
	}},
	{name: "ignores the version of a deletion", request: func(r *http.Request, _ http.RoundTripper) {
		if r.Method == "DELETE" {
			editBody(r, "preconditions", "resourceVersion")
		}
	}},
	{name: "ignores a propagation policy", request: func(r *http.Request, _ http.RoundTripper) {
		if r.Method == "DELETE" {
			editBody(r, "propagationPolicy")
		}
	}},
	{name: "forgets to count generations", object: func(body map[string]any) {
		if metadata, ok := body["metadata"].(map[string]any); ok && metadata["generation"] != nil {
			metadata["generation"] = 1
		}
	}},
	{name: "writes the spec along with the status", request: func(r *http.Request, _ http.RoundTripper) {
		if r.Method == "PUT" {
			r.URL.Path = strings.TrimSuffix(r.URL.Path, "/status")
		}
	}},
	{name: "ignores finalizers in a deletion", request: func(r *http.Request, send http.RoundTripper) {
		if r.Method == "DELETE" && !strings.HasSuffix(r.URL.Path, "s") {
			release(r, send)
		}
	}},
	{name: "creates a version for a write that changes nothing", request: func(r *http.Request, send http.RoundTripper) {
		if r.Method == "PUT" && strings.Contains(r.URL.Path, "/configmaps/") {
			touch(r, send)
		}
	}},
	{name: "lists in another order", object: func(body map[string]any) {
		if items, ok := body["items"].([]any); ok {
			slices.Reverse(items)
		}
	}},
	{name: "omits the causes of an invalid object", object: func(body map[string]any) {
		if details, ok := body["details"].(map[string]any); ok {
			delete(details, "causes")
		}
	}},
	{name: "gives another reason for a conflict", object: func(body map[string]any) {
		if body["reason"] == "Conflict" {
			body["reason"] = "AlreadyExists"
		}
	}},
	{name: "creates with the wrong code", code: func(code int) int {
		if code == http.StatusCreated {
			return http.StatusOK
		}
		return code
	}},
	{name: "ignores the selector of a watch", request: func(r *http.Request, _ http.RoundTripper) {
		if query := r.URL.Query(); query.Get("watch") != "" {
			query.Del("labelSelector")
			r.URL.RawQuery = query.Encode()
		}
	}},
	{name: "begins a watch one version too early", request: func(r *http.Request, _ http.RoundTripper) {
		query := r.URL.Query()
		if n := number(query.Get("resourceVersion")); query.Get("watch") != "" && n > 0 {
			query.Set("resourceVersion", strconv.FormatUint(n-1, 10))
			r.URL.RawQuery = query.Encode()
		}
	}},
	{name: "lists the current objects for any version", request: func(r *http.Request, _ http.RoundTripper) {
		if query := r.URL.Query(); query.Get("watch") == "" && query.Get("resourceVersionMatch") == "Exact" {
			query.Del("resourceVersion")
			query.Del("resourceVersionMatch")
			r.URL.RawQuery = query.Encode()
		}
	}},
	{name: "omits how many items remain", object: func(body map[string]any) {
		if metadata, ok := body["metadata"].(map[string]any); ok {
			delete(metadata, "remainingItemCount")
		}
	}},
	{name: "describes the columns of a table in other words", object: func(body map[string]any) {
		if columns, ok := body["columnDefinitions"].([]any); ok {
			columns[0].(map[string]any)["description"] = "Another text"
		}
	}},
	{name: "leaves the rows of a table without their objects", object: func(body map[string]any) {
		rows, _ := body["rows"].([]any)
		for _, row := range rows {
			row.(map[string]any)["object"] = nil
		}
	}},
	{name: "loses an event", event: func(n int, _ map[string]any) bool { return n != 2 }},
	{name: "reports every event as a modification", event: func(_ int, event map[string]any) bool {
		if event["type"] == "ADDED" {
			event["type"] = "MODIFIED"
		}
		return true
	}},
	{name: "does not end the initial events", event: func(_ int, event map[string]any) bool {
		return event["type"] != "BOOKMARK"
	}},
	{name: "sends a deletion with an older version", event: func(_ int, event map[string]any) bool {
		if event["type"] == "DELETED" {
			metadata, _ := valueAt(event, "object", "metadata").(map[string]any)
			metadata["resourceVersion"] = "1"
		}
		return true
	}},
}

// faultSequences is the number of sequences in which a fault must be found.
const faultSequences = 100

func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	want := againstRealServer(t)
	hidden := slices.Clone(faults)
	for i := 0; i < faultSequences && len(hidden) > 0; i++ {
		sequence := sequences.Example(i)
		record, err := play(t.Context(), want, newNamespace(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		sound, err := play(t.Context(), simulated(), newNamespace(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		if different := compareRecords(sequence, record, sound, newTally()); different != "" {
			t.Fatalf("different answers without a fault:\n%s", different)
		}
		hidden = slices.DeleteFunc(hidden, func(f fault) bool {
			good := simulated()
			bad := server{url: good.url, transport: &faulty{f, good.transport}, watchTimeout: time.Second}
			have, err := play(t.Context(), bad, newNamespace(), sequence)
			if err != nil {
				t.Fatal(err)
			}
			different := compareRecords(sequence, record, have, newTally())
			if different == "" {
				return false
			}
			first, _, _ := strings.Cut(different, "\n")
			t.Logf("a server that %s: found in sequence %d by %.100s", f.name, i+1, first)
			return true
		})
	}
	for _, f := range hidden {
		t.Errorf("a server that %s: not found in %d sequences", f.name, faultSequences)
	}
}

// faulty is the simulated server with a fault.
type faulty struct {
	fault fault
	sim   http.RoundTripper
}

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/namespaces") {
		return f.sim.RoundTrip(r) // The request is not in the namespace of a sequence.
	}
	if f.fault.request != nil {
		f.fault.request(r, f.sim)
	}
	response, err := f.sim.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if f.fault.code != nil {
		response.StatusCode = f.fault.code(response.StatusCode)
	}
	if r.URL.Query().Get("watch") != "" && response.StatusCode == http.StatusOK {
		if f.fault.event != nil {
			response.Body = newFaultyStream(response.Body, f.fault.event)
		}
		return response, nil
	}
	if f.fault.object == nil {
		return response, nil
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var body map[string]any
	if json.Unmarshal(content, &body) != nil {
		response.Body = io.NopCloser(bytes.NewReader(content)) // Such as YAML.
		return response, nil
	}
	f.fault.object(body)
	return response, setBody(&response.Body, body)
}

// newFaultyStream passes events on through a fault.
func newFaultyStream(from io.ReadCloser, event func(int, map[string]any) bool) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		lines := bufio.NewScanner(from)
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			var decoded map[string]any
			if err := json.Unmarshal(lines.Bytes(), &decoded); err != nil {
				writer.CloseWithError(err)
				return
			}
			if !event(n, decoded) {
				continue
			}
			if err := json.NewEncoder(writer).Encode(decoded); err != nil {
				return // The reader has closed the stream.
			}
		}
		writer.CloseWithError(lines.Err())
	}()
	return &faultyStream{reader, from}
}

type faultyStream struct {
	io.ReadCloser
	from io.Closer
}

func (s *faultyStream) Close() error {
	s.from.Close()
	return s.ReadCloser.Close()
}

// editBody removes a field from the JSON in a request.
func editBody(r *http.Request, path ...string) {
	if r.Body == nil {
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var body map[string]any
	if json.Unmarshal(content, &body) == nil {
		set(body, path, nil)
		content, _ = json.Marshal(body) // Cannot fail: it was decoded before.
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	r.ContentLength = int64(len(content))
}

func setBody(to *io.ReadCloser, body any) error {
	content, err := json.Marshal(body)
	*to = io.NopCloser(bytes.NewReader(content))
	return err
}

// release removes the finalizers of the object of a request.
func release(r *http.Request, send http.RoundTripper) {
	mergeFirst(r, send, `{"metadata":{"finalizers":null}}`)
}

// touch writes to the object twice. Then its content is as before, but not its version.
func touch(r *http.Request, send http.RoundTripper) {
	mergeFirst(r, send, `{"data":{"touched":"1"}}`)
	mergeFirst(r, send, `{"data":{"touched":null}}`)
}

func mergeFirst(r *http.Request, send http.RoundTripper, patch string) {
	first, err := http.NewRequestWithContext(r.Context(), "PATCH", r.URL.String(), strings.NewReader(patch))
	if err != nil {
		return
	}
	first.Header.Set("Content-Type", mergePatch)
	if response, err := send.RoundTrip(first); err == nil {
		response.Body.Close()
	}
}
