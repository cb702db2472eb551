// Package report is what the process says about Foos besides their status: lines of the log, and metrics of their
// conditions. What it says about itself is in pkg/kit.
package report

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/telemetry"
)

// prefix begins the names of the metrics.
const prefix = "foo_controller"

// maxUnread is how many fields that could not be decoded are remembered.
const maxUnread = 10_000

// settleTime is how long after a change its line is logged. A Foo that is Stalled only for a moment, such as between a
// new image and the first new pod, makes no line.
const settleTime = time.Second

// Foos reports on Foos. It may be used concurrently.
type Foos struct {
	// allow reports whether one more line about a Foo of this namespace may be logged.
	allow func(namespace string) bool
	// leftOut is the number of lines that were not logged since the last one.
	leftOut atomic.Int64
	// unread has the fields that could not be decoded, with the uids of their Foos.
	unread telemetry.Once
	// unready counts nothing until it is registered.
	unready *metrics.Histogram

	mu sync.Mutex
	// changes has the Foos that have changed within settleTime. Guarded by mu.
	changes map[types.UID]*change
}

// A change is what is logged about a Foo: its condition Stalled before and after, nil if it was not Stalled.
type change struct {
	logger             klog.Logger
	namespace, message string
	was, is            *metav1.Condition
}

// New returns a Foos. Users can cause a line with each Foo that they create, so allow limits their number: it reports
// whether one more line about a Foo of this namespace may be logged.
func New(allow func(namespace string) bool) *Foos {
	return &Foos{allow: allow, changes: map[types.UID]*change{}, unready: metrics.NewHistogram(&metrics.HistogramOpts{
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
// another reason, or recovered, and if that is still so a second later. If the Foo has become Ready, it observes how
// long that took.
func (f *Foos) Written(logger klog.Logger, before, after *v1alpha1.Foo) {
	if isReady(after) && !isReady(before) {
		f.unready.Observe(unreadySeconds(before, after))
	}
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionStalled)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStalled)
	if reasonOf(was) == reasonOf(is) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.changes[after.UID]
	if c == nil {
		c = &change{logger: logger, namespace: after.Namespace, was: was}
		f.changes[after.UID] = c
		time.AfterFunc(settleTime, func() { f.settle(after.UID) })
	}
	c.is = is
	if ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		c.message = ready.Message // That of Stalled may be shorter.
	}
}

// settle logs the change of a Foo, unless it has been undone.
func (f *Foos) settle(uid types.UID) {
	f.mu.Lock()
	c := f.changes[uid]
	delete(f.changes, uid)
	f.mu.Unlock()
	switch {
	case reasonOf(c.was) == reasonOf(c.is):
	case c.is != nil:
		f.info(c.logger, c.namespace, "Foo became Stalled", "reason", c.is.Reason, "message", c.message)
	default:
		f.info(c.logger, c.namespace, "Foo recovered from Stalled", "reason", c.was.Reason)
	}
}

// reasonOf returns the reason of a condition, "" without one.
func reasonOf(condition *metav1.Condition) string {
	if condition == nil {
		return ""
	}
	return condition.Reason
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

// none and other are values of the label reason that are no reasons: the Foo has no Ready condition, or somebody else
// has written one with another reason.
const (
	none  = "None"
	other = "Other"
)

var foosDesc = metrics.NewDesc(prefix+"_foos", "Number of Foos by the reason of their Ready condition.",
	[]string{"reason"}, nil, metrics.ALPHA, "")

// A foosCollector counts the Foos when Prometheus asks. A count that is kept from events stays wrong after one mistake.
type foosCollector struct {
	metrics.BaseStableCollector
	reasons []string
	list    func() []*v1alpha1.Foo
}

// Count returns a collector that counts the Foos which list returns, by the reason of their Ready condition. reasons
// are those that the controller reports: each is there, also with 0. list is called for each scrape, and may be called
// concurrently. Register the collector with, for example, legacyregistry.CustomMustRegister.
func Count(reasons []string, list func() []*v1alpha1.Foo) metrics.StableCollector {
	return &foosCollector{reasons: reasons, list: list}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *foosCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- foosDesc }

// CollectWithStability implements metrics.StableCollector.
func (c *foosCollector) CollectWithStability(ch chan<- metrics.Metric) {
	count := map[string]int{none: 0, other: 0}
	for _, reason := range c.reasons {
		count[reason] = 0
	}
	for _, foo := range c.list() {
		count[c.reasonOf(foo)]++
	}
	for reason, n := range count {
		ch <- metrics.NewLazyConstMetric(foosDesc, metrics.GaugeValue, float64(n), reason)
	}
}

func (c *foosCollector) reasonOf(foo *v1alpha1.Foo) string {
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return none
	case slices.Contains(c.reasons, ready.Reason):
		return ready.Reason
	}
	return other
}
