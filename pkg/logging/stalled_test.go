package logging_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/logging"
)

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
			want: []string{"INFO Foo became Stalled reason=NameTaken message=by web"}},
		{name: "stalled", before: working, after: taken,
			want: []string{"INFO Foo became Stalled reason=NameTaken message=by web"}},
		{name: "stalled as before, with another message", before: taken,
			after: foo(v1alpha1.ConditionStalled, "NameTaken", "by other")},
		{name: "stalled for another reason", before: taken, after: foo(v1alpha1.ConditionStalled, "Invalid", "no name"),
			want: []string{"INFO Foo became Stalled reason=Invalid message=no name"}},
		{name: "recovered", before: taken, after: working,
			want: []string{"INFO Foo recovered from Stalled reason=NameTaken"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := newLog(t)
			stalled := &logging.Stalled{Allow: func(string) bool { return true }}
			stalled.Reported(log.Logger, test.before, test.after)
			log.check(t, test.want...)
		})
	}
}

func TestLinesAboutStalledFoosAreLimited(t *testing.T) {
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: "busy"}}
	taken := foo.DeepCopy()
	taken.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: "True", Reason: "NameTaken"}}
	allowed := true
	stalled := &logging.Stalled{Allow: func(namespace string) bool { return allowed && namespace == "busy" }}
	log := newLog(t)
	stalled.Reported(log.Logger, foo, taken)
	allowed = false
	for range 3 {
		stalled.Reported(log.Logger, foo, taken)
	}
	allowed = true
	stalled.Reported(log.Logger, taken, foo)
	stalled.Reported(log.Logger, foo, taken)
	log.check(t, "INFO Foo became Stalled reason=NameTaken message=",
		"INFO Foo recovered from Stalled reason=NameTaken linesLeftOut=3",
		"INFO Foo became Stalled reason=NameTaken message=")
}
