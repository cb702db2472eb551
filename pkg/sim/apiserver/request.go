package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
