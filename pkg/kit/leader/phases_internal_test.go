package leader

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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

	mu        sync.Mutex
	processes []*process // That run now.
	started   int        // How many have started so far.
	result    result
}

// A result counts what happened in a phase.
type result struct {
	openings int // How often a process became leader.
	losses   int // How often a process returned because it lost the leadership.
	failures
}

// failures must all be 0.
type failures struct {
	overlaps   int // How often a process became leader while another one could still write.
	erased     int // How often a process removed another holder from the Lease.
	stolen     int // How often a process wrote a Lease that was not its own before it could be sure that it may.
	interlaced int // How often a write was executed after one of a later leader.
	leaderless int // How often there was not exactly one leader after all faults had ended.
	unreleased int // How often the Lease had a holder after all processes had been stopped.
}

// TestGatesNeverOverlap plays random phases with partitions, lost answers, slow requests for the Lease, processes and
// machines that stop for a while, and people who edit and delete the Lease.
func TestGatesNeverOverlap(t *testing.T) {
	openings, losses := 0, 0
	for seed := *firstPhase; seed < *firstPhase+*phases; seed++ {
		got := playPhase(t, uint64(seed))
		openings += got.openings
		losses += got.losses
		if got.failures != (failures{}) {
			t.Errorf("phase %d: %+v", seed, got)
		}
	}
	t.Logf("%d phases: %d processes became leaders, %d lost the leadership", *phases, openings, losses)
	if openings < *phases || losses < *phases/4 {
		t.Error("the phases test too little")
	}
}

func playPhase(t *testing.T, seed uint64) (got result) {
	synctest.Test(t, func(t *testing.T) {
		d := durations[seed%uint64(len(durations))]
		p := &phase{
			t: t, random: rand.New(rand.NewPCG(seed, 9)),
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
		p.run(running, process)
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

// run runs the election of a process until ctx ends or the leadership is lost.
func (p *phase) run(ctx context.Context, process *process) {
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

// disturb is a fault or an edit, or both, and some time after it.
func (p *phase) disturb() {
	time.Sleep(p.upTo(2 * p.retry))
	choice := p.random.IntN(10)
	if choice < 8 {
		p.beginFault()
	}
	if choice < 2 {
		time.Sleep(p.upTo(p.deadline))
		p.stopOne()
	}
	if choice > 5 {
		time.Sleep(p.upTo(p.lease))
		p.editLease()
	}
	time.Sleep(p.upTo(2 * p.lease))
	if p.random.IntN(4) > 0 {
		p.heal()
		time.Sleep(p.upTo(p.lease))
	}
}

// beginFault lets something happen to the leader, and sometimes to another process.
func (p *phase) beginFault() {
	f := &fault{kind: faultKind(p.random.IntN(int(faultKinds))), delay: p.upTo(p.deadline)}
	if f.kind == clockSet {
		f.delay = p.upTo(48*time.Hour) - 24*time.Hour
	}
	n := p.random.IntN(3)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.processes) == 0 {
		return
	}
	target := p.processes[n%len(p.processes)]
	for _, process := range p.processes {
		if n > 0 && process.open() {
			target = process
		}
	}
	if f.kind == suspended && target.wrong != 0 || f.kind == clockSet && !target.standing.IsZero() {
		return // A machine on which both clocks are wrong at the same time: the package comment has this limit.
	}
	target.begin(f)
}

// stopOne stops the leader or another process in order. Another process is started in its place.
func (p *phase) stopOne() {
	n := p.random.IntN(3)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, process := range p.processes {
		if process.open() || i == n {
			process.signal()
			return
		}
	}
}

func (p *phase) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, process := range p.processes {
		process.heal()
	}
}

// editLease does what people do to Leases.
func (p *phase) editLease() {
	leases := admin(p.server)
	n, other := p.random.IntN(8), p.anyIdentity()
	ctx := p.t.Context()
	lease, err := leases.Get(ctx, testLease, metav1.GetOptions{})
	if err != nil {
		return // It does not exist now.
	}
	long := int32(2 * p.lease / time.Second)
	switch n {
	case 0, 1:
		_ = leases.Delete(ctx, testLease, metav1.DeleteOptions{}) // The update below fails then.
	case 2:
		// With a duration that is not that of a released Lease.
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = nil, &long
	case 3:
		lease.Spec.HolderIdentity = &other
	case 4:
		if holder(lease) != "" { // Or it would seem to be released: the package comment has this limit.
			lease.Spec.LeaseDurationSeconds = new(int32(1))
		}
	case 5:
		lease.Spec.LeaseDurationSeconds = &long
	case 6:
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(p.upTo(200*time.Hour) - 100*time.Hour)}
	case 7:
		lease.Annotations = map[string]string{"note": "edited"}
	}
	_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{}) // A renewal may have been faster: no matter.
}

// anyIdentity returns the identity of one of the processes, or of nobody.
func (p *phase) anyIdentity() string {
	n := p.random.IntN(4)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < len(p.processes) {
		return p.processes[n].identity
	}
	return "somebody"
}

// judge counts what the history of the server shows.
func (p *phase) judge() {
	p.judgeWrites()
	owner, last := "", (*apiserver.Revision)(nil)
	for _, rev := range p.server.History(coordinationv1.SchemeGroupVersion.WithResource("leases")) {
		if rev.Type == watch.Deleted {
			owner, last = "", nil
			continue
		}
		if rev.User != "admin" && rev.User != owner && last != nil {
			p.judgeTaking(last, rev)
		}
		owner, last = ownerAfter(owner, rev), rev
	}
	if last != nil && holder(last.Object.(*coordinationv1.Lease)) != "" {
		p.result.unreleased++
	}
}

// judgeTaking judges the write of a process that was not the owner of the Lease.
func (p *phase) judgeTaking(last, rev *apiserver.Revision) {
	before, after := last.Object.(*coordinationv1.Lease), rev.Object.(*coordinationv1.Lease)
	if holder(before) != "" && holder(after) == "" {
		p.result.erased++
	}
	if !isReleased(before) && rev.Time.Sub(last.Time) < p.lease {
		p.result.stolen++
	}
}

// ownerAfter returns the user that owns the Lease after a change: the process that has taken it, until somebody else
// enters another holder.
func ownerAfter(owner string, rev *apiserver.Revision) string {
	before, after := "", holder(rev.Object.(*coordinationv1.Lease))
	if rev.Before != nil {
		before = holder(rev.Before.(*coordinationv1.Lease))
	}
	switch {
	case after == "":
		return ""
	case rev.User != "admin":
		return rev.User
	case before != after:
		return ""
	}
	return owner
}

// judgeWrites counts the writes of a process that were executed after those of a later leader.
func (p *phase) judgeWrites() {
	var leaders []string
	for _, rev := range p.server.History(corev1.SchemeGroupVersion.WithResource("configmaps")) {
		switch i := slices.Index(leaders, rev.User); {
		case i < 0:
			leaders = append(leaders, rev.User)
		case i < len(leaders)-1:
			p.result.interlaced++
		}
	}
}

// edits is what people do to the Lease of a leader. keeps is true if the leader renews it as if nothing had happened.
var edits = []struct {
	name string
	edit func(spec *coordinationv1.LeaseSpec) // Nil deletes the Lease.
	copy bool                                 // A copy of the Lease that was deleted is created.
	// refused is how long nobody may create a Lease.
	refused time.Duration
	keeps   bool
}{
	{name: "deleted"},
	{name: "deleted, and nobody may create one", refused: 10 * time.Second},
	{name: "deleted and restored from a copy", copy: true}, // In between, others could create and take one.
	{name: "the holder is cleared", edit: func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = nil }},
	{name: "another holder, and the most transitions", edit: func(s *coordinationv1.LeaseSpec) {
		// The elector counts the changes of the leader, and the API server refuses a number below zero.
		s.HolderIdentity, s.LeaseTransitions = new("somebody"), new(int32(math.MaxInt32))
	}},
	{name: "taken at another time", edit: func(s *coordinationv1.LeaseSpec) {
		s.AcquireTime = &metav1.MicroTime{Time: s.AcquireTime.Add(time.Microsecond)}
	}},
	{name: "a longer duration", keeps: true, edit: func(s *coordinationv1.LeaseSpec) {
		s.LeaseDurationSeconds = new(int32(60))
	}},
	{name: "no duration", keeps: true, edit: func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = nil }},
	{name: "renewed in the far future", keeps: true, edit: func(s *coordinationv1.LeaseSpec) {
		s.RenewTime = &metav1.MicroTime{Time: time.Date(2980, 1, 1, 0, 0, 0, 0, time.UTC)}
	}},
}

