package footest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/sim/apiserver"
)

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
	run("nothing", (*neighbourhood).countWrites)
	run("nothing, and a burst of edits", func(n *neighbourhood) {
		n.RunController(n.t)
		n.burst()
	})
}

// refuseMany is about Foos whose Deployments a quota does not allow.
func (n *neighbourhood) refuseMany(foos int, d time.Duration) {
	attempts := n.refuse()
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
	n.burst()
	// The longest backoff is a minute, and has a random part.
	longest := max(time.Minute, time.Duration(foos)*time.Second/rate)*11/10 + time.Second
	gap, tried := attempts.longestGap()
	n.t.Logf("%d Foos were tried %d times, each at least every %s", tried, n.count(n.creates, tenant), gap)
	if tried != foos || gap > longest {
		n.t.Errorf("%d of %d Foos were tried, and one of them not for %s, want at most %s", tried, foos, gap, longest)
	}
}

// attempts are the times at which the creation of Deployments was tried.
type attempts struct {
	mu   sync.Mutex
	last map[string]time.Time
	gap  time.Duration
}

// refuse lets a quota refuse every Deployment of the tenant.
func (n *neighbourhood) refuse() *attempts {
	tries := &attempts{last: map[string]time.Time{}}
	n.Server.Admit(func(a *apiserver.Admission) error {
		if a.Operation != "CREATE" || a.Resource != deploymentResource || a.Namespace != tenant {
			return nil
		}
		tries.add(a.Name)
		return apierrors.NewForbidden(deploymentResource.GroupResource(), a.Name, errors.New("exceeded quota: none"))
	})
	return tries
}

func (a *attempts) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, found := a.last[name]; found {
		a.gap = max(a.gap, time.Since(last))
	}
	a.last[name] = time.Now()
}

// longestGap returns the longest time between two attempts of one Deployment, or since the last one, and the number of
// Deployments.
func (a *attempts) longestGap() (time.Duration, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gap := a.gap
	for _, last := range a.last {
		gap = max(gap, time.Since(last))
	}
	return gap, len(a.last)
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

// burst is a script next door that edits a Deployment forty times, so fast that each edit is corrected, or that each
// correction meets a conflict. Nobody knows when it ends, so the last edit is corrected after the delay of what is
// undone, or refused, again and again.
func (n *neighbourhood) burst() {
	n.t.Helper()
	for name, interval := range map[string]time.Duration{
		"corrected": 25 * time.Millisecond, "conflicts": answerTime - time.Millisecond,
	} {
		n.createFoo(nextDoor, name, name)
		time.Sleep(time.Minute)
		for edit := range 40 {
			n.editDeployment(nextDoor, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, edit+2))
			time.Sleep(interval)
		}
		n.expect("the last of forty edits is corrected: "+name, name, 1, 2*time.Second)
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
	const annotations = 240
	n.RunController(n.t)
	n.createRivals(foos)
	time.Sleep(2 * time.Minute) // Until every Foo has its report, and the one with the Deployment was synced once more.
	owner := cache.NewObjectName(tenant, fooName(0))
	before := n.syncsOf(tenant)
	written := 0
	stopped := n.goFor(annotations/2*time.Second, time.Second/2, func() error {
		written++
		n.editDeployment(tenant, shared, fmt.Sprintf(`{"metadata":{"annotations":{"number":"%d"}}}`, written))
		return nil
	})
	n.probeFor(annotations/2*time.Second, 11*time.Second, atOnce)
	<-stopped
	for key, syncs := range n.syncsOf(tenant) {
		syncs -= before[key]
		if key != owner && syncs > 0 || syncs > written {
			n.t.Errorf("%d annotations led to %d syncs of %s, want syncs only of %s", written, syncs, key, owner)
			return
		}
	}
}

// syncsOf returns how often the Foos of a namespace were synced.
func (n *neighbourhood) syncsOf(namespace string) map[cache.ObjectName]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	syncs := map[cache.ObjectName]int{}
	for key, count := range n.syncs {
		if key.Namespace == namespace {
			syncs[key] = count
		}
	}
	return syncs
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
	for n.allCreates() < foos/10 {
		time.Sleep(time.Millisecond)
	}
	for n.allCreates() < foos*9/10 {
		n.expectStartedBefore(nextDoor, workers+1)
		n.expectStartedBefore(tenant, workers+1)
		time.Sleep(20 * answerTime)
	}
	if n.probes < 4 {
		n.t.Errorf("%d Foos were created during the cold start, want some", n.probes)
	}
}

// allCreates returns the number of attempts to create a Deployment in all namespaces.
func (n *neighbourhood) allCreates() (all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, creates := range n.creates {
		all += creates
	}
	return all
}

// expectStartedBefore creates a Foo, and checks that no more others than most are started before it.
func (n *neighbourhood) expectStartedBefore(namespace string, most int) {
	n.t.Helper()
	n.probes++
	name := fmt.Sprintf("new-%d", n.probes)
	// No worker is between two requests at this moment. So the new key is queued before the next one is handed out.
	phase := answerTime + time.Duration(n.probes)*time.Microsecond
	time.Sleep(time.Until(time.Now().Truncate(answerTime).Add(phase)))
	before := n.allCreates()
	n.createFoo(namespace, name, name)
	for n.replicas(namespace, name) < 0 {
		time.Sleep(answerTime / 10)
	}
	if started := n.allCreates() - before - 1; started > most {
		n.t.Errorf("%d Foos were started before a new one in the namespace %s, want at most %d", started, namespace, most)
	}
}

// countWrites is about the costs without a problem: two writes for a Foo, and none when nothing changes.
func (n *neighbourhood) countWrites() {
	const foos = 200
	n.RunController(n.t)
	n.createFoos(tenant, foos)
	time.Sleep(time.Hour)
	n.Restart(n.t)
	time.Sleep(time.Hour)
	writes := n.Writes()
	if len(writes) != 2 || writes["create deployments"] != foos || writes["patch foos/status"] != foos {
		n.t.Errorf("%d Foos led to these writes: %v, want two for each", foos, writes)
	}
}
