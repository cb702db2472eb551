package leader

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/sim/apiserver"
)

var (
	phases     = flag.Int("phases", 200, "`number` of random phases of TestGatesNeverOverlap")
	firstPhase = flag.Int("first-phase", 0, "`number` of the first one; with -phases 1 it is played alone")
)

const (
	testNamespace = "default"
	testLease     = "foo-controller"
)

// durations are the settings that the phases use in turn. The third renews more than once in a second. The fourth has
// the least margin between the renew deadline and the lease duration.
var durations = []struct{ lease, deadline, retry time.Duration }{
	{lease: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second},
	{lease: 8 * time.Second, deadline: 5 * time.Second, retry: time.Second},
	{lease: 3 * time.Second, deadline: 2 * time.Second, retry: 500 * time.Millisecond},
	{lease: 12 * time.Second, deadline: 11900 * time.Millisecond, retry: 2 * time.Second},
}

// A phase is the life of some processes that elect a leader while faults happen. Its random numbers decide which.
type phase struct {
	t                      *testing.T
	random                 *rand.Rand
	server                 *apiserver.Server
	lease, deadline, retry time.Duration
	candidate              candidate

	mu        sync.Mutex
	processes []*process // That run now.
	started   int        // How many have started so far.
	result    result
}

// A candidate runs the election of a process until ctx ends or the leadership is lost.
type candidate func(p *phase, ctx context.Context, process *process)

// A result counts what happened in a phase.
type result struct {
	openings   int // How often a process became leader.
	losses     int // How often a process returned because it lost the leadership.
	overlaps   int // How often a process became leader while another one could still write.
	erased     int // How often a process removed another holder from the Lease.
	stolen     int // How often a process wrote a Lease that was not its own before it could be sure that it may.
	interlaced int // How often a write was executed after one of a later leader.
	leaderless int // How often there was not exactly one leader after all faults had ended.
	unreleased int // How often the Lease had a holder after all processes had been stopped.
}

func (r *result) failures() int {
	return r.overlaps + r.erased + r.stolen + r.interlaced + r.leaderless + r.unreleased
}

func (r *result) add(other result) {
	r.openings += other.openings
	r.losses += other.losses
	r.overlaps += other.overlaps
	r.erased += other.erased
	r.stolen += other.stolen
	r.interlaced += other.interlaced
	r.leaderless += other.leaderless
	r.unreleased += other.unreleased
}

// TestGatesNeverOverlap plays random phases with partitions, lost answers, slow requests for the Lease, processes and
// machines that stop for a while, and people who edit and delete the Lease.
func TestGatesNeverOverlap(t *testing.T) {
	n := *phases
	total := playPhases(t, *firstPhase, n, ours, func(seed int, got result) { t.Errorf("phase %d: %+v", seed, got) })
	t.Logf("%d phases: %+v", n, total)
	if total.openings < n || total.losses < n/4 {
		t.Errorf("only %d processes became leaders and %d lost the leadership: the phases test too little",
			total.openings, total.losses)
	}
}

// TestPhasesFindTheDefectsOfClientGo is the control of TestGatesNeverOverlap: the same phases must show the overlaps
// and the erased Leases of client-go's own elector with ReleaseOnCancel, which CLIENT-GO.md describes.
func TestPhasesFindTheDefectsOfClientGo(t *testing.T) {
	const n = 60
	overlaps, erased := 0, 0
	total := playPhases(t, 0, n, clientGo, func(_ int, got result) {
		overlaps += min(got.overlaps, 1)
		erased += min(got.erased, 1)
	})
	t.Logf("%d phases, %d of them with overlaps and %d with erased Leases: %+v", n, overlaps, erased, total)
	if total.overlaps == 0 || total.erased == 0 || total.interlaced == 0 {
		t.Errorf("want overlaps, erased Leases and interlaced writes, got %+v", total)
	}
}

// playPhases plays n phases, beginning with this one, and returns the sum of their results. It calls failed for each
// phase with failures.
func playPhases(t *testing.T, first, n int, c candidate, failed func(seed int, got result)) (total result) {
	for seed := first; seed < first+n; seed++ {
		got := playPhase(t, uint64(seed), c)
		total.add(got)
		if got.failures() > 0 {
			failed(seed, got)
		}
	}
	return total
}

func playPhase(t *testing.T, seed uint64, c candidate) (got result) {
	synctest.Test(t, func(t *testing.T) {
		d := durations[seed%uint64(len(durations))]
		p := &phase{
			t: t, random: rand.New(rand.NewPCG(seed, 9)), candidate: c,
			server: apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps(), apiserver.Leases()),
			lease:  d.lease, deadline: d.deadline, retry: d.retry,
		}
		p.play()
		got = p.result
	})
	return got
}

func (p *phase) play() {
	ctx, stop := context.WithCancel(klog.NewContext(p.t.Context(), klog.New(nil)))
	defer stop()
	wait := p.loadLease()
	var all sync.WaitGroup
	for range 2 + p.random.IntN(2) {
		first := p.upTo(p.retry) // Drawn here: only this goroutine uses the random numbers.
		all.Go(func() { p.supervise(ctx, first) })
	}
	time.Sleep(wait)
	for range 1 + p.random.IntN(3) {
		p.disturb()
	}
	p.heal()
	time.Sleep(3*p.lease + 10*p.retry + 2*time.Second)
	p.expectOneLeader()
	stop()
	all.Wait()
	p.judge()
}

