package leader

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// The random phases show that two gates are never open at the same time. The tests of this file show what the phases do
// not count: times that docs/operations.md promises, lines of the log, and what is too rare for them.

// handovers has the times within which a standby takes over: after a release it must only read, after a crash it must
// first have seen the last renewal, and then nothing for the lease duration.
var handovers = []struct{ lease, deadline, retry, released, killed time.Duration }{
	{
		lease: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second,
		released: 4400 * time.Millisecond, killed: 23800 * time.Millisecond,
	},
	{
		lease: 8 * time.Second, deadline: 5 * time.Second, retry: time.Second,
		released: 2200 * time.Millisecond, killed: 12400 * time.Millisecond,
	},
}

func TestAHandoverTakesNoLongerThanPromised(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, h := range handovers {
		c := defaultSettings
		c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = h.lease, h.deadline, h.retry
		longest := func(end func(leader *member)) (took time.Duration) {
			for range 50 {
				elect(t, c, func(t *testing.T, _ *apiserver.Server, a, b *member) {
					time.Sleep(20*time.Second + time.Duration(random.Int64N(int64(h.lease))))
					ended := time.Now()
					end(a)
					within(t, b.leading)
					took = max(took, time.Since(ended))
				})
			}
			return took
		}
		if took := longest(func(a *member) { a.stop() }); took > h.released {
			t.Errorf("a standby leads %v after the release, want at most %v", took, h.released)
		}
		if took := longest(func(a *member) { a.begin(&fault{kind: cut}) }); took > h.killed {
			t.Errorf("a standby leads %v after a crash, want at most %v", took, h.killed)
		}
	}
}

// docs/operations.md has these durations and times: an outage of at most the request timeout costs nothing, one of the
// renew deadline costs the leadership, and what is between depends on the moment.
func TestAnOutageCostsWhatIsPromised(t *testing.T) {
	const second = time.Second
	random := rand.New(rand.NewPCG(3, 4))
	for _, test := range []struct {
		lease, deadline time.Duration
		stays, loses    []time.Duration // Outages through which the leader stays, or not.
		leaderless      time.Duration   // At most after the end of the outage.
	}{
		{
			lease: 15 * second, deadline: 10 * second, leaderless: 28 * second,
			stays: []time.Duration{4 * second}, loses: []time.Duration{10 * second, 30 * second, 60 * second},
		},
		{
			lease: 93 * second, deadline: 62 * second, leaderless: 132 * second,
			stays: []time.Duration{10 * second, 30 * second}, loses: []time.Duration{62 * second},
		},
		{lease: 183 * second, deadline: 122 * second, stays: []time.Duration{30 * second, 60 * second}},
	} {
		c := defaultSettings
		c.LeaseDuration, c.RenewDeadline = test.lease, test.deadline
		for range 5 {
			for _, kind := range []faultKind{cut, lost, refused} {
				moment := time.Duration(random.Int64N(int64(10 * c.RetryPeriod)))
				for _, length := range test.stays {
					if after, stays := outage(t, c, kind, moment, length); !stays {
						t.Errorf("%v: the leader is lost in an outage of %v and kind %d: %v", c.RenewDeadline, length, kind, after)
					}
				}
				for _, length := range test.loses {
					if after, stays := outage(t, c, kind, moment, length); stays || after > test.leaderless {
						t.Errorf("%v, an outage of %v and kind %d: the leader stays: %t; nobody leads for %v", c.RenewDeadline,
							length, kind, stays, after)
					}
				}
			}
		}
	}
}

// outage returns for how long nobody leads after an outage, and whether the leader has led through it. Requests that
// hang are never answered.
func outage(t *testing.T, c Config, kind faultKind, moment, length time.Duration) (after time.Duration, stays bool) {
	elect(t, c, func(t *testing.T, _ *apiserver.Server, a, b *member) {
		time.Sleep(time.Minute + moment)
		a.begin(&fault{kind: kind})
		b.begin(&fault{kind: kind})
		time.Sleep(length)
		a.forget()
		b.forget()
		ended := time.Now()
		select {
		case <-b.leading:
			after = time.Since(ended)
		case <-time.After(c.LeaseDuration + 5*c.RetryPeriod + c.requestTimeout()):
		}
		stays = a.leads()
		if b.hasEnded() {
			t.Error("the standby has ended")
		}
	})
	return after, stays
}

