package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/footest"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
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
		c.deploymentDeleted(cache.DeletedObject[*plan.Observed]{OptionalObj: cachedDeployment()})
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
				c.deploymentDeleted(cache.DeletedObject[*plan.Observed]{FinalStateUnknown: &tombstone})
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
				time.Sleep(ownerFirst) // Virtual time.
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
	for f.names.Workqueue.Len() > 0 {
		f.names.ProcessNextWorkItem(f.ctx, f.ctx)
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
	if len(f.added) > 1 || f.names.Workqueue.Len() > 1 {
		t.Errorf("20 events queued %d Foos and %d names, want one of each", len(f.added), f.names.Workqueue.Len())
	}
	if got := len(strings.Fields(f.queued())); got != 201 {
		t.Errorf("%d Foos are queued in the end, want the owner and the 200 that wait", got)
	}
}

// TestInformersCallTheHandlers lets real informers watch the simulated API server. The other tests call the handlers
// themselves.
func TestInformersCallTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, stop := context.WithCancel(ctx)
		config := apiserver.New(footest.FooKind(), deploymentKind).Config("user")
		kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
		samplesFactory, kubeFactory := fooinformers.NewSharedInformerFactory(samples,
			0), kubeinformers.NewSharedInformerFactoryWithOptions(kube, 0,
			kubeinformers.WithTransform(plan.Trim))
		c, err := New(ctx, Clients{kube, samples}, events.NewFakeRecorder(1),
			samplesFactory.Samplecontroller().V1alpha1().Foos(), observe(kubeFactory), 1)
		if err != nil {
			t.Fatal(err)
		}
		synced, err := c.watch(klog.FromContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		samplesFactory.StartWithContext(ctx)
		kubeFactory.StartWithContext(ctx)
		defer func() {
			c.queue.ShutDown()
			c.names.ShutDown()
			stop()
			samplesFactory.Shutdown()
			kubeFactory.Shutdown()
		}()
		if !cache.WaitFor(ctx, "", synced...) {
			t.Fatal("the caches are not filled")
		}

		foos, deployments := samples.SamplecontrollerV1alpha1().Foos("default"), kube.AppsV1().Deployments("default")
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"a Foo is created", func() error {
				_, err := foos.Create(ctx, created(newFoo()), metav1.CreateOptions{})
				return err
			}},
			{"a Deployment is created", func() error {
				_, err := deployments.Create(ctx, created(newDeployment()), metav1.CreateOptions{})
				return err
			}},
			{"a Deployment is changed", func() error {
				patch := []byte(`{"metadata":{"labels":{"samplecontroller.k8s.io/made-for":"other"}}}`)
				_, err := deployments.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			}},
			{"a Deployment is deleted", func() error { return deployments.Delete(ctx, "web", metav1.DeleteOptions{}) }},
			{"a Foo is changed", func() error {
				_, err := foos.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":9}}`), metav1.PatchOptions{})
				return err
			}},
			{"a Foo is deleted", func() error { return foos.Delete(ctx, "web", metav1.DeleteOptions{}) }},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			synctest.Wait()
			for c.names.Workqueue.Len() > 0 {
				c.names.ProcessNextWorkItem(ctx, ctx)
			}
			if n := c.queue.Workqueue.Len(); n != 1 {
				t.Fatalf("%s: %d keys are queued, want 1", step.what, n)
			}
			key, _ := c.queue.Workqueue.Get()
			if key != webKey {
				t.Errorf("%s: %s is queued, want %s", step.what, key, webKey)
			}
			c.queue.Workqueue.Done(key)
		}
	})
}

// created returns obj without the fields that a client must not set when it creates an object.
func created[T metav1.Object](obj T) T {
	obj.SetResourceVersion("")
	obj.SetUID("")
	return obj
}

// While the controller runs, a Foo is synced that is queued only because of the name of a Deployment.
func TestRunQueuesTheFoosThatNameADeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		ctx, stop := context.WithCancel(f.ctx)
		go f.work(ctx) // The caches are as the test filled them.
		f.deploymentDeleted(cache.DeletedObject[*plan.Observed]{OptionalObj: cachedDeployment(foreign)})
		synctest.Wait()
		stop()
		synctest.Wait()
		if diff := cmp.Diff([]string{"create deployments web", "update foos/status web"}, f.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}
