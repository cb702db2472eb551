package footest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// A queue is the queue of a controller. It also records when keys are requeued.
type queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
	controller *controllerUnderTest
	addNow     func(cache.ObjectName, fairqueue.Class)
	// key is the key that Get returned last.
	key cache.ObjectName
	// collecting makes add append keys to collected instead of queueing them.
	collecting bool
	collected  []cache.ObjectName
	// due are the times at which keys are requeued.
	due map[time.Time]bool
	// delayed is the delay that the current sync asked for, or nil.
	delayed *time.Duration
	// delays are the delays of the keys that have not succeeded since then.
	delays map[cache.ObjectName]delay
}

// A delay is the time until a key is requeued, as the output describes it.
type delay struct {
	until time.Time
	line  string
	shown bool
}

func newQueue(c *controllerUnderTest, of *kit.Queue) *queue {
	return &queue{
		TypedRateLimitingInterface: of.Workqueue, controller: c, addNow: of.AddAs,
		due: map[time.Time]bool{}, delays: map[cache.ObjectName]delay{},
	}
}

func (q *queue) Get() (cache.ObjectName, bool) {
	key, shutdown := q.TypedRateLimitingInterface.Get()
	q.key = key
	return key, shutdown
}

// add queues a key at once. Scenarios do not show the class: their output has the order of the names.
func (q *queue) add(key cache.ObjectName, _ fairqueue.Class) {
	if q.collecting {
		q.collected = append(q.collected, key)
		return
	}
	q.addNow(key, fairqueue.Change)
}

// addCollected adds the collected keys in the order of their names.
func (q *queue) addCollected() {
	q.collecting = false
	slices.SortFunc(q.collected, compareNames)
	for _, key := range q.collected {
		q.add(key, fairqueue.Change)
	}
	q.collected = nil
}

// AddRateLimited does what client-go's queue does. It calls the AddAfter below, which records the delay.
func (q *queue) AddRateLimited(key cache.ObjectName) {
	q.AddAfter(key, q.controller.outcome.After)
}

func (q *queue) AddAfter(key cache.ObjectName, after time.Duration) {
	q.delayed = &after
	q.TypedRateLimitingInterface.AddAfter(key, after)
}

// names is the queue of the names of Deployments. The player has no worker for it: the Foos that name a Deployment are
// queued at once, or by addDue when the delay is over.
type names struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
	controller *controllerUnderTest
	addNow     func(cache.ObjectName, fairqueue.Class)
	due        map[cache.ObjectName]time.Time
}

func newNames(c *controllerUnderTest, of *kit.Queue) *names {
	return &names{
		TypedRateLimitingInterface: of.Workqueue, controller: c, addNow: of.AddAs, due: map[cache.ObjectName]time.Time{},
	}
}

func (n *names) add(name cache.ObjectName, class fairqueue.Class) {
	delete(n.due, name)
	n.addNow(name, class)
	n.controller.subject.Names.ProcessNextWorkItem(n.controller.ctx, n.controller.ctx)
}

func (n *names) AddAfter(name cache.ObjectName, after time.Duration) {
	if after == 0 {
		n.add(name, fairqueue.Change)
		return
	}
	if _, waits := n.due[name]; !waits { // The delay is always the same, so the earlier one ends first.
		n.due[name] = time.Now().Add(after)
		n.controller.queue.due[n.due[name]] = true
	}
}

// addDue queues the Foos that name a Deployment whose delay is over.
func (n *names) addDue() {
	for _, name := range slices.SortedFunc(maps.Keys(n.due), compareNames) {
		if !n.due[name].After(time.Now()) {
			n.controller.collect(func() { n.add(name, fairqueue.Change) })
		}
	}
}

// nextDue returns the next time at which a key is requeued.
func (q *queue) nextDue() (next time.Time, found bool) {
	for due := range q.due {
		switch {
		case !due.After(time.Now()):
			delete(q.due, due)
		case !found || due.Before(next):
			next, found = due, true
		}
	}
	return next, found
}

// recordDelay records when the key of the last sync is requeued, and why.
func (c *controllerUnderTest) recordDelay() {
	key := c.queue.key
	if c.outcome.Kind != "wait" {
		delete(c.queue.delays, key)
	}
	if c.queue.delayed == nil {
		return
	}
	after := *c.queue.delayed
	until, line := time.Now().Add(after), fmt.Sprintf("%s is tried again within %v", key.Name, after)
	switch c.outcome.For {
	case reconcile.NextStep: // The sync continues at once. A user does not notice this delay.
		c.env.resumeAt = until
		return
	case reconcile.CacheStale:
		if !c.behind() { // The key comes back after a write. The next sync finds nothing to do.
			return
		}
		line = key.Name + " waits for the caches"
	}
	c.queue.due[until] = true
	// A delay with the same end or the same text is already in the output.
	if have := c.queue.delays[key]; !have.until.Equal(until) && have.line != line {
		c.queue.delays[key] = delay{until: until, line: line}
	}
}

// newDelays returns a line for each delay that has not been shown yet.
func (c *controllerUnderTest) newDelays() []string {
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(c.queue.delays), compareNames) {
		have := c.queue.delays[key]
		if !have.shown {
			lines = append(lines, c.line("%s", have.line))
		}
		have.shown = true
		c.queue.delays[key] = have
	}
	return lines
}

func compareNames(a, b cache.ObjectName) int { return strings.Compare(a.Name, b.Name) }
