package fairqueue

import (
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

	// byRank is the order of the heaps of new namespaces. It is a field so that a test can count the comparisons.
	byRank func(a, b *item[K]) bool
}

func newSchedule[K comparable](workers int, namespaceOf func(K) string, tokens *rate.Limiter) *schedule[K] {
	if tokens != nil && tokens.Limit() == rate.Inf {
		tokens = nil
	}
	return &schedule[K]{
		workers: workers, limit: max(1, workers/2), namespaceOf: namespaceOf, tokens: tokens,
		items: map[K]*item[K]{}, namespaces: map[string]*namespace[K]{}, byRank: byRank[K],
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
		n = newNamespace(name, s.byRank)
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
