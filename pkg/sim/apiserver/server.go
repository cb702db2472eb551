package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// A Server is a simulated API server. It is an http.RoundTripper. It may be used concurrently and has no goroutines of
// its own. Make one with New. A test with testing/synctest must make it inside the bubble.
type Server struct {
	kinds   []*resource // In the order of New.
	views   []*resource // Other versions of them, which can only be read.
	byPath  map[schema.GroupVersionResource]*resource
	scheme  *runtime.Scheme
	strict  runtime.Serializer // Reads JSON and returns an error for unknown fields.
	lenient runtime.Serializer // Reads JSON.
	started time.Time

	mu           sync.Mutex // Guards the fields below and the resources. It is never held during a wait.
	version      int64      // The resourceVersion of the last change.
	compacted    int64      // Older versions are not available.
	keep         int64      // How many changes to keep, negative for all.
	requests     int        // The number of requests so far.
	uids, names  int        // How many were generated.
	wake         chan struct{}
	interceptors []func(*Request, Next) (*http.Response, error)
	onEvents     []func(*Watch, Event) error
	streams      map[*stream]bool // The open watches.
	mutating     []func(*Admission) error
	validating   []func(*Admission) error
	trace        trace
	skew         time.Duration // How far the clock is ahead.
}

// New returns an API server with these kinds. It is empty except for the namespace "default", which exists if
// Namespaces are registered. New panics if a Kind lacks a required field or is registered twice.
func New(kinds ...Kind) *Server {
	s := &Server{
		byPath:  map[schema.GroupVersionResource]*resource{},
		streams: map[*stream]bool{},
		scheme:  runtime.NewScheme(),
		started: time.Now(),
		version: 1,
	}
	s.keep, s.trace.keep = 10_000, 1_000
	for _, kind := range kinds {
		r, err := newResource(kind)
		if err != nil {
			panic(fmt.Sprintf("apiserver: kind %q of %s: %v", kind.Kind, kind.Resource, err))
		}
		if s.byPath[r.Resource] != nil {
			panic(fmt.Sprintf("apiserver: %s is registered twice", r.Resource))
		}
		s.kinds = append(s.kinds, r)
		s.byPath[r.Resource] = r
		if !isUnstructured(r.Object) {
			s.scheme.AddKnownTypeWithName(r.gvk, r.Object)
		}
	}
	s.addViews()
	s.scheme.AddKnownTypeWithName(scaleKind, &autoscalingv1.Scale{})
	s.strict, s.lenient = jsonSerializer(s.scheme, true), jsonSerializer(s.scheme, false)
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
	by := &Request{User: "apiserver", Verb: "create", Resource: r.Resource, Name: metav1.NamespaceDefault, server: s}
	c := &call{server: s, request: by, kind: r}
	if _, err := c.insert(obj); err != nil {
		panic("apiserver: create the namespace default: " + err.Error())
	}
}

// namespaces returns the kind of namespaces, nil if it is not registered.
func (s *Server) namespaces() *resource {
	return s.byPath[corev1.SchemeGroupVersion.WithResource("namespaces")]
}

// RoundTrip answers a request. The body of the response to a watch blocks its reader until there is an event, the
// context of the request ends, or the body is closed. An error comes from an interceptor or from the context.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	user, _, _ := strings.Cut(r.UserAgent(), "/")
	return s.roundTrip(r, user)
}

// Config returns the configuration of a client of the server. The trace and the interceptors show user with its
// requests. The rate of its requests is not limited. The configuration may be modified.
func (s *Server) Config(user string) *rest.Config {
	return &rest.Config{
		Host: "http://apiserver", Transport: &connection{server: s, user: user}, QPS: -1, UserAgent: user,
	}
}

// A connection is the transport of one user.
type connection struct {
	server *Server
	user   string
}

func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.server.roundTrip(r, c.user)
}

// Next passes a request on to the next interceptor, or to the server.
type Next = func() (*http.Response, error)

// Intercept adds a function that every request passes through, after the functions that were added before. The function
// may wait, change the query of the request, answer in place of the server with Request.Refuse, call next and return
// its result, call next and lose the response, or call next twice, as a network that sends a request twice. No lock is
// held.
func (s *Server) Intercept(f func(r *Request, next Next) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interceptors = append(slices.Clip(s.interceptors), f)
}

// InterceptEvents adds a function that is called before an event is sent on a watch, by the goroutine that reads the
// watch. The function may wait, which delays the later events of that watch. An error breaks the watch before the event
// is sent. No lock is held.
func (s *Server) InterceptEvents(f func(w *Watch, e Event) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onEvents = append(slices.Clip(s.onEvents), f)
}

// BreakWatches breaks the open watches that a user has of a resource, or of all resources if it is empty. Their clients
// get the error.
func (s *Server) BreakWatches(user, resource string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		if w.watch.User == user && (resource == "" || resource == w.watch.Resource.Resource) {
			w.end(err)
		}
	}
}

// SkewClock sets how far the clock of the server is ahead of that of the test, or behind if d is negative. Objects then
// have other times of their creation and deletion. Watches still end after their timeout.
func (s *Server) SkewClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = d
}

// now returns the time of the server's clock as objects have it.
func (s *Server) now() metav1.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return metav1.NewTime(time.Now().Add(s.skew)).Rfc3339Copy()
}

// Compact drops the history, as a real server does every few minutes. Afterwards, new watches and lists at older
// versions fail with the reason Expired, and so do continue tokens. Open watches continue and send all their events.
// But a watch that an event interceptor breaks cannot be resumed at an older version.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactTo(s.version)
}

// KeepHistory makes the server keep the last n changes, and temporarily up to twice as many: it drops older ones as
// Compact does. The default is 10,000. A negative n keeps all.
func (s *Server) KeepHistory(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = int64(n)
	s.trimHistory()
}