// loadLease stores the Lease that the processes find, and returns how long they need to elect the first leader.
func (p *phase) loadLease() time.Duration {
	spec, wait := coordinationv1.LeaseSpec{}, p.lease+5*p.retry
	switch p.random.IntN(5) {
	case 0: // It does not exist.
		return wait
	case 1: // Without a holder.
	case 2: // Of a process that was killed long ago, or whose clock is wrong.
		spec = held("ghost", p.lease, time.Now().Add(p.upTo(200*time.Hour)-100*time.Hour))
	default:
		spec, wait = released(7), 3*p.retry
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: testLease, UID: "first"}, Spec: spec,
	}
	if err := p.server.Load(lease); err != nil {
		p.t.Error(err)
	}
	return wait
}

// held returns the Lease of a holder.
func held(by string, duration time.Duration, renewed time.Time) coordinationv1.LeaseSpec {
	at := metav1.NewTime(renewed)
	return resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		HolderIdentity: by, LeaseDurationSeconds: int(duration / time.Second), AcquireTime: at, RenewTime: at,
	})
}

func (p *phase) upTo(d time.Duration) time.Duration {
	return time.Duration(p.random.Int64N(int64(d)))
}

// supervise starts a process, and starts another one in its place when it has ended, as the kubelet does.
func (p *phase) supervise(ctx context.Context, wait time.Duration) {
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		process := p.join()
		running, signal := context.WithCancel(ctx)
		process.signal = signal
		p.candidate(p, running, process)
		p.leave(process, running.Err() == nil)
		signal()
		wait = time.Second
	}
}

func (p *phase) join() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started++
	process := newProcess(p.server, fmt.Sprintf("p%d", p.started))
	p.processes = append(p.processes, process)
	return process
}

// leave forgets a process that has exited. Its faults ended with it.
func (p *phase) leave(process *process, lost bool) {
	process.heal()
	p.mu.Lock()
	defer p.mu.Unlock()
	if lost {
		p.result.losses++
	}
	i := slices.Index(p.processes, process)
	p.processes = slices.Delete(p.processes, i, i+1)
}

// leads is called when a process becomes leader. A gate opens only once, so two that are open at the same time are so
// when the second one opens.
func (p *phase) leads(process *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.openings++
	for _, other := range p.processes {
		if other != process && other.open() {
			p.result.overlaps++
		}
	}
}

// write is the work of a leader. It finishes the write in hand when ctx ends.
func (p *phase) write(ctx context.Context, process *process, config *rest.Config) {
	config.Timeout = p.lease
	maps := corev1client.NewForConfigOrDie(config).ConfigMaps(testNamespace)
	for i := 0; ctx.Err() == nil; i++ {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", process.user, i)}}
		// Failures are part of the phase, and what is executed is in the history.
		_, _ = maps.Create(context.WithoutCancel(ctx), cm, metav1.CreateOptions{})
		select {
		case <-time.After(2 * p.retry):
		case <-ctx.Done():
		}
	}
}

// ours is the candidate that is tested.
func ours(p *phase, ctx context.Context, process *process) {
	elector, err := New(Config{
		Connection: process.config(), Namespace: testNamespace, Name: testLease,
		LeaseDuration: p.lease, RenewDeadline: p.deadline, RetryPeriod: p.retry,
	})
	if err != nil {
		p.t.Error(err)
		return
	}
	elector.gate.now = process.now
	config := process.config()
	config.Wrap(elector.Gate)
	p.set(process, elector.lock.identity, elector.gate.open)
	_ = elector.Run(ctx, func(ctx context.Context) { // The error is that the leadership was lost.
		p.leads(process)
		p.write(ctx, process, config)
	})
}

// clientGo is a candidate that uses client-go as its documentation describes: ReleaseOnCancel, and the leader works
// until the context ends that it was given.
func clientGo(p *phase, ctx context.Context, process *process) {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var done sync.WaitGroup
	defer done.Wait()
	working, finish := context.WithCancel(electing)
	context.AfterFunc(ctx, func() { finish(); stop() })
	timeout := p.deadline / 2 // As resourcelock.NewFromKubeconfig.
	elector := newClientGo(p.t, process, Config{
		LeaseDuration: p.lease, RenewDeadline: p.deadline, RetryPeriod: p.retry,
	}, true, timeout, func(leading context.Context) {
		p.set(process, process.user, func() bool { return leading.Err() == nil && working.Err() == nil })
		p.leads(process)
		p.write(leading, process, process.config())
	})
	elector.Run(electing)
}

func (p *phase) set(process *process, identity string, open func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	process.identity, process.open = identity, open
}

// expectOneLeader is called when there were no faults for a while.
func (p *phase) expectOneLeader() {
	p.mu.Lock()
	defer p.mu.Unlock()
	leaders := 0
	for _, process := range p.processes {
		if process.open() {
			leaders++
		}
	}
	if leaders != 1 {
		p.result.leaderless++
	}
}
