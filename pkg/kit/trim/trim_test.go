package trim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// client-go has to find the connection below, to close what is idle.
var _ utilnet.RoundTripperWrapper = &transport{}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestADeepObjectCanBeListedAndWatched: 10,000 levels are the limit of the decoder, and the object alone has as many.
func TestADeepObjectCanBeListedAndWatched(t *testing.T) {
	const levels = 10_000 - 4 // The object, metadata, managedFields and its first entry are levels too.
	const object = `{"apiVersion":"v1","kind":"ConfigMap",`
	fields := strings.Repeat(`{"f:a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
	deep := object + `"metadata":{"name":"deep","managedFields":[{"fieldsV1":` + fields + `}]},` +
		`"data":{"key":"deep"}}`
	next := object + `"metadata":{"name":"next"},"data":{"key":"next"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"items":[%s,%s]}`, deep, next)
			return
		}
		w.Header().Set("Content-Type", "application/json;stream=watch")
		for _, object := range []string{deep, next} {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", object)
			w.(http.Flusher).Flush()
		}
		<-req.Context().Done() // The watch does not end before the client has read all events.
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	config.Wrap(Responses)
	configMaps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")

	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.Items[0].Data["key"] != "deep" {
		t.Errorf("the list is %.200v, %v", list, err)
	}
	watching, err := configMaps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	for _, want := range []string{"deep", "next"} {
		event := <-watching.ResultChan()
		if have, ok := event.Object.(*corev1.ConfigMap); !ok || have.Name != want || have.ManagedFields != nil {
			t.Errorf("the watch event is %.200v, want one of %s", event, want)
		}
	}
}

func TestOnlyResponsesInJSONAreFiltered(t *testing.T) {
	const content = `{"managedFields":[1]}`
	tests := []struct {
		contentType, encoding string
		filtered              bool
	}{
		{contentType: "application/json", filtered: true},
		{contentType: "application/json;stream=watch", filtered: true},
		{contentType: "Application/JSON ; charset=utf-8", filtered: true},
		{contentType: "application/json", encoding: "gzip"},
		{contentType: "application/vnd.kubernetes.protobuf"},
		{contentType: "application/vnd.kubernetes.protobuf;stream=watch"},
		{contentType: "application/json-patch+json"},
		{contentType: "text/plain"},
		{},
	}
	for _, test := range tests {
		original := io.NopCloser(strings.NewReader(content))
		resp, err := Responses(roundTripper(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Content-Length": {"21"}, "Content-Type": {test.contentType}}
			header.Set("Content-Encoding", test.encoding)
			return &http.Response{Header: header, ContentLength: 21, Body: original}, nil
		})).RoundTrip(nil)
		if err != nil {
			t.Fatal(err)
		}
		length := resp.Header.Get("Content-Length")
		if !test.filtered && (resp.Body != original || resp.ContentLength != 21 || length != "21") {
			t.Errorf("%+v: the response was changed: %v", test, resp)
		}
		got, err := io.ReadAll(resp.Body)
		if test.filtered && (err != nil || string(got) != `{"managedFields":null}` || resp.ContentLength != -1 ||
			length != "") {
			t.Errorf("%+v: read %q, %v of %v", test, got, err, resp)
		}
	}
}

func TestErrorsAndResponsesWithoutABodyPassUntouched(t *testing.T) {
	noRoute := errors.New("no route")
	for _, want := range []error{nil, noRoute} {
		response := &http.Response{Header: http.Header{"Content-Type": {"application/json"}}}
		resp, err := Responses(roundTripper(func(*http.Request) (*http.Response, error) {
			return response, want
		})).RoundTrip(nil)
		if resp != response || resp.Body != nil || err != want {
			t.Errorf("%+v, %v; want the response without a body, and the error %v", resp, err, want)
		}
	}
}

// A synctest bubble ends with an error if all its goroutines wait for each other.
func TestAnEventIsPassedOnBeforeTheNextOneArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		resp, err := Responses(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{Header: http.Header{"Content-Type": {"application/json;stream=watch"}}, Body: from}, nil
		})).RoundTrip(nil)
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		for i := range 3 {
			fields := strings.Repeat("[],", i*bufferSize)
			event := fmt.Sprintf(`{"object":{"managedFields":[%s1],"name":"%d"}}`+"\n", fields, i)
			want := fmt.Sprintf(`{"object":{"managedFields":null,"name":"%d"}}`+"\n", i)
			go io.WriteString(to, event) // The test reads it.
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Errorf("read %q, %v; want %q", got, err, want)
			}
		}
		go func() {
			defer close(closed)
			if _, err := resp.Body.Read(make([]byte, 1)); err != io.ErrClosedPipe {
				t.Errorf("the read that waits ends with %v", err)
			}
		}()
		synctest.Wait()
		resp.Body.Close() // It always succeeds.
		<-closed
		if _, err := to.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("the connection is not closed: %v", err)
		}
	})
}

func ExampleConditions() {
	decoded := []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Available", Message: "2 of 2 replicas"}}
	kept := Conditions(append(decoded, metav1.Condition{})[:1]) // A decoder leaves room for more.
	fmt.Println(kept[0].Type, kept[0].Reason, kept[0].Message, cap(kept))
	// Output: Ready Available 2 of 2 replicas 1
}

func TestSharedTextsAreInMemoryOnce(t *testing.T) {
	one := Shared(strings.Clone("Available"))
	runtime.GC() // What is shared stays.
	if other := Shared(strings.Clone("Available")); unsafe.StringData(one) != unsafe.StringData(other) {
		t.Error("a text is in memory twice")
	}
	for i := range 2 * maxTexts {
		if text := fmt.Sprint(i); Shared(text) != text {
			t.Fatalf("%s became another text", text)
		}
	}
	if n := len(texts.known); n > maxTexts {
		t.Errorf("%d texts are remembered", n)
	}
	if long := strings.Repeat("x", maxText+1); Shared(long) != long || texts.known[long] != "" {
		t.Error("a long text is remembered")
	}
}

func TestArraysOfManagedFieldsBecomeNullAndNothingElseChanges(t *testing.T) {
	deep := strings.Repeat(`{"f:a":`, 20_000) + `{}` + strings.Repeat(`}`, 20_000)
	tests := []struct {
		name, in string
		want     string // Empty if it is equal to in.
	}{
		{name: "no document", in: ``},
		{name: "no managed fields", in: `{"metadata":{"name":"web"},"spec":{"list":[1,[2],{"a":[3]}]}}` + "\n"},
		{
			name: "an object",
			in:   `{"metadata":{"name":"web","managedFields":[{"manager":"m"}]},"spec":{"replicas":1}}`,
			want: `{"metadata":{"name":"web","managedFields":null},"spec":{"replicas":1}}`,
		},
		{name: "an empty array", in: `{"managedFields":[]}`, want: `{"managedFields":null}`},
		{
			name: "deeper than a decoder reads",
			in:   `{"managedFields":[{"fieldsV1":` + deep + `}],"a":1}`, want: `{"managedFields":null,"a":1}`,
		},
		{
			name: "a list", in: `{"items":[{"managedFields":[1]},{"managedFields":[2]}]}`,
			want: `{"items":[{"managedFields":null},{"managedFields":null}]}`,
		},
		{
			name: "watch events",
			in:   "{\"object\":{\"managedFields\":[1]}}\n{\"object\":{\"managedFields\":[2]}}\n",
			want: "{\"object\":{\"managedFields\":null}}\n{\"object\":{\"managedFields\":null}}\n",
		},
		{
			name: "white space", in: "{\n\t\"managedFields\" \r\n: \t[\n1 ] ,\n\"a\" : [ 1 ]\n}",
			want: "{\n\t\"managedFields\" \r\n: \tnull ,\n\"a\" : [ 1 ]\n}",
		},
		{
			name: "arrays, objects and managed fields in an array",
			in:   `{"managedFields":[[{"managedFields":[1],"a":{}}],{"managedFields":{}},[]],"managedFields":[1],"a":[1]}`,
			want: `{"managedFields":null,"managedFields":null,"a":[1]}`,
		},
		{
			name: "brackets, quotes and backslashes in strings of an array",
			in:   `{"managedFields":["]","}]","\"]","\\","\\\"]",{"]":"["}],"a":"\\","managedFields":[1]}`,
			want: `{"managedFields":null,"a":"\\","managedFields":null}`,
		},
		{name: "an annotation", in: `{"annotations":{"managedFields":"[1]"},"a":[1]}`},
		{name: "an object", in: `{"managedFields":{"a":[1]},"a":[1]}`},
		{name: "other values", in: `{"managedFields":null,"a":[{"managedFields":1},[1],{"managedFields":true},[1]]}`},
		{name: "a value and not a key", in: `["managedFields",[1],{"a":"managedFields","b":[1]},"managedFields"]`},
		{name: "other keys", in: `{"managedField":[1],"managedFieldss":[2],"xmanagedFields":[3],"":[4],"managedfields":[5]}`},
		{
			name: "keys with escapes",
			in:   `{"\"managedFields":[1],"managedFields\"":[2],"\\managedFields":[3],"managedFields\\":[4]}`,
		},
		{name: "a key whose letters are escaped", in: `{"\u006danagedFields":[1]}`},
		{name: "a quoted document", in: `{"annotations":{"last-applied":"{\"metadata\":{\"managedFields\":[1]}}"}}`},
		{name: "a document that ends too early", in: `{"managedFields":[{"a":[1]},`, want: `{"managedFields":null`},
		{name: "text", in: `not found: "managedFields" ] } : [1]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := test.want
			if want == "" {
				want = test.in
			}
			for name, in := range map[string]io.Reader{
				"at once":         strings.NewReader(test.in),
				"byte by byte":    iotest.OneByteReader(strings.NewReader(test.in)),
				"with its end":    iotest.DataErrReader(strings.NewReader(test.in)),
				"in random parts": &randomReader{from: strings.NewReader(test.in), random: rand.New(rand.NewPCG(1, 2))},
			} {
				if got := filtered(t, in); got != want {
					t.Errorf("%s: %.200q, want %.200q", name, got, want)
				}
			}
			if got := filtered(t, strings.NewReader(test.in), iotest.OneByteReader); got != want {
				t.Errorf("read byte by byte: %.200q, want %.200q", got, want)
			}
		})
	}
}

