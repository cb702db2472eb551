package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/recorder"
	"example.com/foo-controller/pkg/kit/syncs"
	"example.com/foo-controller/pkg/kit/telemetry"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
	"example.com/foo-controller/pkg/sim/footest"
)

var (
	deploymentsGR = schema.GroupResource{Group: "apps", Resource: "deployments"}
	foosGR        = schema.GroupResource{Group: v1alpha1.GroupName, Resource: "foos"}
	webKey        = cache.NewObjectName("default", "web")
)

// held is the outcome of a sync that has nothing left to do, and wrote or found something that the caches may lack.
var held = reconcile.WaitFor(reconcile.CacheStale, 5*time.Millisecond)

// TestSync syncs one Foo, default/web, and compares all requests that the API server received. Each row also checks
// that the sync changes no cached object. If the key is held, the row syncs once more with caches that show the
// result: that sync must write nothing.
func TestSync(t *testing.T) {
	const moved = `Normal Moved Moved to Deployment "web" (3 of 3 replicas available) and deleted previous Deployment ` +
		`"other"`
	for _, test := range []struct {
		name string
		// wrote makes the controller remember that it has written for the Foo before.
		wrote bool
		// cached are the objects in the caches, live those in the API server. A nil live is the same as cached.
		cached, live []runtime.Object
		// fails has the errors that the API server returns, by request in the form of want.
		fails map[string]error
		// want are the requests, in order.
		want []string
		// ready is the Ready condition after the sync, as status/reason. It is "" if no status is written.
		ready   string
		events  []string
		outcome kit.Outcome
		// then is the outcome of the next sync of a key that is held, with caches that have caught up. "" is done.
		then string
	}{
		{
			name:    "a Foo that does not exist needs no request",
			outcome: kit.Outcome{Kind: "done"},
		},
		{
			name:    "a new Foo gets its Deployment, with two writes",
			cached:  objects(newFoo()),
			want:    []string{"create deployments web", "update foos/status web"},
			ready:   "False/Creating",
			outcome: held,
		},
		{
			name:    "a Foo that is being deleted gets no new Deployment",
			cached:  objects(newFoo(deleting)),
			outcome: kit.Outcome{Kind: "done"},
		},
		{
			name:    "a Foo whose Deployment is as wanted gets one status write",
			cached:  objects(newFoo(), newDeployment()),
			want:    []string{"update foos/status web"},
			ready:   "True/Available",
			events:  []string{"Normal Synced 3 of 3 replicas available"},
			outcome: held,
		},
		{
			name:    "a Foo whose status is up to date needs no request",
			cached:  objects(newFoo(upToDate), newDeployment()),
			outcome: kit.Outcome{Kind: "done"},
		},
		{
			name:    "drift is corrected by one patch, after a live read of the Foo",
			cached:  objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			want:    []string{"get foos web", "patch deployments web", "update foos/status web"},
			ready:   "False/Progressing",
			events:  []string{`Normal Corrected Corrected Deployment "web": spec.replicas was 9, must be 3`},
			outcome: held,
		},
		{
			name:    "a deleted Deployment is created again if a live read shows the Foo",
			cached:  objects(newFoo(upToDate)),
			want:    []string{"get foos web", "create deployments web", "update foos/status web"},
			ready:   "False/Creating",
			outcome: held,
		},
		{
			name:    "a Foo that was written for is read live although its cached status is empty",
			wrote:   true,
			cached:  objects(newFoo()),
			live:    []runtime.Object{},
			want:    []string{"get foos web"},
			outcome: kit.Outcome{Kind: "wait", For: reconcile.CacheStale},
		},
		{
			name:    "no Deployment is created for a Foo that exists only in the cache",
			cached:  objects(newFoo(upToDate)),
			live:    []runtime.Object{},
			want:    []string{"get foos web"},
			outcome: kit.Outcome{Kind: "wait", For: reconcile.CacheStale},
		},
		{
			name:    "no Deployment is created for a Foo whose deletion the cache does not show yet",
			cached:  objects(newFoo(upToDate)),
			live:    objects(newFoo(upToDate, deleting)),
			want:    []string{"get foos web"},
			outcome: kit.Outcome{Kind: "wait", For: reconcile.CacheStale},
		},
		{
			name:    "no Deployment is created if the live Foo has another uid than the cached one",
			cached:  objects(newFoo(upToDate)),
			live:    objects(newFoo(upToDate, func(foo *v1alpha1.Foo) { foo.UID = "another" })),
			want:    []string{"get foos web"},
			outcome: kit.Outcome{Kind: "wait", For: reconcile.CacheStale},
		},
		{
			name:    "a live read that fails is reported and tried again, and nothing is created",
			cached:  objects(newFoo(upToDate)),
			fails:   map[string]error{"get foos web": apierrors.NewInternalError(errBoom)},
			want:    []string{"get foos web", "update foos/status web"},
			ready:   "False/RequestFailed",
			events:  []string{"Warning RequestFailed"},
			outcome: kit.Outcome{Kind: "retry"},
		},
		{
			name:   "a Deployment written for a newer generation than the cached Foo is not changed",
			cached: objects(newFoo(upToDate), newDeployment(scaledTo(9), writtenFor(8))),
			live: objects(newFoo(upToDate, func(foo *v1alpha1.Foo) { foo.Generation = 8 }),
				newDeployment(scaledTo(9), writtenFor(8))),
			want:    []string{"get foos web"},
			outcome: kit.Outcome{Kind: "wait", For: reconcile.CacheStale},
		},
		{
			name:    "a wrong generation label is overwritten",
			cached:  objects(newFoo(upToDate), newDeployment(writtenFor(8))),
			want:    []string{"get foos web", "patch deployments web"},
			events:  []string{"Normal Corrected"},
			outcome: held,
		},
		{
			name:    "a paused Foo gets nothing but its status",
			cached:  objects(newFoo(func(foo *v1alpha1.Foo) { foo.Spec.Paused = true }), newDeployment(scaledTo(9))),
			want:    []string{"update foos/status web"},
			ready:   "False/Paused",
			outcome: held,
		},
		{
			name:    "an invalid Foo is reported and not tried again",
			cached:  objects(newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "Not A Name" })),
			want:    []string{"update foos/status web"},
			ready:   "False/Invalid",
			outcome: held,
			then:    "terminal",
		},
		{
			name:    "a Deployment that the Foo does not control is left alone and reported",
			cached:  objects(newFoo(), newDeployment(foreign)),
			want:    []string{"update foos/status web"},
			ready:   "False/NotOwned",
			events:  []string{`Warning ErrResourceExists Deployment "web" exists, but this Foo does not control it`},
			outcome: held,
			then:    "terminal",
		},
		{
			name:    "a Deployment that is being deleted is waited for",
			cached:  objects(newFoo(upToDate), newDeployment(deletingDeployment)),
			want:    []string{"update foos/status web"},
			ready:   "False/WaitingForDeletion",
			outcome: held,
		},
		{
			name:    "a create that finds the name taken is tried again without a report: the next sync reads whose it is",
			cached:  objects(newFoo()),
			live:    objects(newFoo(), newDeployment(foreign)),
			want:    []string{"create deployments web"},
			outcome: kit.Outcome{Kind: "retry", Expected: true},
		},
		{
			name:   "a create that is refused is reported and tried again",
			cached: objects(newFoo()),
			fails: map[string]error{"create deployments web": apierrors.NewForbidden(deploymentsGR, "web",
				errors.New("exceeded quota"))},
			want:    []string{"create deployments web", "update foos/status web"},
			ready:   "False/Refused",
			events:  []string{"Warning Refused"},
			outcome: kit.Outcome{Kind: "retry"},
		},
		{
			name:    "a create without an answer ends the sync: the next one reads live whether it was done",
			cached:  objects(newFoo()),
			fails:   map[string]error{"create deployments web": errBoom},
			want:    []string{"create deployments web"},
			outcome: kit.Outcome{Kind: "retry"},
		},
		{
			name:    "a namespace that is being deleted is tried again after a minute, and nothing is logged",
			cached:  objects(newFoo()),
			fails:   map[string]error{"create deployments web": namespaceTerminating()},
			want:    []string{"create deployments web"},
			outcome: kit.Outcome{Kind: "wait", For: reconcile.Backoff},
		},
		{
			name:    "a patch that gets a conflict is tried again without a report",
			cached:  objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			fails:   map[string]error{"patch deployments web": apierrors.NewConflict(deploymentsGR, "web", errBoom)},
			want:    []string{"get foos web", "patch deployments web"},
			outcome: kit.Outcome{Kind: "retry", Expected: true},
		},
		{
			name:   "a patch that finds another uid under the name is tried again without a report",
			cached: objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			fails: map[string]error{"patch deployments web": apierrors.NewInvalid(schema.GroupKind{Group: "apps",
				Kind: "Deployment"}, "web",
				field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "1", "field is immutable")})},
			want:    []string{"get foos web", "patch deployments web"},
			outcome: kit.Outcome{Kind: "retry", Expected: true},
		},
		{
			name:    "a status that gets a conflict is tried again and not logged",
			cached:  objects(newFoo(), newDeployment()),
			fails:   map[string]error{"update foos/status web": apierrors.NewConflict(foosGR, "web", errBoom)},
			want:    []string{"update foos/status web"},
			outcome: kit.Outcome{Kind: "retry", Expected: true},
		},
		{
			name:    "a status that fails is tried again although the Deployment needs no retry",
			cached:  objects(newFoo(), newDeployment(foreign)),
			fails:   map[string]error{"update foos/status web": apierrors.NewInternalError(errBoom)},
			want:    []string{"update foos/status web"},
			outcome: kit.Outcome{Kind: "retry"},
		},
		{
			name:   "a Foo that is renamed back continues after the patch: no event would requeue it",
			cached: objects(newFoo(), newDeployment(writtenFor(5)), newDeployment(writtenFor(6), named("other"))),
			want: []string{
				"patch deployments web", "get foos web", "get deployments web", "delete deployments other",
				"update foos/status web",
			},
			ready:   "True/Available",
			events:  []string{moved, "Normal Synced"},
			outcome: held,
		},
		{
			name:    "a Deployment of an earlier name is deleted when the named one has as many replicas available",
			cached:  objects(newFoo(upToDate), newDeployment(), newDeployment(writtenFor(6), named("other"))),
			want:    []string{"get foos web", "get deployments web", "delete deployments other"},
			events:  []string{moved},
			outcome: held,
		},
		{
			name: "a Deployment of an earlier name is not deleted if the cache has no uid of it",
			cached: objects(newFoo(), newDeployment(),
				newDeployment(writtenFor(6), named("other"), func(dep *appsv1.Deployment) { dep.UID = "" })),
			want:    []string{"update foos/status web"},
			ready:   "True/Available",
			events:  []string{"Warning Refused 3 of 3 replicas available. Cannot delete previous Deployment \"other\""},
			outcome: kit.Outcome{Kind: "retry"},
		},
		{
			name:    "a status is not written if the cache has no uid of the Foo",
			cached:  objects(newFoo(func(foo *v1alpha1.Foo) { foo.UID = "" }), newDeployment(foreign)),
			outcome: kit.Outcome{Kind: "retry"},
		},
		{
			name:    "a status write that returns 404 is tried again: a live read then shows whether the Foo exists",
			cached:  objects(newFoo(), newDeployment()),
			live:    objects(newDeployment()),
			want:    []string{"update foos/status web"},
			outcome: kit.Outcome{Kind: "retry", Expected: true},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.live == nil {
				test.live = test.cached
			}
			f := newFixture(t, test.cached, test.live)
			f.fails = test.fails
			if test.wrote {
				f.Remember(webKey, reconcile.Memory{UID: "foo-uid", Generation: 7, Wrote: true})
			}
			before := f.cacheContent()

			outcome := f.queue.Sync(f.ctx, webKey)
			if outcome.Kind != test.outcome.Kind || outcome.For != test.outcome.For && test.outcome.For != "" ||
				outcome.Kind != "done" && outcome.Expected != test.outcome.Expected {
				t.Errorf("outcome = %+v, want %+v", outcome, test.outcome)
			}
			if diff := cmp.Diff(test.want, f.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, f.cacheContent()); diff != "" {
				t.Errorf("cached objects were changed (-before +after):\n%s", diff)
			}
			f.checkEvents(test.events)
			if test.ready != "" {
				f.checkReady(test.ready)
			}
			if outcome.For != reconcile.CacheStale || countWrites(test.want) == 0 {
				return // Not done yet, or nothing was written that a second sync could repeat.
			}
			f.refresh()
			if test.then == "" {
				test.then = "done"
			}
			if got := f.queue.Sync(f.ctx, webKey); got.Kind != test.then {
				t.Errorf("second sync: %+v, want %s", got, test.then)
			}
			if got := f.requests(); countWrites(got) > 0 {
				t.Errorf("the second sync wrote: %v", got)
			}
		})
	}
}

