package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// newLock returns the lock of a process that has just read the Lease.
func newLock(t *testing.T, spec coordinationv1.LeaseSpec) *lock {
	t.Helper()
	s := newServer(t)
	editLease(t, s, func(l *coordinationv1.Lease, _ string) { l.Spec = spec }, "")
	c := defaultSettings
	c.Connection = s.Config("a")
	elector, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	elector.lock.log.logger = klog.New(nil)
	if _, _, err := elector.lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	return elector.lock
}

// take tries to take the Lease, as the elector does.
func take(t *testing.T, l *lock) error {
	return l.Update(t.Context(), resourcelock.LeaderElectionRecord{
		HolderIdentity: l.identity, LeaseDurationSeconds: 15, LeaderTransitions: 8,
	})
}

// An answer that can be decoded and has no Lease is not the API server's: nothing may have been written.
func TestAnEmptyAnswerDoesNotOpenTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t, released(7))
		l.leases = emptyAnswers{l.leases}
		if err := take(t, l); err == nil || l.gate.open() {
			t.Errorf("the gate is open: %t, error %v", l.gate.open(), err)
		}
		l.gate.close(errStopped)
	})
}

type emptyAnswers struct{ typed.LeaseInterface }

func (emptyAnswers) Update(context.Context, *coordinationv1.Lease, metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return &coordinationv1.Lease{}, nil
}

// The elector has the same rules for an ordinary Lease. The lock does not rely on it.
func TestTheLockDoesNotTakeALeaseTooSoon(t *testing.T) {
	const second = time.Second
	for _, test := range []struct {
		name string
		spec coordinationv1.LeaseSpec
		want time.Duration // How long it must not change.
	}{
		{name: "that was released", spec: released(7), want: 0},
		{name: "of another holder", spec: held("b", 15*second, time.Now()), want: 15 * second},
		{name: "with a longer duration", spec: held("b", 60*second, time.Now()), want: 60 * second},
		{name: "with a shorter duration", spec: held("b", second, time.Now()), want: 15 * second},
		{name: "that was never held", spec: coordinationv1.LeaseSpec{}, want: 15 * second},
		{name: "without a holder that was not released", spec: held("", 15*second, time.Now()), want: 15 * second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLock(t, test.spec)
				if test.want > 0 {
					time.Sleep(test.want - time.Nanosecond)
					if err := take(t, l); !errors.Is(err, errTooSoon) || l.gate.open() {
						t.Errorf("immediately before %v: got %v, want %v", test.want, err, errTooSoon)
					}
					time.Sleep(time.Nanosecond)
				}
				if err := take(t, l); err != nil || !l.gate.open() {
					t.Errorf("after %v: got %v, and the gate is open: %v", test.want, err, l.gate.open())
				}
				l.gate.close(errStopped)
			})
		})
	}
}

// An update that changes nothing is accepted, but no other process can see it. The elector sends the same record again
// if the answer to the first one was lost.
func TestARenewalThatNobodyCanSeeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t, released(7))
		if err := take(t, l); err != nil {
			t.Fatal(err)
		}
		first := l.gate.sent
		if err := take(t, l); !errors.Is(err, errUnchanged) || l.gate.sent != first {
			t.Errorf("the same update again: got %v, want %v", err, errUnchanged)
		}
		time.Sleep(time.Second)
		if err := take(t, l); err != nil || l.gate.sent == first {
			t.Errorf("a second later: got %v, want a renewal", err)
		}
		l.gate.close(errStopped)
	})
}

// The gate closes when others may take the Lease, also if answers were lost before.
func TestALostAnswerDoesNotKeepTheGateOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := defaultSettings
		c.LeaseDuration, c.RenewDeadline = 12*time.Second, 11900*time.Millisecond
		s := newServer(t)
		a := start(t, s, "a", c)
		within(t, a.leading)
		b := start(t, s, "b", c)
		time.Sleep(time.Minute + time.Second)
		a.begin(&fault{kind: lost})
		time.Sleep(8 * time.Second) // The update has timed out, and the read after it hangs.
		a.heal()
		synctest.Wait() // The read is answered, and the update is sent again.
		a.begin(&fault{kind: cut})
		within(t, b.leading)
		if a.leads() {
			t.Error("two gates are open")
		}
		finish(a, b)
	})
}

// A process that has lost the race for the Lease must not take the winner's for its own when somebody enters its name.
func TestAnAttemptThatWasRefusedIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t, released(7))
		ours := l.lease.DeepCopy()
		l.lease.ResourceVersion = "1" // Another process was faster.
		if err := take(t, l); !apierrors.IsConflict(err) {
			t.Fatalf("got %v, want a conflict", err)
		}
		if l.term != nil {
			t.Error("an attempt that was refused has begun a term")
		}
		ours.Spec = held(l.identity, 15*time.Second, time.Now())
		l.observe(ours)
		if l.mustWait() == 0 {
			t.Error("the Lease of another process is taken at once")
		}
	})
}

// Somebody may enter our name while an attempt of ours has no answer. The Lease is ours only if that attempt wrote it.
func TestALeaseThatSomeoneElseTookForUsIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t, released(7))
		l.term = &term{uid: l.lease.UID, acquired: time.Now().Add(-time.Second)}
		entered := l.lease.DeepCopy()
		entered.Spec = held(l.identity, 15*time.Second, time.Now())
		if l.ours(entered) {
			t.Error("the Lease is ours")
		}
	})
}

func TestTheLockDoesNotWriteALeaseThatItHasNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t, released(7))
		l.observe(nil)
		if err := take(t, l); !errors.Is(err, errTooSoon) {
			t.Errorf("got %v, want %v", err, errTooSoon)
		}
	})
}

func TestTheLockWritesNothingAfterTheGateHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t, released(7))
		l.gate.close(errStopped)
		before := l.lease.ResourceVersion
		if err := take(t, l); !errors.Is(err, ErrNotLeading) {
			t.Errorf("an update: got %v, want %v", err, ErrNotLeading)
		}
		if err := l.Create(t.Context(), resourcelock.LeaderElectionRecord{}); !errors.Is(err, ErrNotLeading) {
			t.Errorf("a create: got %v, want %v", err, ErrNotLeading)
		}
		if _, _, err := l.Get(t.Context()); err != nil || l.lease.ResourceVersion != before {
			t.Errorf("the Lease was written, or cannot be read: %v", err)
		}
	})
}
