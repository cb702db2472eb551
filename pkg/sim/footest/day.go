package footest

import (
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// SimulateDay simulates a day in which users edit Foos at random, each Foo six times on average. Requests do not fail,
// but users may edit a Deployment that the controller is about to write.
func SimulateDay(t *testing.T, newRunner NewRunner, foos int) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(newRunner, 16)
		s.start(t)
		defer s.stop(t)
		u, err := newUsers(s, foos)
		if err != nil {
			t.Fatal(err)
		}
		edits := 6 * foos
		apiserver.RunUser(s.ctx, s.api, apiserver.User{
			Name: usersName, Rand: rand.New(rand.NewSource(1)), Edits: u.choices(weightedEdits),
			Pause: 24 * time.Hour / time.Duration(edits), Times: edits,
		})
		s.checkEnd(t, u, time.Hour)
		s.checkWrites(t, u)
		t.Logf("edits of users: %v; writes of the controller: %v", u.edits, s.writes)
	})
	t.Logf("a day took %s", time.Since(began).Round(time.Millisecond))
}
