package fairqueue

import (
	"cmp"
	"time"
)

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

func newNamespace[K comparable](name string, byRank func(a, b *item[K]) bool) *namespace[K] {
	n := &namespace[K]{name: name}
	for _, l := range []*lane[K]{&n.changes, &n.initial} {
		l.namespace = n
		l.free.before, l.retries.before = byRank, byRank
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
