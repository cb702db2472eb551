package leader

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/sim/apiserver"
)

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
