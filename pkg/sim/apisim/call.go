package apisim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A call is a request for a resource while the server answers it.
type call struct {
	server   *Server
	request  *Request
	kind     *resource
	dryRun   bool
	warnings []string
}

// An answer is the result of a call that succeeds. Exactly one of revision, object, encoded and stream is set.
type answer struct {
	code     int
	revision *Revision
	object   runtime.Object
	encoded  []byte        // In the media type that the client accepts.
	stream   io.ReadCloser // A watch.
	warnings []string
	version  string // Of a list.
}

// serve answers a request.
func (s *Server) serve(r *Request) (*http.Response, error) {
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	kind := s.byPath[r.Resource]
	if kind == nil || !kind.hasSubresource(r.Subresource) || (kind.ClusterScoped && r.Namespace != "") {
		response, err := s.discover(r)
		if err == nil {
			s.traceServed(r, response, outcome(response.StatusCode, "", ""))
		}
		return response, err
	}
	c := &call{server: s, request: r, kind: kind}
	got, err := c.answer()
	if cause := context.Cause(r.Context()); cause != nil && errors.Is(err, cause) {
		return nil, cause // The client has given up and gets no response.
	}
	response, result := s.respond(r, got, err)
	s.traceServed(r, response, result)
	return response, nil
}

// notFound is the response to an unknown path. Its body is not an API object.
func notFound(r *Request) *http.Response {
	body := io.NopCloser(bytes.NewBufferString("404 page not found\n"))
	return response(r, http.StatusNotFound, "text/plain; charset=utf-8", body)
}

func (c *call) answer() (*answer, error) {
	if c.request.Verb != "watch" || c.request.Query.Get("watch") != "" {
		if _, err := c.accepts(); err != nil && c.request.Verb != "patch" {
			return nil, err
		}
	}
	switch verb := c.request.Verb; {
	case c.request.Subresource == "scale":
		return c.scale()
	case verb == "get":
		return c.get()
	case c.request.Subresource != "" && verb != "update" && verb != "patch":
		return nil, apierrors.NewMethodNotSupported(c.kind.gr, verb)
	case verb == "list":
		return c.list()
	case verb == "watch":
		return c.watch()
	case verb == "create" && c.request.Name == "" && (c.request.Namespace != "" || c.kind.ClusterScoped):
		return c.create()
	case verb == "update" && c.request.Name != "":
		return c.update()
	case verb == "patch" && c.request.Name != "":
		return c.patch()
	case verb == "delete":
		return c.delete()
	case verb == "deletecollection":
		return c.deleteCollection()
	}
	return nil, apierrors.NewMethodNotSupported(c.kind.gr, c.request.Verb)
}

// options decodes the query into one of the option types of metav1, and validates it.
func options[T runtime.Object](c *call, into T, kind string, validate func(T) field.ErrorList) (T, error) {
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(c.request.Query, metav1.SchemeGroupVersion, into)
	if err != nil {
		return into, apierrors.NewBadRequest(err.Error())
	}
	if errs := validate(into); len(errs) > 0 {
		return into, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
	}
	return into, nil
}

// respond encodes an answer or an error, and describes it for the trace.
func (s *Server) respond(r *Request, got *answer, err error) (*http.Response, string) {
	media := acceptedMedia(r, s.byPath[r.Resource])
	if err != nil {
		return s.respondError(r, media, err)
	}
	if got.stream != nil {
		return response(r, http.StatusOK, media.stream(), got.stream), outcome(http.StatusOK, "", "")
	}
	body, err := media.encode(got)
	if err != nil {
		return s.respondError(r, media, err)
	}
	answered := response(r, got.code, string(media), io.NopCloser(bytes.NewReader(body)))
	answered.ContentLength = int64(len(body))
	for _, warning := range got.warnings {
		text, _ := json.Marshal(warning) // Encoding a string cannot fail.
		answered.Header.Add("Warning", "299 - "+string(text))
	}
	return answered, outcome(got.code, "", got.resourceVersion(r))
}

func (s *Server) respondError(r *Request, media media, err error) (*http.Response, string) {
	status := statusOf(err)
	body, err := media.encode(&answer{object: status})
	if err != nil { // A Status can always be encoded.
		panic("apisim: encode an answer: " + err.Error())
	}
	answered := response(r, int(status.Code), string(media), io.NopCloser(bytes.NewReader(body)))
	answered.ContentLength = int64(len(body))
	if details := status.Details; details != nil && details.RetryAfterSeconds > 0 {
		answered.Header.Set("Retry-After", strconv.Itoa(int(details.RetryAfterSeconds)))
	}
	return answered, outcome(int(status.Code), status.Reason, "") + ": " + shorten(status.Message, 120)
}

// resourceVersion returns the resourceVersion of the object or list in an answer. For a delete it returns the version
// of the deletion.
func (a *answer) resourceVersion(r *Request) string {
	switch n := len(r.committed); {
	case a.version != "":
		return a.version
	case n > 0:
		return strconv.FormatInt(r.committed[n-1].Version, 10)
	case a.revision != nil:
		return accessor(a.revision.Object).GetResourceVersion()
	}
	return ""
}

func response(r *Request, code int, contentType string, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}}, Body: body, ContentLength: -1, Request: r.HTTP,
	}
}
