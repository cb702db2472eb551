package apiserver

import (
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A view is a resource that shows the objects of another one in another version. They can be read in it, but not
// written.

// viewVerbs are the verbs of a view.
var viewVerbs = metav1.Verbs{"get", "list", "watch"}

// addViews shows Events of events.k8s.io/v1 as Events of v1, too, unless New has a kind for these.
func (s *Server) addViews() error {
	core := coreEvents()
	stored := s.byPath[eventsv1.SchemeGroupVersion.WithResource("events")]
	if stored == nil || stored.custom || s.byPath[core.Resource] != nil {
		return nil
	}
	r, err := newResource(core)
	if err != nil {
		return err
	}
	r.storage, r.isView = stored.storage, true
	s.views = append(s.views, r)
	return nil
}

// served returns the resource with a path, nil if there is none.
func (s *Server) served(path schema.GroupVersionResource) *resource {
	for _, r := range s.views {
		if r.Resource == path {
			return r
		}
	}
	return s.byPath[path]
}

// shown returns a revision with its object in the version of the resource.
func (r *resource) shown(rev *Revision) (*Revision, error) {
	if !r.isView {
		return rev, nil
	}
	obj := coreEvent(rev.Object)
	obj.SetGroupVersionKind(r.gvk)
	return r.newRevision(rev.Type, obj, nil)
}
