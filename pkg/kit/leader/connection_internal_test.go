package leader

import (
	"encoding/pem"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// This test has sockets, because connections are what it is about.
func TestTheLeaseHasAConnectionOfItsOwn(t *testing.T) {
	type seen struct{ client, protocol, agent string }
	var mu sync.Mutex
	requests := map[string]seen{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		kind := r.URL.Path[strings.Index(r.URL.Path, "/default/")+len("/default/"):]
		requests[kind] = seen{r.RemoteAddr, r.Proto, r.UserAgent()}
		w.WriteHeader(http.StatusNotFound)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := &rest.Config{
		Host: server.URL, UserAgent: "foo-controller", TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
	}
	c := defaultSettings
	c.Connection = config
	elector, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(elector.Gate)
	maps := corev1client.NewForConfigOrDie(config).ConfigMaps(testNamespace)
	if _, err := maps.Get(t.Context(), "x", metav1.GetOptions{}); err == nil {
		t.Fatal("the test has no server")
	}
	if _, _, err := elector.lock.Get(t.Context()); err == nil {
		t.Fatal("the test has no server")
	}
	lease, others := requests["leases/foo-controller"], requests["configmaps/x"]
	if lease.client == others.client || lease.client == "" {
		t.Errorf("the Lease came from %s, the others from %s", lease.client, others.client)
	}
	if others.protocol != "HTTP/2.0" || lease.protocol != "HTTP/1.1" {
		t.Errorf("the Lease came by %s, the others by %s", lease.protocol, others.protocol)
	}
	if want := "foo-controller/leader-election"; lease.agent != want {
		t.Errorf("the Lease came from %q, want %q", lease.agent, want)
	}
}

// There is time for a second attempt.
func TestARenewalThatHangsDoesNotCostTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		for range 10 {
			time.Sleep(30 * time.Second)
			a.begin(&fault{kind: cutLease})
			time.Sleep(defaultSettings.RetryPeriod) // One renewal hangs, and continues to hang.
			a.forget()
		}
		if !a.leads() {
			t.Error("the leadership is lost")
		}
		finish(a)
	})
}

// A leader for a moment, which then exits, would be worse than none: the kubelet restarts it later and later.
func TestAnswersThatAreTooSlowForARenewalMakeNobodyLeader(t *testing.T) {
	for _, test := range []struct {
		answers time.Duration
		leads   bool
	}{{3900 * time.Millisecond, true}, {4100 * time.Millisecond, false}, {4900 * time.Millisecond, false}} {
		t.Run(test.answers.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				a := start(t, s, "a", defaultSettings)
				within(t, a.leading)
				b := start(t, s, "b", defaultSettings)
				time.Sleep(time.Minute)
				a.begin(&fault{kind: slow, delay: test.answers / 2}) // To the server, and back.
				b.begin(&fault{kind: slow, delay: test.answers / 2})
				time.Sleep(10 * time.Minute)
				if lost := len(a.ended) == 1; lost == test.leads {
					t.Errorf("the leader has ended: %t", lost)
				}
				if b.leads() || len(b.ended) > 0 {
					t.Errorf("the standby leads: %t; how often it has ended: %d", b.leads(), len(b.ended))
				}
				if b.heal(); !test.leads {
					within(t, b.leading)
				}
				finish(a, b)
			})
		})
	}
}

// docs/operations.md has these durations and times: an outage of at most the request timeout costs nothing, one of the
// renew deadline costs the leadership, and what is between depends on the moment.
func TestAnOutageCostsWhatIsPromised(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, test := range []struct {
		lease, deadline time.Duration
		stays, loses    []time.Duration // Outages through which the leader stays, or not.
		leaderless      time.Duration   // At most after the end of the outage.
	}{
		{
			lease: 15 * time.Second, deadline: 10 * time.Second, leaderless: 28 * time.Second,
			stays: []time.Duration{4 * time.Second}, loses: []time.Duration{10 * time.Second, 30 * time.Second, time.Minute},
		},
		{
			lease: 93 * time.Second, deadline: 62 * time.Second, leaderless: 132 * time.Second,
			stays: []time.Duration{10 * time.Second, 30 * time.Second}, loses: []time.Duration{62 * time.Second},
		},
		{
			lease: 183 * time.Second, deadline: 122 * time.Second,
			stays: []time.Duration{30 * time.Second, time.Minute},
		},
	} {
		c := defaultSettings
		c.LeaseDuration, c.RenewDeadline = test.lease, test.deadline
		longest := time.Duration(0)
		for range 5 {
			for _, kind := range []faultKind{cut, lost, refused} {
				moment := time.Duration(random.Int64N(int64(10 * c.RetryPeriod)))
				for _, length := range test.stays {
					if after, stays := outage(t, c, kind, moment, length); !stays {
						t.Errorf("%v: the leader is lost in an outage of %v and kind %d: %v", c.RenewDeadline, length, kind, after)
					}
				}
				for _, length := range test.loses {
					after, stays := outage(t, c, kind, moment, length)
					longest = max(longest, after)
					if stays || after > test.leaderless {
						t.Errorf("%v, an outage of %v and kind %d: the leader stays: %t; nobody leads for %v", c.RenewDeadline,
							length, kind, stays, after)
					}
				}
			}
		}
		t.Logf("%v/%v: nobody leads for at most %v after an outage", c.LeaseDuration, c.RenewDeadline, longest)
	}
}

// outage returns for how long nobody leads after an outage, and whether the leader has led through it. Requests that
// hang are never answered.
func outage(t *testing.T, c Config, kind faultKind, moment, length time.Duration) (after time.Duration, stays bool) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		a := start(t, s, "a", c)
		within(t, a.leading)
		b := start(t, s, "b", c)
		time.Sleep(time.Minute + moment)
		for _, m := range []*member{a, b} {
			m.begin(&fault{kind: kind})
		}
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
		if len(b.ended) > 0 {
			t.Error("the standby has ended")
		}
		finish(a, b)
	})
	return after, stays
}
