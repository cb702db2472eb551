package fairqueue

import (
	"cmp"
	"container/heap"
	"math"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

var _ workqueue.Queue[string] = (*schedule[string])(nil)

const (
	// slowAfter is the time after which a key in hand is slow.
	slowAfter = time.Second
	// perWorker is the number of keys that may be in hand for each worker, including slow ones.
	perWorker = 4
	// changesPerInitial is how many other keys are handed out before one of the initial list that could be.
	changesPerInitial = 7
	// longestWait is how long a token is waited for before the limiter is asked again. Its rate may have been changed.
	longestWait = time.Minute
	// never is a time that does not come.
	never = time.Duration(math.MaxInt64)
)

// A schedule is the storage of a workqueue.Typed. It has all keys that are queued or in hand, and chooses which of them
// is next. No method blocks, and they may not be called concurrently.
type schedule[K comparable] struct {
	workers     int
	limit       int // The number of keys of one namespace that may be in hand.
	namespaceOf func(K) string
	tokens      *rate.Limiter // Nil: no key needs a token.

	// now is the time of the operation that is under way. All times count from the creation of the Queue.
	now        time.Duration
	items      map[K]*item[K]
	namespaces map[string]*namespace[K]
	// changes and initial are the turns of the lanes with these names.
	changes, initial turns[K]
	// passed is the number of keys that were handed out while one of the initial list could be, since the last of those.
	passed  int
	queued  int
	numbers int // The last number that was given to an item.
	inHand  int
	// fast has the keys in hand that are not slow. The first is the one that has been in hand for the longest time.
	fast minHeap[*item[K]]
	// chosen is the item that Pop returns.
	chosen *item[K]
	// stopping means that there are no limits any more, and that no key needs a token.
	stopping bool
}

func newSchedule[K comparable](workers int, namespaceOf func(K) string, tokens *rate.Limiter) *schedule[K] {
	if tokens != nil && tokens.Limit() == rate.Inf {
		tokens = nil
	}
	return &schedule[K]{
		workers: workers, limit: max(1, workers/2), namespaceOf: namespaceOf, tokens: tokens,
		items: map[K]*item[K]{}, namespaces: map[string]*namespace[K]{},
		changes: newTurns[K](), initial: newTurns[K](),
		fast: minHeap[*item[K]]{before: bySince[K]},
	}
}

// claim notes that key is about to be added in class.
func (s *schedule[K]) claim(key K, class Class) {
	it, name := s.items[key], s.namespaceOf(key)
	switch {
	case it == nil:
		it = &item[K]{key: key}
		it.inHeap.value, it.inFast.value = it, it
		s.items[key] = it
		s.join(it, name)
	case it.namespace.name != name && !it.inHand: // It is another object of this name. Push or Touch gives it a place.
		it.inHeap.move(nil)
		s.updateTurns(it.namespace)
		s.leave(it)
		s.join(it, name)
	}
	if s.tokens == nil && class == Failed {
		class = Retry
	}
	it.claim = it.claim.and(class)
}

// join makes a key one of a namespace.
func (s *schedule[K]) join(it *item[K], name string) {
	it.namespace = s.namespace(name)
	it.namespace.items++
}

// leave drops the namespace of a key with its last key.
func (s *schedule[K]) leave(it *item[K]) {
	it.namespace.items--
	if it.namespace.items == 0 {
		s.changes.leave(&it.namespace.changes)
		s.initial.leave(&it.namespace.initial)
		delete(s.namespaces, it.namespace.name)
	}
}

// namespace returns the namespace, which may be new.
func (s *schedule[K]) namespace(name string) *namespace[K] {
	n := s.namespaces[name]
	if n == nil {
		n = newNamespace[K](name)
		s.namespaces[name] = n
	}
	return n
}

// Push queues a key for which there is a claim.
func (s *schedule[K]) Push(key K) {
	s.queued++
	s.numbers++
	it := s.items[key]
	it.queued, it.number, it.rank = true, s.numbers, s.now+it.claim.handicap
	s.update(it)
}

// Touch moves a queued key up if it was added again with a better claim.
func (s *schedule[K]) Touch(key K) {
	it := s.items[key]
	it.rank = min(it.rank, s.now+it.claim.handicap)
	s.update(it)
}

// Len returns the number of keys that are queued.
func (s *schedule[K]) Len() int { return s.queued }

// choose chooses the key that Pop returns, and takes the token if it needs one. It returns false if no key may be
// handed out now.
func (s *schedule[K]) choose() bool {
	s.chosen = nil
	if !s.hasPlace() {
		return false
	}
	s.chosen = s.best(true)
	if s.chosen != nil && s.chosen.claim.needsToken() && !s.takeToken() {
		s.chosen = s.best(false)
	}
	return s.chosen != nil
}

// best returns the key whose turn it is, or nil. Those that need a token count only if withToken.
func (s *schedule[K]) best(withToken bool) *item[K] {
	l := s.next(withToken)
	if l == nil {
		return nil
	}
	return l.best(withToken)
}

// next returns the lane whose turn it is, or nil. Keys that need a token count only if withToken.
func (s *schedule[K]) next(withToken bool) *lane[K] {
	change, initial := s.changes.next(withToken), s.initial.next(withToken)
	if change == nil || initial != nil && s.passed >= changesPerInitial {
		return initial
	}
	return change
}

// Pop hands out the chosen key.
func (s *schedule[K]) Pop() K {
	it := s.chosen
	s.chosen = nil
	s.endTurn(it.lane())
	s.queued--
	s.inHand++
	it.namespace.inHand++
	it.queued, it.inHand, it.claim, it.since = false, true, claim{}, s.now
	it.inFast.move(&s.fast)
	s.update(it)
	return it.key
}

// endTurn follows when a key of the lane is handed out.
func (s *schedule[K]) endTurn(l *lane[K]) {
	if l == &l.namespace.initial {
		s.passed = 0
		s.initial.served(l)
		return
	}
	if s.initial.next(true) != nil {
		s.passed++
	}
	s.changes.served(l)
}

// putBack ends the time in hand of a key. It returns false if the key is not in hand.
func (s *schedule[K]) putBack(key K) bool {
	it := s.items[key]
	if it == nil || !it.inHand {
		return false
	}
	s.inHand--
	it.namespace.inHand--
	it.inHand = false
	it.inFast.move(nil)
	s.update(it)
	return true
}

// forget drops a key that is neither queued nor in hand, and its namespace with its last key.
func (s *schedule[K]) forget(key K) {
	it := s.items[key]
	if it.queued {
		return
	}
	delete(s.items, key)
	s.leave(it)
}

// update gives a key that has changed, and its namespace, their places.
func (s *schedule[K]) update(it *item[K]) {
	it.inHeap.move(it.heap())
	s.updateTurns(it.namespace)
}

func (s *schedule[K]) updateTurns(n *namespace[K]) {
	s.changes.update(&n.changes, s.limit)
	s.initial.update(&n.initial, s.limit)
}

// hasPlace reports whether one more key may be in hand.
func (s *schedule[K]) hasPlace() bool {
	return s.stopping || s.fast.len() < s.workers && s.inHand < perWorker*s.workers
}

func (s *schedule[K]) takeToken() bool { return s.stopping || s.tokens.Allow() }

// advance sets the time of the next operation, and finds the keys in hand that have become slow.
func (s *schedule[K]) advance(now time.Duration) {
	s.now = now
	for it := s.fast.first(); it != nil && it.since+slowAfter <= now; it = s.fast.first() {
		it.inFast.move(nil)
	}
}

// nextChance returns when a key may be handed out, as far as time alone decides: now, later, or never.
func (s *schedule[K]) nextChance() time.Duration {
	switch {
	case s.next(true) == nil:
		return never
	case s.hasPlace() && s.next(false) != nil:
		return s.now
	case s.hasPlace():
		return s.nextToken()
	case s.inHand < perWorker*s.workers:
		return s.fast.first().since + slowAfter
	}
	return never
}

// nextToken returns when there is a token.
func (s *schedule[K]) nextToken() time.Duration {
	missing := 1 - s.tokens.Tokens()
	if missing <= 0 {
		return s.now
	}
	wait := min(missing/float64(s.tokens.Limit()), longestWait.Seconds())
	return s.now + time.Duration(math.Ceil(wait*float64(time.Second)))
}

// stop lifts the limits: from now on everything that is queued is handed out.
func (s *schedule[K]) stop() {
	s.stopping, s.limit = true, math.MaxInt
	for _, n := range s.namespaces {
		s.updateTurns(n)
	}
}

// settle follows every operation.
func (s *schedule[K]) settle() {
	s.changes.settle()
	s.initial.settle()
}

// newcomersInARound is how many new namespaces are served in a round before those that have been served in it already.
const newcomersInARound = 1000

// turns is the order in which the namespaces are served, by one of the two lanes that each of them has.
type turns[K comparable] struct {
	round int
	last  int // The last place that was given.
	// free has the candidates with a key that needs no token, retries those with a key that needs one.
	free, retries minHeap[*lane[K]]
	// newcomers is the number of new namespaces that may still join this round. Without a limit, new ones that never end
	// would keep all others from their next turn.
	newcomers, newcomersInARound int
	// left has the namespaces that were served in this round and have been forgotten since. Without it, a namespace that
	// comes back with one key again and again would always be new in the round, and the others would wait for ever.
	left map[string]struct{}
}

func newTurns[K comparable]() turns[K] {
	return turns[K]{
		free:    minHeap[*lane[K]]{before: byTurn[K]},
		retries: minHeap[*lane[K]]{before: byTurn[K]},
		left:    map[string]struct{}{},

		newcomers: newcomersInARound, newcomersInARound: newcomersInARound,
	}
}

// next returns the lane whose turn it is, or nil. Those that have only keys that need a token count only if
// withToken.
func (t *turns[K]) next(withToken bool) *lane[K] {
	return firstOf(&t.free, &t.retries, withToken)
}

// join gives a turn to a lane that gets its first key.
func (t *turns[K]) join(l *lane[K]) {
	l.joined, l.turn = true, t.round
	if _, served := t.left[l.namespace.name]; served || t.newcomers == 0 {
		l.turn++
		return
	}
	t.newcomers--
}

// leave forgets the lane of a namespace.
func (t *turns[K]) leave(l *lane[K]) {
	if l.joined && l.turn > t.round {
		t.left[l.namespace.name] = struct{}{}
	}
}

// served ends the turn of l. Its next one is in the next round.
func (t *turns[K]) served(l *lane[K]) {
	if l.turn > t.round {
		t.round = l.turn
		t.forget()
	}
	l.turn = t.round + 1
	l.place = t.newPlace()
}

// settle follows every operation. When nobody waits for a turn, nobody needs to know who had one.
func (t *turns[K]) settle() {
	if t.next(true) == nil {
		t.forget()
	}
}

// forget forgets what was noted for this round.
func (t *turns[K]) forget() {
	t.newcomers = t.newcomersInARound
	if len(t.left) > 0 {
		t.left = map[string]struct{}{} // clear would take as long as for the most entries that it ever had.
	}
}

// update gives l its place in the turns after the keys of its namespace have changed. When its first key is queued, it
// is the last of those with the same turn. While its namespace is at its limit, it keeps its turn and its place.
// Otherwise the initial list of the namespace might always be before its changes.
func (t *turns[K]) update(l *lane[K], limit int) {
	waiting := l.queued() > 0
	if waiting && !l.joined {
		t.join(l)
	}
	if waiting && !l.waiting {
		l.turn, l.place = max(l.turn, t.round), t.newPlace()
	}
	l.waiting = waiting
	candidate := waiting && l.namespace.inHand < limit
	l.inFree.move(only(candidate && l.free.len() > 0, &t.free))
	l.inRetries.move(only(candidate && l.retries.len() > 0, &t.retries))
}

// only returns the heap if wanted, else nil.
func only[T any](wanted bool, heap *minHeap[T]) *minHeap[T] {
	if !wanted {
		return nil
	}
	return heap
}

func (t *turns[K]) newPlace() int {
	t.last++
	return t.last
}

func byTurn[K comparable](a, b *lane[K]) bool {
	return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.place, b.place)) < 0
}

