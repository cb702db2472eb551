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

// A Record is what is known of one sync. Texts are cut after 1,024 bytes. Times are in UTC.
type Record struct {
	// ID is 1 for the first sync of the process, and one more for each later one.
	ID int64 `json:"id"`
	// Number grows with each change of any Record, so that a reader can ask for what is new.
	Number    int64  `json:"number"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ReconcileID is in each line of the log about this sync.
	ReconcileID string `json:"reconcileID"`

	// Why is what queued the key: the last event, if there were several. Queued is when it could have been handed out
	// first. It then waited for a worker, for its turn, or for a token.
	Why           string    `json:"why"`
	Queued        time.Time `json:"queued,omitzero"`
	Began         time.Time `json:"began"`
	WaitedSeconds float64   `json:"waitedSeconds"`

	// Observed is what the sync read from the caches, in one line.
	Observed string `json:"observed,omitempty"`
	// Requests are the first 30 that the sync sent. RequestsLeftOut is the number of the others.
	Requests        []Request `json:"requests,omitempty"`
	RequestsLeftOut int       `json:"requestsLeftOut,omitempty"`
	// Rules has the answer of each rule when the sync ended. A controller without rules has none.
	Rules []Rule `json:"rules,omitempty"`
	// StatusBefore and StatusAfter are the status of the object, in one line each.
	StatusBefore string `json:"statusBefore,omitempty"`
	StatusAfter  string `json:"statusAfter,omitempty"`

	// Ended is zero while the sync runs. Outcome is done, retry, wait or terminal. For is what the key waits for, and
	// Until when it comes back, if no event comes first.
	Ended   time.Time `json:"ended,omitzero"`
	Outcome string    `json:"outcome,omitempty"`
	For     string    `json:"for,omitempty"`
	Until   time.Time `json:"until,omitzero"`
	Error   string    `json:"error,omitempty"`
}

// A Request is one request to the API server.
type Request struct {
	At time.Time `json:"at"`
	// Rule is the rule that asked for the request, and Why its reason.
	Rule string `json:"rule,omitempty"`
	Why  string `json:"why,omitempty"`
	// Request is what was sent, such as "patch Deployment", for the object Name.
	Request string `json:"request"`
	Name    string `json:"name"`
	// Fields are what the request changes, at most 20.
	Fields []Field `json:"fields,omitempty"`
	// Answer is the error if the request Failed, and else "ok", unless it was set before. Sync.Sent sets these.
	Answer      string  `json:"answer"`
	Failed      bool    `json:"failed,omitempty"`
	TookSeconds float64 `json:"tookSeconds,omitzero"`
}

// A Field is a field that a request changes.
type Field struct {
	Path string `json:"path"`
	Have string `json:"have"`
	Want string `json:"want"`
}

// A Rule is what a rule of the controller answered, in words.
type Rule struct {
	Rule   string `json:"rule"`
	Answer string `json:"answer"`
	Sends  bool   `json:"sends"`
}

const (
	maxText     = 1024
	maxRequests = 30
	maxFields   = 20
	maxRules    = 30
)

// clip returns text without what is too long. The result does not keep the memory of the whole.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// bounded returns the first values, at most limit of them, in memory of their own, each changed by bound.
func bounded[T any](values []T, limit int, bound func(*T)) []T {
	values = slices.Clone(values[:min(len(values), limit)])
	for i := range values {
		bound(&values[i])
	}
	return values
}

func (r *Request) bound() {
	r.Rule, r.Why, r.Request, r.Name, r.Answer = clip(r.Rule), clip(r.Why), clip(r.Request), clip(r.Name), clip(r.Answer)
	r.Fields = bounded(r.Fields, maxFields, func(f *Field) {
		f.Path, f.Have, f.Want = clip(f.Path), clip(f.Have), clip(f.Want)
	})
}

// size returns about how many bytes of memory the Record needs.
func (r *Record) size() int {
	size := 600 + texts(r.Why, r.Observed, r.StatusBefore, r.StatusAfter, r.For, r.Error, r.Namespace, r.Name)
	for i := range r.Requests {
		request := &r.Requests[i]
		size += 200 + texts(request.Rule, request.Why, request.Request, request.Name, request.Answer)
		for j := range request.Fields {
			field := &request.Fields[j]
			size += 48 + texts(field.Path, field.Have, field.Want)
		}
	}
	for i := range r.Rules {
		size += 40 + texts(r.Rules[i].Rule, r.Rules[i].Answer)
	}
	return size
}

// texts returns the length of all texts.
func texts(all ...string) (size int) {
	for _, text := range all {
		size += len(text)
	}
	return size
}
