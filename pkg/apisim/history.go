package apisim

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version returns the last resourceVersion that was given.
func (s *Server) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Objects returns what is stored of a kind, by namespace and name, nothing when the kind is not registered. The
// objects must not be modified.
func (s *Server) Objects(gvr schema.GroupVersionResource) []runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byPath[gvr]
	if r == nil {
		return nil
	}
	var objects []runtime.Object
	for _, rev := range r.sorted() {
		objects = append(objects, rev.Object)
	}
	return objects
}

// Object returns a stored object, nil when there is none. It must not be modified.
func (s *Server) Object(gvr schema.GroupVersionResource, namespace, name string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byPath[gvr]
	if r == nil {
		return nil
	}
	rev := r.live[r.key(namespace, name)]
	if rev == nil {
		return nil
	}
	return rev.Object
}

// History returns, oldest first, every change since the last compaction of objects of these kinds, or of all kinds.
// The revisions must not be modified.
func (s *Server) History(gvrs ...schema.GroupVersionResource) []*Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	var revisions []*Revision
	for _, r := range s.kinds {
		if len(gvrs) == 0 || slices.Contains(gvrs, r.Resource) {
			revisions = append(revisions, r.history...)
		}
	}
	slices.SortFunc(revisions, func(a, b *Revision) int { return int(a.Version - b.Version) })
	return revisions
}

// Committed returns what the request has changed, in order: for an interceptor, when next has returned. It is empty
// when the request was refused, and when it changed nothing. The revisions must not be modified.
func (r *Request) Committed() []*Revision {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return slices.Clone(r.committed)
}