// A namespace has the keys of one namespace that are queued, and the number of those in hand.
type namespace[K comparable] struct {
	name   string
	items  int // Queued or in hand.
	inHand int
	// initial has the queued keys that were only added as Initial, changes has the others.
	changes, initial lane[K]
}

// A lane has queued keys of one namespace. It has a turn while a key is queued. While the namespace is at its limit, it
// keeps the turn, and others are served before it.
type lane[K comparable] struct {
	namespace *namespace[K]
	// free has the queued keys that need no token, retries those that do. The first is the one with the smallest rank.
	free, retries minHeap[*item[K]]

	// joined means that it has a turn, waiting that a key is queued.
	joined, waiting bool
	// turn is the round in which the lane may be served. Of two with the same turn the smaller place is first.
	turn, place int
	// inFree and inRetries are its elements in the turns.
	inFree, inRetries element[*lane[K]]
}

func newNamespace[K comparable](name string) *namespace[K] {
	n := &namespace[K]{name: name}
	for _, l := range []*lane[K]{&n.changes, &n.initial} {
		l.namespace = n
		l.free.before, l.retries.before = byRank[K], byRank[K]
		l.inFree.value, l.inRetries.value = l, l
	}
	return n
}

// An item is a key that is queued or in hand.
type item[K comparable] struct {
	key       K
	namespace *namespace[K]
	claim     claim

	// Queued:
	queued bool
	rank   time.Duration
	number int // Of two with the same rank the smaller number is first.
	inHeap element[*item[K]]

	// In hand:
	inHand bool
	since  time.Duration
	inFast element[*item[K]]
}

