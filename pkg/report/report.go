// Package report is what the process says about Foos besides their status: lines of the log, and metrics of their
// conditions. What it says about itself is in pkg/kit.
package report

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/logging"
)

// prefix begins the names of the metrics.
const prefix = "foo_controller"

// maxUnread is how many fields that could not be decoded are remembered.
const maxUnread = 10_000

// Foos reports on Foos. It may be used concurrently.
type Foos struct {
	// allow reports whether one more line about a Foo of this namespace may be logged.
	allow func(namespace string) bool
	// leftOut is the number of lines that were not logged since the last one.
	leftOut atomic.Int64
	// unread has the fields that could not be decoded, with the uids of their Foos.
	unread logging.Once
	// unready counts nothing until it is registered.
	unready *metrics.Histogram
}

// New returns a Foos. Users can cause a line with each Foo that they create, so allow limits their number: it reports
// whether one more line about a Foo of this namespace may be logged.
func New(allow func(namespace string) bool) *Foos {
	return &Foos{allow: allow, unready: metrics.NewHistogram(&metrics.HistogramOpts{
		Name: prefix + "_foo_unready_seconds",
		Help: "When a Foo becomes Ready: how long it was not, since its creation or since it was Ready before. " +
			"The resolution is a second.",
		Buckets:        []float64{1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1800, 3600},
		StabilityLevel: metrics.ALPHA,
	})}
}

// Register registers the metrics of f with, for example, legacyregistry.MustRegister.
func (f *Foos) Register(register func(...metrics.Registerable)) { register(f.unready) }

// Read logs the fields of foo that could not be decoded: each field of a Foo once, whatever its value is, as long as
// there are at most 10,000 of them.
func (f *Foos) Read(logger klog.Logger, foo *v1alpha1.Foo) {
	for _, field := range foo.Unread {
		if f.unread.IsNew(string(foo.UID)+" "+field.Path, maxUnread) {
			logger.Info("Foo has a field that cannot be read", "field", field.Path, "value", field.Value, "want", field.Want)
		}
	}
}

// Written compares a Foo before and after a write of its status. It logs if the Foo became Stalled, is Stalled for
// another reason, or recovered. If it has become Ready, it observes how long that took.
func (f *Foos) Written(logger klog.Logger, before, after *v1alpha1.Foo) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionStalled)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStalled)
	switch {
	case is != nil && (was == nil || was.Reason != is.Reason):
		f.info(logger, after.Namespace, "Foo became Stalled", "reason", is.Reason, "message", is.Message)
	case was != nil && is == nil:
		f.info(logger, after.Namespace, "Foo recovered from Stalled", "reason", was.Reason)
	}
	if isReady(after) && !isReady(before) {
		f.unready.Observe(unreadySeconds(before, after))
	}
}

// info logs a line about a Foo of this namespace, or counts it.
func (f *Foos) info(logger klog.Logger, namespace, message string, values ...any) {
	if !f.allow(namespace) {
		f.leftOut.Add(1)
		return
	}
	if leftOut := f.leftOut.Swap(0); leftOut > 0 {
		values = append(values, "linesLeftOut", leftOut)
	}
	logger.Info(message, values...)
}

func isReady(foo *v1alpha1.Foo) bool {
	return meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReady)
}

// unreadySeconds returns how long a Foo that has become Ready was not.
func unreadySeconds(before, after *v1alpha1.Foo) float64 {
	since := before.CreationTimestamp
	ready := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse {
		since = ready.LastTransitionTime
	}
	now := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime
	return max(0, now.Sub(since.Time).Seconds())
}
