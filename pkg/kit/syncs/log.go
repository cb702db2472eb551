// Package syncs records what a controller did lately, for a person who wants to see why: which event queued an object,
// what its sync observed, which rule sent which request, what the API server answered, and when the object comes back.
//
// A Log records the syncs of one queue, with strings, numbers and times only: it knows no kind. Its handler serves them
// as a page, as text, and as JSON, see State. It is for a loopback address, see package serving: names and messages of
// all namespaces are in it.
//
// A Log is bounded, whatever users do: it has the last 1,000 syncs and the last 20 of each of the 1,000 objects that
// were synced last, up to 4 MiB of them, and the causes of up to 40,000 syncs to come. Only syncs that are running may
// need more. A nil Log records nothing, and costs nothing: a program without the endpoint has one.
package syncs

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// A Log records syncs. It may be used concurrently. A nil Log records nothing.
type Log struct {
	// Namespace returns the namespace that a key is shown with. Nil is that of the key. It is asked when a sync begins,
	// and may be set before the first one.
	Namespace func(cache.ObjectName) string

	kind    string
	started time.Time
	queue   func() Queue

	mu   sync.Mutex
	last int64 // The last number that was given.
	// events has what queued the keys that wait to be synced, delays those that come back later.
	events, delays map[cache.ObjectName]cause
	store          store
}

// A cause is why a key is queued.
type cause struct {
	why string
	at  time.Time // When the key may be handed out.
}

// maxCauses is how many events, and how many delays, are recorded at a time. When a controller starts there may be more
// keys, and the cause of the others is not recorded.
const maxCauses = 20_000

// New returns a Log of the syncs of a kind, such as foo. queue returns the present state of the queue.
func New(kind string, queue func() Queue) *Log {
	return &Log{
		kind: kind, queue: queue, started: time.Now(), store: newStore(),
		events: map[cache.ObjectName]cause{}, delays: map[cache.ObjectName]cause{},
	}
}

// Queued records why a key is queued now. Of several events, the last one before the sync counts. why should be a
// constant: it is kept for each key that is queued.
func (l *Log) Queued(key cache.ObjectName, why string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	event := cause{why: why, at: time.Now()}
	earlier, found := l.events[key]
	if found {
		event.at = earlier.at
	}
	if found || len(l.events) < maxCauses {
		l.events[key] = event
	}
}

// delayed records that a key comes back when a delay has ended, and returns when. Of several delays of a key, a
// workqueue keeps the one that ends first.
func (l *Log) delayed(key cache.ObjectName, delay cause, now time.Time) time.Time {
	earlier, found := l.delays[key]
	switch {
	case found && !earlier.at.After(now): // It has ended during the sync, so the key is queued already.
		if _, queued := l.events[key]; !queued {
			l.events[key] = earlier
		}
	case found && earlier.at.Before(delay.at):
		return earlier.at
	}
	if found || len(l.delays) < maxCauses {
		l.delays[key] = delay
	}
	return delay.at
}

// cause returns why a key was handed out now, and forgets it: the last event, or else a delay that has ended.
func (l *Log) cause(key cache.ObjectName, now time.Time) (c cause, found bool) {
	if delay, delayed := l.delays[key]; delayed && !delay.at.After(now) {
		c, found = delay, true
		delete(l.delays, key)
	}
	if event, queued := l.events[key]; queued {
		c, found = event, true
		delete(l.events, key)
	}
	return c, found
}

// Begin records that the sync of a key begins. The lines of the log have its reconcileID. Call End of the result, which
// is nil for a nil Log.
func (l *Log) Begin(key cache.ObjectName, reconcileID string) *Sync {
	if l == nil {
		return nil
	}
	shown := key
	if l.Namespace != nil {
		shown.Namespace = l.Namespace(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := &Sync{log: l, queued: key, key: shown, record: Record{
		Namespace: shown.Namespace, Name: shown.Name, ReconcileID: reconcileID, Began: now.UTC(),
		Why: "not recorded",
	}}
	if c, found := l.cause(key, now); found {
		s.record.Why, s.record.Queued = clip(c.why), c.at.UTC()
		s.record.WaitedSeconds = max(0, now.Sub(c.at).Seconds())
	}
	l.changed(s)
	l.store.add(s)
	return s
}

// changed gives the Record of s a new number.
func (l *Log) changed(s *Sync) {
	l.last++
	s.record.Number = l.last
}

// A Sync is one sync that is being recorded, by one goroutine. All methods of a nil Sync do nothing.
type Sync struct {
	log *Log
	// queued is the key in the queue, and key the one under which the sync is shown and kept.
	queued, key cache.ObjectName

	// What follows is guarded by log.mu.

	record Record
	place  place
}

// update changes the Record. The slices in it may only grow, since a reader shares them.
func (s *Sync) update(change func(*Record)) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	change(&s.record)
	s.log.changed(s)
	s.log.store.resized(s)
}

// Observed records what the sync has read from the caches, and the status of the object, in one line each.
func (s *Sync) Observed(observed, status string) {
	if s == nil {
		return
	}
	observed, status = clip(observed), clip(status)
	s.update(func(r *Record) { r.Observed, r.StatusBefore, r.StatusAfter = observed, status, status })
}

// Sent records a request of the sync that was sent at request.At, if that is known, and has been answered now, with err
// or without.
func (s *Sync) Sent(request Request, err error) {
	if s == nil {
		return
	}
	now := time.Now()
	if request.At.IsZero() {
		request.At = now
	}
	request.At, request.TookSeconds = request.At.UTC(), now.Sub(request.At).Seconds()
	request.Answer = cmp.Or(request.Answer, "ok")
	if err != nil {
		request.Answer, request.Failed = err.Error(), true
	}
	request.bound()
	s.update(func(r *Record) {
		if len(r.Requests) == maxRequests {
			r.RequestsLeftOut++
			return
		}
		r.Requests = append(r.Requests, request)
	})
}

// Reported records the status that the sync has written, in one line.
func (s *Sync) Reported(status string) {
	if s == nil {
		return
	}
	status = clip(status)
	s.update(func(r *Record) { r.StatusAfter = status })
}

// Concluded records what the rules answer when the sync has nothing left to send.
func (s *Sync) Concluded(rules []Rule) {
	if s == nil {
		return
	}
	rules = bounded(rules, maxRules, func(r *Rule) { r.Rule, r.Answer = clip(r.Rule), clip(r.Answer) })
	s.update(func(r *Record) { r.Rules = rules })
}

// End records the outcome of the sync. comesBack means that the key comes back after a delay, for a reason that may be
// "". err may be nil.
func (s *Sync) End(outcome string, comesBack bool, after time.Duration, reason string, err error) {
	if s == nil {
		return
	}
	s.update(func(r *Record) {
		now := time.Now()
		r.Ended, r.Outcome, r.For = now.UTC(), outcome, clip(reason)
		if err != nil {
			r.Error = clip(err.Error())
		}
		if comesBack {
			delay := cause{why: "the delay of an earlier " + outcome + " has ended", at: now.Add(after)}
			r.Until = s.log.delayed(s.queued, delay, now).UTC()
		}
	})
}

// contextKey is the key of a Sync in a context.
type contextKey struct{}

// NewContext returns ctx with s in it, or ctx itself if s is nil.
func NewContext(ctx context.Context, s *Sync) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, s)
}

// From returns the Sync in ctx, or nil.
func From(ctx context.Context) *Sync {
	s, _ := ctx.Value(contextKey{}).(*Sync)
	return s
}

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