// best returns the key that is next in the lane, or nil. Those that need a token count only if withToken.
func (l *lane[K]) best(withToken bool) *item[K] {
	return firstOf(&l.free, &l.retries, withToken)
}

func (l *lane[K]) queued() int { return l.free.len() + l.retries.len() }

// lane returns the lane in which the key belongs when it is queued.
func (it *item[K]) lane() *lane[K] {
	if it.claim.initial {
		return &it.namespace.initial
	}
	return &it.namespace.changes
}

// heap returns the heap in which the key belongs, or nil if it is not queued.
func (it *item[K]) heap() *minHeap[*item[K]] {
	if it.claim.needsToken() {
		return only(it.queued, &it.lane().retries)
	}
	return only(it.queued, &it.lane().free)
}

func byRank[K comparable](a, b *item[K]) bool {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.number, b.number)) < 0
}

func bySince[K comparable](a, b *item[K]) bool { return a.since < b.since }

// A minHeap is a set of values, the first of them at hand. The caller owns the elements, so that a value can be moved
// and removed without a search.
type minHeap[T any] struct {
	before   func(a, b T) bool
	elements []*element[T]
}

// An element is the place of a value in a heap.
type element[T any] struct {
	value T
	in    *minHeap[T] // Nil: in no heap.
	index int
}

