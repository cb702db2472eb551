package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
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
	if r := s.byPath[gvr]; r != nil {
		return s.get(r, namespace, name)
	}
	return nil
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

	kind     *resource
	previous *Revision // Of the object, nil if it was added. The lock guards it, and a compaction drops it.
	encoded  []byte    // JSON.
	// raw has the fields of the JSON of an object that LoadJSON stored.
	raw map[string]json.RawMessage
	// missingDefaults is true for a new custom resource that a real server stores without the defaults of its status,
	// which it adds when it reads the object. The next write stores the defaults, so it is a change even if it changes
	// nothing else.
	missingDefaults bool
}

func (r *resource) newRevision(kind watch.EventType, obj, before runtime.Object) (*Revision, error) {
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", r.gr, accessor(obj).GetName(), err)
	}
	return &Revision{
		Type: kind, Resource: r.Resource, Namespace: accessor(obj).GetNamespace(), Name: accessor(obj).GetName(),
		Object: obj, Before: before, kind: r, encoded: encoded,
	}, nil
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

// get returns a stored object, nil if it does not exist.
func (s *Server) get(r *resource, namespace, name string) runtime.Object {
	if rev := s.find(r, r.key(namespace, name)); rev != nil {
		return rev.Object
	}
	return nil
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
	rev.previous = have
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
	for w := range s.streams {
		if w.kind.storage == r.storage {
			w.changes = append(w.changes, rev)
		}
	}
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
		r.order = slices.Sorted(maps.Keys(r.live))
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

// revisionsAt returns the revisions that were current at version, in the order of their keys. The version must not be
// older than the last compaction. The caller holds the lock.
func (r *resource) revisionsAt(version int64) []*Revision {
	then := maps.Clone(r.live)
	for _, rev := range slices.Backward(r.since(version)) {
		key := r.key(rev.Namespace, rev.Name)
		if then[key] = rev.previous; rev.previous == nil {
			delete(then, key)
		}
	}
	var revisions []*Revision
	for _, key := range slices.Sorted(maps.Keys(then)) {
		revisions = append(revisions, then[key])
	}
	return revisions
}

// changes returns the fields in which two objects differ: "spec.replicas 3 -> 5, spec.paused none -> true". It leaves
// out times if other fields differ too.
func changes(before, after runtime.Object) string {
	const most, longest = 8, 60
	have, want := leaves(before), leaves(after)
	all := maps.Clone(have)
	maps.Copy(all, want)
	var diffs, times []string
	for _, path := range slices.Sorted(maps.Keys(all)) {
		from, was := have[path]
		to, is := want[path]
		switch {
		case from == to && was == is:
			continue
		case !was:
			from = "none"
		case !is:
			to = "none"
		}
		change := fmt.Sprintf("%s %s -> %s", path, shorten(from, longest), shorten(to, longest))
		if strings.HasSuffix(path, "Time") {
			times = append(times, change)
			continue
		}
		diffs = append(diffs, change)
	}
	if len(diffs) == 0 {
		diffs = times
	}
	if len(diffs) > most {
		diffs = append(diffs[:most], fmt.Sprintf("and %d more", len(diffs)-most))
	}
	return strings.Join(diffs, ", ")
}

func shorten(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return s[:longest] + "..."
}

// leaves returns the values in an object by their paths, without the resourceVersion, which every write changes.
func leaves(obj runtime.Object) map[string]string {
	found := map[string]string{}
	fields, err := content(obj)
	if err != nil {
		return map[string]string{"": err.Error()}
	}
	collect(found, "", fields)
	delete(found, "metadata.resourceVersion")
	return found
}

func collect(found map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if strings.ContainsAny(key, "./") {
				key = "[" + key + "]"
			} else if path != "" {
				key = "." + key
			}
			collect(found, path+key, field)
		}
	case []any:
		for i, element := range value {
			collect(found, path+label(i, element), element)
		}
	default:
		found[path] = fmt.Sprint(value)
	}
}

// label returns the path element of an item in a list: its uid, name or type, or else its index.
func label(i int, element any) string {
	fields, _ := element.(map[string]any)
	for _, key := range []string{"uid", "name", "type"} {
		if name, ok := fields[key].(string); ok {
			return "[" + name + "]"
		}
	}
	return fmt.Sprintf("[%d]", i)
}
