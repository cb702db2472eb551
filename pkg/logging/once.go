package logging

import "sync"

// An onceSet remembers hashes, so that what they stand for is logged once. Its memory is bounded: when there are max
// hashes and one more comes, all are forgotten, and may be logged once more. That is simpler than to drop the oldest
// one. The zero value is ready to use. It may be used concurrently.
type onceSet struct {
	mu   sync.Mutex
	seen map[uint64]struct{}
}

// isNew reports whether hash is not remembered, and remembers it.
func (s *onceSet) isNew(hash uint64, max int) bool {
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
