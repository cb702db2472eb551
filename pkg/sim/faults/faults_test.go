package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
)

// The creation of a ConfigMap is executed, but the answer is lost. A controller that does not know that tries again.
func Example() {
	server := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
	schedule := faults.Schedule{Faults: []faults.Fault{
		{Kind: faults.LostAfter, Verb: "create", Resource: "configmaps", Nth: 1},
	}}
	schedule.Inject(server, "controller")

	client := kubernetes.NewForConfigOrDie(server.Config("controller")).CoreV1().ConfigMaps("default")
	for range 2 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		_, err := client.Create(context.Background(), cm, metav1.CreateOptions{})
		fmt.Println(err)
	}
	// Output:
	// Post "http://apiserver/api/v1/namespaces/default/configmaps": read tcp 10.0.0.1:443: connection reset by peer
	// configmaps "a" already exists
}

// A cluster is a simulated API server with the client of a user that gets the faults.
type cluster struct {
	t      *testing.T
	server *apiserver.Server
	client coreclient.ConfigMapInterface
}

func newCluster(t *testing.T) *cluster {
	server := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
	server.TraceEvents(true)
	return &cluster{t, server, kubernetes.NewForConfigOrDie(server.Config("user")).CoreV1().ConfigMaps("default")}
}

func (c *cluster) inject(f ...faults.Fault) { faults.Schedule{Faults: f}.Inject(c.server, "user") }