func TestSyncWaitsUntilTheCachesShowWhatItWroteOrRead(t *testing.T) {
	for _, test := range []struct {
		name   string
		cached []runtime.Object
		live   []runtime.Object
		behind string // The resource whose cache lags.
		memory reconcile.Memory
	}{
		{
			name: "a created Deployment", behind: deploymentsResource,
			cached: objects(newFoo()), live: objects(newFoo()),
		},
		{
			name: "a patched Deployment", behind: deploymentsResource,
			cached: objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			live:   objects(newFoo(upToDate), newDeployment(scaledTo(9))),
		},
		{
			name: "a Deployment that a live read found", behind: deploymentsResource,
			cached: objects(newFoo()), live: objects(newFoo(), newDeployment()),
			memory: reconcile.Memory{UID: "foo-uid", Generation: 7, Ledger: map[reconcile.Op]reconcile.Entry{
				{Verb: reconcile.Create, Kind: "Deployment", Namespace: "default", Name: "web"}: {
					Failed: reconcile.Attempt{Count: 1, Until: time.Now()},
				},
			}},
		},
		{
			name: "a Foo that a live read found", behind: foosResource,
			cached: objects(newFoo(upToDate)),
			live:   objects(newFoo(upToDate, func(foo *v1alpha1.Foo) { foo.Generation++ }), newDeployment(writtenFor(8))),
		},
		{
			name: "a deletion", behind: deploymentsResource,
			cached: objects(newFoo(upToDate), newDeployment(), newDeployment(writtenFor(6), named("other"))),
			live:   objects(newFoo(upToDate), newDeployment(), newDeployment(writtenFor(6), named("other"))),
		},
		{
			name: "a status", behind: foosResource,
			cached: objects(newFoo(), newDeployment()), live: objects(newFoo(), newDeployment()),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.cached, test.live)
			f.Remember(webKey, test.memory)
			f.stored = map[string]string{test.behind: "1"}
			if got := f.queue.Sync(f.ctx, webKey); got != held {
				t.Errorf("the first sync: outcome = %+v, want the key to be held", got)
			}
			f.requests()

			if got := f.queue.Sync(f.ctx, webKey); got.Kind != "wait" || got.After != 5*time.Millisecond {
				t.Errorf("outcome = %+v, want to wait for 5 ms", got)
			}
			if got := f.requests(); len(got) > 0 {
				t.Errorf("requests before the cache has caught up: %v", got)
			}
			f.stored = map[string]string{test.behind: "1000"}
			f.refresh()
			_ = f.queue.Sync(f.ctx, webKey) // It may write a status.
			f.refresh()
			if got := f.queue.Sync(f.ctx, webKey); got.Kind != "done" {
				t.Errorf("after the cache has caught up: %+v", got)
			}
		})
	}
}

