package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLog returns a logger, and the lines that it has written: each with its message and values.
func newLog() (logger klog.Logger, lines func() []string) {
	logger = ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	buffer := logger.GetSink().(ktesting.Underlier).GetBuffer()
	return logger, func() (lines []string) {
		for _, entry := range buffer.Data() {
			line := entry.Message
			for pair := range slices.Chunk(slices.Concat(entry.WithKVList, entry.ParameterKVList), 2) {
				line += fmt.Sprintf(" %v=%v", pair...)
			}
			lines = append(lines, line)
		}
		return lines
	}
}

func mustLog(t *testing.T, lines func() []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestAFooThatBecomesStalledOrRecoversIsLogged(t *testing.T) {
	foo := func(conditionType, reason, message string) *v1alpha1.Foo {
		return &v1alpha1.Foo{Status: v1alpha1.FooStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message},
			{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message},
		}}}
	}
	isNew := &v1alpha1.Foo{}
	working := foo(v1alpha1.ConditionReconciling, "Progressing", "1 of 3")
	taken := foo(v1alpha1.ConditionStalled, "NameTaken", "by web")
	for _, test := range []struct {
		name          string
		before, after *v1alpha1.Foo
		want          []string
	}{
		{name: "new and working", before: isNew, after: working},
		{name: "new and stalled", before: isNew, after: taken,
			want: []string{"Foo became Stalled reason=NameTaken message=by web"}},
		{name: "stalled", before: working, after: taken,
			want: []string{"Foo became Stalled reason=NameTaken message=by web"}},
		{name: "stalled as before, with another message", before: taken,
			after: foo(v1alpha1.ConditionStalled, "NameTaken", "by other")},
		{name: "stalled for another reason", before: taken, after: foo(v1alpha1.ConditionStalled, "Invalid", "no name"),
			want: []string{"Foo became Stalled reason=Invalid message=no name"}},
		{name: "recovered", before: taken, after: working,
			want: []string{"Foo recovered from Stalled reason=NameTaken"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, lines := newLog()
				foos := New(func(string) bool { return true })
				foos.Written(logger, test.before, test.after)
				mustLog(t, lines)
				settle()
				mustLog(t, lines, test.want...)
			})
		})
	}
}

// settle sleeps until the changes so far have been logged.
func settle() {
	time.Sleep(settleTime)
	synctest.Wait()
}

// An image is corrected after a missed deadline: the Deployment reports the deadline for a moment once more.
func TestAStateThatLastsForLessThanASecondIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
		late := working.DeepCopy()
		late.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionStalled, Status: "True", Reason: "ProgressDeadlineExceeded"},
		}
		logger, lines := newLog()
		foos := New(func(string) bool { return true })
		written := func(before, after *v1alpha1.Foo) {
			foos.Written(logger, before, after)
			time.Sleep(100 * time.Millisecond)
		}
		written(late, working)
		written(working, late)
		written(late, working)
		settle()
		mustLog(t, lines, "Foo recovered from Stalled reason=ProgressDeadlineExceeded")
		written(working, late)
		written(late, working)
		settle()
		mustLog(t, lines, "Foo recovered from Stalled reason=ProgressDeadlineExceeded")
		if len(foos.changes) > 0 {
			t.Errorf("%d changes are kept", len(foos.changes))
		}
	})
}

func TestLinesAboutStalledFoosAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: "busy"}}
		taken := foo.DeepCopy()
		taken.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: "True", Reason: "NameTaken"}}
		allowed := true
		foos := New(func(namespace string) bool { return allowed && namespace == "busy" })
		logger, lines := newLog()
		written := func(before, after *v1alpha1.Foo) {
			foos.Written(logger, before, after)
			settle()
		}
		written(foo, taken)
		allowed = false
		for range 3 {
			written(foo, taken)
		}
		allowed = true
		written(taken, foo)
		written(foo, taken)
		mustLog(t, lines, "Foo became Stalled reason=NameTaken message=",
			"Foo recovered from Stalled reason=NameTaken linesLeftOut=3",
			"Foo became Stalled reason=NameTaken message=")
	})
}

// unreadFoo returns a Foo some of whose fields could not be decoded.
func unreadFoo(uid types.UID, value string, paths ...string) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	for _, path := range paths {
		foo.Unread = append(foo.Unread, v1alpha1.UnreadField{Path: path, Value: value, Want: "a string"})
	}
	return foo
}

func TestEachUnreadFieldOfAFooIsLoggedOnce(t *testing.T) {
	foos := New(nil)
	logger, lines := newLog()
	logger = klog.LoggerWithValues(logger, "foo", "default/web")
	for i := range 3 {
		foos.Read(logger, unreadFoo("1", fmt.Sprint(i), "spec.image", "status.selector")) // Whatever the value is.
		foos.Read(logger, unreadFoo("2", "7", "spec.image"))
		foos.Read(logger, unreadFoo("3", ""))
	}
	mustLog(t, lines,
		"Foo has a field that cannot be read foo=default/web field=spec.image value=0 want=a string",
		"Foo has a field that cannot be read foo=default/web field=status.selector value=0 want=a string",
		"Foo has a field that cannot be read foo=default/web field=spec.image value=7 want=a string")
}

// The first of 10,001 fields is forgotten with all others when the last one comes.
func TestTheMemoryOfUnreadFieldsIsBounded(t *testing.T) {
	foos := New(nil)
	logger, lines := newLog()
	for i := range 10_001 {
		foos.Read(logger, unreadFoo(types.UID(fmt.Sprint(i)), "", "spec"))
	}
	foos.Read(logger, unreadFoo("10000", "", "spec"))
	foos.Read(logger, unreadFoo("0", "", "spec"))
	if got := len(lines()); got != 10_002 {
		t.Errorf("%d lines, want 10,002", got)
	}
}

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
		const head = "# HELP foo_controller_foos [ALPHA] Number of Foos by the reason of their Ready condition.\n# TYPE " +
			"foo_controller_foos gauge\n"
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
