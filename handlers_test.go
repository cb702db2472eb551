package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/plan"
)

// TestEventsQueueTheFoosThatDependOnThem has three Foos: web controls the Deployment "web", duplicate names it too,
// and bystander names another one.
func TestEventsQueueTheFoosThatDependOnThem(t *testing.T) {
	next := func(edits ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
		return newFoo(append(edits, func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" })...)
	}
	moved := func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName, foo.Generation = "new-name", 8 }
	duplicate := newFoo(fooNamed("duplicate"))
	bystander := newFoo(fooNamed("bystander"), func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "other" })
	fooChanged := func(edits ...func(*v1alpha1.Foo)) func(*Controller) {
		return func(c *Controller) { c.fooChanged(newFoo(), next(edits...)) }
	}
	depChanged := func(edit func(*appsv1.Deployment)) func(*Controller) {
		dep := newDeployment(func(dep *appsv1.Deployment) { dep.ResourceVersion = "21" }, edit)
		return func(c *Controller) { c.deploymentChanged(cachedDeployment(), plan.TrimDeployment(dep)) }
	}
	depDeleted := func(c *Controller) {
		c.deploymentDeleted(cache.DeletedObject[*plan.TrimmedDeployment]{OptionalObj: cachedDeployment()})
	}
	for _, test := range []struct {
		name string
		// web is the Foo that the cache has, or nil.
		web     *v1alpha1.Foo
		happens func(*Controller)
		// gone means that the cache has no Deployment after that, edit makes the one that it has.
		gone bool
		edit func(*appsv1.Deployment)
		// want are the Foos that are queued at once, later those that are queued within a second.
		want, later string
	}{
		{name: "a Foo comes", web: newFoo(), want: "duplicate web", happens: func(c *Controller) {
			c.fooAdded(newFoo(), false)
		}},
		{name: "a Foo is in the first list", web: newFoo(), want: "web(initial)", happens: func(c *Controller) {
			c.fooAdded(newFoo(), true)
		}},
		{name: "a Foo is resynced", web: newFoo(), want: "web(initial)", happens: func(c *Controller) {
			c.fooChanged(newFoo(), newFoo())
		}},
		{name: "the status or the labels of a Foo change", web: newFoo(), want: "web", happens: fooChanged()},
		{name: "a Foo has another number of replicas", web: newFoo(), want: "web",
			happens: fooChanged(func(foo *v1alpha1.Foo) { foo.Spec.Replicas, foo.Generation = new(int32(9)), 8 })},
		{name: "a Foo is paused", web: newFoo(), want: "web",
			happens: fooChanged(func(foo *v1alpha1.Foo) { foo.Spec.Paused, foo.Generation = true, 8 })},
		{name: "a Foo begins to be deleted", web: newFoo(), want: "duplicate web", happens: fooChanged(deleting)},
		{name: "a Foo is replaced by one with another uid", web: newFoo(), want: "duplicate web",
			happens: fooChanged(func(foo *v1alpha1.Foo) { foo.UID = "another" })},
		{name: "a Foo names another Deployment", web: newFoo(moved), want: "duplicate web", happens: fooChanged(moved)},
		{name: "a Foo is deleted", want: "duplicate web", happens: func(c *Controller) {
			c.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: newFoo()})
		}},
		{name: "a Foo is deleted, and only its key is known", want: "web", happens: func(c *Controller) {
			tombstone := cache.DeletedFinalStateUnknown{Key: "default/web"}
			c.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{FinalStateUnknown: &tombstone})
		}},
		{name: "a Foo that waits is edited", web: newFoo(), want: "duplicate", happens: func(c *Controller) {
			c.fooChanged(duplicate, newFoo(fooNamed("duplicate"), moved, func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }))
		}},

		{name: "a Deployment is in the first list", web: newFoo(), happens: func(c *Controller) {
			c.deploymentAdded(cachedDeployment(), true)
		}},
		{name: "a Deployment comes", web: newFoo(), want: "web", later: "duplicate", happens: func(c *Controller) {
			c.deploymentAdded(cachedDeployment(), false)
		}},
		{name: "a Deployment comes that no Foo controls", web: newFoo(), want: "duplicate web", edit: foreign,
			happens: func(c *Controller) { c.deploymentAdded(cachedDeployment(foreign), false) }},
		{name: "a Deployment comes that a former Foo of the name controls", web: newFoo(), want: "duplicate web",
			edit:    ownedBy("former-uid"),
			happens: func(c *Controller) { c.deploymentAdded(cachedDeployment(ownedBy("former-uid")), false) }},
		{name: "a Deployment is resynced", web: newFoo(), happens: func(c *Controller) {
			c.deploymentChanged(cachedDeployment(), cachedDeployment())
		}},
		{name: "the status of a Deployment changes", web: newFoo(), want: "web",
			happens: depChanged(func(dep *appsv1.Deployment) { dep.Status.AvailableReplicas = 1 })},
		{name: "the status of a Deployment changes that its Foo does not name any more", web: newFoo(moved), want: "web",
			happens: depChanged(func(dep *appsv1.Deployment) { dep.Status.AvailableReplicas = 1 })},
		{name: "a Deployment begins to be deleted", web: newFoo(), want: "web", later: "duplicate",
			happens: depChanged(deletingDeployment)},
		{name: "a Deployment has another made-for label", web: newFoo(), want: "web", later: "duplicate",
			happens: depChanged(func(dep *appsv1.Deployment) { dep.Labels = nil })},
		{name: "a Deployment loses its controller", web: newFoo(), want: "duplicate web", later: "duplicate web",
			edit: foreign, happens: depChanged(foreign)},
		{name: "a Deployment is deleted", web: newFoo(), want: "web", later: "duplicate web", gone: true,
			happens: depDeleted},
		{name: "a Deployment is deleted that its Foo does not name any more", web: newFoo(moved), want: "duplicate web",
			gone: true, happens: depDeleted},
		{name: "a Deployment is deleted whose Foo is gone", want: "duplicate", gone: true, happens: depDeleted},
		{name: "a Deployment is deleted, and only its name is known", web: newFoo(), want: "duplicate web", gone: true,
			happens: func(c *Controller) {
				tombstone := cache.DeletedFinalStateUnknown{Key: "default/web"}
				c.deploymentDeleted(cache.DeletedObject[*plan.TrimmedDeployment]{FinalStateUnknown: &tombstone})
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cached := objects(duplicate, bystander)
				switch {
				case test.edit != nil:
					cached = append(cached, newDeployment(test.edit))
				case !test.gone:
					cached = append(cached, newDeployment())
				}
				if test.web != nil {
					cached = append(cached, test.web)
				}
				f := newFixture(t, cached, nil)
				defer f.shutDown()
				test.happens(f.Controller)
				if got := f.queued(); got != test.want {
					t.Errorf("queued at once: %q, want %q", got, test.want)
				}
				time.Sleep(ownerHeadStart) // Virtual time.
				synctest.Wait()
				if got := f.queued(); got != test.later {
					t.Errorf("queued within a second: %q, want %q", got, test.later)
				}
			})
		})
	}
}

