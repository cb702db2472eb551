package footest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
	"example.com/foo-controller/pkg/sim/scenario"
)

const (
	// tenant is the namespace with a problem, nextDoor one without.
	tenant   = "tenant"
	nextDoor = "next-door"
	// answerTime is how long the API server takes to answer the controller.
	answerTime = 5 * time.Millisecond
	// atOnce is the longest time until a key that waits for nothing is synced. It is the time of a few requests.
	atOnce = 30 * time.Millisecond
	// workers is the default of the controller's flag.
	workers = 32
)

// A neighbourhood is a simulation of namespaces, some of which have a problem. No Deployment controller runs, so that
// the controller is the only one that writes.
type neighbourhood struct {
	*scenario.Simulation
	t       *testing.T
	kube    kubernetes.Interface
	samples clientset.Interface
	// probes counts the probes.
	probes int

	mu sync.Mutex
	// meanwhile has functions that are called once, during the next request of the controller that is described so.
	meanwhile map[string]func() error
	// requests counts the requests of the controller in each namespace, except watches and events.
	requests map[string]int
	// creates counts the attempts to create a Deployment in each namespace, and in all of them as "".
	creates map[string]int
	// syncs counts the syncs of each Foo.
	syncs map[cache.ObjectName]int
	// tried has when the creation of each Deployment was refused last, and gap the longest time between two of one.
	tried map[string]time.Time
	gap   time.Duration
}

// inNeighbourhood runs a test in a bubble. The controller is not running.
func inNeighbourhood(t *testing.T, newController New, test func(n *neighbourhood)) {
	synctest.Test(t, func(t *testing.T) {
		s := scenario.NewSimulation(Kind(newController), workers)
		config := s.Server.Config(scenario.UserName)
		n := &neighbourhood{
			Simulation: s, t: t,
			kube: kubernetes.NewForConfigOrDie(config), samples: clientset.NewForConfigOrDie(config),
			meanwhile: map[string]func() error{}, requests: map[string]int{}, creates: map[string]int{},
			syncs: map[cache.ObjectName]int{}, tried: map[string]time.Time{},
		}
		s.OnSynced = func(key cache.ObjectName) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.syncs[key]++
		}
		s.Server.Intercept(n.serve)
		defer func() {
			if s.StopController != nil {
				s.Stop(t)
			}
		}()
		n.createNamespaces(tenant, nextDoor)
		test(n)
	})
}

// serve counts and delays a request of the controller. Events are not delayed: client-go holds a mutex while it updates
// a series of them, and virtual time stands still while a goroutine waits for a mutex.
func (n *neighbourhood) serve(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	if r.User != controllerName || r.Verb == "watch" || r.Resource.Resource == "events" {
		return next()
	}
	n.mu.Lock()
	n.requests[r.Namespace]++
	if r.Verb == "create" && r.Resource == deploymentResource {
		n.creates[r.Namespace]++
		n.creates[""]++
	}
	meanwhile := n.meanwhile[r.String()]
	delete(n.meanwhile, r.String())
	n.mu.Unlock()
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return r.Refuse(err)
		}
	}
	if err := r.Sleep(answerTime); err != nil {
		return nil, err
	}
	return next()
}

// during calls f once, during the next request of the controller that is described so, before it is served. If f
// returns an error, this is the answer.
func (n *neighbourhood) during(request string, f func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meanwhile[request] = f
}

// count returns a counter of a namespace.
func (n *neighbourhood) count(counter map[string]int, namespace string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return counter[namespace]
}

// must fails the test if a user's request fails.
func (n *neighbourhood) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *neighbourhood) createNamespaces(names ...string) {
	for _, name := range names {
		_, err := n.kube.CoreV1().Namespaces().Create(n.Ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		n.must(err)
	}
}

func (n *neighbourhood) createFoo(namespace, name, deployment string) {
	n.t.Helper()
	_, err := n.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(n.Ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: new(int32(1))},
	}, metav1.CreateOptions{})
	n.must(err)
}

// createFoos creates Foos that name Deployments of their own.
func (n *neighbourhood) createFoos(namespace string, count int) {
	for i := range count {
		n.createFoo(namespace, fooName(i), fooName(i))
	}
}

