package syncs

import (
	"slices"
	"strings"
	"time"
)

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
