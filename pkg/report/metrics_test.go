package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// foo returns a Foo whose Ready condition has had its status since a time after the creation.
func foo(ready metav1.ConditionStatus, reason string, since time.Duration) *v1alpha1.Foo {
	return &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: created}},
		Status: v1alpha1.FooStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: ready, Reason: reason,
			LastTransitionTime: metav1.Time{Time: created.Add(since)},
		}}},
	}
}

// series returns the series of a metric, sorted: their labels and their value. For a histogram, that is the number and
// the sum of its observations.
func series(t *testing.T, registry metrics.KubeRegistry, name string) (series []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			words := []string{}
			for _, label := range metric.GetLabel() {
				words = append(words, label.GetName()+"="+label.GetValue())
			}
			value := fmt.Sprint(metric.GetCounter().GetValue() + metric.GetGauge().GetValue())
			if h := metric.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d with %v", h.GetSampleCount(), h.GetSampleSum())
			}
			series = append(series, strings.Join(append(words, value), " "))
		}
	}
	slices.Sort(series)
	return series
}

func mustHave(t *testing.T, registry metrics.KubeRegistry, name string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, series(t, registry, name)); diff != "" {
		t.Errorf("%s, - wanted, + is there:\n%s", name, diff)
	}
}

func TestTheTimeUntilAFooIsReadyIsObserved(t *testing.T) {
	pending := foo(metav1.ConditionUnknown, v1alpha1.ReasonPending, -1000*time.Hour) // A default, with any time.
	none := foo(metav1.ConditionTrue, "", 0)
	none.Status.Conditions = nil
	creating := func(since time.Duration) *v1alpha1.Foo {
		return foo(metav1.ConditionFalse, v1alpha1.ReasonCreating, since)
	}
	ready := func(since time.Duration) *v1alpha1.Foo {
		return foo(metav1.ConditionTrue, v1alpha1.ReasonAvailable, since)
	}
	tests := []struct {
		name      string
		have, foo *v1alpha1.Foo
		want      string
	}{
		{name: "without a condition", have: none, foo: ready(7 * time.Second), want: "1 with 7"},
		{name: "seen for the first time", have: pending, foo: ready(8 * time.Second), want: "1 with 8"},
		{name: "new", have: creating(0), foo: ready(9 * time.Second), want: "1 with 9"},
		{name: "again", have: creating(time.Hour), foo: ready(time.Hour + 5*time.Second), want: "1 with 5"},
		{name: "by a clock that went back", have: creating(time.Minute), foo: ready(0), want: "1 with 0"},
		{name: "as before", have: ready(time.Second), foo: ready(time.Second), want: "0 with 0"},
		{name: "not yet", have: creating(0), foo: creating(0), want: "0 with 0"},
		{name: "no more", have: ready(0), foo: creating(time.Hour), want: "0 with 0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			foos, registry := New(nil), metrics.NewKubeRegistry()
			foos.Register(registry.MustRegister)
			foos.Written(klog.Logger{}, test.have, test.foo)
			mustHave(t, registry, "foo_controller_foo_unready_seconds", test.want)
		})
	}
}

func TestFoosAreCountedByReason(t *testing.T) {
	none := foo(metav1.ConditionTrue, "", 0)
	none.Status.Conditions = nil
	var foos []*v1alpha1.Foo
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(Count([]string{"Available", "Creating"}, func() []*v1alpha1.Foo { return foos }))
	mustHave(t, registry, "foo_controller_foos",
		"reason=Available 0",
		"reason=Creating 0",
		"reason=None 0",
		"reason=Other 0",
	)
	foos = []*v1alpha1.Foo{foo("True", "Available", 0), foo("True", "Available", 0), none, foo("False", "Mine", 0)}
	mustHave(t, registry, "foo_controller_foos",
		"reason=Available 2",
		"reason=Creating 0",
		"reason=None 1",
		"reason=Other 1",
	)
}
