package fairqueue

import (
	"cmp"
	"time"
)

// A namespace has the keys of one namespace that are queued, and the number of those in hand. It takes part in the
// turns while it is a candidate: a key is queued, and its limit is not reached.
type namespace[K comparable] struct {
	name   string
	items  int // Queued or in hand.
	inHand int
	// free has the queued keys that need no token, retries those that do. The first is the one with the smallest rank.
	free, retries minHeap[*item[K]]

	candidate bool
	// turn is the round in which the namespace may be served. Of two with the same turn the smaller place is first.
	turn, place int
	// inFree and inRetries are its elements in the turns.
	inFree, inRetries element[*namespace[K]]
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

// best returns the key that is next in the namespace, or nil. Those that need a token count only if withToken.
func (n *namespace[K]) best(withToken bool) *item[K] {
	return firstOf(&n.free, &n.retries, withToken)
}

func (n *namespace[K]) queued() int { return n.free.len() + n.retries.len() }

// heap returns the heap of its namespace in which it belongs, or nil if it is not queued.
func (it *item[K]) heap() *minHeap[*item[K]] {
	if it.claim.needsToken {
		return only(it.queued, &it.namespace.retries)
	}
	return only(it.queued, &it.namespace.free)
}

func byRank[K comparable](a, b *item[K]) bool {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.number, b.number)) < 0
}

func bySince[K comparable](a, b *item[K]) bool { return a.since < b.since }