// checkTrace compares the lines of the trace.
func (c *cluster) checkTrace(want []string) {
	c.t.Helper()
	synctest.Wait()
	var got []string
	for line := range strings.Lines(c.server.Trace()) {
		got = append(got, strings.TrimSpace(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("trace (-want +got):\n%s", diff)
	}
}

func (c *cluster) create(name string) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, _ = c.client.Create(c.t.Context(), cm, metav1.CreateOptions{}) // The trace has the error.
}

// list lists the names at a version. It asks for a watch list first, as client-go does.
func (c *cluster) list(version string) {
	c.watch(metav1.ListOptions{
		ResourceVersion: version, SendInitialEvents: new(true), ResourceVersionMatch: "NotOlderThan",
		AllowWatchBookmarks: true,
	})
	list, err := c.client.List(c.t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return
	}
	var names []string
	for _, cm := range list.Items {
		names = append(names, cm.Name)
	}
	c.server.Note("listed: %s", strings.Join(names, " "))
}

// watch watches for a second.
func (c *cluster) watch(opts metav1.ListOptions) {
	w, err := c.client.Watch(c.t.Context(), opts)
	if err != nil {
		return
	}
	time.AfterFunc(time.Second, w.Stop)
	for range w.ResultChan() { // The trace has the events.
	}
}

func TestFaults(t *testing.T) {
	const lost = "no answer: read tcp 10.0.0.1:443: connection reset by peer"
	create := func(c *cluster) { c.create("a"); c.create("b") }
	fromNow := func(c *cluster) {
		time.AfterFunc(100*time.Millisecond, func() { c.create("a") })
		time.AfterFunc(200*time.Millisecond, func() { c.create("b") })
		c.watch(metav1.ListOptions{ResourceVersion: "2"})
		time.Sleep(2 * time.Second)
		c.watch(metav1.ListOptions{ResourceVersion: "2"})
	}
	for _, test := range []struct {
		fault faults.Fault
		do    func(c *cluster)
		want  []string // The trace.
	}{
		{
			fault: faults.Fault{Kind: faults.LostBefore, Nth: 2}, do: create,
			want: []string{
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"0.000s fault: request 2: lost before the API server gets it (create configmaps -n default)",
				"0.000s user: create configmaps -n default: " + lost,
			},
		},
		{
			fault: faults.Fault{Kind: faults.LostBefore, Verb: "create", For: time.Second},
			do:    func(c *cluster) { create(c); time.Sleep(time.Second); c.create("c") },
			want: []string{
				"0.000s fault: for 1s, each create: lost before the API server gets it (create configmaps -n default)",
				"0.000s user: create configmaps -n default: " + lost,
				"0.000s user: create configmaps -n default: " + lost,
				"1.000s user: create configmaps -n default (c): 201, version 3",
			},
		},
		{
			fault: faults.Fault{Kind: faults.LostAfter, Nth: 1}, do: create,
			want: []string{
				"0.000s fault: request 1: executed, but the answer is lost (create configmaps -n default)",
				"0.000s user: create configmaps -n default (a): " + lost + " (the server: 201, version 3)",
				"0.000s user: create configmaps -n default (b): 201, version 4",
			},
		},
		{
			fault: faults.Fault{Kind: faults.Refused, Code: http.StatusBadGateway, Resource: "configmaps", Nth: 1}, do: create,
			want: []string{
				"0.000s fault: request configmaps 1: refused with 502 Bad Gateway (create configmaps -n default)",
				"0.000s user: create configmaps -n default: 502 InternalError: an error on the server (\"a fault\") " +
					"has prevented the request from succeeding (post configmaps)",
				"0.000s user: create configmaps -n default (b): 201, version 3",
			},
		},
		{
			fault: faults.Fault{Kind: faults.Refused, Code: http.StatusConflict, Verb: "create", For: time.Second}, do: create,
			want: []string{
				"0.000s fault: for 1s, each create: refused with 409 Conflict (create configmaps -n default)",
				"0.000s user: create configmaps -n default: 409 AlreadyExists: the server reported a conflict (post configmaps)",
				"0.000s user: create configmaps -n default: 409 AlreadyExists: the server reported a conflict (post configmaps)",
			},
		},
		{
			fault: faults.Fault{Kind: faults.Page, Code: http.StatusNotFound, Nth: 1},
			do:    create,
			want: []string{
				"0.000s fault: request 1: answered by a proxy with a page, code 404 (create configmaps -n default)",
				"0.000s user: create configmaps -n default: 404",
				"0.000s user: create configmaps -n default (b): 201, version 3",
			},
		},
		{
			fault: faults.Fault{Kind: faults.LostAfter}, do: create,
			want: []string{
				"0.000s fault: each request: executed, but the answer is lost (create configmaps -n default)",
				"0.000s user: create configmaps -n default (a): " + lost + " (the server: 201, version 3)",
				"0.000s user: create configmaps -n default (b): " + lost + " (the server: 201, version 4)",
			},
		},
		{
			fault: faults.Fault{Kind: faults.LateAnswer, For: time.Second}, do: func(c *cluster) { create(c); c.create("c") },
			want: []string{
				"0.000s fault: each request: executed, but the answer comes 1s later (create configmaps -n default)",
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"1.000s user: create configmaps -n default (b): 201, version 4",
				"2.000s user: create configmaps -n default (c): 201, version 5",
			},
		},
		{
			fault: faults.Fault{Kind: faults.LateEvent, For: time.Second / 4}, do: func(c *cluster) {
				create(c)
				c.watch(metav1.ListOptions{ResourceVersion: "2"})
			},
			want: []string{
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"0.000s user: create configmaps -n default (b): 201, version 4",
				"0.000s user: watch configmaps -n default: 200",
				"0.000s fault: each event: sent 250ms late (ADDED default/a)",
				"0.250s user: configmaps: sent ADDED default/a, version 3",
				"0.500s user: configmaps: sent ADDED default/b, version 4",
			},
		},
		{
			fault: faults.Fault{Kind: faults.LateAnswer, Nth: 1, For: 2 * time.Second}, do: create,
			want: []string{
				"0.000s fault: request 1: executed, but the answer comes 2s later (create configmaps -n default)",
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"2.000s user: create configmaps -n default (b): 201, version 4",
			},
		},
		{
			fault: faults.Fault{Kind: faults.LateEvent, Nth: 2, For: time.Second / 2}, do: fromNow,
			want: []string{
				"0.000s user: watch configmaps -n default: 200",
				"0.100s user: create configmaps -n default (a): 201, version 3",
				"0.100s user: configmaps: sent ADDED default/a, version 3",
				"0.200s user: create configmaps -n default (b): 201, version 4",
				"0.200s fault: event 2: sent 500ms late (ADDED default/b)",
				"0.700s user: configmaps: sent ADDED default/b, version 4",
				"3.000s user: watch configmaps -n default: 200",
				"3.000s user: configmaps: sent ADDED default/a, version 3",
				"3.000s user: configmaps: sent ADDED default/b, version 4",
			},
		},
		{
			fault: faults.Fault{Kind: faults.WatchBroken, Nth: 2, For: time.Second}, do: fromNow,
			want: []string{
				"0.000s user: watch configmaps -n default: 200",
				"0.100s user: create configmaps -n default (a): 201, version 3",
				"0.100s user: configmaps: sent ADDED default/a, version 3",
				"0.200s user: create configmaps -n default (b): 201, version 4",
				"0.200s fault: event 2: the watch breaks before it, and continues after 1s (ADDED default/b)",
				"2.200s user: watch configmaps -n default: 200",
				"2.200s user: configmaps: sent ADDED default/a, version 3",
				"2.200s user: configmaps: sent ADDED default/b, version 4",
			},
		},
		{
			fault: faults.Fault{Kind: faults.Expired, Nth: 2, For: time.Second},
			do:    func(c *cluster) { fromNow(c); c.watch(metav1.ListOptions{ResourceVersion: "2"}) }, // Of another informer.
			want: []string{
				"0.000s user: watch configmaps -n default: 200",
				"0.100s user: create configmaps -n default (a): 201, version 3",
				"0.100s user: configmaps: sent ADDED default/a, version 3",
				"0.200s user: create configmaps -n default (b): 201, version 4",
				"0.200s fault: event 2: the watch breaks before it, and its version is too old after 1s (ADDED default/b)",
				"2.200s user: watch configmaps -n default: 410 Expired: too old resource version: 2",
				"2.200s user: watch configmaps -n default: 410 Expired: too old resource version: 2",
			},
		},
		{
			fault: faults.Fault{Kind: faults.Expired, Resource: "configmaps", For: time.Second},
			do: func(c *cluster) {
				c.watch(metav1.ListOptions{ResourceVersion: "2"}) // client-go tries again after a second.
				c.list("")
				c.watch(metav1.ListOptions{ResourceVersion: "2"})
			},
			want: []string{
				"0.000s fault: at once: the watch of configmaps breaks, and its version is too old after 1s",
				"0.000s user: watch configmaps -n default: " + lost,
				"1.000s user: watch configmaps -n default: 410 Expired: too old resource version: 2",
				"1.000s user: watch configmaps -n default: 200",
				"1.000s user: configmaps: sent BOOKMARK, version 2",
				"2.000s user: list configmaps -n default: 200, version 2",
				"2.000s listed:",
				"2.000s user: watch configmaps -n default: 200",
			},
		},
		{
			fault: faults.Fault{Kind: faults.Restart, Nth: 2, For: time.Second}, do: fromNow,
			want: []string{
				"0.000s user: watch configmaps -n default: 200",
				"0.100s user: create configmaps -n default (a): 201, version 3",
				"0.100s user: configmaps: sent ADDED default/a, version 3",
				"0.200s fault: request 2: before it, the API server restarts, which takes 1s (create configmaps -n default)",
				"0.200s user: create configmaps -n default: " + lost,
				"2.200s user: watch configmaps -n default: 410 Expired: too old resource version: 2",
			},
		},
		{
			fault: faults.Fault{Kind: faults.ClockSkew, For: time.Hour},
			do: func(c *cluster) {
				c.create("a")
				cm, _ := c.client.Get(c.t.Context(), "a", metav1.GetOptions{})
				c.server.Note("created after %s", time.Until(cm.CreationTimestamp.Time))
			},
			want: []string{
				"0.000s fault: from the beginning, the clock of the API server is 1h0m0s ahead",
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"0.000s user: get configmaps default/a: 200, version 3",
				"0.000s created after 1h0m0s",
			},
		},
		{
			fault: faults.Fault{Kind: faults.StaleList, Nth: 1, For: time.Second},
			do: func(c *cluster) {
				c.create("a")
				time.Sleep(2 * time.Second)
				c.create("b")
				c.list("0")
				c.list("0") // Of this moment.
			},
			want: []string{
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"2.000s user: create configmaps -n default (b): 201, version 4",
				"2.000s fault: list 1: has the objects of 1s ago (watch configmaps -n default)",
				`2.000s user: watch configmaps -n default: 422 Invalid: ListOptions.meta.k8s.io "" is invalid: ` +
					"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the...",
				"2.000s user: list configmaps -n default: 200, version 3",
				"2.000s listed: a",
				"2.000s user: watch configmaps -n default: 200",
				"2.000s user: configmaps: sent ADDED default/a, version 3",
				"2.000s user: configmaps: sent ADDED default/b, version 4",
				"2.000s user: configmaps: sent BOOKMARK, version 4",
				"3.000s user: list configmaps -n default: 200, version 4",
				"3.000s listed: a b",
			},
		},
		{
			fault: faults.Fault{Kind: faults.StaleList, Nth: 1, For: time.Second}, // Not of a list of just one version.
			do: func(c *cluster) {
				create(c)
				opts := metav1.ListOptions{ResourceVersion: "3", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
				_, _ = c.client.List(c.t.Context(), opts) // The trace has its version.
			},
			want: []string{
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"0.000s user: create configmaps -n default (b): 201, version 4",
				"0.000s fault: list 1: has the objects of 1s ago (list configmaps -n default)",
				"0.000s user: list configmaps -n default: 200, version 3",
			},
		},
		{
			fault: faults.Fault{Kind: faults.StaleList, For: time.Hour}, // Nobody gets a version older than asked for.
			do:    func(c *cluster) { create(c); c.list("3"); c.list("") },
			want: []string{
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"0.000s user: create configmaps -n default (b): 201, version 4",
				"0.000s fault: each list: has the objects of 1h0m0s ago (watch configmaps -n default)",
				`0.000s user: watch configmaps -n default: 422 Invalid: ListOptions.meta.k8s.io "" is invalid: ` +
					"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the...",
				"0.000s user: list configmaps -n default: 200, version 3",
				"0.000s listed: a",
				`0.000s user: watch configmaps -n default: 422 Invalid: ListOptions.meta.k8s.io "" is invalid: ` +
					"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the...",
				"0.000s user: list configmaps -n default: 200, version 4",
				"0.000s listed: a b",
			},
		},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.inject(test.fault)
				test.do(c)
				c.checkTrace(test.want)
			})
		})
	}
}

