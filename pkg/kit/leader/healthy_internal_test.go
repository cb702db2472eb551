package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The process must end when it has lost the leadership. If it does not, the kubelet has to kill it.
func TestAProcessThatStaysAfterItLostTheLeadershipIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10 * time.Second)
		e := &Elector{gate: g}
		healthy := func(when string, want bool) {
			t.Helper()
			if err := e.Healthy(); (err == nil) != want {
				t.Errorf("%s: Healthy returned %v", when, err)
			}
		}
		healthy("a standby", true)
		g.renewed(g.now())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		healthy("when the leadership is lost", true) // It has time to end.
		time.Sleep(9 * time.Second)
		healthy("when it should end soon", true)
		time.Sleep(time.Second)
		healthy("when it should have ended", false)

		stopped := newGate(10 * time.Second)
		e.gate = stopped
		stopped.renewed(stopped.now())
		stopped.closeAndWait(errStopped)
		time.Sleep(time.Hour)
		healthy("after a normal stop", true)
		e = nil
		healthy("without an election", true)
	})
}

// Without an election, the work is done at once and the end of it is the end of Run.
func TestWithoutAnElectionTheProcessLeads(t *testing.T) {
	var e *Elector
	called := false
	if err := e.Run(t.Context(), func(context.Context) { called = true }); err != nil || !called {
		t.Errorf("Run returned %v, called: %t", err, called)
	}
	if namespace, name := e.Lease(); namespace+name != "" {
		t.Errorf("there is a Lease %s/%s", namespace, name)
	}
}