// TestSyncReadsTheCacheAfterItHasCaughtUp lets the cache catch up at the moment when the sync asks it for its
// resourceVersion. A sync that had read the Foo before that would act on one that is older than our own write.
func TestSyncReadsTheCacheAfterItHasCaughtUp(t *testing.T) {
	f := newFixture(t, objects(newFoo()), objects(newFoo()))
	if got := f.queue.Sync(f.ctx, webKey); got != held {
		t.Fatalf("outcome = %+v", got)
	}
	f.requests()
	f.whenAsked = f.refresh
	if got := f.queue.Sync(f.ctx, webKey); got.Kind != "done" {
		t.Fatalf("outcome = %+v", got)
	}
	if got := f.requests(); countWrites(got) > 0 {
		t.Errorf("the sync acted on objects that it read before the cache caught up: %v", got)
	}
}

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

// A proxy may answer with code 200 and a document that can be decoded.
func TestAnAnswerWithoutAUIDIsNotTakenForAnObject(t *testing.T) {
	for request, cached := range map[string][]runtime.Object{
		"create deployments web": objects(newFoo()),
		"get foos web":           objects(newFoo(upToDate)),
		"patch deployments web":  objects(newFoo(upToDate), newDeployment(scaledTo(9))),
		"update foos/status web": objects(newFoo(), newDeployment()),
	} {
		t.Run(request, func(t *testing.T) {
			f := newFixture(t, cached, cached)
			f.api.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
				if describe(r) != request {
					return next()
				}
				return &http.Response{
					StatusCode: http.StatusOK, Request: r.HTTP, Body: io.NopCloser(strings.NewReader("{}")),
					Header: http.Header{"Content-Type": {"application/json"}},
				}, nil
			})
			if outcome := f.syncHandler(f.ctx, webKey); outcome.Kind != "retry" || !strings.Contains(outcome.Err.Error(), "does not have the object") {
				t.Errorf("outcome = %+v, want a retry because of the uid", outcome)
			}
		})
	}
}

func TestDeploymentsOfOtherNamespacesAreNotPreviousOnes(t *testing.T) {
	elsewhere := newDeployment(named("other"), func(dep *appsv1.Deployment) { dep.Namespace = "elsewhere" })
	f := newFixture(t, objects(newFoo(), elsewhere), nil)
	if previous := f.previousOf(newFoo()); len(previous) > 0 {
		t.Errorf("previous Deployments: %v, want none", previous)
	}
}

// TestEqualEventsAreFolded has a Deployment that becomes available again and again. client-go folds events that
// differ only in the note and the time.
func TestEqualEventsAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo(), newDeployment()), objects(newFoo(), newDeployment()))
		defer f.shutDown()
		ctx, stop := context.WithCancel(f.ctx)
		scheme := runtime.NewScheme()
		if err := v1alpha1.Install(scheme); err != nil {
			t.Fatal(err)
		}
		events, err := recorder.New(ctx, f.kube.EventsV1(), scheme, controllerName)
		if err != nil {
			t.Fatal(err)
		}
		f.Recorder = events
		for flip := range 10 {
			f.queue.Sync(f.ctx, webKey)
			f.refresh()
			f.fill(append(f.api.Objects(fooResource), newDeployment(func(dep *appsv1.Deployment) {
				dep.Status.AvailableReplicas -= int32((flip + 1) % 2)
			})))
			time.Sleep(time.Second)
		}
		events.Flush(time.Minute)
		if n := len(f.api.Objects(apiserver.Events().Resource)); n != 1 {
			t.Errorf("%d Event objects for five equal events, want 1", n)
		}
		stop()
		synctest.Wait()
	})
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

func TestSyncsRequestsAndPanicsAreCounted(t *testing.T) {
	named := func(name string) *v1alpha1.Foo {
		return newFoo(func(foo *v1alpha1.Foo) { foo.Name, foo.UID, foo.Spec.DeploymentName = name, types.UID(name), name })
	}
	synctest.Test(t, func(t *testing.T) { // No delay of a key ends.
		foos := objects(named("good"), named("refused"), named("panics"))
		f := newFixture(t, foos, foos)
		defer f.shutDown()
		f.fails = map[string]error{"create deployments refused": apierrors.NewForbidden(deploymentsGR, "refused", errBoom)}
		f.api.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			if describe(r) == "create deployments panics" {
				panic("planted")
			}
			return next()
		})
		registry := metrics.NewKubeRegistry()
		f.queue.Metrics = telemetry.NewMetrics("foo_controller", registry.MustRegister)
		f.Reports.Register(registry.MustRegister)
		for _, foo := range foos {
			f.queue.Add(cache.MetaObjectToName(foo.(metav1.Object)))
			if !f.queue.ProcessNextWorkItem(f.ctx, f.ctx) {
				t.Fatal("the worker ended")
			}
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var counted []string
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if metric.GetCounter() == nil {
					continue
				}
				words := []string{strings.TrimPrefix(family.GetName(), "foo_controller_")}
				for _, label := range metric.GetLabel() {
					words = append(words, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
				}
				counted = append(counted, fmt.Sprint(strings.Join(words, " "), ": ", metric.GetCounter().GetValue()))
			}
		}
		want := []string{
			"panics_total: 1",
			`requests_total code="2xx" request="create Deployment" rule="create": 1`,
			`requests_total code="2xx" request="update status of Foo" rule="update status": 2`,
			`requests_total code="403" request="create Deployment" rule="create": 1`,
			`syncs_total outcome="retry": 2`,
			`syncs_total outcome="wait": 1`,
		}
		if diff := cmp.Diff(want, counted); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
	})
}

