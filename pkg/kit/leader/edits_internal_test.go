package leader

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// edits is what people do to the Lease of a leader.
var edits = []struct {
	name string
	// edit changes the Lease. standby is the identity of the standby.
	edit func(lease *coordinationv1.Lease, standby string)
	// keeps is true if the leader renews the Lease as if nothing had happened.
	keeps bool
}{
	{name: "deleted", edit: nil},
	{name: "the holder is cleared", edit: func(l *coordinationv1.Lease, _ string) { l.Spec.HolderIdentity = nil }},
	{name: "everything is cleared", edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec = coordinationv1.LeaseSpec{}
	}},
	{name: "a holder that does not exist", edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec.HolderIdentity = new("somebody")
	}},
	{name: "the standby is entered", edit: func(l *coordinationv1.Lease, standby string) {
		l.Spec.HolderIdentity = &standby
	}},
	{name: "taken at another time", edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec.AcquireTime = &metav1.MicroTime{Time: l.Spec.AcquireTime.Add(time.Microsecond)}
	}},
	{name: "one transition more", keeps: true, edit: func(l *coordinationv1.Lease, _ string) {
		*l.Spec.LeaseTransitions++
	}},
	{name: "the shortest duration", keeps: true, edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec.LeaseDurationSeconds = new(int32(1))
	}},
	{name: "a longer duration", keeps: true, edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec.LeaseDurationSeconds = new(int32(60))
	}},
	{name: "no duration", keeps: true, edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec.LeaseDurationSeconds = nil
	}},
	{name: "renewed in the far past", keeps: true, edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	}},
	{name: "renewed in the far future", keeps: true, edit: func(l *coordinationv1.Lease, _ string) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Date(2980, 1, 1, 0, 0, 0, 0, time.UTC)}
	}},
	{name: "annotated", keeps: true, edit: func(l *coordinationv1.Lease, _ string) {
		l.Annotations = map[string]string{"note": "edited"}
	}},
}

// editLease applies an edit.
func editLease(t *testing.T, s *apiserver.Server, edit func(*coordinationv1.Lease, string), standby string) {
	t.Helper()
	if edit == nil {
		if err := admin(s).Delete(t.Context(), testLease, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	lease := storedLease(s).DeepCopy()
	edit(lease, standby)
	if _, err := admin(s).Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A leader that can reach the API server sees the edit with its next renewal.
func TestALeaderWhoseLeaseWasEdited(t *testing.T) {
	for _, test := range edits {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				a := start(t, s, "a", defaultSettings)
				within(t, a.leading)
				b := start(t, s, "b", defaultSettings)
				time.Sleep(time.Minute + 300*time.Millisecond)
				edited := time.Now()
				editLease(t, s, test.edit, b.elector.lock.identity)
				if test.keeps {
					time.Sleep(time.Minute)
					lease := storedLease(s)
					if age := time.Since(lease.Spec.RenewTime.Time); !a.leads() || seconds(lease) != 15 || age > time.Minute {
						t.Errorf("the leader does not renew the Lease: %+v", lease.Spec)
					}
					finish(a, b)
					return
				}
				err := within(t, a.ended)
				if !errors.Is(err, ErrLost) {
					t.Errorf("got %v, want %v", err, ErrLost)
				}
				if took := time.Since(edited); took > defaultSettings.RetryPeriod {
					t.Errorf("the leader has noticed it after %v", took)
				}
				if text := fmt.Sprint(err); !strings.Contains(text, "another client wrote the Lease: holder ") &&
					!strings.Contains(text, "the Lease was deleted") {
					t.Errorf("the error has no reason: %v", err)
				}
				within(t, b.leading)
				expectTakenInTime(t, time.Since(edited))
				finish(b)
			})
		})
	}
}

// A Lease that was deleted and restored from a copy is another one: in between, others could create and take one.
func TestALeaderWhoseLeaseWasRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		time.Sleep(time.Minute + 300*time.Millisecond)
		restored := storedLease(s).DeepCopy()
		restored.UID, restored.ResourceVersion = "", ""
		editLease(t, s, nil, "")
		if _, err := admin(s).Create(t.Context(), restored, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := within(t, a.ended); !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want %v", err, ErrLost)
		}
	})
}

func TestALeaderStopsWhenItsLeaseIsDeletedAlsoIfItMayNotCreateOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		forbidden := newSwitch(true)
		forbidLeases(s, forbidden, "create")
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		time.Sleep(time.Minute + 300*time.Millisecond)
		deleted := time.Now()
		editLease(t, s, nil, "")
		if err := within(t, a.ended); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "was deleted") {
			t.Errorf("got %v, want %v", err, ErrLost)
		}
		if took := time.Since(deleted); took > defaultSettings.RetryPeriod {
			t.Errorf("it stopped after %v", took)
		}
	})
}

