package fairqueue

import "time"

// wait waits in Get, after choose has found no key, until there may be one.
func (q *Queue[K]) wait() {
	if !q.prepareWait() {
		q.waiting++
		q.idle.Wait()
		q.waiting--
	}
	q.schedule.advance(time.Since(q.created))
}

// settle follows every operation. If a key may be handed out now, it wakes one goroutine. That one calls settle after
// it has taken the key, and so wakes the next if there is another key.
func (q *Queue[K]) settle() {
	q.schedule.settle()
	if q.schedule.stopping || q.waiting == 0 {
		return
	}
	if q.prepareWait() {
		q.idle.Signal()
	}
}

// prepareWait reports whether a key may be handed out now. If time must pass first, it sets the alarm. A goroutine that
// is about to wait needs this answer even though it has found no key: the next token may have come since.
func (q *Queue[K]) prepareWait() bool {
	at := q.schedule.nextChance()
	if at > q.schedule.now && at < never {
		q.alarm.set(at, q.schedule.now)
	}
	return at <= q.schedule.now
}

// retry follows when the alarm rings.
func (q *Queue[K]) retry() {
	q.begin()
	defer q.end()
	q.alarm.rang()
}

// An alarm calls ring at the earliest of the times to which it is set. It may ring when there is no reason any more.
type alarm struct {
	ring  func()
	timer *time.Timer
	at    time.Duration // 0: it is not set.
}

func (a *alarm) set(at, now time.Duration) {
	if a.at != 0 && a.at <= at {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(at-now, a.ring)
		return
	}
	a.timer.Reset(at - now)
}

func (a *alarm) rang() { a.at = 0 }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
