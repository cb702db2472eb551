package fairqueue

import "container/heap"

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
	if e.in != nil && e.in == to {
		heap.Fix((*sorter[T])(to), e.index)
		return
	}
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
