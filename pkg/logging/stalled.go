package logging

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Stalled logs which Foos became Stalled, and which recovered. Users can cause such a line with each Foo that they
// create, so the number of lines is limited. It may be used concurrently.
type Stalled struct {
	// Allow reports whether one more line about a Foo of this namespace may be logged.
	Allow func(namespace string) bool

	// leftOut is the number of lines that were not logged since the last one.
	leftOut atomic.Int64
}

// Reported compares a Foo before and after a write of its status. It logs if the Foo became Stalled, is Stalled for
// another reason, or recovered.
func (s *Stalled) Reported(logger klog.Logger, before, after *v1alpha1.Foo) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionStalled)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStalled)
	switch {
	case is != nil && (was == nil || was.Reason != is.Reason):
		s.info(logger, after.Namespace, "Foo became Stalled", "reason", is.Reason, "message", is.Message)
	case was != nil && is == nil:
		s.info(logger, after.Namespace, "Foo recovered from Stalled", "reason", was.Reason)
	}
}

// info logs a line about a Foo of this namespace, or counts it.
func (s *Stalled) info(logger klog.Logger, namespace, message string, values ...any) {
	if !s.Allow(namespace) {
		s.leftOut.Add(1)
		return
	}
	if leftOut := s.leftOut.Swap(0); leftOut > 0 {
		values = append(values, "linesLeftOut", leftOut)
	}
	logger.Info(message, values...)
}