// editLease applies an edit.
func editLease(t *testing.T, s *apiserver.Server, edit func(*coordinationv1.LeaseSpec)) {
	t.Helper()
	if edit == nil {
		if err := admin(s).Delete(t.Context(), testLease, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	lease := storedLease(s).DeepCopy()
	edit(&lease.Spec)
	if _, err := admin(s).Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A leader sees the edit with its next renewal, stops, and has the reason. Then the Lease is taken after its duration.
func TestALeaderWhoseLeaseWasEdited(t *testing.T) {
	for _, test := range edits {
		t.Run(test.name, func(t *testing.T) {
			elect(t, defaultSettings, func(t *testing.T, s *apiserver.Server, a, b *member) {
				time.Sleep(time.Minute + 300*time.Millisecond)
				edited := time.Now()
				forbidden := &atomic.Bool{}
				forbidden.Store(test.refused > 0)
				time.AfterFunc(test.refused, func() { forbidden.Store(false) })
				between(s, forbidden, refuse, "create")
				copied := storedLease(s).DeepCopy()
				editLease(t, s, test.edit)
				if copied.UID, copied.ResourceVersion = "", ""; test.copy {
					if _, err := admin(s).Create(t.Context(), copied, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				if test.keeps {
					time.Sleep(time.Minute)
					if lease := storedLease(s); !a.leads() || seconds(lease) != 15 || lease.Spec.RenewTime.After(time.Now()) {
						t.Errorf("the leader does not renew the Lease: %+v", lease.Spec)
					}
					return
				}
				text := fmt.Sprint(a.lost(t))
				if took := time.Since(edited); took > defaultSettings.RetryPeriod {
					t.Errorf("the leader has noticed it after %v", took)
				}
				if !strings.Contains(text, "another client wrote the Lease: holder ") && !strings.Contains(text, "was deleted") {
					t.Errorf("the error has no reason: %s", text)
				}
				a.expectLog(t, "of the leader", "Became leader", "Lost the leadership")
				within(t, b.leading)
				if took := time.Since(edited); took < 15*time.Second || took > test.refused+24*time.Second {
					t.Errorf("the standby took the Lease %v after the edit", took)
				}
			})
		})
	}
}
