package fairqueue

import "cmp"

// turns is the order in which namespaces are served.
type turns[K comparable] struct {
	round int
	last  int // The last place that was given.
	// free has the candidates with a key that needs no token, retries those with a key that needs one.
	free, retries minHeap[*namespace[K]]
	// left has the namespaces that were served in this round and have been forgotten since. Without it, a namespace that
	// comes back with one key again and again would always be new in the round, and the others would wait for ever.
	left map[string]struct{}
}

// next returns the namespace whose turn it is, or nil. Those that have only keys that need a token count only if
// withToken.
func (t *turns[K]) next(withToken bool) *namespace[K] {
	return firstOf(&t.free, &t.retries, withToken)
}

// join gives a new namespace its turn.
func (t *turns[K]) join(n *namespace[K]) {
	n.turn = t.round
	if _, served := t.left[n.name]; served {
		n.turn++
	}
}

// leave forgets a namespace.
func (t *turns[K]) leave(n *namespace[K]) {
	if n.turn > t.round {
		t.left[n.name] = struct{}{}
	}
}

// served ends the turn of n. Its next one is in the next round.
func (t *turns[K]) served(n *namespace[K]) {
	if n.turn > t.round {
		t.round = n.turn
		t.forgetLeft()
	}
	n.turn = t.round + 1
	n.place = t.newPlace()
}

// settle follows every operation. When nobody waits for a turn, nobody needs to know who had one.
func (t *turns[K]) settle() {
	if t.next(true) == nil {
		t.forgetLeft()
	}
}

func (t *turns[K]) forgetLeft() {
	if len(t.left) > 0 {
		t.left = map[string]struct{}{} // clear would take as long as for the most entries that it ever had.
	}
}

// update gives n its place in the turns after its keys have changed. A namespace that becomes a candidate is the last
// of those with the same turn.
func (t *turns[K]) update(n *namespace[K], limit int) {
	candidate := n.queued() > 0 && n.inHand < limit
	if candidate && !n.candidate {
		n.turn = max(n.turn, t.round)
		n.place = t.newPlace()
	}
	n.candidate = candidate
	n.inFree.move(only(candidate && n.free.len() > 0, &t.free))
	n.inRetries.move(only(candidate && n.retries.len() > 0, &t.retries))
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

func byTurn[K comparable](a, b *namespace[K]) bool {
	return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.place, b.place)) < 0
}