func (n *neighbourhood) editFoo(namespace, name, patch string) error {
	_, err := n.samples.SamplecontrollerV1alpha1().Foos(namespace).Patch(n.Ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

func (n *neighbourhood) editDeployment(namespace, name, patch string) {
	n.t.Helper()
	_, err := n.kube.AppsV1().Deployments(namespace).Patch(n.Ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	n.must(err)
}

// replicas returns the number in a Deployment, or -1 if it does not exist.
func (n *neighbourhood) replicas(namespace, name string) int {
	dep, found := n.Server.Object(deploymentResource, namespace, name).(*appsv1.Deployment)
	if !found {
		return -1
	}
	return int(*dep.Spec.Replicas)
}

// expect waits until a Deployment next door has this number of replicas. The test fails if that takes longer than most.
func (n *neighbourhood) expect(what, name string, replicas int, most time.Duration) {
	n.t.Helper()
	began := time.Now()
	for n.replicas(nextDoor, name) != replicas {
		if time.Since(began) > 10*time.Minute {
			n.t.Fatalf("probe %d: %s: not within 10 minutes, want within %s", n.probes, what, most)
		}
		time.Sleep(time.Millisecond)
	}
	if delay := time.Since(began); delay > most {
		n.t.Errorf("probe %d: %s: after %s, want within %s", n.probes, what, delay, most)
	}
}

// probe does next door what happens there every day, and checks that the controller does its part in time.
func (n *neighbourhood) probe(most time.Duration) {
	n.t.Helper()
	n.probes++
	name, other := fmt.Sprintf("new-%d", n.probes), fmt.Sprintf("edited-%d", n.probes)
	n.createFoo(nextDoor, name, name)
	n.expect("a new Foo has its Deployment", name, 1, most)
	time.Sleep(time.Second) // The rest of the sync.

	n.editDeployment(nextDoor, name, `{"spec":{"replicas":5}}`)
	n.expect("drift is corrected", name, 1, most)
	time.Sleep(time.Second)

	n.during(fmt.Sprintf("patch deployments %s/%s", nextDoor, name), func() error {
		return scenario.Modified(deploymentResource.GroupResource(), name)
	})
	n.editDeployment(nextDoor, name, `{"spec":{"replicas":5}}`)
	n.expect("drift is corrected after a conflict", name, 1, most)

	n.during(fmt.Sprintf("patch foos/status %s/%s", nextDoor, other), func() error {
		return n.editFoo(nextDoor, other, `{"spec":{"replicas":3}}`)
	})
	n.createFoo(nextDoor, other, other)
	n.expect("an edit during a status write is acted on", other, 3, 2*most)
}

// probeFor lets time pass and probes meanwhile.
func (n *neighbourhood) probeFor(d, interval, most time.Duration) {
	n.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end) && !n.t.Failed(); {
		time.Sleep(interval)
		n.probe(most)
	}
}

// interrupt interrupts the watch of Deployments before the nth event from now on, or at once if it is 0. At the end,
// the watch gets 410, as after a restart, and a list follows. Of what came and went meanwhile, the controller gets no
// event.
func (n *neighbourhood) interrupt(nth int, d time.Duration, more ...faults.Fault) {
	faults.Schedule{Faults: append(more,
		faults.Fault{Kind: faults.Expired, Resource: deploymentsResource, Nth: nth, For: d},
		faults.Fault{Kind: faults.LateEvent, For: 10 * time.Millisecond}, // The answer to a write comes before its event.
	)}.Inject(n.Server, controllerName)
}

func (n *neighbourhood) deleteDeployment() {
	n.must(n.kube.AppsV1().Deployments(tenant).Delete(n.Ctx, fooName(0), metav1.DeleteOptions{}))
}

// checkHealed checks that an hour later the Foo has its Deployment.
func (n *neighbourhood) checkHealed() {
	n.t.Helper()
	time.Sleep(time.Hour)
	if n.replicas(tenant, fooName(0)) < 0 {
		n.t.Errorf("an hour later there is no Deployment:\n%s", n.Server.Trace())
	}
}

// SimulateOutages interrupts the watch of Deployments while somebody deletes one that it has not shown.
func SimulateOutages(t *testing.T, newController New) {
	run := func(name string, test func(n *neighbourhood)) {
		t.Run(name, func(t *testing.T) {
			inNeighbourhood(t, newController, func(n *neighbourhood) {
				n.RunController(t)
				time.Sleep(time.Second)
				test(n)
				n.checkHealed()
			})
		})
	}
	deletedMeanwhile := func(after, rest time.Duration, more ...faults.Fault) func(*neighbourhood) {
		return func(n *neighbourhood) {
			n.interrupt(0, after+rest, more...)
			n.createFoos(tenant, 1)
			time.Sleep(after)
			n.deleteDeployment()
		}
	}
	run("a few seconds", deletedMeanwhile(2*time.Second, time.Second))
	run("more than a minute", deletedMeanwhile(145*time.Second, 5*time.Second))
	run("the answer to the create is lost too", deletedMeanwhile(2*time.Second, time.Second,
		faults.Fault{Kind: faults.LostAfter, Verb: "create", Resource: deploymentsResource, For: time.Second}))
	run("more than a minute, and the Foo is edited", func(n *neighbourhood) {
		time.AfterFunc(time.Second, func() {
			n.must(n.editFoo(tenant, fooName(0), `{"metadata":{"labels":{"team":"blue"}}}`))
		})
		deletedMeanwhile(66*time.Second, 4*time.Second)(n)
	})
	run("it begins and ends before the create is answered", (*neighbourhood).duringACreate)
	for who, kind := range map[string]faults.Kind{"a proxy": faults.Page, "another cluster": faults.Refused} {
		run("none, but "+who+" answers the live reads of the Foo with 404", func(n *neighbourhood) {
			n.createFoos(tenant, 1)
			time.Sleep(time.Minute)
			faults.Schedule{Faults: []faults.Fault{
				{Kind: kind, Code: http.StatusNotFound, Verb: "get", Resource: foosResource, For: 3 * time.Second},
			}}.Inject(n.Server, controllerName)
			n.deleteDeployment()
		})
	}
}

// duringACreate: the status of the Foo stays the same, so no event of the Foo brings the key back either.
func (n *neighbourhood) duringACreate() {
	n.createFoos(tenant, 1)
	time.Sleep(time.Minute)
	n.StopController()
	n.deleteDeployment()
	n.interrupt(1, time.Second, faults.Fault{
		Kind: faults.LateAnswer, Verb: "create", Resource: deploymentsResource, Nth: 1, For: 10 * time.Second,
	})
	n.RunController(n.t)
	time.Sleep(100 * time.Millisecond)
	n.deleteDeployment()
}

// SimulateResync checks that the Deployment of a Foo whose key is lost is created after the next resync. The controller
// loses its first key, and resyncs every ten minutes.
func SimulateResync(t *testing.T, newController New) {
	inNeighbourhood(t, newController, func(n *neighbourhood) {
		n.RunController(t)
		time.Sleep(time.Second)
		n.createFoos(tenant, 1)
		time.Sleep(9 * time.Minute)
		if n.replicas(tenant, fooName(0)) >= 0 {
			t.Fatal("the key was not lost")
		}
		time.Sleep(2 * time.Minute)
		if n.replicas(tenant, fooName(0)) < 0 {
			t.Error("the resync did not find the Foo")
		}
	})
}

// SimulateNeighbours checks that problems in one namespace do not delay the Foos of another one. Each problem lasts
// for minutes or an hour of virtual time, in which waiting counts and computing does not. With -short, and with the
// race detector, there are fewer Foos and less time. edited is how long a Foo is edited 100 times a second.
func SimulateNeighbours(t *testing.T, newController New, edited time.Duration) {
	small := testing.Short() || raceDetector
	scale := func(large, short int) int {
		if small {
			return short
		}
		return large
	}
	minutes := func(large, short int) time.Duration { return time.Duration(scale(large, short)) * time.Minute }
	run := func(name string, test func(n *neighbourhood)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inNeighbourhood(t, newController, test)
		})
	}
	run("Foos that are refused", func(n *neighbourhood) { n.refuseMany(scale(5000, 500), minutes(4, 2)) })
	if small {
		edited = min(edited, 6*time.Second)
	}
	run("a Foo that is edited 100 times a second", func(n *neighbourhood) { n.editOften(edited, false) })
	run("a refused Foo that is edited 100 times a second", func(n *neighbourhood) { n.editOften(edited, true) })
	for _, hangs := range []struct{ namespaces, foos int }{{1, 16}, {1, 100}, {1, 500}, {2, 100}, {5, 100}, {7, 20}} {
		if small && hangs.foos*hangs.namespaces > 200 {
			continue
		}
		run(fmt.Sprintf("%d Foos in each of %d namespaces, behind a webhook that hangs", hangs.foos, hangs.namespaces),
			func(n *neighbourhood) { n.hang(hangs.namespaces, hangs.foos, minutes(60, 6)) })
	}
	run("Foos that name one Deployment, which is annotated twice a second",
		func(n *neighbourhood) { n.nameOne(scale(3000, 300)) })
	run("a Foo that cannot be read", (*neighbourhood).storeUnreadable)
	run("a cold start", func(n *neighbourhood) { n.startCold(1, scale(10000, 1000)) })
	run("a cold start with many namespaces", func(n *neighbourhood) { n.startCold(scale(1000, 100), scale(10000, 1000)) })
}

