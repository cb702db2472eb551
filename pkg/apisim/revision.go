package apisim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// A Revision is one change of one object. It and what it points to must not be modified.
type Revision struct {
	Version   int64           // The resourceVersion that the change got.
	Time      time.Time       // When it was committed.
	Type      watch.EventType // Added, Modified or Deleted.
	Resource  schema.GroupVersionResource
	Namespace string
	Name      string
	Object    runtime.Object // As it is since, or, when it was deleted, as it was, with the version of its deletion.
	Before    runtime.Object // As it was, nil when it was added.
	User      string         // Who asked for it.
	Request   int            // The number of the request that asked for it.

	kind    *resource
	encoded []byte // JSON.
	// undefaulted says that what a real server stores of a new custom resource lacks the defaults of its status: it
	// fills them in when it reads. The next write stores them, and so is a change even if it changes nothing else.
	undefaulted bool
	binary      func() ([]byte, error)
	departed    func() *Revision
}

func (s *Server) newRevision(r *resource, kind watch.EventType, obj, before runtime.Object) (*Revision, error) {
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", r.gr, accessor(obj).GetName(), err)
	}
	rev := &Revision{
		Type: kind, Resource: r.Resource, Namespace: accessor(obj).GetNamespace(), Name: accessor(obj).GetName(),
		Object: obj, Before: before, kind: r, encoded: encoded,
	}
	rev.binary = sync.OnceValues(func() ([]byte, error) { return encodeBinary(r.gvk, obj) })
	rev.departed = sync.OnceValue(func() *Revision {
		gone, err := s.newRevision(r, watch.Deleted, withVersion(before, rev.Version), before)
		if err != nil {
			panic("apisim: " + err.Error()) // It has been encoded before, with another version.
		}
		gone.Version = rev.Version
		return gone
	})
	return rev, nil
}

// withVersion returns obj with another resourceVersion. The two may share what is in them.
func withVersion(obj runtime.Object, version int64) runtime.Object {
	var other runtime.Object
	if u, ok := obj.(*unstructured.Unstructured); ok {
		other = u.DeepCopy()
	} else {
		shallow := reflect.New(reflect.TypeOf(obj).Elem())
		shallow.Elem().Set(reflect.ValueOf(obj).Elem())
		other = shallow.Interface().(runtime.Object)
	}
	accessor(other).SetResourceVersion(strconv.FormatInt(version, 10))
	return other
}

// find returns the current revision of an object, nil if there is none.
func (s *Server) find(r *resource, key string) *Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.live[key]
}

// commit stores obj in place of have, which is nil when obj is new. A nil obj deletes. It returns nil when the
// object has changed since have was read. It owns obj from then on.
func (s *Server) commit(r *resource, key string, have *Revision, obj runtime.Object, by *Request) (*Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.live[key] != have {
		return nil, nil
	}
	version, kind, before := s.version+1, watch.Added, runtime.Object(nil)
	if have != nil {
		kind, before = watch.Modified, have.Object
	}
	if obj == nil {
		kind, obj = watch.Deleted, withVersion(have.Object, version)
	}
	accessor(obj).SetResourceVersion(strconv.FormatInt(version, 10))
	rev, err := s.newRevision(r, kind, obj, before)
	if err != nil {
		return nil, err
	}
	rev.Version, rev.Time, rev.User, rev.Request = version, time.Now(), by.User, by.Number
	rev.undefaulted = have == nil && r.Custom && r.Status && hasStatus(obj)
	s.version = version
	if kind != watch.Modified {
		r.order = nil
	}
	r.live[key] = rev
	if kind == watch.Deleted {
		delete(r.live, key)
	}
	r.history = append(r.history, rev)
	r.tail.next = &link{revision: rev}
	r.tail = r.tail.next
	by.committed = append(by.committed, rev)
	if by.HTTP != nil {
		s.entryOf(by) // Here, so that the trace has writes in the order of their versions.
	}
	s.tell(r)
	return rev, nil
}

// tell wakes whoever waits for a change of r, or of anything. The lock is held.
func (s *Server) tell(r *resource) {
	for _, wake := range []*chan struct{}{&r.wake, &s.wake} {
		if *wake != nil {
			close(*wake)
			*wake = nil
		}
	}
}

// waiting returns a channel that is closed at the next change. The lock is held.
func waiting(wake *chan struct{}) <-chan struct{} {
	if *wake == nil {
		*wake = make(chan struct{})
	}
	return *wake
}

// sorted returns the current revisions in the order of their keys. The lock is held.
func (r *resource) sorted() []*Revision {
	if r.order == nil {
		r.order = make([]string, 0, len(r.live))
		for key := range r.live {
			r.order = append(r.order, key)
		}
		slices.Sort(r.order)
	}
	revisions := make([]*Revision, len(r.order))
	for i, key := range r.order {
		revisions[i] = r.live[key]
	}
	return revisions
}

// since returns the revisions after version. The lock is held.
func (r *resource) since(version int64) []*Revision {
	first := sort.Search(len(r.history), func(i int) bool { return r.history[i].Version > version })
	return r.history[first:]
}

// linkAt returns the link after which there is what has happened since version. The lock is held.
func (r *resource) linkAt(version int64) *link {
	at := r.base
	for at.next != nil && at.next.revision.Version <= version {
		at = at.next
	}
	return at
}

// at returns the revisions that were current at version, in the order of their keys. It must not be older than
// the last compaction. The lock is held.
func (r *resource) at(version int64) []*Revision {
	later := r.since(version)
	if len(later) == 0 {
		return r.sorted()
	}
	// What is newer than version is undone: an object was what it was before its first later change.
	then := make(map[string]*Revision, len(r.live))
	for key, rev := range r.live {
		if rev.Version <= version {
			then[key] = rev
		}
	}
	for _, rev := range r.history[:len(r.history)-len(later)] {
		key := r.key(rev.Namespace, rev.Name)
		then[key] = rev
		if rev.Type == watch.Deleted {
			delete(then, key)
		}
	}
	// An object not touched between the compaction and version, but since.
	seen := map[string]bool{}
	for _, rev := range later {
		key := r.key(rev.Namespace, rev.Name)
		if !seen[key] && rev.Before != nil && then[key] == nil {
			then[key] = rev.previous()
		}
		seen[key] = true
	}
	revisions := make([]*Revision, 0, len(then))
	for _, rev := range then {
		revisions = append(revisions, rev)
	}
	slices.SortFunc(revisions, func(a, b *Revision) int {
		if r.key(a.Namespace, a.Name) < r.key(b.Namespace, b.Name) {
			return -1
		}
		return 1
	})
	return revisions
}

// previous makes a revision again of the object before rev, which has been compacted away.
func (rev *Revision) previous() *Revision {
	encoded, err := json.Marshal(rev.Before)
	if err != nil {
		panic("apisim: " + err.Error()) // It has been encoded before.
	}
	version, _ := strconv.ParseInt(accessor(rev.Before).GetResourceVersion(), 10, 64)
	before := &Revision{
		Version: version, Type: watch.Modified, Resource: rev.Resource, Namespace: rev.Namespace, Name: rev.Name,
		Object: rev.Before, kind: rev.kind, encoded: encoded,
	}
	before.binary = func() ([]byte, error) { return encodeBinary(rev.kind.gvk, rev.Before) }
	return before
}