func TestWorkerForgetsFailuresOnlyWhenASyncIsDoneOrTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		defer f.shutDown()
		f.fails = map[string]error{"create deployments web": apierrors.NewForbidden(deploymentsGR, "web", errBoom)}
		work := func(what string, remembers int) {
			t.Helper()
			time.Sleep(time.Second) // Virtual time: any delay of the key is over.
			if n := f.queue.Workqueue.Len(); n != 1 {
				t.Fatalf("%s: %d keys are queued, want 1", what, n)
			}
			if !f.queue.ProcessNextWorkItem(f.ctx, f.ctx) {
				t.Fatal("the worker ended")
			}
			if got := f.queue.Workqueue.NumRequeues(webKey); got != remembers {
				t.Errorf("%s: %d failures remembered, want %d", what, got, remembers)
			}
		}
		f.queue.Add(webKey)
		work("a sync that failed", 1)
		f.fails, f.stored = nil, map[string]string{foosResource: "1"}
		work("one that waits for the caches", 1) // The key has come back by itself.
		f.stored = nil
		f.refresh()
		work("one that wrote", 1)
		f.refresh()
		work("one that went well", 0)
		if got := f.queue.Workqueue.Len(); got != 0 {
			t.Errorf("%d keys are left in the queue", got)
		}
		if err := f.kube.AppsV1().Deployments("default").Delete(f.ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.fails = map[string]error{"create deployments web": apierrors.NewForbidden(deploymentsGR, "web", errBoom)}
		f.fill(f.api.Objects(fooResource))
		f.queue.Add(webKey)
		work("another one that failed", 1)
		foo := f.api.Objects(fooResource)[0].(*v1alpha1.Foo)
		foo.Spec.DeploymentName = "Not A Name"
		foos := f.samples.SamplecontrollerV1alpha1().Foos("default")
		if _, err := foos.Update(f.ctx, foo, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.fill(f.api.Objects(fooResource))
		work("one that reported", 1)
		f.fill(f.api.Objects(fooResource))
		work("one that is terminal", 0)
		f.queue.Writes.Wrote(webKey, f.Kinds[0].Store, newFoo())
		f.fill(nil)
		f.queue.Add(webKey)
		work("a Foo that does not exist any more", 0)
		if f.Len() > 0 || f.queue.Writes.HoldDelay(webKey) > 0 {
			t.Errorf("a Foo that does not exist any more is remembered: %d", f.Len())
		}
	})
}

// A key is held after a write. The caches are not asked whether they have caught up with it until the next sync: they
// may have, by a list that showed neither the Deployment nor its deletion.
func TestADeploymentThatTheCacheNeverShowsIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		defer f.shutDown()
		f.stored = map[string]string{foosResource: "1000", deploymentsResource: "1000"}
		f.queue.Add(webKey)
		f.queue.ProcessNextWorkItem(f.ctx, f.ctx)
		if diff := cmp.Diff([]string{"create deployments web", "update foos/status web"}, f.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		f.fill(f.api.Objects(fooResource)) // The cache has our status, and no Deployment.
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if n := f.queue.Workqueue.Len(); n != 1 {
			t.Fatalf("%d keys are queued, want 1", n)
		}
		f.queue.ProcessNextWorkItem(f.ctx, f.ctx)
		if got := f.requests(); len(got) == 0 || got[0] != "get foos web" {
			t.Errorf("requests: %v, want those of a sync without a Deployment", got)
		}
	})
}

// After a minute a sync does not wait for a cache any more, and the key comes back once a minute.
func TestACacheThatLagsDoesNotHoldAKeyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		defer f.shutDown()
		f.queue.Sync(f.ctx, webKey)
		f.refresh()
		f.stored = map[string]string{foosResource: "1"}
		began := time.Now()
		outcome := f.queue.Sync(f.ctx, webKey)
		for ; outcome.After < time.Minute && outcome.Kind == "wait"; outcome = f.queue.Sync(f.ctx, webKey) {
			time.Sleep(outcome.After) // Virtual time.
		}
		if want := reconcile.WaitFor(reconcile.CacheStale, time.Minute); outcome != want || time.Since(began) < time.Minute {
			t.Errorf("after %s: outcome %+v, want %+v", time.Since(began), outcome, want)
		}
		time.Sleep(time.Hour)
		if outcome := f.queue.Sync(f.ctx, webKey); outcome.Kind != "done" {
			t.Errorf("an hour later: outcome %+v, want done", outcome)
		}
	})
}

func TestOutagesOfAWatchLoseNothing(t *testing.T) { footest.SimulateOutages(t, newRunner) }

// The other tests run without a resync, and do not need one.
func TestAResyncFindsAKeyThatWasLost(t *testing.T) {
	footest.SimulateResync(t, func(ctx context.Context, w footest.Wiring) (func(ctx context.Context), error) {
		c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
		if err != nil {
			return nil, err
		}
		add := c.queue.AddAs
		c.queue.AddAs = func(cache.ObjectName, fairqueue.Class) { c.queue.AddAs = add }
		return c.Run, nil
	})
}

// The manifests grant what the controller asks for, and nothing else.
func TestTheManifestsGrantWhatTheControllerAsksFor(t *testing.T) {
	t.Setenv("KUBECONFIG", "/does/not/exist")
	for file, flags := range map[string][]string{
		"artifacts/deploy/rbac.yaml":     {"--leader-elect-namespace=foo-system"},
		"artifacts/namespaced/rbac.yaml": {"--leader-elect-namespace=default", "--namespace=default"},
	} {
		t.Run(file, func(t *testing.T) {
			t.Cleanup(func() {
				if err := logsapi.ResetForTest(nil); err != nil {
					t.Error(err)
				}
			})
			options, err := kit.Parse(kit.Program{Name: controllerName},
				append(flags, "--leader-elect", "--master=http://127.0.0.1:1"), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			process, err := kit.NewProcess(t.Context(), options, preflight.Hints{})
			if err != nil {
				t.Fatal(err)
			}
			var asked []string
			for _, p := range process.Permissions(needs(options.Namespace)) {
				asked = append(asked, p.String())
			}
			slices.Sort(asked)
			if diff := cmp.Diff(asked, grantedBy(t, file)); diff != "" {
				t.Errorf("- asked for, + granted:\n%s", diff)
			}
		})
	}
}

// grantedBy returns the permissions of all roles in a file, as preflight.Permission prints them.
func grantedBy(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var granted []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole // A Role has the same rules.
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					p := preflight.Permission{Verb: verb, Group: rule.APIGroups[0]}
					p.Resource, p.Subresource, _ = strings.Cut(resource, "/")
					p.Name = strings.Join(rule.ResourceNames, ",")
					granted = append(granted, p.String())
				}
			}
		}
	}
	slices.Sort(granted)
	return granted
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

