package leader

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// The tests of this file show four defects of client-go that are the reasons for this package. If a new version of
// client-go makes one of them fail, CLIENT-GO.md needs a change, and perhaps this package.

// eager is the configuration of a standby that always takes the Lease soon enough for these tests. With the default, it
// sometimes comes later than the leader has ended.
var eager = Config{
	LeaseDuration: DefaultLeaseDuration, RenewDeadline: DefaultRenewDeadline, RetryPeriod: 500 * time.Millisecond,
}

// noTimeout is client-go's default for requests.
const noTimeout = 0

// newClientGo returns an elector of client-go, with its own lock, that calls lead while it leads. Its requests time out
// after timeout, unless that is 0.
func newClientGo(
	t *testing.T, p *process, c Config, release bool, timeout time.Duration, lead func(ctx context.Context),
) *leaderelection.LeaderElector {
	t.Helper()
	config := p.config()
	config.Timeout = timeout
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: testNamespace, Name: testLease},
			Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: p.user},
		},
		LeaseDuration: c.LeaseDuration, RenewDeadline: c.RenewDeadline, RetryPeriod: c.RetryPeriod,
		ReleaseOnCancel: release,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return elector
}

// A rival is a process with client-go's elector.
type rival struct {
	*process
	stop    context.CancelFunc
	leading chan context.Context // Has the context of the leader when it leads.
	ended   chan struct{}
}

func startRival(t *testing.T, p *process, c Config, release bool, timeout time.Duration) *rival {
	t.Helper()
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.New(nil)))
	r := &rival{process: p, stop: stop, leading: make(chan context.Context, 1), ended: make(chan struct{})}
	elector := newClientGo(t, p, c, release, timeout, func(ctx context.Context) { r.leading <- ctx })
	go func() {
		defer close(r.ended)
		elector.Run(ctx)
	}()
	return r
}

func finishRivals(rivals ...*rival) {
	for _, r := range rivals {
		r.heal()
		r.stop()
		<-r.ended
	}
}

// Run calls release from renew, before it ends the context of the leader. Release sends requests, which hang for as
// long as the renewals did.
func TestClientGoReleasesBeforeTheLeaderIsAskedToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := startRival(t, newProcess(s, "a"), defaultSettings, true, noTimeout)
		leading := within(t, a.leading)
		b := startRival(t, newProcess(s, "b"), eager, true, noTimeout)
		time.Sleep(time.Minute)
		a.begin(&fault{kind: cut})
		within(t, b.leading)
		if leading.Err() != nil {
			t.Error("the context of the old leader has ended: is this fixed in client-go?")
		}
		both := time.Now()
		<-leading.Done()
		t.Logf("two leaders for %v", time.Since(both))
		finishRivals(a, b)
	})
}

// Release reads the Lease and ignores the holder that it has read. Its update carries the resourceVersion that it has
// read, so it gets no conflict.
func TestClientGoErasesAnotherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := startRival(t, newProcess(s, "a"), defaultSettings, true, noTimeout)
		within(t, a.leading)
		b := startRival(t, newProcess(s, "b"), eager, true, noTimeout)
		time.Sleep(time.Minute)
		a.begin(&fault{kind: cut})
		within(t, b.leading)
		if got := holder(storedLease(s)); got != "b" {
			t.Fatalf("the holder is %q, want b", got)
		}
		a.heal()
		synctest.Wait()
		erased := slices.ContainsFunc(s.History(leasesResource), func(rev *apiserver.Revision) bool {
			return rev.User == "a" && rev.Before != nil && holder(rev.Before.(*coordinationv1.Lease)) == "b" &&
				holder(rev.Object.(*coordinationv1.Lease)) == ""
		})
		if !erased {
			t.Error("the holder was not erased: is this fixed in client-go?")
		}
		finishRivals(a, b)
	})
}

// The elector compares records whose times are in seconds, so the second of two renewals within a second does not
// count. A standby then takes the Lease up to a second too early.
func TestClientGoDoesNotSeeTheSecondRenewalWithinASecond(t *testing.T) {
	c := defaultSettings
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 3*time.Second, 2*time.Second, 200*time.Millisecond
	least := time.Hour
	for i := range 100 {
		least = min(least, takenAfter(t, c, 10*time.Second+time.Duration(i)*10*time.Millisecond))
	}
	t.Logf("a standby has taken a Lease of %v that was renewed %v ago", c.LeaseDuration, least)
	if least >= c.LeaseDuration {
		t.Error("no standby was too early: is this fixed in client-go?")
	}
}

// The elector sends the same record again if the answer to an update was lost. The API server accepts it and stores
// nothing, so that no other process can see it. For the leader it is a renewal.
func TestClientGoCountsARenewalThatChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		timeout := defaultSettings.RenewDeadline / 2 // As resourcelock.NewFromKubeconfig.
		a := startRival(t, newProcess(s, "a"), defaultSettings, false, timeout)
		leading := within(t, a.leading)
		b := startRival(t, newProcess(s, "b"), eager, false, timeout)
		time.Sleep(time.Minute - time.Second)
		a.begin(&fault{kind: lost})
		time.Sleep(9 * time.Second) // The update has timed out, and the read after it hangs.
		a.heal()
		synctest.Wait() // The read is answered, and the update is sent again.
		a.begin(&fault{kind: cut})
		within(t, b.leading)
		if leading.Err() != nil {
			t.Error("the context of the old leader has ended: is this fixed in client-go?")
		}
		both := time.Now()
		<-leading.Done()
		t.Logf("two leaders for %v", time.Since(both))
		finishRivals(a, b)
	})
}

// takenAfter returns how long after the last renewal a standby takes the Lease. The leader fails after life.
func takenAfter(t *testing.T, c Config, life time.Duration) (took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := startRival(t, newProcess(s, "a"), c, false, noTimeout)
		within(t, a.leading)
		b := startRival(t, newProcess(s, "b"), c, false, noTimeout)
		time.Sleep(life)
		a.begin(&fault{kind: cut})
		renewed := lastWrite(s)
		within(t, b.leading)
		took = time.Since(renewed)
		finishRivals(a, b)
	})
	return took
}
