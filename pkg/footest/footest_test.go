package footest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInvariantsNoticeWrongWrites checks that a simulation fails if the controller makes a write that it must not make.
func TestInvariantsNoticeWrongWrites(t *testing.T) {
	newFoo := func(edit func(*v1alpha1.Foo)) *v1alpha1.Foo {
		foo := &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "foo-uid", Generation: 2},
			Spec:       v1alpha1.FooSpec{DeploymentName: "web"},
		}
		edit(foo)
		return foo
	}
	deployment := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		dep := plan.Deployment(newFoo(func(*v1alpha1.Foo) {}))
		dep.UID = "deployment-uid"
		edit(dep)
		return dep
	}
	asIs := func(*appsv1.Deployment) {}
	otherName := func(dep *appsv1.Deployment) { dep.Name = "other" }
	for _, test := range []struct {
		name    string
		foo     func(*v1alpha1.Foo)
		deleted bool // The Foo is deleted.
		write   watch.EventType
		edit    func(*appsv1.Deployment)
		soon    bool // The Foo changed a second before the write.
		want    string
	}{
		{name: "the Deployment that the Foo names is created", write: watch.Added, edit: asIs},
		{name: "another Deployment is created", write: watch.Added, edit: otherName, want: "its Foo does not name it"},
		{name: "another Deployment is created just after a rename", write: watch.Added, edit: otherName, soon: true},
		{name: "another Deployment is deleted", write: watch.Deleted, edit: otherName},
		{
			name: "the Deployment that it names is deleted", write: watch.Deleted, edit: asIs,
			want: "it is deleted although its Foo names it",
		},
		{
			name: "the Foo is paused", foo: func(foo *v1alpha1.Foo) { foo.Spec.Paused = true },
			write: watch.Modified, edit: asIs, want: "its Foo is paused",
		},
		{name: "the Foo is deleted", deleted: true, write: watch.Modified, edit: asIs, want: "its Foo is deleted"},
		{
			name:  "the Deployment is written for an earlier generation",
			write: watch.Modified, want: "written for generation 1 after 2",
			edit: func(dep *appsv1.Deployment) { dep.Labels[v1alpha1.LabelFooGeneration] = "1" },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.foo == nil {
				test.foo = func(*v1alpha1.Foo) {}
			}
			i := &invariants{
				lag:         time.Minute,
				foos:        map[types.UID][]*apiserver.Revision{},
				generations: map[types.UID]int64{"deployment-uid": 2},
			}
			began := time.Unix(1e9, 0)
			change := &apiserver.Revision{Time: began, Type: watch.Modified, Object: newFoo(test.foo), User: "somebody"}
			if test.deleted {
				change.Type = watch.Deleted
			}
			i.foo(change)
			write := &apiserver.Revision{
				Time: began.Add(time.Hour), Type: test.write, Object: deployment(test.edit), User: controllerName,
			}
			if test.soon {
				write.Time = began.Add(time.Second)
			}
			if got := i.deployment(write); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