// A leader for a moment, which then exits, would be worse than none: the kubelet restarts it later and later.
func TestAnswersThatAreTooSlowForARenewalMakeNobodyLeader(t *testing.T) {
	for _, test := range []struct {
		answers time.Duration
		leads   bool
	}{{3900 * time.Millisecond, true}, {4100 * time.Millisecond, false}, {4900 * time.Millisecond, false}} {
		elect(t, defaultSettings, func(t *testing.T, _ *apiserver.Server, a, b *member) {
			time.Sleep(time.Minute)
			a.begin(&fault{kind: slow, delay: test.answers / 2}) // To the server, and back.
			b.begin(&fault{kind: slow, delay: test.answers / 2})
			time.Sleep(10 * time.Minute)
			if a.leads() != test.leads || b.leads() || b.hasEnded() {
				t.Errorf("answers after %v: the leader leads: %t; the standby leads: %t, has ended: %t",
					test.answers, a.leads(), b.leads(), b.hasEnded())
			}
			if b.heal(); !test.leads {
				within(t, b.leading)
			}
		})
	}
}

func TestTheGateClosesOneRenewDeadlineAfterTheLastRenewalWasSent(t *testing.T) {
	for _, f := range []*fault{{kind: cut}, {kind: cutLease}, {kind: refused}, {kind: stopped}, {kind: suspended}} {
		elect(t, defaultSettings, func(t *testing.T, s *apiserver.Server, a, _ *member) {
			time.Sleep(21 * time.Second)
			sent := lastWrite(s) // Without a fault, a renewal is executed in the moment in which it is sent.
			a.begin(f)
			within(t, a.elector.gate.closed)
			if got := time.Since(sent); got != defaultSettings.RenewDeadline {
				t.Errorf("kind %d: the gate closed %v after the last renewal was sent", f.kind, got)
			}
			a.heal()
			if err := a.lost(t); !errors.Is(err, errExpired) {
				t.Errorf("kind %d: the reason is %v, want %v", f.kind, err, errExpired)
			}
		})
	}
}

// Somebody has entered the longest duration and cleared the holder. It could belong to a process, so it is not taken,
// but the log has what to do.
func TestALeaseWithALongDurationIsReported(t *testing.T) {
	elect(t, defaultSettings, func(t *testing.T, s *apiserver.Server, _, b *member) {
		time.Sleep(time.Minute + 300*time.Millisecond) // Now no renewal is sent.
		editLease(t, s, func(spec *coordinationv1.LeaseSpec) {
			*spec = coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(math.MaxInt32))}
		})
		const waiting = "The Lease has a long duration, waiting for it"
		time.Sleep(55 * time.Second)
		b.expectLog(t, "within a minute", "Standing by", waiting, waiting)
		editLease(t, s, nil)
		within(t, b.leading)
		b.expectLog(t, "when it was deleted", created, "Became leader")
	})
}

const created = "Created the Lease, waiting for its duration before taking it"

// A Lease that does not exist may have been deleted a moment ago. Somebody else is faster in creating it. To lose that
// race is no failure, and is not logged.
func TestTheFirstStartWaitsForTheLeaseDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps(), apiserver.Leases())
		faster := false
		s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			if r.User != "admin" && r.Verb == "create" && !faster {
				faster = true
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: testLease}}
				if _, err := admin(s).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
			return next()
		})
		a := start(t, newProcess(s, "a"), defaultSettings)
		synctest.Wait()
		b := start(t, newProcess(s, "b"), defaultSettings)
		time.Sleep(15 * time.Second)
		if a.leads() || b.leads() {
			t.Error("the Lease is taken before its duration is over")
		}
		time.Sleep(5 * time.Second)
		winner, loser := a, b
		if b.leads() {
			winner, loser = b, a
		}
		if !winner.leads() {
			t.Error("nobody leads")
		}
		time.Sleep(time.Minute)
		winner.expectLog(t, "of the leader", "Became leader")
		loser.expectLog(t, "of the standby", "Standing by")
		s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			if r.User == loser.user {
				t.Errorf("a standby sends at its end: %s", r)
			}
			return next()
		})
		finish(loser)
		finish(winner)
	})
}

