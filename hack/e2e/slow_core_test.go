package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// docs/operations.md has what a slow API server does to the copies of the controller. pkg/kit/leader has tests of the
// times in it, in virtual time. The tests here are about processes: which of them end, and what is written.

// tolerant keeps the leader through an outage that ends the leadership with patient.
var tolerant = electionTimes{61 * time.Second, 40500 * time.Millisecond, 500 * time.Millisecond}

// slow delays each answer to both copies by a time.
func (e *electorate) slow(by time.Duration) {
	e.leader.proxy.slow(by)
	e.standby.proxy.slow(by)
}

// attempts returns how often the process has tried to read or to renew the Lease.
func (e *electorate) attempts(c *candidate) int {
	return c.proxy.count(http.MethodGet, "/leases/"+e.lease()) + c.proxy.count(http.MethodPut, "/leases/"+e.lease())
}

// waitForAttempts waits until the process has tried n more times to read or to renew the Lease.
func (e *electorate) waitForAttempts(t *testing.T, c *candidate, n int) {
	t.Helper()
	before := e.attempts(c)
	until(t, "the Lease was tried", func(context.Context) (bool, error) { return e.attempts(c) >= before+n, nil })
}

// waitForLoss waits until the leader has lost the leadership and ended with 1.
func (e *electorate) waitForLoss(t *testing.T) {
	t.Helper()
	until(t, "the leader ends", func(context.Context) (bool, error) { return e.leader.ended(), nil })
	e.leader.code = 1
	e.leader.waitForLog(t, "Lost the leadership")
}

func (c *candidate) leads() bool { return strings.Contains(c.log.String(), "Became leader") }

// Nobody is restarted while answers take less than half of what the renew deadline leaves after the retry period. If
// they take longer, the leader is, and nobody leads until they are faster again.
func TestSlowAnswersCostALeaderButNoStandby(t *testing.T) {
	e := newElectorate(t, patient)
	e.slow(time.Second)
	e.create(t, e.leader, "slow")
	e.waitForReason(t, "slow", v1alpha1.ReasonCreating)
	e.waitForAttempts(t, e.leader, 5) // Longer than the lease duration.
	if e.leader.ended() || e.standby.ended() || e.standby.leads() {
		t.Fatalf("answers of a second have changed the leader:\n%s", e.standby.log)
	}

	e.slow(2 * time.Second)
	e.waitForLoss(t)
	e.waitForAttempts(t, e.standby, 6) // Longer than the lease duration.
	if e.standby.ended() || e.standby.leads() {
		t.Errorf("a standby leads or has ended, although each answer is too late:\n%s", e.standby.log)
	}

	e.slow(0)
	e.standby.waitForLog(t, "Became leader")
	e.create(t, e.standby, "fast")
}

// The leader ends in an outage that is longer than its renew deadline. Nobody else does, not even the process that the
// kubelet starts in its place. With longer durations, nobody ends in the same outage, and nothing is listed again.
func TestAnOutageCostsALeaderUnlessTheDurationsAreLonger(t *testing.T) {
	e, long := newElectorate(t, patient), newElectorate(t, tolerant)
	var lists atomic.Int32
	var end []func()
	outage := func(p *proxy) {
		_, release := p.hold(t, "", "")
		end = append(end, release)
	}
	for _, of := range []*electorate{e, long} {
		of.create(t, of.leader, "before")
		of.waitForReason(t, "before", v1alpha1.ReasonCreating)
		outage(of.leader.proxy)
		outage(of.standby.proxy)
		posts := of.leader.proxy.count(http.MethodPost, "/deployments")
		of.createFoo(t, "during", fooSpec("during"))
		until(t, "a write hangs", func(context.Context) (bool, error) {
			return of.leader.proxy.count(http.MethodPost, "/deployments") > posts, nil
		})
	}
	for _, p := range []*proxy{long.leader.proxy, long.standby.proxy} {
		p.mu.Lock()
		p.failures = func(r *http.Request) (code int) {
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				lists.Add(1)
			}
			return 0
		}
		p.mu.Unlock()
	}
	for _, c := range []*candidate{e.leader, e.standby, long.leader, long.standby} {
		c.proxy.CloseClientConnections() // Watches end, too.
	}

	e.waitForLoss(t)
	proxy := newProxy(t, e.cluster)
	outage(proxy)
	e.leader = e.startBehind(t, proxy) // As the kubelet does.
	e.waitForAttempts(t, e.standby, 2)
	for page, want := range map[string]int{
		e.leader.address(t, "health") + "/healthz": 200, e.leader.address(t, "health") + "/readyz": 500,
		e.standby.address(t, "health") + "/healthz": 200, long.leader.address(t, "health") + "/healthz": 200,
	} {
		if status, body := fetch(t, "http://"+page, ""); status != want {
			t.Errorf("%s in the outage: %d, want %d: %s", page, status, want, body)
		}
	}
	attempts := e.attempts(e.standby)
	for _, release := range end {
		release()
	}
	until(t, "one leads", func(context.Context) (bool, error) { return e.leader.leads() || e.standby.leads(), nil })
	if e.leader.leads() {
		e.leader, e.standby = e.standby, e.leader
	}
	if most := int(patient.lease/patient.retry) + 4; e.attempts(e.standby)-attempts > most {
		t.Errorf("%d attempts after the outage, want at most %d", e.attempts(e.standby)-attempts, most)
	}
	e.leader.waitForLog(t, "Standing by")
	for _, of := range []*electorate{e, long} {
		of.waitForReason(t, "during", v1alpha1.ReasonCreating)
		if creates := of.countWrites(t, "create deployments/ "+of.namespace+"/during"); creates != 1 {
			t.Errorf("the Deployment was created %d times", creates)
		}
	}
	long.create(t, long.leader, "after")
	if long.leader.ended() || long.standby.ended() || long.standby.leads() || lists.Load() > 0 {
		t.Errorf("with longer durations, a copy has ended or the leader changed, or there were lists: %d", lists.Load())
	}
}
