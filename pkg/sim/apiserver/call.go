package apiserver

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
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Request is a request of a client, as interceptors see it. Its fields must not be modified, except the Query before
// next is called.
type Request struct {
	Number      int       // Counts from 1, in the order in which requests arrived.
	Time        time.Time // When it arrived.
	User        string    // From Config, or the user agent.
	Verb        string    // get, list, watch, create, update, patch, delete or deletecollection.
	Resource    schema.GroupVersionResource
	Subresource string // status, scale, finalize or empty.
	Namespace   string
	Name        string // Empty for a collection and for a create.
	Query       url.Values
	Body        []byte
	HTTP        *http.Request // Its body has been read.

	server    *Server
	path      []string
	committed []*Revision
	raw       map[string]json.RawMessage // The fields of an object from LoadJSON.
	entry     *entry
	refusal   served // The last response that Refuse returned.
}

// Context returns the context of the request, which ends when the client gives up.
func (r *Request) Context() context.Context {
	return r.HTTP.Context()
}

// Sleep delays an interceptor by d. It returns early with the error of the context if the client gives up.
func (r *Request) Sleep(d time.Duration) error {
	return pause(r.Context(), d)
}

// String describes the request in the style of kubectl: "patch deployments/status default/web".
func (r *Request) String() string {
	what := r.Resource.Resource
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	switch {
	case r.Resource.Resource == "":
		return r.Verb + " /" + strings.Join(r.path, "/")
	case r.Name != "":
		return fmt.Sprintf("%s %s %s", r.Verb, what, fullName(r.Namespace, r.Name))
	case r.Namespace != "":
		return fmt.Sprintf("%s %s -n %s", r.Verb, what, r.Namespace)
	}
	return r.Verb + " " + what
}

func fullName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// request reads a request. It returns an error if the body cannot be read.
func (s *Server) request(r *http.Request, user string) (*Request, error) {
	req := &Request{Time: time.Now(), User: user, HTTP: r, Query: r.URL.Query(), server: s}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close() // The body was read, so an error does not matter.
		if err != nil {
			return nil, fmt.Errorf("read the body of the request: %w", err)
		}
		req.Body = body
	}
	req.path = strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	req.resolve(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	req.Number = s.requests
	return req, nil
}

// resolve parses the path. Resource stays empty if the path is not that of a resource.
func (r *Request) resolve(s *Server) {
	parts := r.path
	var gv schema.GroupVersion
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		r.Verb = strings.ToLower(r.HTTP.Method)
		return
	}
	// The path of a subresource of a namespace looks like that of a resource in the namespace.
	own := []string{"status", "finalize"}
	inNamespace := parts[0] == "namespaces" && len(parts) >= 3 && !slices.Contains(own, parts[2])
	if inNamespace {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Resource = gv.WithResource(parts[0])
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = strings.Join(parts[2:], "/")
	}
	r.Verb = r.verb()
}

func (r *Request) verb() string {
	switch r.HTTP.Method {
	case http.MethodGet:
		switch {
		case r.Name != "":
			return "get"
		case isTrue(r.Query["watch"]):
			return "watch"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		if r.Name == "" {
			return "deletecollection"
		}
	}
	return strings.ToLower(r.HTTP.Method)
}

// isTrue reports whether a parameter of a query is true, as a server reads it: everything except false and 0 is.
func isTrue(values []string) bool {
	return len(values) > 0 && strings.ToLower(values[0]) != "false" && values[0] != "0"
}

// roundTrip passes a request through the interceptors.
func (s *Server) roundTrip(r *http.Request, user string) (*http.Response, error) {
	req, err := s.request(r, user)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	interceptors := s.interceptors
	s.mu.Unlock()
	next := func() (*http.Response, error) { return s.serve(req) }
	for _, intercept := range slices.Backward(interceptors) {
		inner := next
		next = func() (*http.Response, error) { return intercept(req, inner) }
	}
	response, err := next()
	s.traceAnswer(req, response, err)
	return response, err
}

// A call is a request for a resource while the server answers it.
type call struct {
	server   *Server
	request  *Request
	kind     *resource
	dryRun   bool
	warnings []string
}

// An answer is the result of a call that succeeds. Exactly one of revision, object, page and stream is set.
type answer struct {
	code     int
	revision *Revision
	object   runtime.Object
	page     *page
	stream   io.ReadCloser // A watch.
}

// serve answers a request.
func (s *Server) serve(r *Request) (*http.Response, error) {
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	kind := s.served(r.Resource)
	if kind == nil || !kind.serves(r) {
		response, result := s.discover(r, kind)
		s.traceServed(r, response, result)
		return response, nil
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
		return generic(http.StatusMethodNotAllowed, "")
	}
	return generic(http.StatusNotFound, "")
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

func (c *call) answer() (*answer, error) {
	if c.request.Verb != "patch" {
		if _, err := c.accepts(); err != nil {
			return nil, err
		}
	}
	switch verb, named := c.request.Verb, c.request.Name != ""; {
	case c.kind.isView && !slices.Contains(viewVerbs, verb):
		return nil, c.notAllowed()
	case verb == "get" && c.request.Subresource == "scale":
		return c.getScale()
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
	return generic(http.StatusMethodNotAllowed, "")
}

// options decodes the query into one of the option types of metav1, and validates it. It notes a dry run.
func options[T runtime.Object](c *call, into T, kind string, validate func(T) field.ErrorList) (T, error) {
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(c.request.Query, metav1.SchemeGroupVersion, into)
	if err != nil {
		return into, apierrors.NewBadRequest(err.Error())
	}
	if validate != nil {
		if errs := validate(into); len(errs) > 0 {
			return into, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
		}
	}
	c.dryRun = len(c.request.Query["dryRun"]) > 0
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
	case n > 0:
		return strconv.FormatInt(r.committed[n-1].Version, 10)
	case a.page != nil && r.Verb == "list":
		return a.page.meta.ResourceVersion
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
