package faults_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

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

// trace returns the lines of the trace.
func (c *cluster) trace() string {
	synctest.Wait()
	var b strings.Builder
	for line := range strings.Lines(c.server.Trace()) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
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

var rewrite = flag.Bool("rewrite", false, "write the traces into testdata")

// TestFaults compares the traces of single faults, and of some together, with those in a file.
func TestFaults(t *testing.T) {
	create := func(c *cluster) { c.create("a"); c.create("b") }
	fromNow := func(c *cluster) {
		time.AfterFunc(100*time.Millisecond, func() { c.create("a") })
		time.AfterFunc(200*time.Millisecond, func() { c.create("b") })
		c.watch(metav1.ListOptions{ResourceVersion: "2"})
		time.Sleep(2 * time.Second)
		c.watch(metav1.ListOptions{ResourceVersion: "2"})
	}
	const file = "testdata/traces.txt"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	recorded := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n\n")
	var all []string
	for _, test := range []struct {
		name  string // The default is that of the fault.
		fault faults.Fault
		do    func(c *cluster)
	}{
		{fault: faults.Fault{Kind: faults.LostBefore, Nth: 2}, do: create},
		{fault: faults.Fault{Kind: faults.LostBefore, Verb: "create", For: time.Second},
			do: func(c *cluster) { create(c); time.Sleep(time.Second); c.create("c") }},
		{fault: faults.Fault{Kind: faults.LostAfter, Nth: 1}, do: create},
		{fault: faults.Fault{Kind: faults.Refused, Code: http.StatusBadGateway, Resource: "configmaps", Nth: 1}, do: create},
		{fault: faults.Fault{Kind: faults.Refused, Code: http.StatusConflict, Verb: "create", For: time.Second}, do: create},
		{fault: faults.Fault{Kind: faults.Page, Code: http.StatusNotFound, Nth: 1}, do: create},
		{fault: faults.Fault{Kind: faults.LostAfter}, do: create},
		{fault: faults.Fault{Kind: faults.LateAnswer, For: time.Second}, do: func(c *cluster) { create(c); c.create("c") }},
		{fault: faults.Fault{Kind: faults.LateAnswer, Nth: 1, For: 2 * time.Second}, do: create},
		{fault: faults.Fault{Kind: faults.LateEvent, For: time.Second / 4}, do: func(c *cluster) {
			create(c)
			c.watch(metav1.ListOptions{ResourceVersion: "2"})
		}},
		{fault: faults.Fault{Kind: faults.LateEvent, Nth: 2, For: time.Second / 2}, do: fromNow},
		{fault: faults.Fault{Kind: faults.WatchBroken, Nth: 2, For: time.Second}, do: fromNow},
		{fault: faults.Fault{Kind: faults.Expired, Nth: 2, For: time.Second}, // Also for another informer.
			do: func(c *cluster) { fromNow(c); c.watch(metav1.ListOptions{ResourceVersion: "2"}) }},
		{fault: faults.Fault{Kind: faults.Expired, Resource: "configmaps", For: time.Second}, do: func(c *cluster) {
			c.watch(metav1.ListOptions{ResourceVersion: "2"}) // client-go tries again after a second.
			c.list("")
			c.watch(metav1.ListOptions{ResourceVersion: "2"})
		}},
		{fault: faults.Fault{Kind: faults.Restart, Nth: 2, For: time.Second}, do: fromNow},
		{fault: faults.Fault{Kind: faults.ClockSkew, For: time.Hour}, do: func(c *cluster) {
			c.create("a")
			cm, _ := c.client.Get(c.t.Context(), "a", metav1.GetOptions{})
			c.server.Note("created after %s", time.Until(cm.CreationTimestamp.Time))
		}},
		{fault: faults.Fault{Kind: faults.StaleList, Nth: 1, For: time.Second}, do: func(c *cluster) {
			c.create("a")
			time.Sleep(2 * time.Second)
			c.create("b")
			c.list("0")
			c.list("0") // Of this moment.
		}},
		{name: "a list of just one version is not stale",
			fault: faults.Fault{Kind: faults.StaleList, Nth: 1, For: time.Second}, do: func(c *cluster) {
				create(c)
				opts := metav1.ListOptions{ResourceVersion: "3", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
				_, _ = c.client.List(c.t.Context(), opts) // The trace has its version.
			}},
		{name: "nobody gets a version older than asked for", fault: faults.Fault{Kind: faults.StaleList, For: time.Hour},
			do: func(c *cluster) { create(c); c.list("3"); c.list("") }},

		{name: "an open watch of the resource breaks at once", do: func(c *cluster) {
			time.AfterFunc(time.Second/2, func() {
				c.inject(faults.Fault{Kind: faults.Expired, Resource: "secrets", For: time.Second})
				c.inject(faults.Fault{Kind: faults.WatchBroken, Resource: "configmaps", For: time.Second})
			})
			c.watch(metav1.ListOptions{ResourceVersion: "2"})
			c.server.Note("the watch ended")
		}},
		{name: "without a resource, each watch breaks at once", do: func(c *cluster) {
			time.AfterFunc(time.Second/2, func() { c.inject(faults.Fault{Kind: faults.Expired, For: time.Second}) })
			for range 2 {
				c.watch(metav1.ListOptions{ResourceVersion: "2"})
			}
		}},
		{name: "what does not get to an API server that is down has no other fault", do: func(c *cluster) {
			c.inject(faults.Fault{Kind: faults.LostAfter, Nth: 1},
				faults.Fault{Kind: faults.Restart, Nth: 1, For: time.Second})
			c.create("a")
			time.Sleep(time.Second)
			c.create("b")
		}},
		{name: "a watch without a version begins now", do: func(c *cluster) {
			c.create("a")
			c.inject(faults.Fault{Kind: faults.Expired, Resource: "configmaps"}, faults.Fault{Kind: faults.Restart})
			c.watch(metav1.ListOptions{})
			c.watch(metav1.ListOptions{ResourceVersion: "0"})
		}},
		{name: "a shorter outage does not end a longer one", do: func(c *cluster) {
			c.inject(faults.Fault{Kind: faults.WatchBroken, Resource: "configmaps", For: 2 * time.Second},
				faults.Fault{Kind: faults.WatchBroken, Resource: "configmaps", For: time.Second})
			c.watch(metav1.ListOptions{ResourceVersion: "2"}) // client-go tries again after a second.
		}},
		{name: "a shorter restart does not end a longer one", do: func(c *cluster) {
			c.inject(faults.Fault{Kind: faults.Restart, For: 2 * time.Second}, faults.Fault{Kind: faults.Restart})
			c.create("a")
		}},
	} {
		name := test.name
		if name == "" {
			name = test.fault.String()
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				if test.fault.Kind != "" {
					c.inject(test.fault)
				}
				test.do(c)
				got := "# " + name + "\n" + strings.TrimSuffix(c.trace(), "\n")
				if all = append(all, got); !*rewrite && !slices.Contains(recorded, got) {
					t.Errorf("this trace is not in %s:\n%s", file, got)
				}
			})
		})
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(all, "\n\n")+"\n"), 0o600); err != nil {
			t.Error(err)
		}
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
		want := strings.Join([]string{
			"0.000s other: create configmaps -n default (o): 201, version 3",
			"0.000s fault: create configmaps 1: lost before the API server gets it (create configmaps -n default)",
			"0.000s user: create configmaps -n default: no answer: read tcp 10.0.0.1:443: connection reset by peer",
			"0.000s fault: request 2: executed, but the answer comes 1s later (create configmaps -n default)",
			"0.000s fault: request 2: executed, but the answer is lost (create configmaps -n default)",
			"0.000s user: create configmaps -n default (b): no answer: read tcp 10.0.0.1:443: connection reset by peer" +
				" (the server: 201, version 4)\n",
		}, "\n")
		if diff := cmp.Diff(want, c.trace()); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
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

