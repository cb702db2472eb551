package report

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/component-base/metrics"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
