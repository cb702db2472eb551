package syncs

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// A Log records syncs. It may be used concurrently. A nil Log records nothing.
type Log struct {
	// Namespace returns the namespace that a key is shown with. Nil is that of the key. It is asked when a sync begins,
	// and may be set before the first one.
	Namespace func(cache.ObjectName) string

	kind    string
	started time.Time
	queue   func() Queue

	mu   sync.Mutex
	last int64 // The last number that was given.
	// events has what queued the keys that wait to be synced, delays those that come back later.
	events, delays map[cache.ObjectName]cause
	store          store
}

// A cause is why a key is queued.
type cause struct {
	why string
	at  time.Time // When the key may be handed out.
}

// maxCauses is how many events, and how many delays, are recorded at a time. When a controller starts there may be more
// keys, and the cause of the others is not recorded.
const maxCauses = 20_000

// New returns a Log of the syncs of a kind, such as foo. queue returns the present state of the queue.
func New(kind string, queue func() Queue) *Log {
	return &Log{
		kind: kind, queue: queue, started: time.Now(), store: newStore(),
		events: map[cache.ObjectName]cause{}, delays: map[cache.ObjectName]cause{},
	}
}

// Queued records why a key is queued now. Of several events, the last one before the sync counts. why should be a
// constant: it is kept for each key that is queued.
func (l *Log) Queued(key cache.ObjectName, why string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	event := cause{why: why, at: time.Now()}
	earlier, found := l.events[key]
	if found {
		event.at = earlier.at
	}
	if found || len(l.events) < maxCauses {
		l.events[key] = event
	}
}

// delayed records that a key comes back when a delay has ended, and returns when. Of several delays of a key, a
// workqueue keeps the one that ends first.
func (l *Log) delayed(key cache.ObjectName, delay cause, now time.Time) time.Time {
	earlier, found := l.delays[key]
	switch {
	case found && !earlier.at.After(now): // It has ended during the sync, so the key is queued already.
		if _, queued := l.events[key]; !queued {
			l.events[key] = earlier
		}
	case found && earlier.at.Before(delay.at):
		return earlier.at
	}
	if found || len(l.delays) < maxCauses {
		l.delays[key] = delay
	}
	return delay.at
}

// cause returns why a key was handed out now, and forgets it: the last event, or else a delay that has ended.
func (l *Log) cause(key cache.ObjectName, now time.Time) (c cause, found bool) {
	if delay, delayed := l.delays[key]; delayed && !delay.at.After(now) {
		c, found = delay, true
		delete(l.delays, key)
	}
	if event, queued := l.events[key]; queued {
		c, found = event, true
		delete(l.events, key)
	}
	return c, found
}

// Begin records that the sync of a key begins. The lines of the log have its reconcileID. Call End of the result, which
// is nil for a nil Log.
func (l *Log) Begin(key cache.ObjectName, reconcileID string) *Sync {
	if l == nil {
		return nil
	}
	shown := key
	if l.Namespace != nil {
		shown.Namespace = l.Namespace(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := &Sync{log: l, queued: key, key: shown, record: Record{
		Namespace: shown.Namespace, Name: shown.Name, ReconcileID: reconcileID, Began: now.UTC(),
		Why: "not recorded",
	}}
	if c, found := l.cause(key, now); found {
		s.record.Why, s.record.Queued = clip(c.why), c.at.UTC()
		s.record.WaitedSeconds = max(0, now.Sub(c.at).Seconds())
	}
	l.changed(s)
	l.store.add(s)
	return s
}

// changed gives the Record of s a new number.
func (l *Log) changed(s *Sync) {
	l.last++
	s.record.Number = l.last
}

// A Sync is one sync that is being recorded, by one goroutine. All methods of a nil Sync do nothing.
type Sync struct {
	log *Log
	// queued is the key in the queue, and key the one under which the sync is shown and kept.
	queued, key cache.ObjectName

	// What follows is guarded by log.mu.

	record Record
	place  place
}

// update changes the Record. The slices in it may only grow, since a reader shares them.
func (s *Sync) update(change func(*Record)) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	change(&s.record)
	s.log.changed(s)
	s.log.store.resized(s)
}

// Observed records what the sync has read from the caches, and the status of the object, in one line each.
func (s *Sync) Observed(observed, status string) {
	if s == nil {
		return
	}
	observed, status = clip(observed), clip(status)
	s.update(func(r *Record) { r.Observed, r.StatusBefore, r.StatusAfter = observed, status, status })
}

// Sent records a request of the sync that was sent at request.At, if that is known, and has been answered now, with err
// or without.
func (s *Sync) Sent(request Request, err error) {
	if s == nil {
		return
	}
	now := time.Now()
	if request.At.IsZero() {
		request.At = now
	}
	request.At, request.TookSeconds = request.At.UTC(), now.Sub(request.At).Seconds()
	request.Answer = cmp.Or(request.Answer, "ok")
	if err != nil {
		request.Answer, request.Failed = err.Error(), true
	}
	request.bound()
	s.update(func(r *Record) {
		if len(r.Requests) == maxRequests {
			r.RequestsLeftOut++
			return
		}
		r.Requests = append(r.Requests, request)
	})
}

// Reported records the status that the sync has written, in one line.
func (s *Sync) Reported(status string) {
	if s == nil {
		return
	}
	status = clip(status)
	s.update(func(r *Record) { r.StatusAfter = status })
}

// Concluded records what the rules answer when the sync has nothing left to send.
func (s *Sync) Concluded(rules []Rule) {
	if s == nil {
		return
	}
	rules = bounded(rules, maxRules, func(r *Rule) { r.Rule, r.Answer = clip(r.Rule), clip(r.Answer) })
	s.update(func(r *Record) { r.Rules = rules })
}

// End records the outcome of the sync. comesBack means that the key comes back after a delay, for a reason that may be
// "". err may be nil.
func (s *Sync) End(outcome string, comesBack bool, after time.Duration, reason string, err error) {
	if s == nil {
		return
	}
	s.update(func(r *Record) {
		now := time.Now()
		r.Ended, r.Outcome, r.For = now.UTC(), outcome, clip(reason)
		if err != nil {
			r.Error = clip(err.Error())
		}
		if comesBack {
			delay := cause{why: "the delay of an earlier " + outcome + " has ended", at: now.Add(after)}
			r.Until = s.log.delayed(s.queued, delay, now).UTC()
		}
	})
}

// contextKey is the key of a Sync in a context.
type contextKey struct{}

// NewContext returns ctx with s in it, or ctx itself if s is nil.
func NewContext(ctx context.Context, s *Sync) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, s)
}

// From returns the Sync in ctx, or nil.
func From(ctx context.Context) *Sync {
	s, _ := ctx.Value(contextKey{}).(*Sync)
	return s
}
