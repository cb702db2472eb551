package footest

import (
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// SimulateDay simulates a day in which users edit Foos at random, each Foo six times on average. Requests do not fail,
// but users may edit a Deployment that the controller is about to write.
func SimulateDay(t *testing.T, newController New, foos int) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		s := scenario.NewSimulation(Kind(newController), 16)
		s.Start(t)
		defer s.Stop(t)
		u := newUsers(foos)
		u.countEdits(s.Server)
		if err := u.setup(s.Ctx, s.User()); err != nil {
			t.Fatal(err)
		}
		edits := 6 * foos
		apiserver.RunUser(s.Ctx, s.Server, apiserver.User{
			Name: scenario.UserName, Rand: rand.New(rand.NewSource(1)), Edits: u.choices(weightedEdits),
			Pause: 24 * time.Hour / time.Duration(edits), Times: edits,
		})
		s.Finish(t, scenario.Users{Resume: u.resumeAll, Check: u.check}, time.Hour)
		u.checkWrites(t, s)
		t.Logf("edits of users: %v; writes of the controller: %v", u.edits, s.Writes())
	})
	t.Logf("a day took %s", time.Since(began).Round(time.Millisecond))
}

// checkWrites checks that the controller wrote at most once for each reason to write.
func (u *users) checkWrites(t *testing.T, s *scenario.Simulation) {
	writes, patches := s.Writes(), 0
	for _, edit := range []userEdit{scale, setImage, resume, unsetReplicas, editDeployment} {
		patches += u.edits[edit]
	}
	changes := u.foos // Each change of a Deployment, and of a Foo by a user, may change a status.
	for _, rev := range s.Server.History(fooResource, deploymentResource) {
		if rev.Resource == deploymentResource || rev.User != controllerName {
			changes++
		}
	}
	for _, most := range []struct {
		write   string
		reasons int
	}{
		{"create deployments", u.foos + u.edits[recreate] + u.edits[rename] + u.edits[deleteDeployment]},
		{"patch deployments", patches},
		{"delete deployments", u.edits[rename]},
		{"patch foos/status", changes},
	} {
		if got := writes[most.write]; got > most.reasons {
			t.Errorf("%s: %d times, for %d reasons", most.write, got, most.reasons)
		}
	}
}
