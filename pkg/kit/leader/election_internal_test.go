package leader

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/sim/apiserver"
)

func TestAStandbyReadsButDoesNotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		b := start(t, s, "b", defaultSettings)
		time.Sleep(time.Hour)
		if err := a.write(t, "x"); err != nil {
			t.Errorf("the leader cannot write: %v", err)
		}
		if err := b.write(t, "y"); !errors.Is(err, ErrNotLeading) {
			t.Errorf("a standby writes: got %v, want %v", err, ErrNotLeading)
		}
		if err := b.maps.Delete(t.Context(), "x", metav1.DeleteOptions{}); !errors.Is(err, ErrNotLeading) {
			t.Errorf("a standby deletes: got %v, want %v", err, ErrNotLeading)
		}
		if _, err := b.maps.Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
			t.Errorf("a standby cannot read: %v", err)
		}
		w, err := b.maps.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("a standby cannot watch: %v", err)
		}
		w.Stop()
		finish(a, b)
	})
}

func TestAMissingLeaseIsCreatedWithoutAHolderAndTakenAfterTheLeaseDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps(), apiserver.Leases())
		a := start(t, s, "a", defaultSettings)
		b := start(t, s, "b", defaultSettings)
		synctest.Wait()
		created := storedLease(s)
		if created == nil || holder(created) != "" {
			t.Fatalf("want a Lease without a holder, got %+v", created)
		}
		select {
		case <-a.leading:
		case <-b.leading:
		case <-time.After(time.Hour):
			t.Fatal("nobody has taken the Lease")
		}
		took := time.Since(created.CreationTimestamp.Time)
		if took < 15*time.Second || took > 15*time.Second+5*time.Second {
			t.Errorf("the Lease was taken %v after it was created", took)
		}
		finish(a, b)
	})
}

func TestAStopFinishesTheWorkThenClosesTheGateThenReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var a *member
		a = startWith(t, newProcess(s, "a"), defaultSettings, klog.New(nil), func() {
			for i := range 6 { // Longer than the lease duration.
				time.Sleep(7 * time.Second)
				if err := a.write(t, fmt.Sprintf("late-%d", i)); err != nil {
					t.Errorf("the work cannot be finished: %v", err)
				}
			}
		})
		within(t, a.leading)
		s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			response, err := next()
			if r.User == "a" && isReleased(storedLease(s)) && a.leads() {
				t.Error("the Lease is released while the gate is open")
			}
			return response, err
		})
		b := start(t, s, "b", defaultSettings)
		time.Sleep(time.Minute)
		a.stop()
		if err := within(t, a.ended); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		if a.leads() {
			t.Error("the gate is open after the end")
		}
		if err := a.write(t, "afterwards"); !errors.Is(err, ErrNotLeading) {
			t.Errorf("a write after the end: got %v, want %v", err, ErrNotLeading)
		}
		history := s.History()
		last := history[len(history)-1]
		lease, isLease := last.Object.(*coordinationv1.Lease)
		if !isLease || !isReleased(lease) || last.User != "a" {
			t.Errorf("want the release to be the last change, got %s by %s", last.Name, last.User)
		}
		if got := len(s.History(configMapsResource)); got != 6 {
			t.Errorf("want all 6 writes of the work to be before it, got %d", got)
		}
		within(t, b.leading)
		finish(b)
	})
}

func TestAStandbyIsNotElectedByAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		b := start(t, s, "b", defaultSettings)
		time.Sleep(time.Minute)
		s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			if r.User == "b" {
				t.Errorf("a standby sends at its end: %s", r)
			}
			return next()
		})
		b.stop()
		if err := within(t, b.ended); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		finish(a)
	})
}

// handovers has the times within which a standby takes over: after a release it must only read, after a crash it must
// first have seen the last renewal, and then nothing for the lease duration.
var handovers = []struct {
	lease, deadline, retry time.Duration
	released, killed       time.Duration
}{
	{
		lease: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second,
		released: 4400 * time.Millisecond, killed: 23800 * time.Millisecond,
	},
	{
		lease: 8 * time.Second, deadline: 5 * time.Second, retry: time.Second,
		released: 2200 * time.Millisecond, killed: 12400 * time.Millisecond,
	},
	{
		lease: 3 * time.Second, deadline: 2 * time.Second, retry: 500 * time.Millisecond,
		released: 1100 * time.Millisecond, killed: 5200 * time.Millisecond,
	},
}