// filtered returns what can be read of in without managed fields, through the given readers.
func filtered(t *testing.T, in io.Reader, through ...func(io.Reader) io.Reader) string {
	t.Helper()
	var reader io.Reader = newBody(io.NopCloser(in))
	for _, wrap := range through {
		reader = wrap(reader)
	}
	out, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A randomReader returns between nothing and 20 bytes at a time.
type randomReader struct {
	from   io.Reader
	random *rand.Rand
}

func (r *randomReader) Read(p []byte) (int, error) {
	n := r.random.IntN(21)
	if n == 0 {
		return 0, nil
	}
	return r.from.Read(p[:min(n, len(p))])
}

func TestAReadThatPassesNothingOnWaitsForMore(t *testing.T) {
	parts := []string{`{"managedFields":`, `[`, `1,`, ``, `2`, `]`, `}`}
	var from []io.Reader
	for _, part := range parts {
		from = append(from, strings.NewReader(part))
	}
	reader := newBody(io.NopCloser(io.MultiReader(from...)))
	var reads []string
	p := make([]byte, 100)
	for {
		n, err := reader.Read(p)
		if err == io.EOF {
			break
		}
		reads = append(reads, string(p[:n]))
	}
	if diff := cmp.Diff([]string{parts[0], "null", "}"}, reads); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
}

func TestMemoryDoesNotGrowWithTheLengthOfAResponse(t *testing.T) {
	p := make([]byte, bufferSize)
	for _, repeated := range []string{`[{"a":"b",`, `"managedFields":[1],`, `aaaaa`} {
		allocations := func(buffers int64) float64 {
			return testing.AllocsPerRun(1, func() {
				start := strings.NewReader(`{"managedFields":`)
				in := io.MultiReader(start, io.LimitReader(&endless{text: repeated}, buffers*bufferSize))
				reader := newBody(io.NopCloser(in))
				for err := error(nil); err == nil; {
					_, err = reader.Read(p)
				}
			})
		}
		// One for each buffer would be 99 more. Single ones may be those of other goroutines.
		if short, long := allocations(1), allocations(100); long > short+10 {
			t.Errorf("%s: %.0f allocations for a short response, %.0f for a long one", repeated, short, long)
		}
	}
}

func TestAnErrorIsPassedOnAfterWhatCameBeforeIt(t *testing.T) {
	cut := errors.New("cut")
	for in, want := range map[string]string{
		`{"a":[1],"managed`:           `{"a":[1],"managed`,
		`{"managedFields":[{"a":"b\`:  `{"managedFields":null`,
		`{"managedFields":[1],"a":[1`: `{"managedFields":null,"a":[1`,
	} {
		for _, from := range []io.Reader{
			io.MultiReader(strings.NewReader(in), iotest.ErrReader(cut)),
			iotest.DataErrReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(cut))),
		} {
			reader := newBody(io.NopCloser(from))
			got, err := io.ReadAll(reader)
			_, again := reader.Read(make([]byte, 1))
			if string(got) != want || err != cut || again != cut {
				t.Errorf("%s: read %q, %v, and then %v; want %q, and the error twice", in, got, err, again, want)
			}
		}
	}
}

// endless is a text that is repeated for ever.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

// escapedLetter matches a letter that is written as an escape. A decoder finds the key then, the scanner does not.
var escapedLetter = regexp.MustCompile(`\\u00[4-7]`)

// check fails unless a decoder reads the same from in with and without managed fields, except for these.
func check(t *testing.T, in []byte, seed uint64) {
	t.Helper()
	parts := &randomReader{from: bytes.NewReader(in), random: rand.New(rand.NewPCG(seed, 0))}
	out := filtered(t, parts)
	if !bytes.Contains(in, []byte(`"managedFields"`)) && out != string(in) {
		t.Fatalf("%q became %q", in, out)
	}
	var before, after any
	if json.Unmarshal(in, &before) != nil || escapedLetter.Match(in) {
		return
	}
	if err := json.Unmarshal([]byte(out), &after); err != nil {
		t.Fatalf("%q became %q: %v", in, out, err)
	}
	if diff := cmp.Diff(without(before), after); diff != "" {
		t.Fatalf("%q became %q (-want +got):\n%s", in, out, diff)
	}
}

// without returns value without managed fields.
func without(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = without(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = without(value[name])
		}
		if _, isArray := value[key].([]any); isArray {
			value[key] = nil
		}
	}
	return value
}

// FuzzScanner begins with random documents of its own.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"managedFields":[{"a":["]"]}],"managedFields":{"managedFields":[]}}`, `["managedFields",[1]]`,
		`{"\"managedFields":[1],"managedFields\\":["\\"], "managedFields" : [ ] }`, `{"\u006danagedFields":[1]}`, `{"a":"\`,
	} {
		f.Add([]byte(seed), uint64(1))
	}
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		document, err := json.Marshal(randomValue(random, 5))
		if err == nil && random.IntN(2) == 0 {
			indented := &bytes.Buffer{}
			err = json.Indent(indented, document, "\r", " \t")
			document = indented.Bytes()
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add(document, seed)
	}
	f.Fuzz(check)
}

func randomValue(random *rand.Rand, levels int) any {
	kind := random.IntN(5)
	switch {
	case levels == 0 || kind == 0:
		return randomString(random)
	case kind == 1:
		return random.IntN(100)
	case kind == 2:
		array := []any{}
		for range random.IntN(4) {
			array = append(array, randomValue(random, levels-1))
		}
		return array
	}
	object := map[string]any{}
	for range random.IntN(5) {
		object[randomString(random)] = randomValue(random, levels-1)
	}
	return object
}

func randomString(random *rand.Rand) string {
	words := []string{key, key, key, key, "managed", `"`, `\`, `]`, `[`, `{`, `}`, `:`, ` `, "\u2028", "<", "é"}
	text := words[random.IntN(len(words))]
	for random.IntN(3) == 0 {
		text += words[random.IntN(len(words))]
	}
	return text
}