func (h *minHeap[T]) len() int { return len(h.elements) }

// first returns the first value, or the zero value if the heap is empty.
func (h *minHeap[T]) first() (value T) {
	if h.len() == 0 {
		return value
	}
	return h.elements[0].value
}

// firstOf returns the first value of two heaps with the same order, or the zero value. Those of withToken count only if
// token is true.
func firstOf[T comparable](free, withToken *minHeap[T], token bool) T {
	var none T
	first, other := free.first(), withToken.first()
	if token && other != none && (first == none || free.before(other, first)) {
		return other
	}
	return first
}

// move puts e into the heap to, or to its place there if its value has changed. Nil means no heap.
func (e *element[T]) move(to *minHeap[T]) {
	if e.in != nil {
		heap.Remove((*sorter[T])(e.in), e.index)
	}
	if to != nil {
		heap.Push((*sorter[T])(to), e)
	}
}

// A sorter is a minHeap as container/heap needs it.
type sorter[T any] minHeap[T]

func (s *sorter[T]) Len() int           { return len(s.elements) }
func (s *sorter[T]) Less(i, j int) bool { return s.before(s.elements[i].value, s.elements[j].value) }

func (s *sorter[T]) Swap(i, j int) {
	s.elements[i], s.elements[j] = s.elements[j], s.elements[i]
	s.elements[i].index, s.elements[j].index = i, j
}

func (s *sorter[T]) Push(x any) {
	e := x.(*element[T])
	e.in, e.index = (*minHeap[T])(s), len(s.elements)
	s.elements = append(s.elements, e)
}

func (s *sorter[T]) Pop() any {
	last := len(s.elements) - 1
	e := s.elements[last]
	s.elements[last] = nil
	s.elements = s.elements[:last]
	e.in = nil
	return e
}
