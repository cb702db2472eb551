package apiserver

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// finalizersFor returns the finalizers of an object that is deleted with these options: its own, and those for the
// garbage collector.
func (r *resource) finalizersFor(have []string, opts *metav1.DeleteOptions) []string {
	if r.noPropagation {
		return withoutCollector(have)
	}
	orphan, foreground := r.policy(have, opts)
	want := withoutCollector(have)
	if orphan {
		want = append(want, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		want = append(want, metav1.FinalizerDeleteDependents)
	}
	if sets.New(want...).Equal(sets.New(have...)) {
		return have
	}
	return want
}

func withoutCollector(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

// policy returns what the garbage collector must do before the object can be removed.
func (r *resource) policy(have []string, opts *metav1.DeleteOptions) (orphan, foreground bool) {
	//lint:ignore SA1019 Clients may still send it.
	if dependents := opts.OrphanDependents; dependents != nil {
		return *dependents, false
	}
	if policy := opts.PropagationPolicy; policy != nil {
		return *policy == metav1.DeletePropagationOrphan, *policy == metav1.DeletePropagationForeground
	}
	for _, f := range have {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return true, false
		case metav1.FinalizerDeleteDependents:
			return false, true
		}
	}
	return r.orphans, false
}
