package leader

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