func TestFailuresAreLoggedAtOnceAndThenEvery30Seconds(t *testing.T) {
	for _, verbs := range [][]string{{"get", "update"}, {"update"}, {"create"}} { // Who may read may not always write.
		elect(t, defaultSettings, func(t *testing.T, s *apiserver.Server, a, b *member) {
			b.expectLog(t, "before", "Standing by")
			finish(a)
			a.expectLog(t, "of the leader", "Became leader", "Released the Lease")
			forbidden := &atomic.Bool{}
			forbidden.Store(true)
			between(s, forbidden, refuse, verbs...)
			want := []string{"The Lease is available again", "Became leader"}
			if verbs[0] == "create" {
				editLease(t, s, nil)
				want = slices.Insert(want, 1, created)
			}
			time.Sleep(29 * time.Second)
			b.expectLog(t, "after 29 s", "Leader election failed, trying again")
			time.Sleep(11 * time.Second)
			b.expectLog(t, "after 40 s", "Leader election failed, trying again")
			forbidden.Store(false)
			within(t, b.leading)
			time.Sleep(time.Hour)
			b.expectLog(t, "when it is over", want...)
		})
	}
}

// The Lease then expires, so an error of the release is no error of the stop.
func TestAReleaseThatFailsIsLogged(t *testing.T) {
	elect(t, defaultSettings, func(t *testing.T, _ *apiserver.Server, a, _ *member) {
		time.Sleep(time.Minute)
		a.begin(&fault{kind: cut})
		began := time.Now()
		a.stop()
		within(t, a.ended)
		if took := time.Since(began); a.err != nil || took > 5*time.Second {
			t.Errorf("the process has waited %v for the release; Run returned %v", took, a.err)
		}
		a.expectLog(t, "at the end", "Became leader", "Did not release the Lease, others wait until it has expired")
	})
}

// A renewal that the stop has cancelled may have been executed, so that the release has a conflict. It reads again. If
// another process holds the Lease by then, it is not erased.
func TestTheReleaseReadsAgainAfterAConflict(t *testing.T) {
	for _, holder := range []string{"", "somebody"} {
		elect(t, defaultSettings, func(t *testing.T, s *apiserver.Server, a, _ *member) {
			time.Sleep(time.Minute + 100*time.Millisecond) // Now no renewal is sent.
			edited := false
			s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
				if r.User == "a" && r.Verb == "update" && !edited {
					edited = true
					editLease(t, s, func(spec *coordinationv1.LeaseSpec) {
						*spec.LeaseTransitions++
						spec.HolderIdentity = new(cmp.Or(holder, *spec.HolderIdentity))
					})
				}
				return next()
			})
			finish(a)
			if got := value(storedLease(s).Spec.HolderIdentity); !edited || a.err != nil || got != holder {
				t.Errorf("edited: %t; the holder is %q, want %q; Run returned %v", edited, got, holder, a.err)
			}
		})
	}
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
		elect(t, defaultSettings, func(t *testing.T, s *apiserver.Server, a, _ *member) {
			on := &atomic.Bool{}
			between(s, on, func(r *apiserver.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: page.code, Request: r.HTTP, Header: http.Header{"Content-Type": {page.contentType}},
					Body: io.NopCloser(strings.NewReader(page.body)),
				}, nil
			}, "get", "update", "create")
			time.Sleep(time.Minute + 100*time.Millisecond) // Now no renewal is sent.
			on.Store(true)
			time.Sleep(3 * time.Second)
			on.Store(false)
			time.Sleep(10 * time.Second)
			if !a.leads() {
				t.Errorf("%+v: the leadership was lost: %v", page, a.elector.gate.why())
			}
		})
	}
}

// take returns the lock of a process that has read a released Lease, and a function that takes or renews it.
func take(t *testing.T) (l *lock, renew func() error) {
	t.Helper()
	c := defaultSettings
	c.Connection = newServer(t).Config("a")
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e.lock, func() error {
		record := resourcelock.LeaderElectionRecord{HolderIdentity: e.lock.identity, LeaseDurationSeconds: 15}
		return e.lock.Update(t.Context(), record)
	}
}

// The elector sends the same record again if the answer to the first one was lost. The API server accepts an update
// that changes nothing, but no other process can see it. Only one phase in 60,000 has found this.
func TestARenewalThatNobodyCanSeeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, renew := take(t)
		if err := renew(); err != nil || !l.gate.open() {
			t.Errorf("the Lease was not taken: %v", err)
		}
		sent := l.gate.sent
		if err := renew(); !errors.Is(err, errUnchanged) || l.gate.sent != sent {
			t.Errorf("the same update again: got %v, want %v", err, errUnchanged)
		}
		time.Sleep(time.Second)
		if err := renew(); err != nil || l.gate.sent == sent {
			t.Errorf("a second later: got %v, want a renewal", err)
		}
		l.gate.close(errStopped)
	})
}

