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

// A store keeps the Syncs that are recent, or among the last ones of an object that was synced recently. It is guarded
// by Log.mu.
type store struct {
	lastID int64
	bytes  int
	// order has all Syncs, the oldest first, and byID their elements in it.
	order *list.List
	byID  map[int64]*list.Element
	// objects has the objects, the one first whose last sync is the oldest, and byKey their elements in it.
	objects *list.List
	byKey   map[cache.ObjectName]*list.Element
}

// An object has the last Syncs of one object, the oldest first.
type object struct {
	key   cache.ObjectName
	syncs []*Sync
}

// A place is why the store keeps a Sync.
type place struct {
	recent, ofObject bool
	bytes            int
}

func newStore() store {
	return store{
		order: list.New(), byID: map[int64]*list.Element{}, objects: list.New(), byKey: map[cache.ObjectName]*list.Element{},
	}
}

// add adds the next Sync, and drops those that it displaces.
func (st *store) add(s *Sync) {
	st.lastID++
	s.record.ID, s.place.recent, s.place.ofObject = st.lastID, true, true
	st.byID[st.lastID] = st.order.PushBack(s)
	if e := st.byID[st.lastID-maxRecent]; e != nil {
		old := e.Value.(*Sync)
		old.place.recent = false
		st.dropUnkept(old)
	}

	e := st.byKey[s.key]
	if e == nil {
		e = st.objects.PushBack(&object{key: s.key})
		st.byKey[s.key] = e
	}
	st.objects.MoveToBack(e)
	o := e.Value.(*object)
	if o.syncs = append(o.syncs, s); len(o.syncs) > maxPerObject {
		st.dropOldestOf(o)
	}
	if st.objects.Len() > maxObjects {
		st.dropObject(st.objects.Front())
	}
	st.resized(s)
}

// resized follows when the size of s has changed, and drops the oldest Syncs while all need too much.
func (st *store) resized(s *Sync) {
	if !s.place.recent && !s.place.ofObject {
		return // It was dropped while it ran.
	}
	size := s.record.size()
	st.bytes += size - s.place.bytes
	s.place.bytes = size
	for st.bytes > maxBytes {
		oldest := st.order.Front().Value.(*Sync)
		oldest.place.recent = false
		if !oldest.place.ofObject {
			st.dropUnkept(oldest)
			continue
		}
		e := st.byKey[oldest.key]
		o := e.Value.(*object)
		st.dropOldestOf(o) // It is the oldest of its object, too.
		if len(o.syncs) == 0 {
			st.dropObject(e)
		}
	}
}

func (st *store) dropOldestOf(o *object) {
	oldest := o.syncs[0]
	o.syncs = slices.Delete(o.syncs, 0, 1)
	oldest.place.ofObject = false
	st.dropUnkept(oldest)
}

func (st *store) dropObject(e *list.Element) {
	o := st.objects.Remove(e).(*object)
	delete(st.byKey, o.key)
	for len(o.syncs) > 0 {
		st.dropOldestOf(o)
	}
}

// dropUnkept drops s unless there is a reason to keep it.
func (st *store) dropUnkept(s *Sync) {
	if s.place.recent || s.place.ofObject {
		return
	}
	st.order.Remove(st.byID[s.record.ID])
	delete(st.byID, s.record.ID)
	st.bytes -= s.place.bytes
}