// TestASyncIsShown: /debug/syncs has what a sync observed, each request with what it changes and its answer, and the
// status before and after.
func TestASyncIsShown(t *testing.T) {
	const before = "Ready=True Available: 3 of 3 replicas available"
	const after = "Reconciling, Ready=False Progressing: Waiting for the Deployment controller to apply the last " +
		"change (3 of 3 replicas available)"
	drifted := []runtime.Object{newFoo(upToDate), newDeployment(scaledTo(9))}
	f := newFixture(t, drifted, drifted)
	log := syncs.New("foo", func() syncs.Queue { return syncs.Queue{} })
	shown := log.Begin(webKey, "1")
	f.queue.Sync(syncs.NewContext(f.ctx, shown), webKey)
	w := httptest.NewRecorder()
	log.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/syncs?format=json", nil))
	var state syncs.State
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range state.Syncs[0].Requests {
		got = append(got, fmt.Sprintf("%s: %s: %s %s %v %s", r.Rule, r.Why, r.Request, r.Name, r.Fields, r.Answer))
	}
	for _, r := range state.Syncs[0].Rules {
		if r.Rule == "patch drift" {
			got = append(got, "then "+r.Answer)
		}
	}
	got = append(got, state.Syncs[0].Observed, state.Syncs[0].StatusBefore, state.Syncs[0].StatusAfter)
	if diff := cmp.Diff([]string{
		"patch drift: spec.replicas was 9, must be 3: get Foo web [] ok",
		"patch drift: spec.replicas was 9, must be 3: patch Deployment web [{spec.replicas 9 3}] ok",
		"update status: the status differs, and its reason must be Progressing: update status of Foo web [{status " + before + " " + after + "}] ok",
		"then done in this sync",
		"Foo at generation 7; its Deployment web, written for generation 7, with 3 replicas available",
		before, after,
	}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestExplain lists what is stored, and prints what the controller would do. Its requests are reads.
func TestExplain(t *testing.T) {
	f := newFixture(t, nil, objects(newFoo(upToDate), newDeployment(scaledTo(9)), newFoo(fooNamed("leaving"), deleting)))
	config := f.api.Config("reader")
	clients := Clients{kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)}
	caches, err := newCaches(clients, &kit.Options{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(f.ctx, clients, nil, caches.foos, caches.deployments, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.shutDown()
	lists := []string{"list foos ", "list deployments "}
	for _, test := range []struct {
		foo   string
		reads []string // After the lists.
		err   string
		lines []string
	}{
		{
			foo: "web", reads: []string{"get deployments web"}, err: "the controller would send a write",
			lines: []string{
				"Foo default/web, generation 7: the controller would send patch Deployment web",
				"  replicas           3",
				"  spec.replicas      have 9, want 3",
				"  patch drift        sends patch Deployment web: spec.replicas was 9, must be 3",
				"  Reconciling        True Progressing: Waiting for the Deployment controller to apply the last change (3 of 3 " +
					"replicas available)",
				"  sync               done: the next event of an object brings the Foo back",
			},
		},
		{
			foo: "leaving", err: "<nil>",
			lines: []string{
				"Foo default/leaving, generation 7: the controller would send nothing",
				"  sync               done: the Foo is being deleted, and the garbage collector deletes or orphans its children",
			},
		},
		{foo: "nobody", err: "the Foo default/nobody does not exist"},
	} {
		var out strings.Builder
		question := &kit.Question{Kind: "Foo", Object: cache.NewObjectName("default", test.foo)}
		if err := c.Explain(f.ctx, question, c.syncOf, &out); fmt.Sprint(err) != test.err {
			t.Errorf("%s: error %q, want %q", test.foo, err, test.err)
		}
		if diff := cmp.Diff(append(lists, test.reads...), f.requests()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", test.foo, diff)
		}
		for _, line := range test.lines {
			if !slices.Contains(strings.Split(out.String(), "\n"), line) {
				t.Errorf("%s: no line %q in\n%s", test.foo, line, out.String())
			}
		}
	}
}

// TestExplainIsWhatTheControllerDoes: in random worlds, the first write and the end that --explain prints are those of
// a controller that has just started.
func TestExplainIsWhatTheControllerDoes(t *testing.T) {
	seen := map[string]int{}
	for seed := range 150 {
		objects := randomWorld(rand.New(rand.NewPCG(uint64(seed), 1)))
		f := newFixture(t, objects, objects)
		f.refresh()
		report := &kit.Report{Then: "done"}
		if sync := f.syncOf(webKey); sync != nil {
			var err error
			if report, err = f.Report(t.Context(), "Foo", sync); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for _, request := range f.requests() {
			if verb, _, _ := strings.Cut(request, " "); verb != "get" && verb != "list" {
				t.Errorf("seed %d: --explain has sent: %s", seed, request)
			}
		}
		f.refresh()
		outcome, want := f.queue.Sync(f.ctx, webKey), ""
		for _, request := range f.requests() {
			if verb, rest, _ := strings.Cut(request, " "); verb != "get" && want == "" {
				want = verb + " " + rest[strings.LastIndex(rest, " ")+1:]
			}
		}
		verb, rest, _ := strings.Cut(report.Write, " ")
		if got := strings.TrimSpace(verb + " " + rest[strings.LastIndex(rest, " ")+1:]); got != want {
			t.Errorf("seed %d: --explain would write %q, and the controller %q", seed, got, want)
		}
		if !strings.HasPrefix(report.Then, outcome.Kind) && outcome.For != reconcile.CacheStale {
			t.Errorf("seed %d: --explain ends with %q, and the controller with %+v", seed, report.Then, outcome)
		}
		seen[verb]++
		f.shutDown()
	}
	for _, verb := range []string{"", "create", "patch", "delete", "update"} {
		if seen[verb] == 0 {
			t.Errorf("no world has a first write %q: %v", verb, seen)
		}
	}
}

// randomWorld returns the Foo web, another Foo, and some Deployments around them.
func randomWorld(r *rand.Rand) []runtime.Object {
	oneOf := func(n int) bool { return r.IntN(n) == 0 }
	web := newFoo(func(foo *v1alpha1.Foo) {
		foo.Spec.DeploymentName = []string{"web", "web", "next", "old", ""}[r.IntN(5)]
		foo.Spec.Image, foo.Spec.Paused = []string{"", "nginx:1.29", "a b"}[r.IntN(3)], oneOf(8)
		if oneOf(2) {
			foo.Status = statusOf(newFoo(), newDeployment())
		}
		if oneOf(15) {
			deleting(foo)
		}
	})
	api := newFoo(fooNamed("api"), func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "next" })
	world := []runtime.Object{web, api}
	for _, name := range []string{"web", "next", "old"} {
		made := web.DeepCopy()
		made.Spec.DeploymentName = name
		dep := newDeployment(named(name), func(dep *appsv1.Deployment) {
			dep.Labels[v1alpha1.LabelMadeFor] = plan.Deployment(made).Labels[v1alpha1.LabelMadeFor]
			dep.Labels[v1alpha1.LabelFooGeneration] = []string{"7", "7", "6", "9", "x"}[r.IntN(5)]
			dep.UID = types.UID("uid-of-" + name)
		})
		switch r.IntN(9) {
		case 0:
			foreign(dep)
		case 1:
			dep.OwnerReferences[0].Name, dep.OwnerReferences[0].UID = api.Name, api.UID
		case 2:
			dep.OwnerReferences[0].UID = "former"
		case 3:
			deletingDeployment(dep)
		case 4:
			scaledTo(int32(r.IntN(4)))(dep)
		case 5, 6:
			continue
		}
		world = append(world, dep)
	}
	return world
}

// BenchmarkSync is an event and the sync that finds nothing to do, without and with /debug/syncs.
func BenchmarkSync(b *testing.B) {
	for _, shown := range []bool{false, true} {
		b.Run(fmt.Sprint("shown=", shown), func(b *testing.B) {
			nothing := []runtime.Object{newFoo(upToDate), newDeployment()}
			f := newFixture(b, nothing, nothing)
			ctx := b.Context() // Its logger is at level 0.
			if shown {
				f.queue.Syncs = syncs.New("foo", func() syncs.Queue { return syncs.Queue{} })
			}
			dep := cachedDeployment()
			f.queue.AddAs(webKey, fairqueue.Change)
			f.queue.ProcessNextWorkItem(ctx, ctx)
			b.ReportAllocs()
			for b.Loop() {
				f.enqueueFoo(f.resolveOwner(dep), "its Deployment has changed")
				f.queue.ProcessNextWorkItem(ctx, ctx)
			}
		})
	}
}

// At the default level, an operator sees each change of a Deployment, each failure, and each Foo that becomes Stalled.
func TestDefaultLogHasChangesFailuresAndStalledFoos(t *testing.T) {
	quota := apierrors.NewForbidden(deploymentsGR, "web", errors.New("exceeded quota"))
	taken := func(foo *v1alpha1.Foo) { foo.Status = statusOf(foo, newDeployment(foreign)) }
	for _, test := range []struct {
		name         string
		cached, live []runtime.Object
		fails        map[string]error
		syncs        int // One, when it is 0.
		want         []string
	}{
		{
			name:   "a sync writes nothing",
			cached: objects(newFoo(upToDate), newDeployment()),
		},
		{
			name:   "a sync writes only the status",
			cached: objects(newFoo(), newDeployment()),
		},
		{
			name:   "a Deployment is created",
			cached: objects(newFoo()),
			want:   []string{`INFO Created Deployment foo=default/web rule=create deployment=default/web`},
		},
		{
			name:   "a Deployment is corrected",
			cached: objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			want: []string{`INFO Corrected Deployment foo=default/web rule=patch drift deployment=default/web ` +
				`fields=spec.replicas 9 -> 3`},
		},
		{
			name:   "a Deployment is updated for a new generation of the Foo",
			cached: objects(newFoo(upToDate, func(foo *v1alpha1.Foo) { foo.Generation = 8 }), newDeployment(scaledTo(9))),
			want: []string{`INFO Updated Deployment foo=default/web rule=patch drift deployment=default/web ` +
				`fields=metadata.labels[samplecontroller.k8s.io/foo-generation] 7 -> 8, spec.replicas 9 -> 3`},
		},
		{
			name:   "a Deployment of an earlier name is deleted",
			cached: objects(newFoo(upToDate), newDeployment(), newDeployment(named("old"))),
			want:   []string{`INFO Deleted Deployment foo=default/web rule=delete replaced deployment=default/old`},
		},
		{
			name:   "a Foo becomes Stalled",
			cached: objects(newFoo(), newDeployment(foreign)),
			want:   []string{`INFO Foo became Stalled foo=default/web reason=NotOwned`},
		},
		{
			name:   "a Foo recovers",
			cached: objects(newFoo(taken), newDeployment()),
			want:   []string{`INFO Foo recovered from Stalled foo=default/web reason=NotOwned`},
		},
		{
			name:   "the API server refuses the same request repeatedly",
			cached: objects(newFoo()),
			fails:  map[string]error{"create deployments web": quota},
			syncs:  2, // The second one backs off.
			want: []string{`ERROR Sync failed: create Deployment web: deployments.apps "web" is forbidden: exceeded quota ` +
				`foo=default/web`},
		},
		{
			name:   "a patch gets a conflict",
			cached: objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			fails:  map[string]error{"patch deployments web": apierrors.NewConflict(deploymentsGR, "web", errBoom)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, test.cached, test.cached)
				defer f.shutDown()
				f.fails = test.fails
				logger := newLog(0)
				for range max(test.syncs, 1) {
					f.queue.Add(webKey)
					f.queue.ProcessNextWorkItem(klog.NewContext(f.ctx, logger), klog.NewContext(f.ctx, logger))
				}
				time.Sleep(time.Second) // A Foo that is Stalled for less makes no line.
				synctest.Wait()
				if diff := cmp.Diff(test.want, linesOf(logger)); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// newLog returns a logger that keeps all lines up to a level for linesOf.
func newLog(level int) klog.Logger {
	return ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(level)))
}

// linesOf returns the lines that were logged, without the messages of conditions and the reconcile ids.
func linesOf(logger klog.Logger) []string {
	var lines []string
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		line := fmt.Sprintf("%s %s", entry.Type, entry.Message)
		if entry.Err != nil {
			line += fmt.Sprintf(": %v", entry.Err)
		}
		for pair := range slices.Chunk(slices.Concat(entry.WithKVList, entry.ParameterKVList), 2) {
			if pair[0] != "reconcileID" && pair[0] != "message" {
				line += fmt.Sprintf(" %v=%v", pair[0], pair[1])
			}
		}
		lines = append(lines, line)
	}
	return lines
}

var rewrite = flag.Bool("rewrite", false, "rewrite the outputs in docs/scenarios")

// TestScenarios plays docs/scenarios. To rewrite the outputs after a change of the controller, and then review the
// difference:
//
//	go test -run TestScenarios . -rewrite
func TestScenarios(t *testing.T) {
	footest.RunScenarios(t, "docs/scenarios/*.txt", newSubject, *rewrite)
}

func TestScenariosNoticeFaults(t *testing.T) { footest.RunScenariosWithFaults(t, newSubject) }

func TestScenarioStepsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range footest.StepWords() {
		if !strings.Contains(string(text), "`"+words) {
			t.Errorf("docs/scenarios/README.md does not have the step %q", words)
		}
	}
}

var (
	dayFoos   = flag.Int("foos", 100, "number of Foos in TestASimulatedDay")
	rivals    = flag.String("rivals", "20,40", "numbers of Foos of which TestRivals logs the CPU time")
	schedules = flag.Int("schedules", 20, "number of schedules that TestSchedules plays")
	seeds     = flag.Int("seeds", 4, "number of schedules that TestASeedReplaysExactly plays")
	replays   = flag.Int("replays", 2, "how often TestASeedReplaysExactly plays each schedule")
	seed      = flag.Int64("seed", -1, "the schedule that TestSimulate shows")
	pairs     = flag.Int("pairs", 1000, "number of Foos in TestMemory")
	churn     = flag.Int("churn", 500, "number of Foos in TestNothingIsKeptOfFoosThatAreGone")
	edited    = flag.Duration("edited", 30*time.Second, "time in which TestNeighbours edits a Foo 100 times a second")
)

func TestASimulatedDay(t *testing.T) {
	foos := *dayFoos
	if testing.Short() {
		foos = min(foos, 20)
	}
	footest.SimulateDay(t, newRunner, foos)
}

// TestSchedules plays schedules and logs how many it played per second:
//
//	go test -run TestSchedules -v . -schedules 2000
func TestSchedules(t *testing.T) { footest.SimulateSchedules(t, newRunner, *schedules) }

// TestASeedReplaysExactly checks a few seeds. More of them take minutes:
//
//	go test -run TestASeedReplaysExactly -timeout 1h . -seeds 100 -replays 10
func TestASeedReplaysExactly(t *testing.T) { footest.ReplaySchedules(t, newRunner, *seeds, *replays) }

// TestSimulate shows one schedule: make simulate SEED=2
func TestSimulate(t *testing.T) {
	if *seed < 0 {
		t.Skip("no -seed")
	}
	footest.ShowSchedule(t, newRunner, *seed, os.Stdout)
}

// The faults of a dense schedule are shown. The words of readable and wordsFor have a test of their own.
func TestASimulationShowsItsFaults(t *testing.T) {
	var b strings.Builder
	footest.ShowSchedule(t, newRunner, 1, &b)
	shown := b.String()
	if !strings.HasSuffix(shown, "\nconverged\n") {
		t.Errorf("not converged:\n%s", shown)
	}
	for _, f := range faults.Random(1, true).Faults {
		if f.Nth < 5 && strings.Count(shown, f.String()) != 2 { // In the list, and when it happens.
			t.Errorf("%s is not shown twice:\n%s", f, shown)
		}
	}
}

// TestNeighbours runs only small simulations with -short and with the race detector. With an hour of edits it takes
// about 20 minutes:
//
//	go test -run TestNeighbours -timeout 1h . -edited 1h
func TestNeighbours(t *testing.T) { footest.SimulateNeighbours(t, newRunner, *edited) }

// TestRivals logs the CPU time of Foos that name one Deployment:
//
//	go test -run TestRivals -v -timeout 1h . -rivals 500,1000,2000,5000,10000
func TestRivals(t *testing.T) {
	var sizes []int
	if err := json.Unmarshal([]byte("["+*rivals+"]"), &sizes); err != nil {
		t.Fatal(err)
	}
	footest.MeasureRivals(t, newRunner, sizes)
}

// TestNothingIsKeptOfFoosThatAreGone has fewer Foos with -short and with the race detector.
func TestNothingIsKeptOfFoosThatAreGone(t *testing.T) {
	var controller *Controller
	runner := func(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
		controller, err = New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
		return func(ctx context.Context) { controller.Run(ctx) }, err
	}
	foos := *churn
	if testing.Short() {
		foos = min(foos, 100)
	}
	// The clients lead to the simulated API server.
	footest.SimulateChurn(t, runner, func() any { return controller }, foos, "Reconciler.Kinds",
		"Reconciler.Recorder.sink.EventSink")
}

// The limits are what is needed today, and some percent: lower them when less is needed. Deployments that do not have
// the name of their Foo need 680 bytes more.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the heap of a few Foos is mostly that of other things")
	}
	footest.MeasureMemory(t, newRunner, *pairs, footest.Limits{
		HeapPerFoo: 3_072, Goroutines: 165, Writes: map[string]int{"create deployments": 1, "update foos/status": 3},
	})
}

// Each write causes an event, and so a sync with nothing to do.
func TestASyncWithNothingToDoAllocatesLittle(t *testing.T) {
	footest.WithoutRaceDetector(t)
	const most = 67 // Lower it when fewer are needed.
	foo := newFoo(upToDate)
	f := newFixture(t, objects(foo, newDeployment()), objects(foo, newDeployment()))
	ctx := klog.NewContext(f.ctx, klog.Logger{}) // That of a test allocates.
	sync := func() {
		if outcome := f.queue.Sync(ctx, webKey); outcome.Kind != "done" {
			t.Fatalf("outcome %+v", outcome)
		}
	}
	if allocations := testing.AllocsPerRun(100, sync); allocations > most {
		t.Errorf("%.0f allocations, want at most %d", allocations, most)
	}
	if sent := f.requests(); len(sent) > 0 {
		t.Errorf("requests: %v", sent)
	}
}

// A standby has caches, and nobody takes keys from its queue.
func TestAStandbyKeepsNothingOfFoosThatAreGone(t *testing.T) {
	var controller *Controller
	runner := func(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
		controller, err = New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
		return func(ctx context.Context) {
			<-ctx.Done()
			controller.names.ShutDown()
			controller.queue.ShutDown()
		}, err
	}
	footest.SimulateStandby(t, runner, func() any { return controller }, "Reconciler.Kinds",
		"Reconciler.Recorder.sink.EventSink")
}

// newRunner makes a Controller for a simulation.
func newRunner(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
	c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
	if err != nil {
		return nil, err
	}
	c.Random = w.Random
	if w.Settle != nil {
		c.queue.AddAs = w.Settle(c.queue.AddAs)
	}
	if w.OnSynced != nil {
		c.queue.OnSynced = func(key cache.ObjectName, _ kit.Outcome) { w.OnSynced(key) }
	}
	return c.Run, nil
}

// newSubject makes a Controller for a scenario. Its delays have no random part, because they are part of the output.
func newSubject(ctx context.Context, w footest.Wiring) (*footest.Subject, error) {
	c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
	if err != nil {
		return nil, err
	}
	c.Random = func() float64 { return 0 }
	_, err = c.watch(klog.FromContext(ctx))
	return &footest.Subject{Queue: c.queue, Names: c.names}, err
}

// TestMain fails if the tests leave a goroutine behind. The flags for logging start one that flushes the log, and that
// nothing ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

var errBoom = errors.New("boom")

// A fixture is a Controller with caches that the test fills and a simulated API server that records the requests. No
// informer runs, so the caches change only when the test changes them.
type fixture struct {
	kube    kubernetes.Interface
	samples clientset.Interface
	*Controller
	t      testing.TB
	ctx    context.Context
	api    *apiserver.Server
	foos   cache.Indexer
	deps   cache.Indexer
	events *events.FakeRecorder
	// fails has the errors to return instead of the real answers, by request as describe returns it.
	fails map[string]error
	// stored is the resourceVersion that the cache of a resource has reached. It is unknown for a resource without an
	// entry.
	stored map[string]string
	// whenAsked, unless nil, is called when a cache is asked for that resourceVersion.
	whenAsked func()
	log       []string // The requests, in order.
	// added are the keys that were queued by handlers, with their last class.
	added map[cache.ObjectName]fairqueue.Class
}

// fixtureWorkers is so many that a test can get all keys of a namespace without Done.
const fixtureWorkers = 10_000

// newFixture returns a fixture whose API server has live. An object that is equal in cached and live gets the same
// resourceVersion in both.
func newFixture(t testing.TB, cached, live []runtime.Object) *fixture {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	f := &fixture{t: t, ctx: ctx, api: apiserver.New(fooKindWithoutRules(), deploymentKind, apiserver.Events()),
		events: events.NewFakeRecorder(10)}
	if err := f.api.Load(live...); err != nil {
		t.Fatal(err)
	}
	f.api.Intercept(f.intercept)
	config := f.api.Config(controllerName)
	kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
	foos := fooinformers.NewSharedInformerFactory(samples, 0).Samplecontroller().V1alpha1().Foos()
	deployments := observe(kubeinformers.NewSharedInformerFactory(kube, 0))
	controller, err := New(ctx, Clients{kube, samples}, f.events, foos, deployments, fixtureWorkers)
	if err != nil {
		t.Fatal(err)
	}
	f.Controller, f.kube, f.samples = controller, kube, samples
	f.foos, f.deps = foos.Informer().GetIndexer(), deployments.GetIndexer()
	f.Kinds[0].Store, f.Kinds[1].Store = progressOf{f.foos, f, foosResource}, progressOf{f.deps, f, deploymentsResource}
	f.fill(f.current(cached, live))
	f.added = map[cache.ObjectName]fairqueue.Class{}
	add := f.queue.AddAs
	f.queue.AddAs = func(key cache.ObjectName, class fairqueue.Class) {
		f.added[key] = class
		add(key, class)
	}
	t.Cleanup(f.shutDown)
	return f
}

var (
	fooResource        = footest.FooKind().Resource
	deploymentKind     = apiserver.Deployments()
	deploymentResource = deploymentKind.Resource
)

// fooKindWithoutRules is the kind Foo without validation: invalid Foos may have been stored before the rules existed.
func fooKindWithoutRules() apiserver.Kind {
	kind := footest.FooKind()
	kind.Validate, kind.ValidateStatus, kind.Scale = nil, nil, nil // A scale has rules, too.
	return kind
}

// An object is a Foo or a Deployment.
type object interface {
	metav1.Object
	runtime.Object
}

func resourceOf(obj object) schema.GroupVersionResource {
	if _, ok := obj.(*v1alpha1.Foo); ok {
		return fooResource
	}
	return deploymentResource
}

// current returns copies of the cached objects, with the stored resourceVersion when they are as in live.
func (f *fixture) current(cached, live []runtime.Object) []runtime.Object {
	var current []runtime.Object
	for _, obj := range cached {
		obj := obj.DeepCopyObject().(object)
		if slices.ContainsFunc(live, func(other runtime.Object) bool { return equality.Semantic.DeepEqual(obj, other) }) {
			obj.SetResourceVersion(f.api.Object(resourceOf(obj), obj.GetNamespace(),
				obj.GetName()).(object).GetResourceVersion())
		}
		current = append(current, obj)
	}
	return current
}

// progressOf is a consistency.Store that reports the resourceVersion in fixture.stored.
type progressOf struct {
	cache.Store
	*fixture
	resource string
}

func (p progressOf) LastStoreSyncResourceVersion() string {
	if p.whenAsked != nil {
		p.whenAsked()
	}
	return p.stored[p.resource]
}

// intercept records a request. It returns the error that the test wants for it, if there is one.
func (f *fixture) intercept(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	request := describe(r)
	f.log = append(f.log, request)
	err := f.fails[request]
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return r.Refuse(err)
	}
	if err != nil {
		return nil, err
	}
	return next()
}

