package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
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
	version  string        // Of a list.
}

// serve answers a request.
func (s *Server) serve(r *Request) (*http.Response, error) {
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	kind := s.served(r.Resource)
	if kind == nil || !kind.serves(r) {
		response, result, err := s.discover(r, kind)
		if err == nil {
			s.traceServed(r, response, result)
		}
		return response, err
	}
	c := &call{server: s, request: r, kind: kind}
	got, err := c.answer()
	if cause := context.Cause(r.Context()); cause != nil && errors.Is(err, cause) {
		return nil, cause // The client has given up and gets no response.
	}
	response, result := c.respond(got, err)
	s.traceServed(r, response, result)
	return response, nil
}

// serves reports whether the kind has the path of the request. Outside of a namespace, objects of a kind that has
// namespaces can only be listed and watched.
func (r *resource) serves(req *Request) bool {
	switch {
	case !r.hasSubresource(req.Subresource):
		return false
	case r.ClusterScoped:
		return req.Namespace == ""
	}
	return req.Namespace != "" || req.Verb == "list" || req.Verb == "watch"
}

// notServed returns the error for a path that is not served, nil if the response is no API object: that is so for the
// groups of custom resources.
func (s *Server) notServed(r *Request, kind *resource) error {
	switch {
	case kind != nil && kind.custom && r.Name != "" && !kind.hasSubresource(r.Subresource) &&
		kind.ClusterScoped == (r.Namespace == ""):
		return apierrors.NewNotFound(kind.gr, r.Name)
	case !s.hasBuiltIn(r.path):
		return nil
	case kind != nil && r.Name == "" && !kind.ClusterScoped:
		return unrouted(http.StatusMethodNotAllowed)
	}
	return unrouted(http.StatusNotFound)
}

// hasBuiltIn reports whether a path is in a group of kinds that come with Kubernetes.
func (s *Server) hasBuiltIn(path []string) bool {
	if len(path) < 2 || path[0] == "api" {
		return len(path) > 1
	}
	return path[0] == "apis" && slices.ContainsFunc(s.kinds, func(r *resource) bool {
		return r.gr.Group == path[1] && !r.custom
	})
}

// notFound is the response to an unknown path. Its body is not an API object.
func notFound(r *Request) *http.Response {
	body := io.NopCloser(bytes.NewBufferString("404 page not found\n"))
	return response(r, http.StatusNotFound, "text/plain; charset=utf-8", body)
}

func (c *call) answer() (*answer, error) {
	if c.request.Verb != "patch" {
		if _, err := c.accepts(); err != nil {
			return nil, err
		}
	}
	switch verb, named := c.request.Verb, c.request.Name != ""; {
	case c.kind.isView && !slices.Contains(viewVerbs, verb):
		return nil, c.notAllowed()
	case c.request.Subresource == "scale":
		return c.scale()
	case verb == "get":
		return c.get()
	case c.request.Subresource != "" && verb != "update" && verb != "patch":
		return nil, c.notAllowed()
	case verb == "list":
		return c.list()
	case verb == "watch":
		return c.watch()
	case verb == "create" && !named:
		return c.create()
	case (verb == "update" || verb == "patch") && !named && c.kind.custom:
		return nil, apierrors.NewBadRequest("name must be provided")
	case verb == "update" && named:
		return c.update()
	case verb == "patch" && named:
		return c.patch()
	case verb == "delete":
		return c.delete()
	case verb == "deletecollection" && !c.kind.isNamespaces():
		return c.deleteCollection()
	}
	return nil, c.notAllowed()
}

// notAllowed returns the error for a method that the kind does not have.
func (c *call) notAllowed() error {
	if c.kind.custom {
		return apierrors.NewMethodNotSupported(c.kind.gr, c.request.Verb)
	}
	return unrouted(http.StatusMethodNotAllowed)
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
func (c *call) respond(got *answer, err error) (*http.Response, string) {
	if err != nil {
		return respondError(c.request, err, c.warnings)
	}
	accepts, err := c.accepts()
	if err != nil {
		return respondError(c.request, err, c.warnings)
	}
	if got.stream != nil {
		return response(c.request, http.StatusOK, accepts.stream(), got.stream), outcome(http.StatusOK, "", "")
	}
	body, err := accepts.encode(c.kind, got)
	if err != nil {
		return respondError(c.request, err, c.warnings)
	}
	answered := encoded(c.request, got.code, accepts.media, body, c.warnings)
	return answered, outcome(got.code, "", got.resourceVersion(c.request))
}

// respondError encodes an error, and describes it for the trace.
func respondError(r *Request, err error, warnings []string) (*http.Response, string) {
	status, media := statusOf(err), errorMedia(r)
	body, err := media.encode(&answer{object: status})
	if err != nil { // A Status can always be encoded.
		panic("apiserver: encode an answer: " + err.Error())
	}
	answered := encoded(r, int(status.Code), media, body, warnings)
	if details := status.Details; details != nil && details.RetryAfterSeconds > 0 {
		answered.Header.Set("Retry-After", strconv.Itoa(int(details.RetryAfterSeconds)))
	}
	return answered, outcome(int(status.Code), status.Reason, "") + ": " + shorten(status.Message, 120)
}

// encoded returns a response with a body and with warnings.
func encoded(r *Request, code int, media media, body []byte, warnings []string) *http.Response {
	answered := response(r, code, string(media), io.NopCloser(bytes.NewReader(body)))
	answered.ContentLength = int64(len(body))
	for _, warning := range warnings {
		text, _ := json.Marshal(warning) // Encoding a string cannot fail.
		answered.Header.Add("Warning", "299 - "+string(text))
	}
	return answered
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
	if r.HTTP.Method == http.MethodHead {
		body = http.NoBody
	}
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}}, Body: body, ContentLength: -1, Request: r.HTTP,
	}
}
