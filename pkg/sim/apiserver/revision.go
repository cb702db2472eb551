package apiserver

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

// A Revision is one change of one object. It and the objects in it must not be modified.
type Revision struct {
	Version   int64           // The resourceVersion of the change.
	Time      time.Time       // When it was committed.
	Type      watch.EventType // Added, Modified or Deleted.
	Resource  schema.GroupVersionResource
	Namespace string
	Name      string
	Object    runtime.Object // The new object. For a deletion, the last state with the version of the deletion.
	Before    runtime.Object // The object before the change, nil if it was added.
	User      string         // The user of the request.
	Request   int            // The number of the request.

	kind    *resource
	encoded []byte // JSON.
	// raw has the fields of the JSON of an object that LoadJSON stored.
	raw map[string]json.RawMessage
	// missingDefaults is true for a new custom resource that a real server stores without the defaults of its status,
	// which it adds when it reads the object. The next write stores the defaults, so it is a change even if it changes
	// nothing else.
	missingDefaults bool
	binary          func() ([]byte, error)
	asDeleted       func() *Revision
}

func (r *resource) newRevision(kind watch.EventType, obj, before runtime.Object) (*Revision, error) {
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", r.gr, accessor(obj).GetName(), err)
	}
	rev := &Revision{
		Type: kind, Resource: r.Resource, Namespace: accessor(obj).GetNamespace(), Name: accessor(obj).GetName(),
		Object: obj, Before: before, kind: r, encoded: encoded,
	}
	rev.binary = sync.OnceValues(func() ([]byte, error) { return encodeBinary(r.gvk, obj) })
	rev.asDeleted = sync.OnceValue(func() *Revision {
		deleted, err := r.newRevision(watch.Deleted, withVersion(before, rev.Version), before)
		if err != nil {
			panic("apiserver: " + err.Error()) // Impossible: it was encoded before with another version.
		}
		deleted.Version = rev.Version
		return deleted
	})
	return rev, nil
}

// withVersion returns a copy of obj with another resourceVersion. The copy may share data with obj.
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

// find returns the current revision of an object, nil if the object does not exist.
func (s *Server) find(r *resource, key string) *Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.live[key]
}

// commit replaces have by obj. A nil have creates the object, a nil obj deletes it. It returns nil if the object has
// changed since have was read. The caller must not use obj afterwards.
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
	rev, err := r.newRevision(kind, obj, before)
	if err == nil {
		err = rev.keepRaw(have, by)
	}
	if err != nil {
		return nil, err
	}
	rev.Version, rev.Time, rev.User, rev.Request = version, time.Now(), by.User, by.Number
	rev.missingDefaults = have == nil && by.Verb != "load" && r.custom && r.Status && hasStatus(obj)
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
	s.trimHistory()
	by.committed = append(by.committed, rev)
	if by.HTTP != nil {
		s.entryOf(by) // Adds the entry now, so that the trace has writes in the order of their versions.
	}
	s.notifyWaiters(r)
	return rev, nil
}

// notifyWaiters wakes the goroutines that wait for a change of r or of any resource. The caller holds the lock.
func (s *Server) notifyWaiters(r *resource) {
	for _, wake := range []*chan struct{}{&r.wake, &s.wake} {
		if *wake != nil {
			close(*wake)
			*wake = nil
		}
	}
}

// nextChange returns a channel that is closed at the next change. The caller holds the lock.
func nextChange(wake *chan struct{}) <-chan struct{} {
	if *wake == nil {
		*wake = make(chan struct{})
	}
	return *wake
}

// sorted returns the current revisions in the order of their keys. The caller holds the lock.
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

// since returns the revisions after version. The caller holds the lock.
func (r *resource) since(version int64) []*Revision {
	first := sort.Search(len(r.history), func(i int) bool { return r.history[i].Version > version })
	return r.history[first:]
}

// linkAt returns the link of the last change up to version. The caller holds the lock.
func (r *resource) linkAt(version int64) *link {
	at := r.base
	for at.next != nil && at.next.revision.Version <= version {
		at = at.next
	}
	return at
}

// revisionsAt returns the revisions that were current at version, in the order of their keys. The version must not be
// older than the last compaction. The caller holds the lock.
func (r *resource) revisionsAt(version int64) []*Revision {
	later := r.since(version)
	if len(later) == 0 {
		return r.sorted()
	}
	// Objects that have not changed since version.
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
	// Objects that changed after version, but not between the compaction and version.
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

// previous restores the revision before rev, which was compacted.
func (rev *Revision) previous() *Revision {
	encoded, err := json.Marshal(rev.Before)
	if err != nil {
		panic("apiserver: " + err.Error()) // Impossible: it was encoded before.
	}
	version, _ := strconv.ParseInt(accessor(rev.Before).GetResourceVersion(), 10, 64)
	before := &Revision{
		Version: version, Type: watch.Modified, Resource: rev.Resource, Namespace: rev.Namespace, Name: rev.Name,
		Object: rev.Before, kind: rev.kind, encoded: encoded,
	}
	before.binary = func() ([]byte, error) { return encodeBinary(rev.kind.gvk, rev.Before) }
	return before
}