func TestTheLockWritesNothingBeforeItHasReadOrAfterTheGateHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, renew := take(t)
		l.observe(nil)
		if err := renew(); !errors.Is(err, errTooSoon) {
			t.Errorf("a Lease that it has not read: got %v, want %v", err, errTooSoon)
		}
		l, renew = take(t)
		l.gate.close(errStopped)
		before := l.lease.ResourceVersion
		err := errors.Join(renew(), l.Create(t.Context(), resourcelock.LeaderElectionRecord{}))
		if n := strings.Count(fmt.Sprint(err), ErrNotLeading.Error()); n != 2 {
			t.Errorf("after the gate has closed: got %v, want twice %v", err, ErrNotLeading)
		}
		if _, _, err := l.Get(t.Context()); err != nil || l.lease.ResourceVersion != before {
			t.Errorf("the Lease was written, or cannot be read: %v", err)
		}
	})
}

// A process that has lost the race for the Lease must not take the winner's for its own when somebody enters its name.
func TestAnAttemptThatWasRefusedIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, renew := take(t)
		l.lease.ResourceVersion = "1" // Another process was faster.
		if err := renew(); !apierrors.IsConflict(err) || l.term != nil {
			t.Errorf("got %v, want a conflict; has a term: %t", err, l.term != nil)
		}
	})
}

// An answer must not open the gate if it comes too late, and not again if it was sent in time but the gate has closed.
func TestAnAnswerThatComesTooLateDoesNotOpenTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, closed := newGate(10*time.Second), newGate(10*time.Second)
		closed.renewed(closed.now())
		closed.timer.Stop() // The timers of a process that was stopped are late.
		sent := late.now()
		time.Sleep(9 * time.Second)
		inTime := closed.now()
		time.Sleep(time.Second)
		if late.renewed(sent) || late.renewed(late.now()) || late.open() {
			t.Error("a renewal that was sent 10 s ago opens the gate, or one after it")
		}
		if closed.renewed(inTime) || closed.open() {
			t.Error("the gate opens again")
		}
	})
}

// The gate closes by the clock that is ahead. Waiting for others ends by the monotonic clock alone, which nobody sets.
func TestTheClockThatWritesLessCounts(t *testing.T) {
	then := now()
	for name, later := range map[string]moment{
		"the time of day was set back":        {then.monotonic.Add(10 * time.Second), then.wall.Add(-time.Hour)},
		"the monotonic clock has stood still": {then.monotonic, then.wall.Add(10 * time.Second)},
	} {
		if got := later.since(then); got != 10*time.Second {
			t.Errorf("%s: %v have passed for the gate, want 10 s", name, got)
		}
		if got, want := later.waited(then), later.monotonic.Sub(then.monotonic); got != want {
			t.Errorf("%s: %v have passed for a standby, want %v", name, got, want)
		}
	}
}

// A closed gate lets reads pass, so that a standby has warm caches. Writes in flight end before the Lease is released.
func TestWhatPassesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Hour)
		passed, answered := "", false
		var sent context.Context
		connection := &gated{gate: g, next: roundTripper(func(r *http.Request) (*http.Response, error) {
			passed, sent = passed+r.Method+" ", r.Context()
			if r.Method == "PATCH" {
				<-r.Context().Done()
				time.Sleep(time.Second) // It takes a while until the connection has ended.
				answered = true
				return nil, r.Context().Err()
			}
			return &http.Response{Body: http.NoBody}, nil
		})}
		send := func(method string) error {
			r, _ := http.NewRequestWithContext(t.Context(), method, "http://server/", http.NoBody)
			response, err := connection.RoundTrip(r)
			if err == nil {
				err = errors.Join(sent.Err(), response.Body.Close()) // The answer can still be read.
			}
			return err
		}
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "NEW"} {
			if err := send(method); err != nil && !errors.Is(err, ErrNotLeading) {
				t.Errorf("%s: got %v, want %v", method, err, ErrNotLeading)
			}
		}
		g.renewed(g.now())
		if err := send("POST"); err != nil {
			t.Error(err)
		}
		go func() {
			if err := send("PATCH"); !errors.Is(err, errStopped) || errors.Is(err, ErrNotLeading) {
				t.Errorf("got %v, want an error of a write whose outcome is unknown", err)
			}
		}()
		synctest.Wait()
		g.closeAndWait(errStopped)
		if !answered || send("POST") == nil || passed != "GET HEAD OPTIONS POST PATCH " {
			t.Errorf("the write in flight has ended: %t; passed: %s", answered, passed)
		}
	})
}