func TestAHandoverTakesNoLongerThanPromised(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, h := range handovers {
		c := defaultSettings
		c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = h.lease, h.deadline, h.retry
		var released, killed time.Duration
		for range 50 {
			phase := time.Duration(random.Int64N(int64(h.lease)))
			released = max(released, handover(t, c, phase, func(a *member) { a.stop() }))
			killed = max(killed, handover(t, c, phase, func(a *member) { a.begin(&fault{kind: cut}) }))
		}
		t.Logf("%v/%v/%v: at most %v after a release, %v after a crash", h.lease, h.deadline, h.retry, released, killed)
		if released > h.released {
			t.Errorf("a standby leads %v after the release, want at most %v", released, h.released)
		}
		if killed > h.killed {
			t.Errorf("a standby leads %v after a crash, want at most %v", killed, h.killed)
		}
	}
}

// handover returns how long no process leads when end ends the leader.
func handover(t *testing.T, c Config, phase time.Duration, end func(leader *member)) (took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", c)
		within(t, a.leading)
		b := start(t, s, "b", c)
		time.Sleep(20*time.Second + phase)
		ended := time.Now()
		end(a)
		within(t, b.leading)
		took = time.Since(ended)
		finish(a, b)
	})
	return took
}

func TestTheGateClosesOneRenewDeadlineAfterTheLastRenewalWasSent(t *testing.T) {
	for name, f := range map[string]*fault{
		"the network fails":                    {kind: cut},
		"only requests for the Lease hang":     {kind: cutLease},
		"requests are refused":                 {kind: refused},
		"the process is stopped":               {kind: stopped},
		"the machine is suspended":             {kind: suspended},
		"renewals are slower than they may be": {kind: slow, delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				a := start(t, s, "a", defaultSettings)
				within(t, a.leading)
				time.Sleep(21 * time.Second)
				sent := lastWrite(s) // Without a fault, a renewal is executed in the moment in which it is sent.
				a.begin(f)
				within(t, a.elector.gate.closed)
				if got := time.Since(sent); got != defaultSettings.RenewDeadline {
					t.Errorf("the gate closed %v after the last renewal was sent, want %v", got, defaultSettings.RenewDeadline)
				}
				a.heal()
				if err := within(t, a.ended); !errors.Is(err, ErrLost) || !errors.Is(err, errExpired) {
					t.Errorf("got %v, want %v", err, ErrLost)
				}
				if !errors.Is(a.cause, ErrLost) {
					t.Errorf("the context of the work ended because of %v, want %v", a.cause, ErrLost)
				}
			})
		})
	}
}

// The time of the answer must not count: another process may have seen the renewal long before.
func TestARenewalCountsFromWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		a.begin(&fault{kind: slow, delay: 1500 * time.Millisecond}) // To the server, and back.
		time.Sleep(time.Minute)
		a.begin(&fault{kind: cut})
		within(t, a.elector.gate.closed)
		if got := time.Since(a.renewed()); got != defaultSettings.RenewDeadline {
			t.Errorf("the gate closed %v after the last renewal was sent, want %v", got, defaultSettings.RenewDeadline)
		}
		finish(a)
	})
}

// Otherwise a slow connection for the Lease would let a process write with a Lease that others may take.
func TestALeaseWhoseAnswerComesTooLateDoesNotOpenTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10 * time.Second)
		sent := g.now()
		time.Sleep(10 * time.Second)
		if g.renewed(sent) || g.open() {
			t.Error("a renewal that was sent 10 s ago opens the gate")
		}
		if g.renewed(g.now()) || g.open() {
			t.Error("a gate that was too late opens later")
		}
	})
}

func TestALeaderThatWasStoppedDoesNotWriteWhenItContinues(t *testing.T) {
	for _, kind := range []faultKind{stopped, suspended} {
		for _, standby := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				a := start(t, s, "a", defaultSettings)
				within(t, a.leading)
				var others []*member
				if standby {
					others = append(others, start(t, s, "b", defaultSettings))
				}
				time.Sleep(time.Minute)
				a.begin(&fault{kind: kind})
				queued := make(chan error, 10)
				for i := range cap(queued) {
					go func() {
						time.Sleep(time.Duration(i) * 3 * time.Second)
						queued <- a.write(t, fmt.Sprintf("queued-%d", i))
					}()
				}
				time.Sleep(2 * defaultSettings.LeaseDuration)
				a.heal()
				for range cap(queued) {
					if err := <-queued; err == nil {
						t.Error("a write is executed after the process has continued")
					}
				}
				if err := within(t, a.ended); !errors.Is(err, ErrLost) {
					t.Errorf("got %v, want %v", err, ErrLost)
				}
				if got := len(s.History(configMapsResource)); got != 0 {
					t.Errorf("the server has executed %d writes", got)
				}
				finish(others...)
			})
		}
	}
}

