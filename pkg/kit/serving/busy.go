package serving

import (
	"fmt"
	"sync"
	"time"
)

// Busy notes which keys are in work and since when, for a Check that fails when one of them takes longer than its
// budget. A worker that never returns would otherwise be noticed by nobody: the process is alive, the lease is renewed,
// and the key is never synced again, because the queue does not give it to a second worker.
//
// It starts no goroutine and has no timer. The time is compared when the Check is made. Create it with NewBusy. It may
// be used concurrently.
type Busy struct {
	budget time.Duration

	mu    sync.Mutex
	next  uint64
	turns map[uint64]turn // The keys in work. Guarded by mu, as is next, which numbers them.
}

// turn is one key in the hands of one worker.
type turn struct {
	key   string
	since time.Time
}

// NewBusy returns a Busy whose Check fails when a key is in work for longer than budget. The budget must be larger than
// the longest time that a key may need, so that only a worker that hangs is reported.
func NewBusy(budget time.Duration) *Busy {
	return &Busy{budget: budget, turns: map[uint64]turn{}}
}

// Start notes that a worker has taken key, and returns the function that the worker calls when it has finished with the
// key. Further calls of that function have no effect. Two workers may have equal keys. The reason of the Check has the
// key.
func (b *Busy) Start(key string) (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.next
	b.next++
	b.turns[id] = turn{key: key, since: time.Now()}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.turns, id)
	}
}

// Progress lets the budget of a key that is in work begin again: the worker that has it continues. It has no effect on
// other keys.
func (b *Busy) Progress(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, t := range b.turns {
		if t.key == key {
			b.turns[id] = turn{key: key, since: time.Now()}
		}
	}
}

// Check returns a Check with that name. It fails while a key is in work for longer than the budget. The reason has the
// key that is in work for the longest time, that time in whole seconds, and how many keys are beyond the budget.
func (b *Busy) Check(name string) Check {
	return Check{Name: name, Do: b.stuck}
}

func (b *Busy) stuck() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var longest turn
	var beyond int
	for _, turn := range b.turns {
		if time.Since(turn.since) <= b.budget {
			continue
		}
		beyond++
		if longest.since.IsZero() || turn.since.Before(longest.since) {
			longest = turn
		}
	}
	if beyond == 0 {
		return nil
	}
	return fmt.Errorf("a worker is busy with %s for %s; %d above the limit of %s",
		longest.key, time.Since(longest.since).Truncate(time.Second), beyond, b.budget)
}