// refuseMany is about Foos whose Deployments a quota does not allow.
func (n *neighbourhood) refuseMany(foos int, d time.Duration) {
	n.refuse()
	n.RunController(n.t)
	n.createFoos(tenant, foos)
	began := time.Now()
	const rate, burst = 50, 300 // The tokens that all retries share.
	for time.Since(began) < d && !n.t.Failed() {
		n.probe(atOnce)
		most := foos + burst + rate*int(time.Since(began).Seconds()+1) // The first attempts need no token.
		if all := n.count(n.creates, tenant); all > most {
			n.t.Errorf("%d Foos were tried %d times within %s, want at most %d", foos, all, time.Since(began), most)
		}
		time.Sleep(13 * time.Second)
	}
	// The longest backoff is a minute, and has a random part.
	longest := max(time.Minute, time.Duration(foos)*time.Second/rate)*11/10 + time.Second
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, last := range n.tried {
		n.gap = max(n.gap, time.Since(last))
	}
	n.t.Logf("%d Foos were tried %d times, each at least every %s", len(n.tried), n.creates[tenant], n.gap)
	if len(n.tried) != foos || n.gap > longest {
		n.t.Errorf("%d of %d Foos were tried, and one of them not for %s, want at most %s",
			len(n.tried), foos, n.gap, longest)
	}
}

