package syncs

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A State is what the endpoint serves as JSON. Names of fields are not changed, and fields are only added.
type State struct {
	// Kind is the kind of the objects, such as foo.
	Kind string    `json:"kind"`
	Now  time.Time `json:"now"`
	// Started is since when syncs are recorded. Another value means another process: numbers begin again.
	Started time.Time `json:"started"`
	// Last is the largest Number of all Records: give it as after= to get only what is new.
	Last int64 `json:"last"`
	// Dropped is how many syncs were recorded, and dropped for newer ones.
	Dropped int64 `json:"dropped"`
	Queue   Queue `json:"queue"`
	// Syncs are the Records that the request asked for, the newest sync first.
	Syncs []Record `json:"syncs"`
}

// A Queue is the present state of a queue.
type Queue struct {
	// Tokens is how many retries may begin at once, of all keys together.
	Tokens int `json:"tokens"`
	// Namespaces are those with keys, the one with the most first, at most 200. NamespacesLeftOut is the number of others.
	Namespaces        []Namespace `json:"namespaces"`
	NamespacesLeftOut int         `json:"namespacesLeftOut,omitempty"`
}

// A Namespace has the numbers of keys of one namespace.
type Namespace struct {
	Namespace string `json:"namespace"`
	// Waiting is how many are queued, InWork how many are being synced, and BackingOff how many others have failed and
	// come back later.
	Waiting    int `json:"waiting"`
	InWork     int `json:"inWork"`
	BackingOff int `json:"backingOff"`
}

const maxNamespaces = 200

// A filter is what a request asks for.
type filter struct {
	namespace, outcome string // Empty is any.
	name               string // A part of the name.
	after              int64
	limit              int
}

// running is the outcome that a request gives for syncs that have not ended.
const running = "running"

func (f *filter) accepts(r *Record) bool {
	outcome := cmp.Or(r.Outcome, running)
	return r.Number > f.after && (f.namespace == "" || f.namespace == r.Namespace) &&
		(f.outcome == "" || f.outcome == outcome) && strings.Contains(r.Name, f.name)
}

// state returns what f asks for.
func (l *Log) state(f filter) State {
	state := State{Kind: l.kind, Started: l.started.UTC(), Queue: l.queue(), Syncs: []Record{}}
	state.Queue.bound()
	l.mu.Lock()
	defer l.mu.Unlock()
	state.Now, state.Last = time.Now().UTC(), l.last
	state.Dropped = l.store.lastID - int64(len(l.store.byID))
	for _, s := range l.store.byID {
		if f.accepts(&s.record) {
			state.Syncs = append(state.Syncs, s.record)
		}
	}
	slices.SortFunc(state.Syncs, func(a, b Record) int { return cmp.Compare(b.ID, a.ID) })
	state.Syncs = state.Syncs[:min(len(state.Syncs), f.limit)]
	return state
}

// bound sorts the namespaces and leaves out those beyond the limit.
func (q *Queue) bound() {
	slices.SortFunc(q.Namespaces, func(a, b Namespace) int {
		return cmp.Or(cmp.Compare(b.keys(), a.keys()), cmp.Compare(a.Namespace, b.Namespace))
	})
	if more := len(q.Namespaces) - maxNamespaces; more > 0 {
		q.Namespaces, q.NamespacesLeftOut = q.Namespaces[:maxNamespaces], more
	}
	if q.Namespaces == nil {
		q.Namespaces = []Namespace{}
	}
}

func (n Namespace) keys() int { return n.Waiting + n.InWork + n.BackingOff }