// describe returns verb, resource and name of a request.
func describe(r *apiserver.Request) string {
	resource, name := r.Resource.Resource, r.Name
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Verb == "create" {
		dep := &appsv1.Deployment{}
		if err := runtime.DecodeInto(kubescheme.Codecs.UniversalDeserializer(), r.Body, dep); err != nil {
			return err.Error()
		}
		name = dep.Name
	}
	return fmt.Sprintf("%s %s %s", r.Verb, resource, name)
}

// requests returns the requests that the API server received since the last call.
func (f *fixture) requests() []string {
	requests := f.log
	f.log = nil
	return requests
}

// countWrites returns how many of the requests change something.
func countWrites(requests []string) int {
	n := 0
	for _, request := range requests {
		if !strings.HasPrefix(request, "get ") {
			n++
		}
	}
	return n
}

// fill replaces the content of the caches.
func (f *fixture) fill(objs []runtime.Object) {
	f.t.Helper()
	var foos, deps []any
	for _, obj := range objs {
		if foo, ok := obj.(*v1alpha1.Foo); ok {
			foos = append(foos, plan.TrimFoo(foo.DeepCopy()))
			continue
		}
		deps = append(deps, plan.TrimDeployment(obj.DeepCopyObject().(*appsv1.Deployment)))
	}
	if err := errors.Join(f.foos.Replace(foos, ""), f.deps.Replace(deps, "")); err != nil {
		f.t.Fatal(err)
	}
}

