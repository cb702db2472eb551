package scenario

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// delays are when the keys of a controller come back.
type delays struct {
	// synced is the key of the last sync.
	synced cache.ObjectName
	// due are the times at which keys come back.
	due map[time.Time]bool
	// of are the delays of the keys that have not succeeded since then.
	of map[cache.ObjectName]delay
}

// A delay is the time until a key comes back, as the output describes it.
type delay struct {
	until time.Time
	line  string
	shown bool
}

func newDelays() delays {
	return delays{due: map[time.Time]bool{}, of: map[cache.ObjectName]delay{}}
}

// A delaying is one of the other queues of a controller. It records when its keys are due.
type delaying struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
	*delays
}

func (d delaying) AddAfter(key cache.ObjectName, after time.Duration) {
	if after > 0 {
		d.due[time.Now().Add(after)] = true
	}
	d.TypedRateLimitingInterface.AddAfter(key, after)
}

// nextDue returns the next time at which a key comes back.
func (d *delays) nextDue() (next time.Time, found bool) {
	for due := range d.due {
		switch {
		case !due.After(time.Now()):
			delete(d.due, due)
		case !found || due.Before(next):
			next, found = due, true
		}
	}
	return next, found
}

// recordDelay records when the key of the last sync comes back, and why.
func (c *controller) recordDelay(outcome kit.Outcome) {
	key := c.synced
	if outcome.Kind != reconcile.Wait {
		delete(c.of, key)
	}
	if !outcome.ComesBack() {
		return
	}
	until, line := time.Now().Add(outcome.After), fmt.Sprintf("%s is tried again within %v", key.Name, outcome.After)
	switch outcome.For {
	case reconcile.NextStep: // The sync continues at once. A user does not notice this delay.
		c.env.resumeAt = until
		return
	case reconcile.CacheStale:
		if !c.behind() { // The key comes back after a write. The next sync finds nothing to do.
			return
		}
		line = key.Name + " waits for the caches"
	}
	c.due[until] = true
	// A delay with the same end or the same text is already in the output.
	if have := c.of[key]; !have.until.Equal(until) && have.line != line {
		c.of[key] = delay{until: until, line: line}
	}
}

// newDelays returns a line for each delay that has not been shown yet.
func (c *controller) newDelays() []string {
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(c.of), compareNames) {
		have := c.of[key]
		if !have.shown {
			lines = append(lines, c.line("%s", have.line))
		}
		have.shown = true
		c.of[key] = have
	}
	return lines
}
