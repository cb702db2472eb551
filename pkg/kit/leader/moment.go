package leader

import "time"

// A moment is a point in time on the two clocks of a process. The monotonic one is never set, but on Linux it stands
// still while the machine is suspended. The other one has the time of day, and may be set.
type moment struct {
	monotonic time.Time
	wall      time.Time // Without a monotonic reading, or time.Time.Sub would use that one.
}

func now() moment {
	t := time.Now()
	return moment{monotonic: t, wall: t.Round(0)}
}

// since returns the time since then, by the clock on which more has passed. It is for what allows us to act: if the
// clocks differ, we stop early.
func (m moment) since(then moment) time.Duration {
	return max(m.waited(then), m.wall.Sub(then.wall))
}

// waited returns the time since then by the monotonic clock alone. It is for how long we have waited for others.
// Setting the time of day must not shorten that, and a clock that stood still only makes it longer.
func (m moment) waited(then moment) time.Duration {
	return m.monotonic.Sub(then.monotonic)
}
