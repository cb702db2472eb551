package report

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