// trimHistory drops the oldest changes if there are too many. The caller holds the lock.
func (s *Server) trimHistory() {
	if s.keep >= 0 && s.version-s.compacted > 2*s.keep {
		s.compactTo(s.version - s.keep)
	}
}

// compactTo drops the changes up to version. The caller holds the lock.
func (s *Server) compactTo(version int64) {
	s.compacted = version
	for _, r := range s.kinds {
		kept := slices.Clone(r.since(version))
		for _, rev := range r.history[:len(r.history)-len(kept)] {
			r.dropped, rev.previous = rev.Version, nil // What is kept must not keep what is dropped.
		}
		r.history = kept
	}
}

// ServeHTTP answers a request as RoundTrip does, so that kubectl and any other client can use the server: it is an
// http.Handler. The user is the first word of the User-Agent header. A request for which RoundTrip returns an error
// gets no response: its connection is closed.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proxy := &httputil.ReverseProxy{
		Transport:     s,
		Rewrite:       func(*httputil.ProxyRequest) {},
		FlushInterval: -1, // It sends each event of a watch at once.
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	proxy.ServeHTTP(w, r)
}

// The second handler of errors of package runtime delays its caller by real time. In a bubble, an informer that is
// refused would sleep for years. The first one logs, and stays.
func init() {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:min(1, len(utilruntime.ErrorHandlers))]
}

// Load stores copies of objects without admission, defaults and validation, as the restore of a backup does. It
// replaces objects with the same names. Uids, generations, timestamps and statuses do not change, and each object gets
// the next resourceVersion. So a test can begin with objects that no client could create.
//
// Load returns an error if an object belongs to no registered Kind, or has no name, or has a namespace exactly if its
// kind has none. The objects before it are stored. An object belongs to the Kind of its Go type, or else to an
// unstructured one with its own kind and apiVersion.
func (s *Server) Load(objects ...runtime.Object) error {
	for _, obj := range objects {
		r := s.kindOf(obj)
		if r == nil {
			return fmt.Errorf("load %T (%s): it is of no registered kind", obj, obj.GetObjectKind().GroupVersionKind())
		}
		stored := obj.DeepCopyObject()
		if isUnstructured(r.Object) {
			fields, err := content(obj)
			if err != nil {
				return fmt.Errorf("load %T: %w", obj, err)
			}
			stored = &unstructured.Unstructured{Object: fields}
		}
		if err := s.load(r, stored, nil); err != nil {
			return err
		}
	}
	return nil
}

// load stores obj. The caller must not use it afterwards. raw has the fields of its JSON if they are to be kept.
func (s *Server) load(r *resource, obj runtime.Object, raw map[string]json.RawMessage) error {
	obj.GetObjectKind().SetGroupVersionKind(r.gvk)
	m := accessor(obj)
	if m.GetName() == "" || r.ClusterScoped != (m.GetNamespace() == "") {
		return fmt.Errorf("load a %s with the namespace %q and the name %q", r.gvk.Kind, m.GetNamespace(), m.GetName())
	}
	by := &Request{
		User: "apiserver", Verb: "load", Resource: r.Resource, Namespace: m.GetNamespace(), Name: m.GetName(),
		server: s, raw: raw,
	}
	key := r.key(m.GetNamespace(), m.GetName())
	for stored := (*Revision)(nil); stored == nil; { // Again after a conflict.
		var err error
		if stored, err = s.commit(r, key, s.find(r, key), obj, by); err != nil {
			return fmt.Errorf("load %s: %w", key, err)
		}
	}
	return nil
}

// LoadJSON stores an object like Load. Its JSON may have values that the Go type cannot decode: a real server may have
// stored it before there were rules; the type must decode the rest without an error. Clients read these values,
// except those of metadata, until the next write: of the status for values in it, any other for all others.
func (s *Server) LoadJSON(resource schema.GroupVersionResource, object []byte) error {
	r := s.byPath[resource]
	if r == nil {
		return fmt.Errorf("load %s: no such kind is registered", resource)
	}
	obj, raw := r.empty(), map[string]json.RawMessage{}
	if err := errors.Join(utiljson.Unmarshal(object, obj), utiljson.Unmarshal(object, &raw)); err != nil {
		return fmt.Errorf("load %s: %w", resource, err)
	}
	return s.load(r, obj, raw)
}

// keepRaw gives rev, which replaces have, the parts of the JSON that LoadJSON stored and that were not written since.
func (rev *Revision) keepRaw(have *Revision, by *Request) error {
	raw := by.raw
	if raw == nil && have != nil {
		raw = have.raw
	}
	if raw == nil {
		return nil
	}
	if err := utiljson.Unmarshal(rev.encoded, &rev.raw); err != nil {
		return err
	}
	for name, value := range raw {
		written := (name == "status") == (by.Subresource == "status")
		if name != "metadata" && (by.raw != nil || rev.Type == watch.Deleted || !written) {
			rev.raw[name] = value
		}
	}
	var err error
	if rev.encoded, err = json.Marshal(rev.raw); err != nil {
		return err
	}
	rev.Object = rev.kind.empty()
	return utiljson.Unmarshal(rev.encoded, rev.Object)
}

// kindOf returns the kind of obj, nil if it is not registered.
func (s *Server) kindOf(obj runtime.Object) *resource {
	gvk := obj.GetObjectKind().GroupVersionKind()
	for _, r := range s.kinds {
		typed := reflect.TypeOf(obj) == reflect.TypeOf(r.Object)
		if typed && (gvk.Empty() || gvk == r.gvk) || isUnstructured(r.Object) && gvk == r.gvk {
			return r
		}
	}
	return nil
}
