package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
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
			histogram, err := testutil.GetHistogramVecFromGatherer(registry, "foo_controller_foo_unready_seconds", nil)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d with %v", histogram.GetAggregatedSampleCount(), histogram.GetAggregatedSampleSum())
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestFoosAreCountedByReason(t *testing.T) {
	none := foo(metav1.ConditionTrue, "", 0)
	none.Status.Conditions = nil
	var foos []*v1alpha1.Foo
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(Count([]string{"Available", "Creating"}, func() []*v1alpha1.Foo { return foos }))
	expect := func(series string) {
		t.Helper()
		const head = "# HELP foo_controller_foos [ALPHA] Number of Foos by the reason of their Ready condition.\n# TYPE foo_controller_foos gauge\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(head+series), "foo_controller_foos"); err != nil {
			t.Error(err)
		}
	}
	expect(`
		foo_controller_foos{reason="Available"} 0
		foo_controller_foos{reason="Creating"} 0
		foo_controller_foos{reason="None"} 0
		foo_controller_foos{reason="Other"} 0
	`)
	foos = []*v1alpha1.Foo{foo("True", "Available", 0), foo("True", "Available", 0), none, foo("False", "Mine", 0)}
	expect(`
		foo_controller_foos{reason="Available"} 2
		foo_controller_foos{reason="Creating"} 0
		foo_controller_foos{reason="None"} 1
		foo_controller_foos{reason="Other"} 1
	`)
}
