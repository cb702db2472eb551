package syncs

import (
	"container/list"
	"slices"

	"k8s.io/client-go/tools/cache"
)

const (
	maxRecent    = 1000
	maxObjects   = 1000
	maxPerObject = 20
	maxBytes     = 4 << 20
)

// A store keeps the Syncs that are recent, or among the last ones of an object that was synced recently. When there are
// too many, it drops the oldest of the namespace that has most, so that a namespace whose objects are synced all the
// time does not displace the others. It is guarded by Log.mu.
type store struct {
	lastID     int64
	bytes      int
	byID       map[int64]*Sync
	byKey      map[cache.ObjectName]*object
	namespaces map[string]*namespace
}

// A namespace has what is kept of one namespace, the oldest first.
type namespace struct {
	bytes   int
	syncs   *list.List // Of *Sync.
	objects *list.List // Of *object. The first is the one whose last sync is the oldest.
}

// An object has the last Syncs of one object, the oldest first.
type object struct {
	syncs   []*Sync
	element *list.Element // In namespace.objects.
}

// A place is where the store has a Sync, and why.
type place struct {
	recent, ofObject bool
	bytes            int
	element          *list.Element // In namespace.syncs.
}

func newStore() store {
	return store{byID: map[int64]*Sync{}, byKey: map[cache.ObjectName]*object{}, namespaces: map[string]*namespace{}}
}

// add adds the next Sync, and drops those that it displaces.
func (st *store) add(s *Sync) {
	n := st.namespaces[s.key.Namespace]
	if n == nil {
		n = &namespace{syncs: list.New(), objects: list.New()}
		st.namespaces[s.key.Namespace] = n
	}
	st.lastID++
	s.record.ID = st.lastID
	s.place = place{recent: true, ofObject: true, element: n.syncs.PushBack(s)}
	st.byID[st.lastID] = s

	o := st.byKey[s.key]
	if o == nil {
		o = &object{element: n.objects.PushBack(s.key)}
		st.byKey[s.key] = o
	}
	n.objects.MoveToBack(o.element)
	o.syncs = append(o.syncs, s)

	if old := st.byID[st.lastID-maxRecent]; old != nil {
		old.place.recent = false
		st.dropUnkept(old)
	}
	if len(o.syncs) > maxPerObject {
		st.dropOldestOf(s.key)
	}
	if len(st.byKey) > maxObjects {
		key := st.largest(func(n *namespace) int { return n.objects.Len() }).objects.Front().Value.(cache.ObjectName)
		for st.byKey[key] != nil {
			st.dropOldestOf(key)
		}
	}
	st.resized(s)
}

// resized follows when s has changed, and drops Syncs while all need too much.
func (st *store) resized(s *Sync) {
	st.account(s, s.record.size())
	st.dropUnkept(s)
	for st.bytes > maxBytes {
		oldest := st.largest((*namespace).droppableBytes).oldest()
		if oldest == nil {
			return // All of them are running, and they are as few as the workers.
		}
		oldest.place.recent = false
		for oldest.place.ofObject {
			st.dropOldestOf(oldest.key)
		}
		st.dropUnkept(oldest)
	}
}

// oldest returns the oldest Sync that has ended, or nil.
func (n *namespace) oldest() *Sync {
	for e := n.syncs.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*Sync); !s.record.Ended.IsZero() {
			return s
		}
	}
	return nil
}

// droppableBytes returns the size of a namespace, 0 if all its Syncs are running.
func (n *namespace) droppableBytes() int {
	if n.oldest() == nil {
		return 0
	}
	return n.bytes
}

// account counts s with another size.
func (st *store) account(s *Sync, size int) {
	difference := size - s.place.bytes
	s.place.bytes = size
	st.bytes += difference
	st.namespaces[s.key.Namespace].bytes += difference
}

// largest returns the namespace with the largest size. There must be one.
func (st *store) largest(size func(*namespace) int) (largest *namespace) {
	for _, n := range st.namespaces {
		if largest == nil || size(n) > size(largest) {
			largest = n
		}
	}
	return largest
}

// dropOldestOf ends that the oldest Sync of an object is kept as one of its last ones.
func (st *store) dropOldestOf(key cache.ObjectName) {
	o := st.byKey[key]
	oldest := o.syncs[0]
	o.syncs = slices.Delete(o.syncs, 0, 1)
	if len(o.syncs) == 0 {
		st.namespaces[key.Namespace].objects.Remove(o.element)
		delete(st.byKey, key)
	}
	oldest.place.ofObject = false
	st.dropUnkept(oldest)
}

// dropUnkept drops s unless there is a reason to keep it. One that is running is shown until it ends.
func (st *store) dropUnkept(s *Sync) {
	if s.place.recent || s.place.ofObject || s.record.Ended.IsZero() || st.byID[s.record.ID] == nil {
		return
	}
	n := st.namespaces[s.key.Namespace]
	st.account(s, 0)
	n.syncs.Remove(s.place.element)
	delete(st.byID, s.record.ID)
	if n.syncs.Len() == 0 {
		delete(st.namespaces, s.key.Namespace)
	}
}