// roundTripper is a connection that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The process must end when it has lost the leadership. If it does not, the kubelet has to kill it.
func TestAProcessThatStaysAfterItLostTheLeadershipIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, stopped, standby := newGate(10*time.Second), newGate(10*time.Second), newGate(10*time.Second)
		lost.renewed(lost.now())
		stopped.renewed(stopped.now())
		stopped.closeAndWait(errStopped)
		time.Sleep(19 * time.Second)
		if err := (&Elector{gate: lost}).Healthy(); err != nil {
			t.Errorf("while it has time to end: %v", err)
		}
		time.Sleep(time.Second)
		if (&Elector{gate: lost}).Healthy() == nil {
			t.Error("it is healthy when it should have ended")
		}
		for _, e := range []*Elector{{gate: stopped}, {gate: standby}, nil} { // nil is without an election.
			if err := e.Healthy(); err != nil {
				t.Error(err)
			}
		}
	})
}

// This test has sockets, because connections are what it is about.
func TestTheLeaseHasAConnectionOfItsOwn(t *testing.T) {
	var mu sync.Mutex
	requests, remotes := map[string]bool{}, map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests[filepath.Base(r.URL.Path)+" "+r.Proto+" "+r.UserAgent()] = true
		remotes[r.RemoteAddr] = true
		w.WriteHeader(http.StatusNotFound)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c := defaultSettings
	c.Connection = &rest.Config{
		Host: server.URL, UserAgent: "foo-controller", TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
	}
	elector, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Connection.Wrap(elector.Gate)
	maps := kubernetes.NewForConfigOrDie(c.Connection).CoreV1().ConfigMaps("default")
	_, _ = maps.Get(t.Context(), "x", metav1.GetOptions{})
	_, _, _ = elector.lock.Get(t.Context())
	if !requests["foo-controller HTTP/1.1 foo-controller/leader-election"] || !requests["x HTTP/2.0 foo-controller"] ||
		len(remotes) != 2 {
		t.Errorf("got %v from %v, want the Lease by HTTP/1.1 from another connection", requests, remotes)
	}
}

func TestWhatIsWrongWithAConfigurationIsReported(t *testing.T) {
	const second = time.Second
	for _, test := range []struct {
		lease, deadline, retry time.Duration
		name, want             string
	}{
		{2 * second, 1999 * time.Millisecond, time.Millisecond, "foo", ""},
		{15 * second, 10 * second, 0, "foo", "retry period 0s: it must be positive"},
		{15500 * time.Millisecond, 10 * second, second, "foo", "lease duration 15.5s: it must be a number of whole seconds"},
		{second, second / 2, second / 10, "foo", "lease duration 1s: it must be longer than a second"},
		{15 * second, 15 * second, second, "foo", "renew deadline 15s: it must be shorter than the lease duration, 15s"},
		{15 * second, 2400 * time.Millisecond, 2 * second, "foo", "it must be longer than 1.2 times the retry period, 2s"},
		{15 * second, 10 * second, 2 * second, "A", `name of the Lease "A"`},
	} {
		_, err := New(Config{
			Connection: &rest.Config{Host: "http://server"}, Namespace: testNamespace, Name: test.name,
			LeaseDuration: test.lease, RenewDeadline: test.deadline, RetryPeriod: test.retry,
		})
		if test.want == "" && err != nil || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

func TestTheNamespaceOfThePodIsTheDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(file, []byte("foo-system\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaultSettings
	c.Connection, c.Namespace = &rest.Config{Host: "http://server"}, ""
	e, err := newElector(c, file)
	if namespace, name := e.Lease(); err != nil || namespace != "foo-system" || name != testLease {
		t.Errorf("got the Lease %s/%s, %v", namespace, name, err)
	}
	if _, err := newElector(c, file+"-that-does-not-exist"); !errors.Is(err, ErrNoNamespace) {
		t.Errorf("outside of a pod: got %v, want %v", err, ErrNoNamespace)
	}
	if _, err := newElector(c, filepath.Dir(file)); err == nil || errors.Is(err, ErrNoNamespace) {
		t.Errorf("a file that cannot be read: got %v, want its error", err)
	}
}

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