// refuse lets a quota refuse every Deployment of the tenant.
func (n *neighbourhood) refuse() {
	n.Server.Admit(func(a *apiserver.Admission) error {
		if a.Operation != "CREATE" || a.Resource != deploymentResource || a.Namespace != tenant {
			return nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if last, found := n.tried[a.Name]; found {
			n.gap = max(n.gap, time.Since(last))
		}
		n.tried[a.Name] = time.Now()
		return apierrors.NewForbidden(deploymentResource.GroupResource(), a.Name, errors.New("exceeded quota: none"))
	})
}

// editOften is about one Foo that somebody edits in a loop.
func (n *neighbourhood) editOften(d time.Duration, refused bool) {
	const interval = 10 * time.Millisecond
	if refused {
		n.refuse()
	}
	n.RunController(n.t)
	n.createFoo(tenant, "web", "web")
	edits := 0
	stopped := n.goFor(d, interval, func() error {
		edits++
		return n.editFoo(tenant, "web", fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+edits%9))
	})
	n.probeFor(d, 3*time.Second, atOnce)
	<-stopped
	n.probe(atOnce)
	// A sync patches and reports, or reads the name that was refused and reports. It may meet a conflict.
	requests := n.count(n.requests, tenant)
	n.t.Logf("%d edits led to %d requests", edits, requests)
	if requests > 4*edits {
		n.t.Errorf("%d edits led to %d requests, want at most 4 for each", edits, requests)
	}
}

// goFor calls f in each interval, and closes the channel after the duration.
func (n *neighbourhood) goFor(d, interval time.Duration, f func() error) <-chan struct{} {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for end := time.Now().Add(d); time.Now().Before(end) && n.Ctx.Err() == nil; time.Sleep(interval) {
			if err := f(); err != nil && n.Ctx.Err() == nil {
				n.t.Error(err)
				return
			}
		}
	}()
	return stopped
}

// hang is about namespaces with a webhook that answers after ten seconds, with an error.
func (n *neighbourhood) hang(namespaces, foos int, d time.Duration) {
	hangs := map[string]bool{}
	for i := range namespaces {
		name := fmt.Sprintf("%s-%d", tenant, i)
		hangs[name] = true
		n.createNamespaces(name)
	}
	n.Server.Admit(func(a *apiserver.Admission) error {
		if a.Operation != "CREATE" || a.Resource != deploymentResource || !hangs[a.Namespace] {
			return nil
		}
		time.Sleep(10 * time.Second)
		return apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded"))
	})
	n.RunController(n.t)
	for name := range hangs {
		n.createFoos(name, foos)
	}
	const most = 2 * time.Second
	n.probe(most)
	n.probeFor(d, 97*time.Second, most)
}

