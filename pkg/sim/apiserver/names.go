package apiserver

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/types"
)

// nextUID returns a uid that was not used before. Uids are the same in every run.
func (s *Server) nextUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uids++
	return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", scatter(s.uids), s.uids))
}

// nextName returns a name that begins with prefix. Like a real server, it adds five characters and shortens a prefix
// that leaves no room for them.
func (s *Server) nextName(prefix string) string {
	const (
		longest  = 63 - 5
		alphabet = "bcdfghjklmnpqrstvwxz2456789"
	)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names++
	if len(prefix) > longest {
		prefix = prefix[:longest]
	}
	name := []byte(prefix)
	for rest, i := scatter(s.names), 0; i < 5; i++ {
		name = append(name, alphabet[rest%uint32(len(alphabet))])
		rest /= uint32(len(alphabet))
	}
	return string(name)
}

// scatter hashes n, so that consecutive numbers result in different names.
func scatter(n int) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, n)
	return h.Sum32()
}