func TestFaultsTogether(t *testing.T) {
	const lost = "no answer: read tcp 10.0.0.1:443: connection reset by peer"
	for _, test := range []struct {
		name string
		do   func(c *cluster)
		want []string // The trace.
	}{
		{
			name: "an open watch of the resource breaks at once",
			do: func(c *cluster) {
				time.AfterFunc(time.Second/2, func() {
					c.inject(faults.Fault{Kind: faults.Expired, Resource: "secrets", For: time.Second})
					c.inject(faults.Fault{Kind: faults.WatchBroken, Resource: "configmaps", For: time.Second})
				})
				c.watch(metav1.ListOptions{ResourceVersion: "2"})
				c.server.Note("the watch ended")
			},
			want: []string{
				"0.000s user: watch configmaps -n default: 200",
				"0.500s fault: at once: the watch of secrets breaks, and its version is too old after 1s",
				"0.500s fault: at once: the watch of configmaps breaks, and continues after 1s",
				"0.500s the watch ended",
			},
		},
		{
			name: "without a resource, each watch breaks at once",
			do: func(c *cluster) {
				time.AfterFunc(time.Second/2, func() { c.inject(faults.Fault{Kind: faults.Expired, For: time.Second}) })
				for range 2 {
					c.watch(metav1.ListOptions{ResourceVersion: "2"})
				}
			},
			want: []string{
				"0.000s user: watch configmaps -n default: 200",
				"0.500s fault: at once: each watch breaks, and its version is too old after 1s",
				"0.500s user: watch configmaps -n default: " + lost,
				"1.500s user: watch configmaps -n default: 410 Expired: too old resource version: 2",
			},
		},
		{
			name: "what does not get to an API server that is down has no other fault",
			do: func(c *cluster) {
				c.inject(
					faults.Fault{Kind: faults.LostAfter, Nth: 1},
					faults.Fault{Kind: faults.Restart, Nth: 1, For: time.Second},
				)
				c.create("a")
				time.Sleep(time.Second)
				c.create("b")
			},
			want: []string{
				"0.000s fault: request 1: before it, the API server restarts, which takes 1s (create configmaps -n default)",
				"0.000s user: create configmaps -n default: " + lost,
				"1.000s fault: request 1: executed, but the answer is lost (create configmaps -n default)",
				"1.000s user: create configmaps -n default (b): " + lost + " (the server: 201, version 3)",
			},
		},
		{
			name: "a watch without a version begins now",
			do: func(c *cluster) {
				c.create("a")
				c.inject(faults.Fault{Kind: faults.Expired, Resource: "configmaps"}, faults.Fault{Kind: faults.Restart})
				c.watch(metav1.ListOptions{})
				c.watch(metav1.ListOptions{ResourceVersion: "0"})
			},
			want: []string{
				"0.000s user: create configmaps -n default (a): 201, version 3",
				"0.000s fault: at once: the watch of configmaps breaks, and its version is too old after 0s",
				"0.000s fault: at once: the API server restarts, which takes 0s",
				"0.000s user: watch configmaps -n default: 200",
				"0.000s user: configmaps: sent ADDED default/a, version 3",
				"1.000s user: watch configmaps -n default: 200",
				"1.000s user: configmaps: sent ADDED default/a, version 3",
			},
		},
		{
			name: "a shorter outage does not end a longer one",
			do: func(c *cluster) {
				c.inject(
					faults.Fault{Kind: faults.WatchBroken, Resource: "configmaps", For: 2 * time.Second},
					faults.Fault{Kind: faults.WatchBroken, Resource: "configmaps", For: time.Second},
				)
				c.watch(metav1.ListOptions{ResourceVersion: "2"}) // client-go tries again after a second.
			},
			want: []string{
				"0.000s fault: at once: the watch of configmaps breaks, and continues after 2s",
				"0.000s fault: at once: the watch of configmaps breaks, and continues after 1s",
				"0.000s user: watch configmaps -n default: " + lost,
				"1.000s user: watch configmaps -n default: " + lost,
				"2.000s user: watch configmaps -n default: 200",
			},
		},
		{
			name: "a shorter restart does not end a longer one",
			do: func(c *cluster) {
				c.inject(faults.Fault{Kind: faults.Restart, For: 2 * time.Second}, faults.Fault{Kind: faults.Restart})
				c.create("a")
			},
			want: []string{
				"0.000s fault: at once: the API server restarts, which takes 2s",
				"0.000s fault: at once: the API server restarts, which takes 0s",
				"0.000s user: create configmaps -n default: " + lost,
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				test.do(c)
				c.checkTrace(test.want)
			})
		})
	}
}

func TestHappenedHasTheFaultsThatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		schedule := faults.Schedule{Faults: []faults.Fault{
			{Kind: faults.LostBefore, Verb: "create", Resource: "configmaps", Nth: 1},
			{Kind: faults.LateAnswer, Nth: 2, For: time.Second}, {Kind: faults.LostAfter, Nth: 2},
			{Kind: faults.LostBefore, Nth: 3},
			{Kind: faults.Refused, Code: http.StatusForbidden, Resource: "secrets", Nth: 1},
		}}
		injected := schedule.Inject(c.server, "user")
		other := &cluster{t, c.server, kubernetes.NewForConfigOrDie(c.server.Config("other")).CoreV1().ConfigMaps("default")}
		other.create("o") // Other users notice nothing.
		c.create("a")
		c.create("b")
		if diff := cmp.Diff(schedule.Faults[:3], injected.Happened()); diff != "" {
			t.Errorf("the faults that happened (-want +got):\n%s", diff)
		}
		c.checkTrace([]string{
			"0.000s other: create configmaps -n default (o): 201, version 3",
			"0.000s fault: create configmaps 1: lost before the API server gets it (create configmaps -n default)",
			"0.000s user: create configmaps -n default: no answer: read tcp 10.0.0.1:443: connection reset by peer",
			"0.000s fault: request 2: executed, but the answer comes 1s later (create configmaps -n default)",
			"0.000s fault: request 2: executed, but the answer is lost (create configmaps -n default)",
			"0.000s user: create configmaps -n default (b): no answer: read tcp 10.0.0.1:443: connection reset by peer" +
				" (the server: 201, version 4)",
		})
	})
}