// refresh makes the caches equal to the API server.
func (f *fixture) refresh() {
	f.t.Helper()
	f.fill(append(f.api.Objects(fooResource), f.api.Objects(deploymentResource)...))
}

// cacheContent returns all cached objects as JSON.
func (f *fixture) cacheContent() map[string]string {
	f.t.Helper()
	content := map[string]string{}
	for _, obj := range append(f.foos.List(), f.deps.List()...) {
		key := fmt.Sprintf("%T %s", obj, cache.MetaObjectToName(obj.(metav1.Object)))
		text, err := json.Marshal(obj)
		if err != nil {
			f.t.Fatal(err)
		}
		content[key] = string(text)
	}
	return content
}

// checkEvents compares the events that were recorded. A wanted event may be only the beginning of the real one.
func (f *fixture) checkEvents(want []string) {
	f.t.Helper()
	for _, begin := range want {
		select {
		case got := <-f.events.Events:
			if !strings.HasPrefix(got, begin) {
				f.t.Errorf("event %q, want %q", got, begin)
			}
		default:
			f.t.Errorf("no event, want %q", begin)
		}
	}
	select {
	case got := <-f.events.Events:
		f.t.Errorf("unexpected event %q", got)
	default:
	}
}

// checkReady compares the Ready condition of the Foo default/web, as status/reason.
func (f *fixture) checkReady(want string) {
	f.t.Helper()
	foo, _ := f.api.Object(fooResource, webKey.Namespace, webKey.Name).(*v1alpha1.Foo)
	if foo == nil || f.fails["update foos/status web"] != nil {
		return
	}
	cond := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	if got := fmt.Sprintf("%s/%s", cond.Status, cond.Reason); got != want {
		f.t.Errorf("Ready is %s (%s), want %s", got, cond.Message, want)
	}
}

