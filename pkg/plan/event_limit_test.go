package plan_test

import (
	"testing"
	"time"

	"example.com/foo-controller/pkg/plan"
)

// The limit of events is exact: ten at one time, and then one more after each six seconds.
func TestTheLimitOfEventsIsExact(t *testing.T) {
	memory, generation := plan.Memory{}, int64(0)
	events := func(at time.Duration) int {
		sent := 0
		for range 30 { // Each generation is worth an event.
			generation++
			foo := newFoo(withReplicas(3), withGeneration(generation))
			c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo), Memory: memory, Now: now.Add(at)})
			sent += len(c.events)
			memory = c.end.Memory
		}
		return sent
	}
	for _, tc := range []struct {
		at   time.Duration
		want int
	}{
		{at: 0, want: 10},
		{at: seconds(6) - 1, want: 0},
		{at: seconds(6), want: 1},
		{at: seconds(12), want: 1},
		{at: seconds(600), want: 10},
	} {
		if got := events(tc.at); got != tc.want {
			t.Errorf("%d events after %s, want %d", got, tc.at, tc.want)
		}
	}
}