func TestInjectPanicsForASchedule(t *testing.T) {
	for name, fault := range map[string]faults.Fault{
		"with an unknown kind":            {Kind: "Lost", Nth: 1},
		"with a watch fault and its verb": {Kind: faults.WatchBroken, Verb: "watch", Nth: 1},
		"with an unknown verb":            {Kind: faults.LostAfter, Verb: "crate", Nth: 1},
		"with a refusal without a code":   {Kind: faults.Refused, Nth: 1},
		"with a fault before the first":   {Kind: faults.LostBefore, Nth: -1},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			newCluster(t).inject(fault)
		})
	}
}

func TestASeedDecidesTheOrderOfOneMoment(t *testing.T) {
	play := func(seed int64) (trace string) {
		synctest.Test(t, func(t *testing.T) {
			server := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
			faults.Schedule{Seed: seed, Latency: time.Second}.Inject(server, "user")
			client := kubernetes.NewForConfigOrDie(server.Config("user")).CoreV1().ConfigMaps("default")
			c := &cluster{t, server, client}
			for i := range 10 {
				go c.create(fmt.Sprint("cm-", i))
			}
			time.Sleep(time.Minute)
			trace = server.Trace()
		})
		return trace
	}
	first := play(1)
	for range 10 {
		if diff := cmp.Diff(first, play(1)); diff != "" {
			t.Fatalf("the same seed (-first +second):\n%s", diff)
		}
	}
	if first == play(2) {
		t.Error("another seed has the same order")
	}
}

func TestRandomSchedules(t *testing.T) {
	for _, test := range []struct {
		dense            bool
		failures, breaks int // At least.
	}{{false, 20, 10}, {true, 50, 100}} {
		counts, lines := map[faults.Kind]int{}, faults.Random(3, test.dense).String()
		for _, f := range faults.Random(3, test.dense).Faults {
			counts[f.Kind]++
			if !strings.Contains(lines, f.String()+"\n") {
				t.Errorf("%s is not in the schedule of the same seed", f)
			}
		}
		failures := counts[faults.LostBefore] + counts[faults.LostAfter] + counts[faults.Refused] +
			counts[faults.LateAnswer] + counts[faults.Page]
		breaks := counts[faults.WatchBroken] + counts[faults.Expired]
		others := min(counts[faults.LateEvent], counts[faults.StaleList], counts[faults.Restart])
		if failures < test.failures || breaks < test.breaks || others == 0 {
			t.Errorf("dense=%t: %v", test.dense, counts)
		}
	}
}
