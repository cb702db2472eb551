package telemetry

import (
	"hash/maphash"
	"sync"
)

var seed = maphash.MakeSeed()

// Once remembers texts, so that each is logged once. Its memory is bounded: it keeps only hashes, and when there are as
// many as allowed and one more comes, all are forgotten, and may be logged once more. That is simpler than to drop the
// oldest one. Two texts with the same hash count as one, but that is too rare to matter in a log. The zero value is
// ready to use. It may be used concurrently.
type Once struct {
	mu   sync.Mutex
	seen map[uint64]struct{}
}

// IsNew reports whether text is not remembered, and remembers it. max is the number of texts to remember.
func (s *Once) IsNew(text string, max int) bool {
	hash := maphash.String(seed, text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.seen[hash]; known {
		return false
	}
	if s.seen == nil || len(s.seen) >= max {
		s.seen = map[uint64]struct{}{}
	}
	s.seen[hash] = struct{}{}
	return true
}
