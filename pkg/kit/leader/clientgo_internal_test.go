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

// The tests of this file show four defects of client-go that are the reasons for this package. CLIENT-GO.md explains
// each. If a new version of client-go makes one of them fail, that page needs a change, and perhaps this package.

// eager is the configuration of a standby that always takes the Lease soon enough for these tests. With the default, it
// sometimes comes later than the leader has ended.
var eager = Config{
	LeaseDuration: DefaultLeaseDuration, RenewDeadline: DefaultRenewDeadline, RetryPeriod: 500 * time.Millisecond,
}

// noTimeout is client-go's default for requests.
const noTimeout = 0

// A rival is a process with client-go's elector.
type rival struct {
	*process
	stop    context.CancelFunc
	leading chan context.Context // Has the context of the leader when it leads.
	ended   chan struct{}
}

// startRival starts a process with client-go's elector and lock. Its requests time out after timeout, unless that is 0.
func startRival(t *testing.T, p *process, c Config, release bool, timeout time.Duration) *rival {
	t.Helper()
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.New(nil)))
	r := &rival{process: p, stop: stop, leading: make(chan context.Context, 1), ended: make(chan struct{})}
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
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { r.leading <- ctx }, OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
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

// partition starts client-go's leader a and its standby b, calls before a minute later, and then cuts a off. It returns
// when b leads.
func partition(t *testing.T, s *apiserver.Server, release bool, timeout time.Duration, before func(a *rival)) (
	a, b *rival, leading context.Context,
) {
	t.Helper()
	a = startRival(t, newProcess(s, "a"), defaultSettings, release, timeout)
	leading = within(t, a.leading)
	b = startRival(t, newProcess(s, "b"), eager, release, timeout)
	time.Sleep(time.Minute - time.Second)
	before(a)
	a.begin(&fault{kind: cut})
	within(t, b.leading)
	return a, b, leading
}

// expectTwoLeaders waits until the context of the old leader has ended, which must not have ended yet.
func expectTwoLeaders(t *testing.T, leading context.Context) {
	t.Helper()
	if leading.Err() != nil {
		t.Error("the context of the old leader has ended: is this fixed in client-go?")
	}
	both := time.Now()
	<-leading.Done()
	t.Logf("two leaders for %v", time.Since(both))
}

func TestClientGoReleasesBeforeTheLeaderIsAskedToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, leading := partition(t, newServer(t), true, noTimeout, func(*rival) { time.Sleep(time.Second) })
		expectTwoLeaders(t, leading)
		finishRivals(a, b)
	})
}

func TestClientGoErasesAnotherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a, b, _ := partition(t, s, true, noTimeout, func(*rival) { time.Sleep(time.Second) })
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

func TestClientGoDoesNotSeeTheSecondRenewalWithinASecond(t *testing.T) {
	c := defaultSettings
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 3*time.Second, 2*time.Second, 200*time.Millisecond
	least := time.Hour
	for i := range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			a := startRival(t, newProcess(s, "a"), c, false, noTimeout)
			within(t, a.leading)
			b := startRival(t, newProcess(s, "b"), c, false, noTimeout)
			time.Sleep(10*time.Second + time.Duration(i)*10*time.Millisecond)
			a.begin(&fault{kind: cut})
			renewed := lastWrite(s)
			within(t, b.leading)
			least = min(least, time.Since(renewed))
			finishRivals(a, b)
		})
	}
	t.Logf("a standby has taken a Lease of %v that was renewed %v ago", c.LeaseDuration, least)
	if least >= c.LeaseDuration {
		t.Error("no standby was too early: is this fixed in client-go?")
	}
}

func TestClientGoCountsARenewalThatChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeout := defaultSettings.RenewDeadline / 2 // As resourcelock.NewFromKubeconfig.
		a, b, leading := partition(t, newServer(t), false, timeout, func(a *rival) {
			a.begin(&fault{kind: lost})
			time.Sleep(9 * time.Second) // The update has timed out, and the read after it hangs.
			a.heal()
			synctest.Wait() // The read is answered, and the update is sent again.
		})
		expectTwoLeaders(t, leading)
		finishRivals(a, b)
	})
}