// queued returns the Foos that have been queued since the last call, by name.
func (f *fixture) queued() string {
	for f.deploymentQueue.Workqueue.Len() > 0 {
		f.deploymentQueue.ProcessNextWorkItem(f.ctx, f.ctx)
	}
	var all []string
	for key, class := range f.added {
		if class == fairqueue.Initial {
			key.Name += "(initial)"
		}
		all = append(all, key.Name)
	}
	clear(f.added)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// The handlers of all namespaces share a goroutine. However many Foos an event concerns, its handler queues one or two
// of them, and the name of the Deployment, once for any number of events.
func TestAHandlerQueuesAFewKeysForAnyNumberOfFoos(t *testing.T) {
	owner := newFoo(fooNamed("owner"), func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "elsewhere" })
	var objs []runtime.Object
	for i := range 200 {
		objs = append(objs, newFoo(fooNamed(fmt.Sprint("waiting-", i))))
	}
	shared := newDeployment(ownedByFoo(owner))
	f := newFixture(t, append(objs, owner, shared), nil)
	for i := range 10 {
		labelled := shared.DeepCopy()
		labelled.ResourceVersion, labelled.Labels = fmt.Sprint(100+i), map[string]string{"made-for": fmt.Sprint(i)}
		f.deploymentChanged(plan.TrimDeployment(shared), plan.TrimDeployment(labelled))
		moved := owner.DeepCopy()
		moved.ResourceVersion, moved.Spec.DeploymentName = fmt.Sprint(100+i), fmt.Sprint("other-", i)
		f.fooChanged(owner, moved)
	}
	if len(f.added) > 1 || f.deploymentQueue.Workqueue.Len() > 1 {
		t.Errorf("20 events queued %d Foos and %d names, want one of each", len(f.added), f.deploymentQueue.Workqueue.Len())
	}
	if got := len(strings.Fields(f.queued())); got != 201 {
		t.Errorf("%d Foos are queued in the end, want the owner and the 200 that wait", got)
	}
}