func TestWritesInFlightAreCancelledWhenTheGateCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		time.Sleep(time.Minute)
		a.begin(&fault{kind: cut})
		began := time.Now()
		err := a.write(t, "x")
		if !errors.Is(err, errExpired) || errors.Is(err, ErrNotLeading) {
			t.Errorf("got %v, want an error of a write whose outcome is unknown", err)
		}
		if took := time.Since(began); took > defaultSettings.RenewDeadline {
			t.Errorf("the write was cancelled after %v", took)
		}
		finish(a)
		if got := len(s.History(configMapsResource)); got != 0 {
			t.Errorf("the server has executed %d writes", got)
		}
	})
}

func TestALostAnswerDoesNotCostTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := newProcess(s, "a")
		a.begin(&fault{kind: lost}) // From the beginning: the answer to taking the Lease is lost.
		m := startWith(t, a, defaultSettings, klog.New(nil), func() {})
		time.Sleep(6 * time.Second) // Now the first request for the Lease has timed out.
		a.heal()
		time.Sleep(5 * time.Second)
		if !m.leads() {
			t.Error("the process does not lead after an answer was lost")
		}
		before := storedLease(s)
		a.begin(&fault{kind: lost})
		time.Sleep(6 * time.Second)
		a.heal()
		time.Sleep(time.Minute)
		if !m.leads() || transitions(storedLease(s)) != transitions(before) {
			t.Error("the process has lost its Lease because the answer to a renewal was lost")
		}
		finish(m)
	})
}

// A proxy may answer for a few seconds, less than the renew deadline. The Lease still exists.
func TestAnswersOfAProxyDoNotEndTheLeadership(t *testing.T) {
	for _, page := range []struct {
		code              int
		contentType, body string
	}{
		{503, "text/html", "<html>"}, {404, "text/plain", "default backend - 404"}, {200, "text/html", "<html>"},
		{404, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`},
		{200, "application/json", "{}"},
	} {
		t.Run(fmt.Sprint(page.code, " ", page.body), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, on := newServer(t), newSwitch(false)
				s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
					if r.Resource != leasesResource || r.Verb == "watch" || !on.Load() {
						return next()
					}
					return &http.Response{
						StatusCode: page.code, Request: r.HTTP, Header: http.Header{"Content-Type": {page.contentType}},
						Body: io.NopCloser(strings.NewReader(page.body)),
					}, nil
				})
				a := start(t, s, "a", defaultSettings)
				within(t, a.leading)
				time.Sleep(betweenRenewals)
				on.Store(true)
				time.Sleep(3 * time.Second)
				on.Store(false)
				time.Sleep(10 * time.Second)
				if !a.leads() {
					t.Errorf("the leadership was lost: %v", a.elector.gate.why())
				}
				finish(a)
			})
		})
	}
}

// A renewal that was cancelled by the stop may have been executed, and the release must not fail because of it.
func TestTheReleaseReadsAgainAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		time.Sleep(betweenRenewals)
		edited := false
		edit := func() {
			lease := storedLease(s).DeepCopy()
			lease.Annotations = map[string]string{"note": "between the read and the write of the release"}
			if _, err := admin(s).Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
		s.Intercept(editBeforeUpdate(&edited, edit))
		a.stop()
		if err := within(t, a.ended); err != nil {
			t.Error(err)
		}
		if !edited || !isReleased(storedLease(s)) {
			t.Errorf("edited: %v, want a released Lease, got %+v", edited, storedLease(s).Spec)
		}
	})
}

func TestAnotherHolderIsNeverErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		time.Sleep(betweenRenewals)
		edited := false
		edit := func() {
			lease := storedLease(s).DeepCopy()
			lease.Spec = held("b", 15*time.Second, time.Now())
			if _, err := admin(s).Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
		s.Intercept(editBeforeUpdate(&edited, edit))
		a.stop()
		if err := within(t, a.ended); err != nil {
			t.Error(err)
		}
		if got := holder(storedLease(s)); !edited || got != "b" {
			t.Errorf("edited: %v, want b to be the holder, got %q", edited, got)
		}
	})
}
