package footest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/plan"
)

// A queue is the controller's queue, which also records when keys come back.
type queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
	retries workqueue.TypedRateLimiter[cache.ObjectName]
	// key was handed out last.
	key cache.ObjectName
	// collecting says that keys which are added go to collected first.
	collecting bool
	collected  []cache.ObjectName
	// due are the times at which keys come back.
	due map[time.Time]bool
	// delayed is the delay that the present sync asked for, nil for none.
	delayed *time.Duration
	// delays are the delays of keys that have not succeeded since.
	delays map[cache.ObjectName]delay
}

// A delay is the time that a key stays away, as the output describes it.
type delay struct {
	until time.Time
	line  string
	shown bool
}

func newQueue(of workqueue.TypedRateLimitingInterface[cache.ObjectName],
	retries workqueue.TypedRateLimiter[cache.ObjectName]) *queue {
	return &queue{
		TypedRateLimitingInterface: of, retries: retries,
		due: map[time.Time]bool{}, delays: map[cache.ObjectName]delay{},
	}
}

func (q *queue) Get() (cache.ObjectName, bool) {
	key, shutdown := q.TypedRateLimitingInterface.Get()
	q.key = key
	return key, shutdown
}

func (q *queue) Add(key cache.ObjectName) {
	if q.collecting {
		q.collected = append(q.collected, key)
		return
	}
	q.TypedRateLimitingInterface.Add(key)
}

// addCollected adds what was collected, by name.
func (q *queue) addCollected() {
	q.collecting = false
	slices.SortFunc(q.collected, compareNames)
	for _, key := range q.collected {
		q.Add(key)
	}
	q.collected = nil
}

// AddRateLimited does what client-go's queue does, by way of our AddAfter.
func (q *queue) AddRateLimited(key cache.ObjectName) {
	q.AddAfter(key, q.retries.When(key))
}

func (q *queue) AddAfter(key cache.ObjectName, after time.Duration) {
	q.delayed = &after
	q.TypedRateLimitingInterface.AddAfter(key, after)
}

// nextDue returns the next time at which a key comes back.
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

// recordDelay notes when the key of the last sync comes back, and why.
func (c *controllerUnderTest) recordDelay() {
	key := c.queue.key
	if c.synced.Outcome.Kind != plan.Wait {
		delete(c.queue.delays, key)
	}
	if c.queue.delayed == nil {
		return
	}
	after := *c.queue.delayed
	until, line := time.Now().Add(after), fmt.Sprintf("%s is tried again within %v", key.Name, after)
	switch c.synced.Outcome.For {
	case plan.NextStep: // Part of what the controller is doing, and no delay that a user sees.
		c.env.resumeAt = until
		return
	case plan.CacheBehind:
		line = key.Name + " waits for the caches"
	}
	c.queue.due[until] = true
	// A delay that ends at the same time, or reads the same, is the one that has been shown.
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
