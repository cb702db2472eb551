package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version returns the resourceVersion of the last change.
func (s *Server) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Objects returns the stored objects of a kind, sorted by namespace and name. It returns none if the kind is not
// registered. The objects must not be modified.
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

// Object returns a stored object, nil if it does not exist. It must not be modified.
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

// History returns every change of objects of these kinds since the last compaction, oldest first. Without arguments it
// returns the changes of all kinds. The revisions must not be modified.
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

// Committed returns the changes that the request has made, in order. An interceptor calls it after next has returned.
// It is empty if the request was refused or changed nothing. The revisions must not be modified.
func (r *Request) Committed() []*Revision {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return slices.Clone(r.committed)
}