func objects(objs ...runtime.Object) []runtime.Object { return objs }

// newFoo returns the Foo default/web of generation 7, which asks for 3 replicas of nginx:1.29.
func newFoo(edits ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "foo-uid", Generation: 7,
			ResourceVersion: "10"},
		Spec: v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(3)), Image: "nginx:1.29"},
	}
	for _, edit := range edits {
		edit(foo)
	}
	return foo
}

// upToDate gives a Foo the status that a sync writes when newDeployment is its Deployment.
func upToDate(foo *v1alpha1.Foo) {
	foo.Status = statusOf(foo, newDeployment())
}

// statusOf returns the status that a sync writes for foo with its Deployment.
func statusOf(foo *v1alpha1.Foo, dep *appsv1.Deployment) v1alpha1.FooStatus {
	sync := plan.Foos.Sync(&plan.Input{Foo: foo, Deployment: plan.TrimDeployment(dep)})
	sync.Begin(reconcile.Memory{}, time.Unix(1e9, 0), 0)
	return sync.Next().Body.(*v1alpha1.Foo).Status
}

func deleting(foo *v1alpha1.Foo) {
	foo.DeletionTimestamp = new(metav1.Unix(1e9, 0))
	foo.Finalizers = []string{"foregroundDeletion"}
}

// newDeployment returns the Deployment of newFoo, rolled out.
func newDeployment(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	dep := plan.Deployment(newFoo())
	dep.UID, dep.ResourceVersion, dep.Generation = "deployment-uid", "20", 1
	dep.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	deploymentKind.Default(dep) // The API server stores it with defaults.
	for _, edit := range edits {
		edit(dep)
	}
	return dep
}

// cachedDeployment returns what the cache has of newDeployment.
func cachedDeployment(edits ...func(*appsv1.Deployment)) *plan.Observed {
	return plan.TrimDeployment(newDeployment(edits...))
}

// observe returns the informer of Deployments.
func observe(factory kubeinformers.SharedInformerFactory) deploymentInformer {
	return cache.NewTypedSharedIndexInformer[*plan.Observed](factory.Apps().V1().Deployments().Informer())
}

func scaledTo(replicas int32) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) { dep.Spec.Replicas = &replicas }
}

func writtenFor(generation int) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) { dep.Labels[v1alpha1.LabelFooGeneration] = strconv.Itoa(generation) }
}

// named turns a Deployment of newFoo into one that was made for it under another name.
func named(name string) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		made := plan.Deployment(newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = name }))
		dep.Name, dep.UID = name, types.UID("uid-of-"+name)
		dep.Labels[v1alpha1.LabelMadeFor] = made.Labels[v1alpha1.LabelMadeFor]
	}
}

func ownedBy(uid types.UID) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) { dep.OwnerReferences[0].UID = uid }
}

func ownedByFoo(foo *v1alpha1.Foo) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		dep.OwnerReferences[0].Name, dep.OwnerReferences[0].UID = foo.Name, foo.UID
	}
}

func fooNamed(name string) func(*v1alpha1.Foo) {
	return func(foo *v1alpha1.Foo) { foo.Name, foo.UID = name, types.UID("uid-of-"+name) }
}

func foreign(dep *appsv1.Deployment) { dep.OwnerReferences, dep.Labels = nil, nil }

func deletingDeployment(dep *appsv1.Deployment) {
	dep.DeletionTimestamp = new(metav1.Unix(1e9, 0))
	dep.Finalizers = []string{"foregroundDeletion"}
}

func namespaceTerminating() error {
	err := apierrors.NewForbidden(deploymentsGR, "web", errors.New("namespace default is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}
