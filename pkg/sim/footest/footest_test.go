package footest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
)

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
			name: "the Deployment has no owner", write: watch.Modified, want: "no Foo owns it",
			edit: func(dep *appsv1.Deployment) { dep.OwnerReferences = nil },
		},
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
				observed:    map[types.UID]int64{},
			}
			began := time.Unix(1e9, 0)
			change := &apiserver.Revision{Time: began, Type: watch.Modified, Object: newFoo(test.foo), User: "somebody"}
			if test.deleted {
				change.Type = watch.Deleted
			}
			if problem := i.foo(change); problem != "" {
				t.Errorf("the Foo: %s", problem)
			}
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

func TestFooKindValidatesAsTheCustomResourceDefinition(t *testing.T) {
	for _, test := range []struct {
		name string
		spec v1alpha1.FooSpec
		want string // The fields that are wrong.
	}{
		{name: "valid", spec: v1alpha1.FooSpec{DeploymentName: "web", Image: "nginx:1.29", Replicas: new(int32(0))}},
		{name: "empty", want: "spec"},
		{name: "no name", spec: v1alpha1.FooSpec{Paused: true}, want: "spec.deploymentName <nil>"},
		{name: "a bad name", spec: v1alpha1.FooSpec{DeploymentName: "Not A Name"}, want: "spec.deploymentName"},
		{name: "a bad image", spec: v1alpha1.FooSpec{DeploymentName: "web", Image: "a b"}, want: "spec.image"},
		{
			name: "negative replicas", spec: v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(-1))},
			want: "spec.replicas",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var fields []string
			foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: test.spec}
			for _, err := range FooKind().Validate(foo, nil) {
				fields = append(fields, err.Field)
			}
			if got := strings.Join(fields, " "); got != test.want {
				t.Errorf("wrong fields: %q, want %q", got, test.want)
			}
		})
	}
}

func TestArgumentsMustBeUsed(t *testing.T) {
	args := parseArguments(` web-1 forbidden "not today" label.a/b=c replicas=3 once`)
	want := arguments{
		words:  []string{"web-1", "forbidden", "not today", "once"},
		values: map[string]string{"label.a/b": "c", "replicas": "3"},
		used:   map[string]bool{},
	}
	if diff := cmp.Diff(want, args, cmp.AllowUnexported(arguments{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	args.value("label.a/b")
	if n := args.number("replicas", 7); n != 3 {
		t.Errorf("replicas = %d, want 3", n)
	}
	for i := range 3 {
		args.word(i)
	}
	if err := args.unused(); err == nil || !strings.Contains(err.Error(), `"once"`) {
		t.Errorf("error %v, want one about the unused argument", err)
	}
	if !args.has("once") || args.unused() != nil {
		t.Errorf("error %v although all arguments were used", args.unused())
	}
}

func TestASimulationCanBeRead(t *testing.T) {
	const write, shown = "12.500s user: update foos/status default/web: ", "00:00:12.500 user: update foos/status default/web: "
	for line, want := range map[string]string{
		write + "200, version 7":                         "", // It has a line in words.
		write + "409 Conflict: object was modified":      shown + "409 Conflict: object was modified\n",
		write + "no answer: EOF (the server: 200)":       shown + "no answer: EOF (the server: 200)\n",
		"1.000s user: foos: sent BOOKMARK, version 7":    "",
		"1.000s user: create foos -n default (web): 201": "00:00:01.000 user: create foos -n default (web): 201\n",
	} {
		if got := readable(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	status := &apiserver.Request{
		Resource: apiserver.Deployments().Resource, Subresource: "status",
		Body: []byte(`{"metadata":{"name":"web"},"status":{"availableReplicas":1}}`),
	}
	if got, want := wordsFor(status), "status deployment web 1 of ? replicas available"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
