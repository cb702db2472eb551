package fairqueue

import "cmp"

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