// nameOne is about Foos of which one has the Deployment and the others wait for it.
func (n *neighbourhood) nameOne(foos int) {
	const annotations, shared = 240, "shared"
	n.RunController(n.t)
	for i := range foos {
		n.createFoo(tenant, fooName(i), shared)
		if i == 0 {
			time.Sleep(time.Second) // The others come when it has the Deployment.
		}
	}
	time.Sleep(2 * time.Minute) // Until every Foo has its report, and the one with the Deployment was synced once more.
	owner := cache.NewObjectName(tenant, fooName(0))
	before := n.syncsSoFar()
	written := 0
	stopped := n.goFor(annotations/2*time.Second, time.Second/2, func() error {
		written++
		n.editDeployment(tenant, shared, fmt.Sprintf(`{"metadata":{"annotations":{"number":"%d"}}}`, written))
		return nil
	})
	n.probeFor(annotations/2*time.Second, 11*time.Second, atOnce)
	<-stopped
	for key, syncs := range n.syncsSoFar() {
		syncs -= before[key]
		if key.Namespace == tenant && (key != owner && syncs > 0 || syncs > written) {
			n.t.Errorf("%d annotations led to %d syncs of %s, want syncs only of %s", written, syncs, key, owner)
			return
		}
	}
}

// syncsSoFar returns how often each Foo was synced.
func (n *neighbourhood) syncsSoFar() map[cache.ObjectName]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.syncs)
}

// storeUnreadable is about a Foo that was stored before there were rules, and that Go cannot read. It is stored again
// and again, because the controller writes the status when that is what cannot be read.
func (n *neighbourhood) storeUnreadable() {
	number := 0
	store := func() error {
		number++
		return n.Server.LoadJSON(fooResource, fmt.Appendf(nil, `{
			"metadata":{"namespace":%q,"name":"old","uid":"old","generation":%d},
			"spec":{"deploymentName":"old","replicas":"three"},
			"status":{"conditions":[{"type":"Ready","status":"Unknown","lastTransitionTime":"2020-01-01t00:00:00z"}]}}`,
			tenant, number))
	}
	n.must(store())
	n.RunController(n.t)
	stopped := n.goFor(10*time.Minute, 10*time.Second, store)
	n.probeFor(5*time.Minute, 37*time.Second, atOnce)
	n.Restart(n.t)
	n.probeFor(4*time.Minute, 37*time.Second, atOnce)
	<-stopped
}

// startCold is about a controller that starts when many Foos have no Deployment yet. Meanwhile new ones are created,
// next door and in one of the same namespaces.
func (n *neighbourhood) startCold(namespaces, foos int) {
	n.createFoos(tenant, foos/namespaces)
	for i := 1; i < namespaces; i++ {
		name := fmt.Sprintf("%s-%d", tenant, i)
		n.createNamespaces(name)
		n.createFoos(name, foos/namespaces)
	}
	n.RunController(n.t)
	for n.count(n.creates, "") < foos/10 {
		time.Sleep(time.Millisecond)
	}
	for n.count(n.creates, "") < foos*9/10 {
		n.expectStartedBefore(nextDoor, workers+1)
		n.expectStartedBefore(tenant, workers+1)
		time.Sleep(20 * answerTime)
	}
	if n.probes < 4 {
		n.t.Errorf("%d Foos were created during the cold start, want some", n.probes)
	}
}

// expectStartedBefore creates a Foo, and checks that no more others than most are started before it.
func (n *neighbourhood) expectStartedBefore(namespace string, most int) {
	n.t.Helper()
	n.probes++
	name := fmt.Sprintf("new-%d", n.probes)
	// No worker is between two requests at this moment. So the new key is queued before the next one is handed out.
	phase := answerTime + time.Duration(n.probes)*time.Microsecond
	time.Sleep(time.Until(time.Now().Truncate(answerTime).Add(phase)))
	before := n.count(n.creates, "")
	n.createFoo(namespace, name, name)
	for n.replicas(namespace, name) < 0 {
		time.Sleep(answerTime / 10)
	}
	if started := n.count(n.creates, "") - before - 1; started > most {
		n.t.Errorf("%d Foos were started before a new one in the namespace %s, want at most %d", started, namespace, most)
	}
}