// An error outside of a bubble has a real time. client-go's handler of errors would make the informer wait until then.
func TestAnInformerInABubbleRecoversAfterAnErrorOutside(t *testing.T) {
	utilruntime.HandleError(errors.New("an error of another test"))
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
		const unavailable = http.StatusServiceUnavailable
		faults.Schedule{Faults: []faults.Fault{
			{Kind: faults.Refused, Verb: "watch", Code: unavailable, For: time.Minute},
			{Kind: faults.Refused, Verb: "list", Code: unavailable, For: time.Minute},
		}}.Inject(server, "user")
		client := kubernetes.NewForConfigOrDie(server.Config("user"))
		factory := informers.NewSharedInformerFactory(client, 0)
		informer := factory.Core().V1().ConfigMaps().Informer()
		factory.StartWithContext(t.Context())
		t.Cleanup(factory.Shutdown) // The context ends before.
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := len(informer.GetStore().List()); n != 1 {
			t.Errorf("after an hour, the cache has %d ConfigMaps\n%s", n, server.Trace())
		}
	})
}

// Their requests and events of one moment have no order but that of the seed.
func TestASeedReplaysWithTwoInformersOfAResource(t *testing.T) {
	play := func() (seen []string) {
		synctest.Test(t, func(t *testing.T) {
			server := apiserver.New(apiserver.ConfigMaps())
			faults.Random(7, true).Inject(server, "controller")
			client, began := kubernetes.NewForConfigOrDie(server.Config("controller")), time.Now()
			var mu sync.Mutex
			for _, selector := range []string{"app=a", "app in (a,b)"} {
				factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(
					func(opts *metav1.ListOptions) { opts.LabelSelector = selector }))
				_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
					AddFunc: func(obj any) {
						mu.Lock()
						defer mu.Unlock()
						seen = append(seen, fmt.Sprint(time.Since(began), selector, obj.(*corev1.ConfigMap).Name))
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				factory.StartWithContext(t.Context())
				t.Cleanup(factory.Shutdown) // The context ends before.
			}
			user := kubernetes.NewForConfigOrDie(server.Config("user")).CoreV1().ConfigMaps("default")
			for i := range 20 {
				time.Sleep(time.Second)
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: map[string]string{"app": "a"}}}
				if _, err := user.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Minute)
		})
		slices.Sort(seen)
		return seen
	}
	first := play()
	for range 10 {
		if diff := cmp.Diff(first, play()); diff != "" {
			t.Fatalf("(-first +replay):\n%s", diff)
		}
	}
}

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
