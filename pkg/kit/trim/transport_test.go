package trim

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

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

func TestACompressedResponseIsFiltered(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", req.Header.Get("Accept-Encoding"))
		compressed := gzip.NewWriter(w)
		defer compressed.Close()
		io.WriteString(compressed, `{"managedFields":[1]}`) // The client reads nothing if it fails.
	}))
	defer server.Close()
	resp, err := (&http.Client{Transport: Responses(http.DefaultTransport)}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != `{"managedFields":null}` {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestErrorsAndResponsesWithoutABodyPassUntouched(t *testing.T) {
	noRoute := errors.New("no route")
	for _, want := range []error{nil, noRoute} {
		response := &http.Response{Header: http.Header{"Content-Type": {"application/json"}}}
		resp, err := Responses(roundTripper(func(*http.Request) (*http.Response, error) { return response, want })).RoundTrip(nil)
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

func TestTheTransportBelowIsKnownToClientGo(t *testing.T) {
	below := &http.Transport{}
	wrapper, ok := Responses(below).(utilnet.RoundTripperWrapper)
	if !ok || wrapper.WrappedRoundTripper() != below {
		t.Error("client-go cannot reach the transport below")
	}
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