// A leader that cannot reach the API server does not notice the edit, and the gate stays open until the renew deadline.
func TestALeaseThatWasEditedIsNotTakenBeforeTheGateOfTheLeaderHasClosed(t *testing.T) {
	for _, test := range edits {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				a := start(t, s, "a", defaultSettings)
				within(t, a.leading)
				b := start(t, s, "b", defaultSettings)
				time.Sleep(time.Minute + 300*time.Millisecond)
				a.begin(&fault{kind: cut})
				edited := time.Now()
				editLease(t, s, test.edit, b.elector.lock.identity)
				within(t, b.leading)
				if a.leads() {
					t.Error("two gates are open")
				}
				if duration := storedLease(s).Spec.LeaseDurationSeconds; test.name != "a longer duration" {
					expectTakenInTime(t, time.Since(edited))
				} else if took := time.Since(edited); took < time.Minute || *duration != 15 {
					t.Errorf("the standby took a Lease of 60 s after %v, and made it one of %d s", took, *duration)
				}
				finish(a, b)
			})
		})
	}
}

// expectTakenInTime checks how long it took a standby to take the Lease after an edit.
func expectTakenInTime(t *testing.T, took time.Duration) {
	t.Helper()
	c := defaultSettings
	if limit := c.LeaseDuration + 44*c.RetryPeriod/10; took < c.LeaseDuration || took > limit {
		t.Errorf("the standby took the Lease %v after the edit, want between %v and %v", took, c.LeaseDuration, limit)
	}
}

// A renewTime is the time of day of another machine, so it must not matter.
func TestALeaseOfAHolderThatIsGone(t *testing.T) {
	for name, renewed := range map[string]time.Time{
		"renewed in the far past":   time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC),
		"renewed in the far future": time.Date(2980, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				editLease(t, s, func(l *coordinationv1.Lease, _ string) { l.Spec = held("gone", 15*time.Second, renewed) }, "")
				began := time.Now()
				a := start(t, s, "a", defaultSettings)
				within(t, a.leading)
				expectTakenInTime(t, time.Since(began))
				finish(a)
			})
		})
	}
}

func TestALeaderThatMayNotWriteItsLeaseAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		forbidden := newSwitch(false)
		forbidLeases(s, forbidden)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		time.Sleep(time.Minute + time.Second)
		sent := lastWrite(s)
		forbidden.Store(true)
		if err := within(t, a.ended); !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want %v", err, ErrLost)
		}
		if took := time.Since(sent); took != defaultSettings.RenewDeadline {
			t.Errorf("the leader stopped %v after its last renewal", took)
		}
	})
}

func TestAStandbyThatMayNotReadTheLeaseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		forbidden := newSwitch(true)
		forbidLeases(s, forbidden)
		a := start(t, s, "a", defaultSettings)
		time.Sleep(time.Hour)
		if a.leads() {
			t.Error("it leads")
		}
		if _, err := admin(s).Get(t.Context(), testLease, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the test forbids nothing: %v", err)
		}
		forbidden.Store(false)
		within(t, a.leading)
		finish(a)
	})
}

// Two renewals within a second must count as two. client-go's own lock has the time in seconds.
func TestRenewalsWithinASecondCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := defaultSettings
		c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 3*time.Second, 2*time.Second, 250*time.Millisecond
		for i := range 20 {
			a := start(t, s, "a", c)
			within(t, a.leading)
			b := start(t, s, "b", c)
			time.Sleep(10*time.Second + time.Duration(i)*50*time.Millisecond)
			a.begin(&fault{kind: cut})
			renewed := lastWrite(s)
			within(t, b.leading)
			if took := time.Since(renewed); took < c.LeaseDuration {
				t.Errorf("the standby took the Lease %v after it was renewed", took)
			}
			finish(a, b)
		}
	})
}

// Somebody has entered the longest duration and cleared the holder. It could belong to a process, so it is not taken,
// but the log has what to do.
func TestALeaseWithALongDurationIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		editLease(t, s, func(l *coordinationv1.Lease, _ string) {
			l.Spec = coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(math.MaxInt32))}
		}, "")
		logger, log := newLog()
		a := startWith(t, newProcess(s, "a"), defaultSettings, logger, func() {})
		const waiting = "The Lease has a long duration, waiting for it"
		time.Sleep(25 * time.Second)
		expectLog(t, "at once", log(), []string{waiting})
		time.Sleep(10 * time.Second)
		expectLog(t, "after 35 s", log(), []string{waiting})
		editLease(t, s, nil, "")
		within(t, a.leading)
		expectLog(t, "when it was deleted", log(), []string{created, "Became leader"})
		finish(a)
	})
}

// The elector counts the changes of the leader, and the API server refuses a number below zero.
func TestTheNumberOfTransitionsDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		editLease(t, s, func(l *coordinationv1.Lease, _ string) { l.Spec = released(math.MaxInt32) }, "")
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		if n := transitions(storedLease(s)); n != math.MaxInt32 {
			t.Errorf("got %d transitions", n)
		}
		finish(a)
		b := start(t, s, "b", defaultSettings)
		within(t, b.leading)
		finish(b)
	})
}
