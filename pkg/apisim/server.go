package apisim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/rest"
)

// A Server is a simulated API server. It is an http.RoundTripper, may be used by any number of goroutines, and
// has none of its own. Make one with New, and make it inside the bubble when it is used in testing/synctest.
type Server struct {
	kinds   []*resource // In the order of New.
	byPath  map[schema.GroupVersionResource]*resource
	scheme  *runtime.Scheme
	strict  runtime.Serializer // Reads JSON, and complains of unknown fields.
	lax     runtime.Serializer // Reads JSON.
	started time.Time

	mu           sync.Mutex // Guards what follows, and resources. Never held while anybody waits.
	version      int64      // The last resourceVersion given.
	compacted    int64      // What is older than that is forgotten.
	requests     int        // How many there were.
	uids, names  int        // How many were given.
	wake         chan struct{}
	interceptors []func(*Request, func() (*http.Response, error)) (*http.Response, error)
	onEvents     []func(*Watch, Event) error
	mutating     []func(*Admission) error
	validating   []func(*Admission) error
	trace        trace
}

// New returns an API server that knows these kinds and stores nothing but the namespace "default" (when Namespaces
// are registered). It panics when a Kind lacks what it must have, or comes twice.
func New(kinds ...Kind) *Server {
	s := &Server{
		byPath:  map[schema.GroupVersionResource]*resource{},
		scheme:  runtime.NewScheme(),
		started: time.Now(),
		version: 1,
	}
	s.trace.keep = -1
	for _, kind := range kinds {
		r, err := newResource(kind)
		if err != nil {
			panic("apisim: " + err.Error())
		}
		if s.byPath[r.Resource] != nil {
			panic(fmt.Sprintf("apisim: %s is registered twice", r.Resource))
		}
		s.kinds = append(s.kinds, r)
		s.byPath[r.Resource] = r
		if !isUnstructured(r.Object) {
			s.scheme.AddKnownTypeWithName(r.gvk, r.Object)
		}
	}
	s.scheme.AddKnownTypeWithName(scaleKind, &autoscalingv1.Scale{})
	s.strict, s.lax = jsonSerializer(s.scheme, true), jsonSerializer(s.scheme, false)
	if r := s.namespaces(); r != nil {
		s.createDefaultNamespace(r)
	}
	return s
}

func jsonSerializer(scheme *runtime.Scheme, strict bool) runtime.Serializer {
	return serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, scheme, scheme,
		serializerjson.SerializerOptions{Strict: strict})
}

func (s *Server) createDefaultNamespace(r *resource) {
	obj := r.empty()
	accessor(obj).SetName(metav1.NamespaceDefault)
	by := &Request{User: "apisim", Verb: "create", Resource: r.Resource, Name: metav1.NamespaceDefault, server: s}
	c := &call{server: s, request: by, kind: r}
	if _, err := c.insert(obj); err != nil {
		panic("apisim: create the namespace default: " + err.Error())
	}
}

// namespaces returns the kind of namespaces, nil if it is not registered.
func (s *Server) namespaces() *resource {
	return s.byPath[corev1.SchemeGroupVersion.WithResource("namespaces")]
}

// RoundTrip answers a request in place of a network and a server. The body of the answer to a watch blocks its
// reader until there is an event, the request's context ends or somebody closes it. An error is what an
// interceptor returned, or the context's.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	user, _, _ := strings.Cut(r.UserAgent(), "/")
	return s.roundTrip(r, user)
}

// Config returns the configuration of a client of the server. The trace and the interceptors know its requests
// by the name of the user. There is no limit to their rate. It may be modified.
func (s *Server) Config(user string) *rest.Config {
	return &rest.Config{Host: "http://apisim", Transport: &connection{server: s, user: user}, QPS: -1, UserAgent: user}
}

// A connection knows who makes requests.
type connection struct {
	server *Server
	user   string
}

func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.server.roundTrip(r, c.user)
}

// Intercept adds a function that every request passes through, inside those added before. It may wait, answer
// in place of the server (Request.Refuse), call next and return what that does, call next and then lose the
// answer, or call it again as a network that repeats itself. No lock is held.
func (s *Server) Intercept(f func(r *Request, next func() (*http.Response, error)) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interceptors = append(slices.Clip(s.interceptors), f)
}

// InterceptEvents adds a function that is called before an event goes out on a watch, by the goroutine that
// reads the watch. It may wait, which holds up later events of that watch; an error breaks the stream, and the
// event is not told on it. No lock is held.
func (s *Server) InterceptEvents(f func(w *Watch, e Event) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onEvents = append(slices.Clip(s.onEvents), f)
}

// Compact forgets history, as a real server does every few minutes: new watches and lists from an older version, and
// continue tokens, are answered that they are expired. Open watches go on, and tell what they have yet to tell; one
// that an event interceptor breaks cannot be resumed where it was, though.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
	for _, r := range s.kinds {
		if n := len(r.history); n > 0 {
			r.dropped, r.history, r.base = r.history[n-1].Version, nil, r.tail
		}
	}
}
