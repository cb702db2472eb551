package apisim

import "slices"

// Committed returns what the request has changed, in order: for an interceptor, when next has returned. It is empty
// when the request was refused, and when it changed nothing. The revisions must not be modified.
func (r *Request) Committed() []*Revision {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return slices.Clone(r.committed)
}
