package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/apisim"
	"example.com/foo-controller/pkg/consistency"
	"example.com/foo-controller/pkg/fairqueue"
	"example.com/foo-controller/pkg/footest"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/leader"
	foometrics "example.com/foo-controller/pkg/metrics"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/preflight"
	"example.com/foo-controller/pkg/recorder"
)

var (
	deploymentsGR = schema.GroupResource{Group: "apps", Resource: "deployments"}
	foosGR        = schema.GroupResource{Group: v1alpha1.GroupName, Resource: "foos"}
	webKey        = cache.NewObjectName("default", "web")
)

// TestSync syncs one Foo, default/web, and compares all requests that the API server received. Each row also checks
// that the sync changes no cached object. If the sync is done, the row syncs once more with caches that show the
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
		outcome plan.Outcome
	}{
		{
			name:    "a Foo that does not exist needs no request",
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a new Foo gets its Deployment, with two writes",
			cached:  objects(newFoo()),
			want:    []string{"create deployments web", "update foos/status web"},
			ready:   "False/Creating",
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a Foo that is being deleted gets no new Deployment",
			cached:  objects(newFoo(deleting)),
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a Foo whose Deployment is as wanted gets one status write",
			cached:  objects(newFoo(), newDeployment()),
			want:    []string{"update foos/status web"},
			ready:   "True/Available",
			events:  []string{"Normal Synced 3 of 3 replicas available"},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a Foo whose status is up to date needs no request",
			cached:  objects(newFoo(upToDate), newDeployment()),
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "drift is corrected by one patch",
			cached:  objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			want:    []string{"patch deployments web", "update foos/status web"},
			ready:   "False/Progressing",
			events:  []string{`Normal Corrected Corrected Deployment "web": spec.replicas was 9, must be 3`},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a deleted Deployment is created again if a live read shows the Foo",
			cached:  objects(newFoo(upToDate)),
			want:    []string{"get foos web", "create deployments web", "update foos/status web"},
			ready:   "False/Creating",
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a Foo that was written for is read live although its cached status is empty",
			wrote:   true,
			cached:  objects(newFoo()),
			live:    []runtime.Object{},
			want:    []string{"get foos web"},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "no Deployment is created for a Foo that exists only in the cache",
			cached:  objects(newFoo(upToDate)),
			live:    []runtime.Object{},
			want:    []string{"get foos web"},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "no Deployment is created for a Foo whose deletion the cache does not show yet",
			cached:  objects(newFoo(upToDate)),
			live:    objects(newFoo(upToDate, deleting)),
			want:    []string{"get foos web"},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "no Deployment is created if the live Foo has another uid than the cached one",
			cached:  objects(newFoo(upToDate)),
			live:    objects(newFoo(upToDate, func(foo *v1alpha1.Foo) { foo.UID = "another" })),
			want:    []string{"get foos web"},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a live read that fails is reported and tried again, and nothing is created",
			cached:  objects(newFoo(upToDate)),
			fails:   map[string]error{"get foos web": apierrors.NewInternalError(errBoom)},
			want:    []string{"get foos web", "update foos/status web"},
			ready:   "False/Refused",
			events:  []string{"Warning Refused"},
			outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:   "a Deployment written for a newer generation than the cached Foo is not changed",
			cached: objects(newFoo(upToDate), newDeployment(scaledTo(9), writtenFor(8))),
			live: objects(newFoo(upToDate, func(foo *v1alpha1.Foo) { foo.Generation = 8 }),
				newDeployment(scaledTo(9), writtenFor(8))),
			want:    []string{"get foos web"},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a wrong generation label is overwritten",
			cached:  objects(newFoo(upToDate), newDeployment(writtenFor(8))),
			want:    []string{"get foos web", "patch deployments web"},
			events:  []string{"Normal Corrected"},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a paused Foo gets nothing but its status",
			cached:  objects(newFoo(func(foo *v1alpha1.Foo) { foo.Spec.Paused = true }), newDeployment(scaledTo(9))),
			want:    []string{"update foos/status web"},
			ready:   "False/Paused",
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "an invalid Foo is reported and not tried again",
			cached:  objects(newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "Not A Name" })),
			want:    []string{"update foos/status web"},
			ready:   "False/Invalid",
			outcome: plan.Outcome{Kind: plan.Terminal},
		},
		{
			name:    "a Deployment that the Foo does not control is left alone and reported",
			cached:  objects(newFoo(), newDeployment(foreign)),
			want:    []string{"update foos/status web"},
			ready:   "False/NotOwned",
			events:  []string{`Warning ErrResourceExists Deployment "web" exists, but this Foo does not control it`},
			outcome: plan.Outcome{Kind: plan.Terminal},
		},
		{
			name:    "a Deployment that is being deleted is waited for",
			cached:  objects(newFoo(upToDate), newDeployment(deletingDeployment)),
			want:    []string{"update foos/status web"},
			ready:   "False/WaitingForDeletion",
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a create that finds our own Deployment waits until the cache shows it",
			cached:  objects(newFoo()),
			live:    objects(newFoo(), newDeployment()),
			want:    []string{"create deployments web", "get deployments web"},
			outcome: plan.Outcome{Kind: plan.Wait, After: 5 * time.Millisecond},
		},
		{
			name:    "a create that finds a foreign Deployment reports it and is tried again: its deletion may bring no event",
			cached:  objects(newFoo()),
			live:    objects(newFoo(), newDeployment(foreign)),
			want:    []string{"create deployments web", "get deployments web", "update foos/status web"},
			ready:   "False/NotOwned",
			events:  []string{"Warning ErrResourceExists"},
			outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:   "a create that admission refuses reports a foreign Deployment that already has the name",
			cached: objects(newFoo()),
			live:   objects(newFoo(), newDeployment(foreign)),
			fails: map[string]error{"create deployments web": apierrors.NewForbidden(deploymentsGR, "web",
				errors.New("exceeded quota"))},
			want:    []string{"create deployments web", "get deployments web", "update foos/status web"},
			ready:   "False/NotOwned",
			events:  []string{"Warning ErrResourceExists"},
			outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:   "a create that is refused is reported and tried again",
			cached: objects(newFoo()),
			fails: map[string]error{"create deployments web": apierrors.NewForbidden(deploymentsGR, "web",
				errors.New("exceeded quota"))},
			want:    []string{"create deployments web", "get deployments web", "update foos/status web"},
			ready:   "False/Refused",
			events:  []string{"Warning Refused"},
			outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:    "a create without an answer ends the sync: the next one reads live whether it was done",
			cached:  objects(newFoo()),
			fails:   map[string]error{"create deployments web": errBoom},
			want:    []string{"create deployments web"},
			outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:   "a refused create whose live read fails too is tried again and logged",
			cached: objects(newFoo()),
			live:   objects(newFoo(), newDeployment()),
			fails:  map[string]error{"get deployments web": apierrors.NewInternalError(errBoom)},
			want:   []string{"create deployments web", "get deployments web", "update foos/status web"},
			ready:  "False/Refused", events: []string{"Warning Refused"}, outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:    "a namespace that is being deleted ends the retries and logs nothing",
			cached:  objects(newFoo()),
			fails:   map[string]error{"create deployments web": namespaceTerminating()},
			want:    []string{"create deployments web"},
			outcome: plan.Outcome{Kind: plan.Terminal},
		},
		{
			name:    "a patch that gets a conflict is tried again without a report",
			cached:  objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			fails:   map[string]error{"patch deployments web": apierrors.NewConflict(deploymentsGR, "web", errBoom)},
			want:    []string{"patch deployments web"},
			outcome: plan.Outcome{Kind: plan.Retry, Expected: true},
		},
		{
			name:   "a patch that finds another uid under the name is tried again without a report",
			cached: objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			fails: map[string]error{"patch deployments web": apierrors.NewInvalid(schema.GroupKind{Group: "apps",
				Kind: "Deployment"}, "web",
				field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "1", "field is immutable")})},
			want:    []string{"patch deployments web"},
			outcome: plan.Outcome{Kind: plan.Retry, Expected: true},
		},
		{
			name:    "a status that gets a conflict is tried again and not logged",
			cached:  objects(newFoo(), newDeployment()),
			fails:   map[string]error{"update foos/status web": apierrors.NewConflict(foosGR, "web", errBoom)},
			want:    []string{"update foos/status web"},
			outcome: plan.Outcome{Kind: plan.Retry, Expected: true},
		},
		{
			name:    "a status that fails is tried again although the Deployment needs no retry",
			cached:  objects(newFoo(), newDeployment(foreign)),
			fails:   map[string]error{"update foos/status web": apierrors.NewInternalError(errBoom)},
			want:    []string{"update foos/status web"},
			outcome: plan.Outcome{Kind: plan.Retry},
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
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name:    "a Deployment of an earlier name is deleted when the named one has as many replicas available",
			cached:  objects(newFoo(upToDate), newDeployment(), newDeployment(writtenFor(6), named("other"))),
			want:    []string{"get foos web", "get deployments web", "delete deployments other"},
			events:  []string{moved},
			outcome: plan.Outcome{Kind: plan.Done},
		},
		{
			name: "a Deployment of an earlier name is not deleted if the cache has no uid of it",
			cached: objects(newFoo(), newDeployment(),
				newDeployment(writtenFor(6), named("other"), func(dep *appsv1.Deployment) { dep.UID = "" })),
			want:    []string{"update foos/status web"},
			ready:   "True/Available",
			events:  []string{"Normal Synced 3 of 3 replicas available. Cannot delete previous Deployment \"other\""},
			outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:    "a status is not written if the cache has no uid of the Foo",
			cached:  objects(newFoo(func(foo *v1alpha1.Foo) { foo.UID = "" }), newDeployment(foreign)),
			outcome: plan.Outcome{Kind: plan.Retry},
		},
		{
			name:    "a status write that returns 404 is tried again: a live read then shows whether the Foo exists",
			cached:  objects(newFoo(), newDeployment()),
			live:    objects(newDeployment()),
			want:    []string{"update foos/status web"},
			outcome: plan.Outcome{Kind: plan.Retry, Expected: true},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.live == nil {
				test.live = test.cached
			}
			f := newFixture(t, test.cached, test.live)
			f.fails = test.fails
			if test.wrote {
				f.remember(webKey, plan.Memory{UID: "foo-uid", Generation: 7, Wrote: true})
			}
			before := f.cacheContent()

			outcome := f.syncHandler(f.ctx, webKey)
			if outcome.Kind != test.outcome.Kind || outcome.Kind != plan.Done && outcome.Expected != test.outcome.Expected {
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
			if outcome.Kind != plan.Done || countWrites(test.want) == 0 {
				return // Not done yet, or nothing was written that a second sync could repeat.
			}
			f.refresh()
			if got := f.syncHandler(f.ctx, webKey); got.Kind != plan.Done {
				t.Errorf("second sync: %+v", got)
			}
			if got := f.requests(); countWrites(got) > 0 {
				t.Errorf("the second sync wrote: %v", got)
			}
		})
	}
}

func TestSyncWaitsUntilTheCachesShowItsOwnWrites(t *testing.T) {
	for _, test := range []struct {
		name   string
		cached []runtime.Object
		live   []runtime.Object
		behind string // The resource whose cache lags.
	}{
		{"a created Deployment", objects(newFoo()), objects(newFoo()), deploymentsResource},
		{"a patched Deployment", objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			objects(newFoo(upToDate), newDeployment(scaledTo(9))), deploymentsResource},
		{"a Deployment that a live read found", objects(newFoo()), objects(newFoo(), newDeployment()), deploymentsResource},
		{"a status", objects(newFoo(), newDeployment()), objects(newFoo(), newDeployment()), foosResource},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.cached, test.live)
			_ = f.syncHandler(f.ctx, webKey) // TestSync checks its outcome.
			f.requests()
			f.stored = map[string]string{test.behind: "1"}

			if got := f.syncHandler(f.ctx, webKey); got.Kind != plan.Wait || got.After != 5*time.Millisecond {
				t.Errorf("outcome = %+v, want to wait for 5 ms", got)
			}
			if got := f.requests(); len(got) > 0 {
				t.Errorf("requests before the cache has caught up: %v", got)
			}
			f.stored = map[string]string{test.behind: "1000"}
			f.refresh()
			if got := f.syncHandler(f.ctx, webKey); got.Kind != plan.Done {
				t.Errorf("after the cache has caught up: %+v", got)
			}
		})
	}
}

// TestSyncReadsTheCacheAfterItHasCaughtUp lets the cache catch up at the moment when the sync asks it for its
// resourceVersion. A sync that had read the Foo before that would act on one that is older than our own write.
func TestSyncReadsTheCacheAfterItHasCaughtUp(t *testing.T) {
	f := newFixture(t, objects(newFoo()), objects(newFoo()))
	if got := f.syncHandler(f.ctx, webKey); got.Kind != plan.Done {
		t.Fatalf("outcome = %+v", got)
	}
	f.requests()
	f.whenAsked = f.refresh
	if got := f.syncHandler(f.ctx, webKey); got.Kind != plan.Done {
		t.Fatalf("outcome = %+v", got)
	}
	if got := f.requests(); countWrites(got) > 0 {
		t.Errorf("the sync acted on objects that it read before the cache caught up: %v", got)
	}
}

func TestDeploymentEventsQueueTheOwnerAndTheFoosThatNameTheDeployment(t *testing.T) {
	owner, rival, bystander := newFoo(), newFoo(), newFoo()
	rival.Name, rival.UID = "rival", "rival-uid"
	bystander.Name, bystander.UID, bystander.Spec.DeploymentName = "bystander", "bystander-uid", "other"
	renamed := newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "new-name" })
	for _, test := range []struct {
		name string
		foos []runtime.Object
		dep  *appsv1.Deployment
		want []string
	}{
		{"one that its owner names", objects(owner, bystander), newDeployment(), []string{"default/web"}},
		{"one that two Foos name", objects(owner, rival, bystander), newDeployment(),
			[]string{"default/rival", "default/web"}},
		{"one that its owner no longer names", objects(renamed, rival), newDeployment(),
			[]string{"default/rival", "default/web"}},
		{"one that no Foo controls but a Foo names", objects(owner, bystander), newDeployment(foreign),
			[]string{"default/web"}},
		{"one that no Foo names or controls", objects(bystander), newDeployment(foreign), nil},
		{"one that a former Foo of that name controls", objects(renamed), newDeployment(ownedBy("former-uid")), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.foos, nil)
			f.handleObject(test.dep, nil)
			got := map[string]bool{}
			for f.queue.Len() > 0 {
				key, _ := f.queue.Get()
				got[key.String()] = true
			}
			want := map[string]bool{}
			for _, key := range test.want {
				want[key] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("queued keys (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFooEventsQueueTheFoo(t *testing.T) {
	another := func(edit func(*v1alpha1.Foo)) *v1alpha1.Foo {
		return newFoo(func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }, edit)
	}
	for _, test := range []struct {
		name    string
		happens func(*Controller)
		queued  int
	}{
		{"a Foo is new", func(c *Controller) { c.enqueueFoo(newFoo()) }, 1},
		{"its status or labels change", func(c *Controller) { c.fooChanged(newFoo(), another(func(*v1alpha1.Foo) {})) }, 1},
		{"nothing changes", func(c *Controller) { c.fooChanged(newFoo(), newFoo()) }, 0},
		{"our own status update comes back", func(c *Controller) {
			c.writes.WroteAt(webKey, "foo-uid", foosResource, "11")
			c.fooChanged(newFoo(), another(func(*v1alpha1.Foo) {}))
		}, 0},
		{"a user edits it", func(c *Controller) {
			c.fooChanged(newFoo(), another(func(foo *v1alpha1.Foo) { foo.Generation++ }))
		}, 1},
		{"it is deleted", func(c *Controller) {
			c.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: newFoo()})
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, nil, nil)
			test.happens(f.Controller)
			if got := f.queue.Len(); got != test.queued {
				t.Errorf("%d keys queued, want %d", got, test.queued)
			}
		})
	}
}

func TestDeploymentsOfOtherNamespacesAreNotPreviousOnes(t *testing.T) {
	elsewhere := newDeployment(named("other"), func(dep *appsv1.Deployment) { dep.Namespace = "elsewhere" })
	f := newFixture(t, objects(newFoo(), elsewhere), nil)
	if state := f.observe(webKey); len(state.Previous) > 0 {
		t.Errorf("previous Deployments: %v, want none", state.Previous)
	}
}

// The ledger drops an operation that failed earlier and has succeeded now, even while another operation backs off:
// here the deletion of a previous Deployment.
func TestASuccessIsForgottenWhileAnotherOperationBacksOff(t *testing.T) {
	spare := newDeployment(named("spare"), func(dep *appsv1.Deployment) { dep.Status.AvailableReplicas = 0 })
	objs := objects(newFoo(upToDate), newDeployment(named("other")), spare)
	f := newFixture(t, objs, objs)
	create, deletion := plan.Op{Verb: plan.CreateDeployment, Name: "web"}, plan.Op{Verb: plan.DeleteDeployment,
		Name: "spare"}
	f.remember(webKey, plan.Memory{UID: "foo-uid", Generation: 7, Ledger: map[plan.Op]plan.Attempt{
		create:   {Count: 3, Until: time.Now().Add(-time.Second)},
		deletion: {Count: 3, Until: time.Now().Add(time.Minute)},
	}})

	got := f.syncHandler(f.ctx, webKey)
	want := []string{"get foos web", "create deployments web", "update foos/status web"}
	if diff := cmp.Diff(want, f.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got.Kind != plan.Wait || got.Reason != plan.Backoff {
		t.Errorf("outcome = %+v, want to wait for the deletion", got)
	}
	ledger := f.recall(webKey).Ledger
	if ledger[create].Count != 0 || ledger[deletion].Count != 3 {
		t.Errorf("the ledger has %v", ledger)
	}
}

// TestEqualEventsAreFolded has a Deployment that becomes available again and again. client-go folds events that
// differ only in the note and the time.
func TestEqualEventsAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo(), newDeployment()), objects(newFoo(), newDeployment()))
		defer f.queue.ShutDown()
		ctx, stop := context.WithCancel(f.ctx)
		scheme := runtime.NewScheme()
		if err := v1alpha1.Install(scheme); err != nil {
			t.Fatal(err)
		}
		events, err := recorder.New(ctx, f.kube.EventsV1(), scheme, controllerName)
		if err != nil {
			t.Fatal(err)
		}
		f.recorder = events
		for flip := range 10 {
			f.syncHandler(f.ctx, webKey)
			f.refresh()
			f.fill(append(f.api.Objects(fooResource), newDeployment(func(dep *appsv1.Deployment) {
				dep.Status.AvailableReplicas -= int32((flip + 1) % 2)
			})))
			time.Sleep(time.Second)
		}
		events.Flush(time.Minute)
		if n := len(f.api.Objects(apisim.Events().Resource)); n != 1 {
			t.Errorf("%d Event objects for five equal events, want 1", n)
		}
		stop()
		synctest.Wait()
	})
}

// TestStatusThatIsNotStoredIsReported has CustomResourceDefinitions that differ from ours.
func TestStatusThatIsNotStoredIsReported(t *testing.T) {
	for _, test := range []struct {
		name string
		// answer replaces the answer to an update of the status.
		answer func(r *apisim.Request, foo runtime.Object) (*http.Response, error)
		// quiet is the number of attempts that count as normal work, and are not logged.
		quiet int
	}{
		{
			name: "one without the status subresource",
			answer: func(r *apisim.Request, _ runtime.Object) (*http.Response, error) {
				return r.Refuse(apierrors.NewNotFound(foosGR, "web"))
			},
			quiet: 3,
		},
		{
			name: "one that drops the conditions",
			answer: func(_ *apisim.Request, foo runtime.Object) (*http.Response, error) {
				body, err := json.Marshal(foo)
				header := http.Header{"Content-Type": {"application/json"}}
				return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(body))}, err
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, objects(newFoo(), newDeployment()), objects(newFoo(), newDeployment()))
				defer f.queue.ShutDown()
				f.api.Intercept(func(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
					if r.Subresource == "status" {
						return test.answer(r, f.api.Object(fooResource, "default", "web"))
					}
					return next()
				})
				for attempt := range 8 {
					outcome := f.syncHandler(f.ctx, webKey)
					if outcome.Kind != plan.Retry || outcome.Expected != (attempt < test.quiet) {
						t.Errorf("attempt %d: outcome = %+v, want a retry, quiet for %d attempts", attempt, outcome, test.quiet)
					}
					if early := f.syncHandler(f.ctx, webKey); early.Kind != plan.Wait {
						t.Errorf("attempt %d: an event during the backoff: outcome = %+v, want to wait", attempt, early)
					}
					time.Sleep(outcome.After) // Virtual time.
				}
				f.checkEvents([]string{"Warning StatusNotStored"}) // Once.
			})
		})
	}
}

func TestADeletedFooOfWhichOnlyTheKeyIsKnownQueuesAllFoosOfItsNamespace(t *testing.T) {
	other := newFoo(func(foo *v1alpha1.Foo) { foo.Name, foo.UID = "other", "other-uid" })
	elsewhere := newFoo(func(foo *v1alpha1.Foo) { foo.Namespace, foo.UID = "elsewhere", "elsewhere-uid" })
	f := newFixture(t, objects(other, elsewhere), nil)
	f.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{
		FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "default/web"},
	})
	queued := map[string]bool{}
	for f.queue.Len() > 0 {
		key, _ := f.queue.Get()
		queued[key.String()] = true
	}
	if diff := cmp.Diff(map[string]bool{"default/web": true, "default/other": true}, queued); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
}

// A Foo that begins to be deleted, or is replaced by another one of its name, may release a name that other Foos wait
// for. Our own write of a Deployment concerns the other Foos that name it.
func TestEventsQueueTheOtherFoosThatTheyConcern(t *testing.T) {
	rival := newFoo(func(foo *v1alpha1.Foo) { foo.Name, foo.UID = "rival", "rival-uid" })
	changed := func(edit func(*v1alpha1.Foo)) func(*Controller) {
		return func(c *Controller) {
			foo := newFoo(func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }, edit)
			c.fooChanged(newFoo(), foo)
		}
	}
	for _, test := range []struct {
		name    string
		happens func(*Controller)
		queued  bool
	}{
		{"only the resourceVersion changes", changed(func(*v1alpha1.Foo) {}), false},
		{"the Foo begins to be deleted", changed(deleting), true},
		{"another Foo has the name", changed(func(foo *v1alpha1.Foo) { foo.UID = "another" }), true},
		{"the deletion of a Deployment of which only the key is known", func(c *Controller) {
			c.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{
				FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "default/former"},
			})
		}, true},
		{"our own write of its Deployment", func(c *Controller) {
			c.writes.WroteAt(webKey, "foo-uid", deploymentsResource, "20")
			c.deploymentAdded(newDeployment(), false)
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, objects(newFoo(), rival, newDeployment()), nil)
			test.happens(f.Controller)
			queued := false
			for f.queue.Len() > 0 {
				key, _ := f.queue.Get()
				queued = queued || key == cache.MetaObjectToName(rival)
			}
			if queued != test.queued {
				t.Errorf("the other Foo is queued: %t, want %t", queued, test.queued)
			}
		})
	}
}

// Hundreds of Foos may name one Deployment. An event queues those of them whose reports depend on what has changed.
func TestAnEventQueuesOnlyTheFoosThatItConcerns(t *testing.T) {
	const others = 300
	owner := newFoo(fooNamed("owner"), func(foo *v1alpha1.Foo) { foo.CreationTimestamp = metav1.Unix(1, 0) })
	next := func(edit ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
		return newFoo(append([]func(*v1alpha1.Foo){fooNamed("owner"), func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }},
			edit...)...)
	}
	dep := newDeployment(ownedByFoo(owner))
	changed := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		return newDeployment(ownedByFoo(owner), func(dep *appsv1.Deployment) { dep.ResourceVersion = "21" }, edit)
	}
	waiting := newFoo(fooNamed("waiting-0"))
	for _, test := range []struct {
		name    string
		free    bool // No Deployment has the name.
		happens func(*Controller)
		queued  int
	}{
		{name: "an annotation of the Deployment", queued: 1, happens: func(c *Controller) {
			c.deploymentChanged(dep, changed(func(dep *appsv1.Deployment) { dep.Annotations = map[string]string{"a": "b"} }))
		}},
		{name: "the status of the Deployment", queued: 1, happens: func(c *Controller) {
			c.deploymentChanged(dep, changed(func(dep *appsv1.Deployment) { dep.Status.AvailableReplicas = 3 }))
		}},
		{name: "the deletion of the Deployment", queued: others + 1, happens: func(c *Controller) {
			c.deploymentChanged(dep, changed(func(dep *appsv1.Deployment) { dep.DeletionTimestamp = new(metav1.Now()) }))
		}},
		{name: "our own write of the label of what it was made for", queued: others, happens: func(c *Controller) {
			c.writes.WroteAt(cache.MetaObjectToName(owner), owner.UID, deploymentsResource, "21")
			c.deploymentChanged(dep, changed(func(dep *appsv1.Deployment) { dep.Labels = nil }))
		}},
		{name: "another controller of the Deployment", queued: others + 1, happens: func(c *Controller) {
			c.deploymentChanged(dep, changed(foreign))
		}},
		{name: "the owner has another number of replicas", queued: 1, happens: func(c *Controller) {
			c.fooChanged(owner, next(func(foo *v1alpha1.Foo) { foo.Spec.Replicas, foo.Generation = new(int32(9)), 2 }))
		}},
		{name: "the owner becomes Ready", queued: 1, happens: func(c *Controller) {
			c.fooChanged(owner, next(func(foo *v1alpha1.Foo) {
				foo.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Available"}}
			}))
		}},
		{name: "the owner moves to another Deployment", queued: others + 1, happens: func(c *Controller) {
			c.fooChanged(owner, next(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName, foo.Generation = "other", 2 }))
		}},
		{name: "a Foo that waits is edited", queued: 1, happens: func(c *Controller) {
			c.fooChanged(waiting, newFoo(fooNamed("waiting-0"), func(foo *v1alpha1.Foo) {
				foo.ResourceVersion, foo.Generation, foo.Spec.Replicas = "11", 2, new(int32(9))
			}))
		}},
		{name: "a Foo that waits is deleted", queued: 1, happens: func(c *Controller) {
			c.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: waiting})
		}},
		{name: "one more names the Deployment", queued: 1, happens: func(c *Controller) {
			c.fooAdded(newFoo(fooNamed("zoo")), false)
		}},
		{name: "one more names a Deployment that does not exist", free: true, queued: 1, happens: func(c *Controller) {
			c.fooAdded(newFoo(fooNamed("zoo"), func(foo *v1alpha1.Foo) { foo.CreationTimestamp = metav1.Unix(99, 0) }), false)
		}},
		{
			name: "the first claim to a Deployment that does not exist is deleted", free: true, queued: 2,
			happens: func(c *Controller) { c.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: owner}) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			objs := objects(owner)
			for i := range others {
				objs = append(objs, newFoo(fooNamed(fmt.Sprint("waiting-", i)),
					func(foo *v1alpha1.Foo) { foo.CreationTimestamp = metav1.Unix(2, 0) }))
			}
			if !test.free {
				objs = append(objs, dep)
			}
			f := newFixture(t, objs, nil)
			test.happens(f.Controller)
			if n := f.queue.Len(); n != test.queued {
				t.Errorf("%d keys are queued, want %d", n, test.queued)
			}
		})
	}
}

// The handlers of all namespaces share a goroutine. However many Foos an event concerns, its handler queues one or two
// of them, and a few fanOuts, which are queued once for any number of events.
func TestAHandlerQueuesAFewKeysForAnyNumberOfFoos(t *testing.T) {
	owner := newFoo(fooNamed("owner"), func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "elsewhere" })
	var objs []runtime.Object
	for i := range 200 {
		objs = append(objs, newFoo(fooNamed(fmt.Sprint("waiting-", i))))
	}
	shared := newDeployment(ownedByFoo(owner))
	f := newFixture(t, append(objs, owner, shared), nil)
	adds, queued := 0, map[cache.ObjectName]bool{}
	f.add = func(key cache.ObjectName, _ fairqueue.Class) { adds, queued[key] = adds+1, true }
	f.enqueueFanOut = f.enqueueLater
	for i := range 10 {
		labelled := shared.DeepCopy()
		labelled.ResourceVersion, labelled.Labels = fmt.Sprint(100+i), map[string]string{"made-for": fmt.Sprint(i)}
		labelled.OwnerReferences = nil
		f.deploymentChanged(shared, labelled)
		paused := owner.DeepCopy()
		paused.ResourceVersion, paused.Spec.Paused = fmt.Sprint(100+i), true
		f.fooChanged(owner, paused)
	}
	if adds > 2*20 || f.fanOuts.Len() > 3 {
		t.Errorf("20 events queued %d keys and %d fanOuts", adds, f.fanOuts.Len())
	}
	adds, queued = 0, map[cache.ObjectName]bool{}
	for f.fanOuts.Len() > 0 {
		f.processNextFanOut(t.Context())
	}
	if len(queued) != 200 || adds > 3*200 {
		t.Errorf("the fanOuts queued %d Foos with %d adds, want the 200 that wait, each at most thrice", len(queued), adds)
	}
}

// Deployments with one owner are deleted. Each deletion must not cost a walk over the others.
func TestTheDeletionOfManyDeploymentsOfAFooIsFannedOutOnce(t *testing.T) {
	const n = 100
	owner := newFoo(fooNamed("owner"))
	objs := []runtime.Object{owner}
	var deps []*appsv1.Deployment
	for i := range n {
		name := fmt.Sprint("dep-", i)
		deps = append(deps, newDeployment(ownedByFoo(owner), named(name)))
		objs = append(objs, deps[i], newFoo(fooNamed("waits-for-"+name), func(foo *v1alpha1.Foo) {
			foo.Spec.DeploymentName = name
		}))
	}
	f := newFixture(t, objs, nil)
	adds, queued := 0, map[cache.ObjectName]bool{}
	f.add = func(key cache.ObjectName, _ fairqueue.Class) { adds, queued[key] = adds+1, true }
	f.enqueueFanOut = f.enqueueLater
	for _, dep := range deps {
		f.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: dep})
	}
	for f.fanOuts.Len() > 0 {
		f.processNextFanOut(t.Context())
	}
	if most := 4 * n; adds > most || len(queued) != n+1 {
		t.Errorf("%d deletions queued %d Foos with %d adds, want %d Foos with at most %d", n, len(queued), adds, n+1, most)
	}
}

// A worker may take a key as soon as it is queued. So one event must not queue the same key twice. The key is one of a
// change, which needs no token and does not wait behind the initial list.
func TestAnEventOfAFooQueuesItOnceAsAChange(t *testing.T) {
	f := newFixture(t, nil, nil)
	adds := 0
	f.add = func(_ cache.ObjectName, class fairqueue.Class) {
		adds++
		if class != fairqueue.Change {
			t.Errorf("queued with class %d, want %d", class, fairqueue.Change)
		}
	}
	foo := newFoo()
	f.fooAdded(foo, false)
	if adds != 1 {
		t.Errorf("a Foo that is added is queued %d times", adds)
	}
	adds = 0
	moved := foo.DeepCopy()
	moved.ResourceVersion, moved.Generation, moved.Spec.DeploymentName = "11", foo.Generation+1, "elsewhere"
	f.fooChanged(foo, moved)
	if adds != 1 {
		t.Errorf("a Foo that moves is queued %d times", adds)
	}
}

// A cycle of any length costs each of its Foos no more than a chain of the limit.
func TestALongCycleIsFollowedUpToTheLimit(t *testing.T) {
	const n = 3 * plan.MaxChain
	name := func(i int) string { return fmt.Sprint("foo-", i%n) }
	var objs []runtime.Object
	for i := range n {
		foo := newFoo(fooNamed(name(i)), func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = name(i) })
		dep := newDeployment(ownedByFoo(foo), func(dep *appsv1.Deployment) {
			dep.Name, dep.Labels = name(i), plan.Deployment(foo).Labels
		})
		foo.Spec.DeploymentName = name(i + 1)
		objs = append(objs, foo, dep)
	}
	f := newFixture(t, objs, nil)
	state := f.observe(cache.NewObjectName("default", name(0)))
	if got := len(state.OwnerChain); got != plan.MaxChain {
		t.Errorf("the chain has %d Foos, want %d", got, plan.MaxChain)
	}
	if last := state.OwnerChain[plan.MaxChain-1]; last.Name != name(plan.MaxChain) {
		t.Errorf("the last of the chain is %q, want %q", last.Name, name(plan.MaxChain))
	}
}

// A report depends on the whole chain. It must not wait for the status of a Foo on the way, which may stay the same.
func TestAFooThatMovesOrIsPausedQueuesTheWholeChain(t *testing.T) {
	chained := func(name, next string) (*v1alpha1.Foo, *appsv1.Deployment) {
		foo := newFoo(fooNamed(name), func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = next })
		return foo, newDeployment(ownedByFoo(foo), func(dep *appsv1.Deployment) { dep.Name = name })
	}
	a, depA := chained("a", "b")
	b, depB := chained("b", "c")
	c, depC := chained("c", "elsewhere")
	for name, edit := range map[string]func(*v1alpha1.Foo){
		"moves":     func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "a" },
		"is paused": func(foo *v1alpha1.Foo) { foo.Spec.Paused = true },
	} {
		f := newFixture(t, objects(a, b, c, depA, depB, depC), nil)
		edited := c.DeepCopy()
		edited.ResourceVersion, edited.Generation = "11", c.Generation+1
		edit(edited)
		f.fooChanged(c, edited)
		if n := f.queue.Len(); n != 3 {
			t.Errorf("the last of a chain of three %s: %d keys are queued, want 3", name, n)
		}
	}
}

// A Foo that reports what it waits for wakes the next one when its own status changes. A paused or invalid Foo has no
// such report, so the Foos that wait for it are queued at once.
func TestAReportQueuesTheChainUpToTheNextFooThatReports(t *testing.T) {
	for _, test := range []struct {
		name   string
		edit   func(*v1alpha1.Foo)
		queued []string
	}{
		{"it reports", func(*v1alpha1.Foo) {}, []string{"b", "c"}},
		{"it is paused", func(foo *v1alpha1.Foo) { foo.Spec.Paused = true }, []string{"a", "b", "c"}},
		{"it is invalid", func(foo *v1alpha1.Foo) { foo.Spec.Replicas = new(int32(-1)) }, []string{"a", "b", "c"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var objs []runtime.Object
			foos := map[string]*v1alpha1.Foo{}
			for name, next := range map[string]string{"a": "b", "b": "c", "c": "elsewhere"} {
				foo := newFoo(fooNamed(name), func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = next })
				foos[name] = foo
				objs = append(objs, foo, newDeployment(ownedByFoo(foo), named(name)))
			}
			test.edit(foos["b"])
			f := newFixture(t, objs, nil)
			stalled := foos["c"].DeepCopy()
			stalled.ResourceVersion, stalled.Status.ObservedGeneration = "11", stalled.Generation
			stalled.Status.Conditions = []metav1.Condition{{Type: "Stalled", Status: "True", Reason: "NotOwned"}}
			f.fooChanged(foos["c"], stalled)
			var queued []string
			for f.queue.Len() > 0 {
				key, _ := f.queue.Get()
				queued = append(queued, key.Name)
			}
			slices.Sort(queued)
			if diff := cmp.Diff(test.queued, queued); diff != "" {
				t.Errorf("queued (-want +got):\n%s", diff)
			}
		})
	}
}

// An owner reference counts by its uid. Its name may have been edited.
func TestAnOwnerIsFoundByItsUID(t *testing.T) {
	f := newFixture(t, objects(newFoo()), nil)
	f.handleObject(newDeployment(named("former"), func(dep *appsv1.Deployment) {
		dep.OwnerReferences[0].Name = "edited"
	}), nil)
	if n := f.queue.Len(); n != 1 {
		t.Errorf("%d keys are queued, want 1: the owner", n)
	}
}

// Paused Foos that have each other's Deployments are queued once each.
func TestACycleOfPausedFoosIsQueuedOnce(t *testing.T) {
	swapped := func(name, other string) (*v1alpha1.Foo, *appsv1.Deployment) {
		foo := newFoo(func(foo *v1alpha1.Foo) {
			foo.Name, foo.UID, foo.Spec.DeploymentName, foo.Spec.Paused = name, types.UID(name), other, true
		})
		return foo, newDeployment(named(name), ownedBy(foo.UID))
	}
	a, depA := swapped("a", "b")
	b, depB := swapped("b", "a")
	f := newFixture(t, objects(a, b, depA, depB), nil)
	f.enqueueFoosOf(waitingFor(scopeControlled, a))
	if n := f.queue.Len(); n != 1 {
		t.Fatalf("%d keys are queued, want 1", n)
	}
	if key, _ := f.queue.Get(); key != cache.MetaObjectToName(b) {
		t.Errorf("%s is queued, want %s", key, cache.MetaObjectToName(b))
	}
}

// After a live read, syncs wait until the cache shows the object that was read. But its event is not one of our own
// writes: it must wake the Foo.
func TestTheEventOfADeploymentThatWasReadIsNotOurOwn(t *testing.T) {
	f := newFixture(t, objects(newFoo()), objects(newFoo(), newDeployment()))
	f.syncHandler(f.ctx, webKey)
	if diff := cmp.Diff([]string{"create deployments web", "get deployments web"}, f.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	found := f.api.Object(deploymentResource, "default", "web").(*appsv1.Deployment)
	if f.writes.IsOwnWrite(webKey, deploymentsResource, found.ResourceVersion) {
		t.Error("the Deployment that was read counts as our own write")
	}
}

func TestNewFooQueuesTheFoosThatNameADeploymentOfItsOwn(t *testing.T) {
	waiting := newFoo(func(foo *v1alpha1.Foo) { foo.Name, foo.UID = "waiting", "waiting-uid" })
	holder := newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "elsewhere" })
	f := newFixture(t, objects(waiting, holder, newDeployment()), nil)
	f.fooAdded(holder, false)
	queued := map[string]bool{}
	for f.queue.Len() > 0 {
		key, _ := f.queue.Get()
		queued[key.String()] = true
	}
	if diff := cmp.Diff(map[string]bool{"default/web": true, "default/waiting": true}, queued); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
}

// TestStaleCachesAreNotActedOn has caches that may be stale: a sync must read live before it writes.
func TestStaleCachesAreNotActedOn(t *testing.T) {
	badName := newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "Not/A Name" })
	refused := plan.Attempt{
		Count: 20, Until: time.Now().Add(time.Minute), Report: plan.ConditionError{Reason: "Refused", Message: "no"},
	}
	for _, test := range []struct {
		name         string
		cached, live []runtime.Object
		ledger       map[plan.Op]plan.Attempt
		want         []string
	}{
		{
			name:   "nothing is written for a Foo that is being deleted",
			cached: objects(newFoo(), newDeployment(scaledTo(9))),
			live:   objects(newFoo(deleting), newDeployment(scaledTo(9))),
			want:   []string{"get foos web"},
		},
		{
			name:   "nothing is read unless something is to be written",
			cached: objects(newFoo(upToDate), newDeployment()),
			live:   objects(newFoo(), newDeployment(scaledTo(9))),
		},
		{
			name:   "a Deployment name that is invalid is not read",
			cached: objects(badName),
			live:   objects(badName),
			want:   []string{"get foos web", "update foos/status web"},
		},
		{
			name:   "an operation is not tried while it backs off",
			cached: objects(newFoo()),
			live:   objects(newFoo()),
			ledger: map[plan.Op]plan.Attempt{{Verb: plan.CreateDeployment, Name: "web"}: refused},
			want:   []string{"get foos web", "get deployments web", "update foos/status web"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.cached, test.live)
			f.remember(webKey, plan.Memory{UID: "foo-uid", Generation: 7, StaleFoo: true, Ledger: test.ledger})
			f.syncHandler(f.ctx, webKey)
			if diff := cmp.Diff(test.want, f.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A cache that lacks one of our own writes for longer than a minute is stale. That holds for both caches.
func TestACacheThatLagsForAMinuteIsStale(t *testing.T) {
	for _, resource := range []string{foosResource, deploymentsResource} {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, objects(newFoo(), newDeployment()), nil)
				defer f.queue.ShutDown()
				f.random = func() float64 { return 0.5 }
				f.writes.WroteAt(webKey, "foo-uid", resource, "77")
				f.stored = map[string]string{resource: "76"}
				for f.writes.CatchUpDelay(webKey) > 0 {
					time.Sleep(time.Second) // Virtual time.
				}
				if state := f.observe(webKey); !state.CacheStale || state.Jitter != 0.5 {
					t.Errorf("CacheStale = %t, Jitter = %v; want true and 0.5", state.CacheStale, state.Jitter)
				}
				f.stored = map[string]string{resource: "77"}
				if state := f.observe(webKey); state.CacheStale {
					t.Error("CacheStale although the cache has caught up")
				}
			})
		})
	}
}

func TestDeploymentEventsOfAllKindsReachTheFoo(t *testing.T) {
	later := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		return newDeployment(func(dep *appsv1.Deployment) { dep.ResourceVersion = "21" }, edit)
	}
	// This Foo names another Deployment, so it is found only by the owner reference.
	unnamed := newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "other" })
	tombstone := cache.DeletedFinalStateUnknown{Key: "default/web"}
	for _, test := range []struct {
		name    string
		foo     *v1alpha1.Foo
		happens func(*Controller)
		queued  int
	}{
		{"it changes", newFoo(), func(c *Controller) {
			c.deploymentChanged(newDeployment(), later(func(*appsv1.Deployment) {}))
		}, 1},
		{"nothing changes", newFoo(), func(c *Controller) { c.deploymentChanged(newDeployment(), newDeployment()) }, 0},
		{"the update event of our own write", newFoo(), func(c *Controller) {
			c.writes.WroteAt(webKey, "foo-uid", deploymentsResource, "21")
			c.deploymentChanged(newDeployment(), later(func(*appsv1.Deployment) {}))
		}, 0},
		{"the add event of our own write", newFoo(), func(c *Controller) {
			c.writes.WroteAt(webKey, "foo-uid", deploymentsResource, "21")
			c.deploymentAdded(later(func(*appsv1.Deployment) {}), false)
		}, 0},
		{"the Foo loses it", unnamed, func(c *Controller) { c.deploymentChanged(newDeployment(), later(foreign)) }, 1},
		{"the Foo gets it", unnamed, func(c *Controller) {
			c.deploymentChanged(newDeployment(foreign), later(func(*appsv1.Deployment) {}))
		}, 1},
		{"it is deleted", unnamed, func(c *Controller) {
			c.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: newDeployment()})
		}, 1},
		{"its deletion was missed and only its name is known", newFoo(), func(c *Controller) {
			c.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &tombstone})
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, objects(test.foo), nil)
			test.happens(f.Controller)
			if got := f.queue.Len(); got != test.queued {
				t.Errorf("%d keys queued, want %d", got, test.queued)
			}
		})
	}
}

// TestInformersCallTheHandlers lets real informers watch the simulated API server. The other tests call the handlers
// themselves.
func TestInformersCallTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, stop := context.WithCancel(ctx)
		config := apisim.New(footest.FooKind(), deploymentKind).Config("user")
		kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
		samplesFactory, kubeFactory := fooinformers.NewSharedInformerFactory(samples,
			0), kubeinformers.NewSharedInformerFactory(kube, 0)
		c, err := New(ctx, Clients{kube, samples}, events.NewFakeRecorder(1),
			samplesFactory.Samplecontroller().V1alpha1().Foos(), kubeFactory.Apps().V1().Deployments(), 1)
		if err != nil {
			t.Fatal(err)
		}
		c.enqueueFanOut = c.enqueueFoosOf // At once, because no worker runs.
		synced, err := c.watch(klog.FromContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		samplesFactory.StartWithContext(ctx)
		kubeFactory.StartWithContext(ctx)
		defer func() {
			c.queue.ShutDown()
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
			if n := c.queue.Len(); n != 1 {
				t.Fatalf("%s: %d keys are queued, want 1", step.what, n)
			}
			key, _ := c.queue.Get()
			if key != webKey {
				t.Errorf("%s: %s is queued, want %s", step.what, key, webKey)
			}
			c.queue.Done(key)
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
	footest.WithoutErrorDelays(t)
	named := func(name string) *v1alpha1.Foo {
		return newFoo(func(foo *v1alpha1.Foo) { foo.Name, foo.UID, foo.Spec.DeploymentName = name, types.UID(name), name })
	}
	synctest.Test(t, func(t *testing.T) { // No delay of a key ends.
		foos := objects(named("good"), named("refused"), named("panics"))
		f := newFixture(t, foos, foos)
		defer f.queue.ShutDown()
		f.fails = map[string]error{"create deployments refused": apierrors.NewForbidden(deploymentsGR, "refused", errBoom)}
		f.api.Intercept(func(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if describe(r) == "create deployments panics" {
				panic("planted")
			}
			return next()
		})
		registry := metrics.NewKubeRegistry()
		f.Metrics = foometrics.New(registry.MustRegister)
		for _, foo := range foos {
			f.queue.Add(cache.MetaObjectToName(foo.(metav1.Object)))
			if !f.processNextWorkItem(f.ctx, f.ctx) {
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
			`requests_total code="2xx" request="get Deployment" rule="read refused name": 1`, // It does not exist.
			`requests_total code="2xx" request="update status of Foo" rule="update status": 2`,
			`requests_total code="403" request="create Deployment" rule="create": 1`,
			`syncs_total outcome="done": 1`,
			`syncs_total outcome="retry": 2`,
		}
		if diff := cmp.Diff(want, counted); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
	})
}

func TestWorkerForgetsFailuresOnlyWhenASyncIsDoneOrTerminal(t *testing.T) {
	footest.WithoutErrorDelays(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		defer f.queue.ShutDown()
		f.fails = map[string]error{"create deployments web": apierrors.NewForbidden(deploymentsGR, "web", errBoom)}
		work := func(what string, remembers int) {
			t.Helper()
			time.Sleep(time.Second) // Virtual time: any delay of the key is over.
			if n := f.queue.Len(); n != 1 {
				t.Fatalf("%s: %d keys are queued, want 1", what, n)
			}
			if !f.processNextWorkItem(f.ctx, f.ctx) {
				t.Fatal("the worker ended")
			}
			if got := f.queue.NumRequeues(webKey); got != remembers {
				t.Errorf("%s: %d failures remembered, want %d", what, got, remembers)
			}
		}
		f.queue.Add(webKey)
		work("a sync that failed", 1)
		f.fails, f.stored = nil, map[string]string{foosResource: "1"}
		work("one that waits for the caches", 1) // The key has come back by itself.
		f.stored = nil
		f.refresh()
		work("one that went well", 0)
		if got := f.queue.Len(); got != 0 {
			t.Errorf("%d keys are left in the queue", got)
		}
		f.fails = map[string]error{"update foos/status web": apierrors.NewForbidden(foosGR, "web", errBoom)}
		invalid := f.api.Object(fooResource, "default", "web").DeepCopyObject().(*v1alpha1.Foo)
		invalid.Spec.DeploymentName = "Not A Name"
		f.fill(objects(invalid))
		f.queue.Add(webKey)
		work("another one that failed", 1)
		f.fails = nil
		work("one that is terminal", 0)
		f.writes.WroteAt(webKey, "foo-uid", foosResource, "77")
		f.fill(nil)
		f.queue.Add(webKey)
		work("a Foo that does not exist any more", 0)
		if len(f.memories) > 0 || f.writes.IsOwnWrite(webKey, foosResource, "77") {
			t.Errorf("a Foo that does not exist any more is remembered: %v", f.memories)
		}
	})
}

// Somebody deletes the Deployment while the watch is interrupted, and the next list shows neither it nor its deletion.
func TestADeploymentThatTheCacheNeverShowsIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		defer f.queue.ShutDown()
		work := func(want ...string) {
			t.Helper()
			f.log = nil
			if n := f.queue.Len(); n != 1 {
				t.Fatalf("%d keys are queued, want 1", n)
			}
			if !f.processNextWorkItem(f.ctx, f.ctx) {
				t.Fatal("the worker ended")
			}
			if diff := cmp.Diff(want, f.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		}
		f.queue.Add(webKey)
		work("create deployments web", "update foos/status web")
		if err := f.kube.AppsV1().Deployments("default").Delete(f.ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.fill(objects(f.api.Object(fooResource, "default", "web"))) // The cache has our status, and no Deployment.
		time.Sleep(lookAgainAfter)
		synctest.Wait()
		work("get foos web", "create deployments web")
	})
}

func TestAWorkerThatIsStuckIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		answer := make(chan struct{})
		f.api.Intercept(func(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
			<-answer
			return next()
		})
		f.queue.Add(webKey)
		go f.processNextWorkItem(f.ctx, f.ctx)
		time.Sleep(stuckAfter - time.Second)
		answer <- struct{}{} // The next request begins.
		time.Sleep(stuckAfter)
		synctest.Wait()
		check := f.Busy.Check("workers")
		if err := check.Do(); err != nil {
			t.Errorf("after %s: %v", stuckAfter, err)
		}
		time.Sleep(time.Second)
		if err := check.Do(); err == nil || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("after more than %s: %v, want the name of the Foo", stuckAfter, err)
		}
		close(answer)
		synctest.Wait()
		if err := check.Do(); err != nil {
			t.Errorf("after the sync: %v", err)
		}
	})
}

// The manifests grant what the controller asks for, and nothing else.
func TestTheManifestsGrantWhatTheControllerAsksFor(t *testing.T) {
	for file, opts := range map[string]*options{
		"artifacts/deploy/rbac.yaml":     {leaseNamespace: "foo-system"},
		"artifacts/namespaced/rbac.yaml": {leaseNamespace: "default", namespace: "default"},
	} {
		opts.leaderElect, opts.metricsAddress = true, "0"
		opts.leaseDuration, opts.renewDeadline = leader.DefaultLeaseDuration, leader.DefaultRenewDeadline
		opts.retryPeriod = leader.DefaultRetryPeriod
		elector, err := opts.elector(&rest.Config{Host: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		for _, p := range (endpoints{opts: opts, elector: elector}).permissions() {
			asked = append(asked, p.String())
		}
		slices.Sort(asked)
		granted := grantedBy(t, file)
		if diff := cmp.Diff(asked, granted); diff != "" {
			t.Errorf("%s: - asked for, + granted:\n%s", file, diff)
		}
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

func TestPanicCostsItsKeyARetryAndNothingElse(t *testing.T) {
	footest.WithoutErrorDelays(t)
	synctest.Test(t, func(t *testing.T) { // No delay of a key ends.
		other := newFoo(func(foo *v1alpha1.Foo) {
			foo.Name, foo.UID, foo.Spec.DeploymentName = "other", "other-uid", "other"
		})
		f := newFixture(t, objects(newFoo(), other), objects(newFoo(), other))
		defer f.queue.ShutDown()
		f.api.Intercept(func(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if describe(r) == "create deployments web" {
				panic("planted")
			}
			return next()
		})
		for _, key := range []cache.ObjectName{webKey, cache.MetaObjectToName(other)} {
			f.queue.Add(key)
			if !f.processNextWorkItem(f.ctx, f.ctx) {
				t.Fatal("the worker ended")
			}
		}
		if got := f.queue.NumRequeues(webKey); got != 1 {
			t.Errorf("the key that panicked was requeued %d times, want 1", got)
		}
		want := []string{"create deployments web", "create deployments other", "update foos/status other"}
		if diff := cmp.Diff(want, f.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// The delay doubles for a Foo whose sync panics each time.
func TestPanicsInARowBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		defer f.queue.ShutDown()
		f.random = func() float64 { return 0 }
		f.api.Intercept(func(*apisim.Request, func() (*http.Response, error)) (*http.Response, error) { panic("again") })
		f.remember(webKey, plan.Memory{UID: "foo-uid", Generation: 6}) // An earlier generation than that of the Foo.
		for attempt := range 4 {
			want := 5 * time.Millisecond << attempt
			got := f.syncSafely(f.ctx, webKey)
			if got.Kind != plan.Retry || got.After != want || got.Expected || !errors.Is(got.Err, errPanic) {
				t.Errorf("attempt %d: outcome = %+v, want a retry after %v that is logged", attempt, got, want)
			}
			if early := f.syncSafely(f.ctx, webKey); early.Kind != plan.Wait {
				t.Errorf("attempt %d: an event during the backoff: outcome = %+v, want to wait", attempt, early)
			}
			time.Sleep(got.After) // Virtual time.
		}
	})
}

func TestWorkerTakesNoKeyAfterTheStop(t *testing.T) {
	f := newFixture(t, objects(newFoo()), objects(newFoo()))
	f.queue.Add(webKey)
	stopped, stop := context.WithCancel(f.ctx)
	stop()
	if f.processNextWorkItem(stopped, f.ctx) {
		t.Error("the worker took a key after the stop")
	}
	if got := f.requests(); len(got) > 0 {
		t.Errorf("requests after the stop: %v", got)
	}
}

func TestWorkReturnsWhenTheRunningSyncsAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		answer := make(chan struct{})
		f.api.Intercept(func(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if r.Verb == "create" {
				<-answer
			}
			return next()
		})
		f.queue.Add(webKey)
		ctx, stop := context.WithCancel(f.ctx)
		returned := false
		go func() {
			f.work(ctx) // The caches are as the test filled them.
			returned = true
		}()
		synctest.Wait()
		stop()
		synctest.Wait()
		if returned {
			t.Error("work returned while a sync was running")
		}
		close(answer)
		synctest.Wait()
		if !returned {
			t.Error("work did not return when the last sync was done")
		}
		if diff := cmp.Diff([]string{"create deployments web", "update foos/status web"}, f.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// While the controller runs, a Foo that only a fanOut queues is synced.
func TestRunQueuesTheFoosOfFanOuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo()), objects(newFoo()))
		f.enqueueFanOut = f.enqueueLater
		ctx, stop := context.WithCancel(f.ctx)
		go f.work(ctx) // The caches are as the test filled them.
		f.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: newDeployment(foreign)})
		synctest.Wait()
		stop()
		synctest.Wait()
		if diff := cmp.Diff([]string{"create deployments web", "update foos/status web"}, f.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
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
			syncs:  5,
			want: []string{`ERROR Sync failed: create Deployment web: deployments.apps "web" is forbidden: exceeded quota ` +
				`foo=default/web failures=1`},
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
				defer f.queue.ShutDown()
				f.fails = test.fails
				logger := newLog(0)
				for range max(test.syncs, 1) {
					f.queue.Add(webKey)
					f.processNextWorkItem(klog.NewContext(f.ctx, logger), klog.NewContext(f.ctx, logger))
					time.Sleep(10 * time.Second) // Virtual time: the next sync tries again.
				}
				if diff := cmp.Diff(test.want, linesOf(logger)); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// After a failure was logged, the next success is logged too. If the Foo is deleted or becomes Stalled instead, there
// is no such line.
func TestRecoveryIsLoggedUnlessTheFooIsDeletedOrStalled(t *testing.T) {
	for _, test := range []struct {
		name string
		then func(*fixture)
		want string
	}{
		{
			name: "it recovers",
			then: func(f *fixture) { f.fails = nil },
			want: "INFO Created Deployment foo=default/web rule=create deployment=default/web\n" +
				"INFO Sync recovered foo=default/web failures=1",
		},
		{name: "the Foo is deleted", then: func(f *fixture) { f.fill(nil) }},
		{name: "the Foo is being deleted", then: func(f *fixture) { f.fill(objects(newFoo(deleting))) }},
		{
			name: "the Foo becomes Stalled",
			then: func(f *fixture) {
				invalid := f.api.Object(fooResource, "default", "web").(*v1alpha1.Foo)
				invalid.Spec.DeploymentName = "Not A Name"
				f.fill(objects(invalid))
			},
			want: "INFO Foo became Stalled foo=default/web reason=Invalid",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, objects(newFoo()), objects(newFoo()))
				defer f.queue.ShutDown()
				f.fails = map[string]error{"create deployments web": apierrors.NewForbidden(deploymentsGR, "web", errBoom)}
				logger := newLog(0)
				for range 2 {
					f.queue.Add(webKey)
					f.processNextWorkItem(f.ctx, klog.NewContext(f.ctx, logger))
					time.Sleep(10 * time.Second)
					test.then(f)
				}
				f.failures.Succeeded(logger, webKey) // Logs nothing: the failure is not remembered any more.
				got := slices.DeleteFunc(linesOf(logger), func(line string) bool { return strings.HasPrefix(line, "ERROR") })
				if strings.Join(got, "\n") != test.want {
					t.Errorf("logged %q, want %q", got, test.want)
				}
			})
		})
	}
}

// A sync that a stale cache ends has not tried everything, so it is no recovery.
func TestAStaleCacheIsNoRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, objects(newFoo(upToDate), newDeployment(scaledTo(9))), objects(newFoo(deleting)))
		defer f.queue.ShutDown()
		refused := apierrors.NewForbidden(deploymentsGR, "web", errBoom)
		f.fails = map[string]error{"patch deployments web": refused, "update foos/status web": refused}
		logger := newLog(0)
		for range 2 {
			f.queue.Add(webKey)
			f.processNextWorkItem(f.ctx, klog.NewContext(f.ctx, logger))
			time.Sleep(10 * time.Second) // Virtual time.
			f.fill(objects(newFoo(upToDate)))
		}
		want := []string{"patch deployments web", "update foos/status web", "get foos web"}
		if diff := cmp.Diff(want, f.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if lines := linesOf(logger); len(lines) != 1 || !strings.HasPrefix(lines[0], "ERROR Sync failed") {
			t.Errorf("logged %q, want only the failure", lines)
		}
	})
}

// All log lines of one sync have the same reconcile id. The next sync has another one.
func TestReconcileIDJoinsTheLinesOfASync(t *testing.T) {
	f := newFixture(t, objects(newFoo()), objects(newFoo()))
	logger := newLog(5)
	ids := map[any]int{}
	for range 2 {
		f.queue.Add(webKey)
		f.processNextWorkItem(f.ctx, klog.NewContext(f.ctx, logger))
	}
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		at := slices.Index(entry.WithKVList, any("reconcileID"))
		if at < 0 {
			t.Errorf("the line %q has no reconcileID", entry.Message)
			continue
		}
		ids[entry.WithKVList[at+1]]++
	}
	if len(ids) != 2 {
		t.Errorf("lines by reconcileID: %v, want two ids", ids)
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

// --help lists all flags, and each of them can be set.
func TestFlagsOfHelpCanBeSet(t *testing.T) {
	values := map[string]string{
		"kubeconfig": "a-file", "context": "a-name", "master": "https://127.0.0.1:1",
		"workers": "3", "kube-api-qps": "20", "kube-api-burst": "50",
		"namespace": "team", "leader-elect": "true", "leader-elect-namespace": "foo-system",
		"leader-elect-lease-duration": "8s", "leader-elect-renew-deadline": "5s", "leader-elect-retry-period": "1s",
		"health-probe-bind-address": ":8081", "metrics-bind-address": ":8443", "debug-bind-address": "127.0.0.1:6060",
		"metrics-cert-file": "a-file", "metrics-key-file": "a-file",
		"logging-format": "json", "v": "3", "vmodule": "controller=4", "version": "true",
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("--help: %v", err)
	}
	var printed []string
	for line := range strings.Lines(help.String()) {
		if name, isFlag := strings.CutPrefix(strings.TrimSpace(line), "--"); isFlag {
			printed = append(printed, strings.Fields(name)[0])
		}
	}
	if diff := cmp.Diff(flagOrder, printed); diff != "" {
		t.Errorf("flags of --help (-want +got):\n%s", diff)
	}
	fs, _ := new(options).flags()
	fs.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(printed, f.Name) {
			t.Errorf("--help lacks --%s", f.Name)
		}
	})
	for _, name := range printed {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() {
				if err := logsapi.ResetForTest(nil); err != nil {
					t.Error(err)
				}
			})
			if _, err := parse([]string{"--" + name + "=" + values[name]}, io.Discard); err != nil {
				t.Errorf("set to %q: %v", values[name], err)
			}
		})
	}
}

// Only a retry after a failure that is no normal work needs one of the tokens that the retries of all keys share,
// also if an event brought the key back before. A wait for the caches needs none.
func TestOnlyFailuresNeedAToken(t *testing.T) {
	footest.WithoutErrorDelays(t)
	for _, test := range []struct {
		name   string
		err    error
		behind bool // The caches do not show the last write.
		event  bool // An event brings the key back during its backoff.
		counts bool
	}{
		{name: "a conflict", err: apierrors.NewConflict(deploymentsGR, "web", errBoom)},
		{name: "a refusal", err: apierrors.NewForbidden(deploymentsGR, "web", errBoom), counts: true},
		{
			name: "the wait for the backoff of a refusal", err: apierrors.NewForbidden(deploymentsGR, "web", errBoom),
			event: true, counts: true,
		},
		{
			name: "a wait for the caches after a refusal", err: apierrors.NewForbidden(deploymentsGR, "web", errBoom),
			behind: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, objects(newFoo(upToDate), newDeployment(scaledTo(9))), nil)
				defer f.queue.ShutDown()
				f.fails = map[string]error{"patch deployments web": test.err, "update foos/status web": test.err}
				f.add(webKey, fairqueue.Change)
				f.processNextWorkItem(f.ctx, f.ctx)
				if test.behind {
					f.stored = map[string]string{foosResource: "10", deploymentsResource: "20"}
					f.writes.WroteAt(webKey, "foo-uid", foosResource, "77")
				}
				if test.behind || test.event {
					f.add(webKey, fairqueue.Change)
					f.processNextWorkItem(f.ctx, f.ctx)
				}
				if got := f.retries.HasFailed(webKey); got != test.counts {
					t.Errorf("the retry needs a token: %t, want %t", got, test.counts)
				}
			})
		})
	}
}

func TestRunningSyncsEndAGracePeriodAfterTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.WithValue(context.Background(), valueKey{}, "v"))
		longer, cancel := withGrace(ctx, syncGrace)
		defer cancel()
		if longer.Value(valueKey{}) != "v" {
			t.Error("the context's values are lost")
		}
		stop()
		time.Sleep(syncGrace - time.Nanosecond) // Virtual time.
		synctest.Wait()
		if longer.Err() != nil {
			t.Error("the context ended before its grace period did")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if longer.Err() == nil {
			t.Error("the context did not end with its grace period")
		}
	})
}

// valueKey is the key of a value in a context.
type valueKey struct{}

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
	footest.SimulateChurn(t, runner, func() any { return controller }, foos, "kube", "samples")
}

// A standby has caches, and nobody takes keys from its queue.
func TestAStandbyKeepsNothingOfFoosThatAreGone(t *testing.T) {
	var controller *Controller
	runner := func(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
		controller, err = New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
		return func(ctx context.Context) {
			<-ctx.Done()
			controller.queue.ShutDown()
		}, err
	}
	footest.SimulateStandby(t, runner, func() any { return controller }, "kube", "samples")
}

// newRunner makes a Controller for a simulation.
func newRunner(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
	c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
	if err != nil {
		return nil, err
	}
	if w.OnSynced != nil {
		c.onSynced = func(key cache.ObjectName, _ plan.Outcome) { w.OnSynced(key) }
	}
	return c.Run, nil
}

// newSubject makes a Controller for a scenario. Its delays have no random part, because they are part of the output.
func newSubject(ctx context.Context, w footest.Wiring, onSynced func(footest.Synced)) (*footest.Subject, error) {
	c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
	if err != nil {
		return nil, err
	}
	if _, err := c.watch(klog.FromContext(ctx)); err != nil {
		return nil, err
	}
	c.random = func() float64 { return 0 }
	c.enqueueFanOut = c.enqueueFoosOf       // At once, because no other goroutine runs.
	c.lookAgain = func(cache.ObjectName) {} // A scenario lets the caches see everything.
	c.onSynced = func(key cache.ObjectName, outcome plan.Outcome) {
		onSynced(footest.Synced{Key: key, Outcome: outcome, Panicked: errors.Is(outcome.Err, errPanic)})
	}
	return &footest.Subject{
		Queue: &c.queue, Add: &c.add, Retries: c.retries,
		ProcessNext: func(ctx context.Context) { c.processNextWorkItem(ctx, ctx) },
	}, nil
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
	*Controller
	t      *testing.T
	ctx    context.Context
	api    *apisim.Server
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
	// enqueueLater is what enqueueFanOut is outside of tests.
	enqueueLater func(fanOut)
}

// fixtureWorkers is so many that a test can get all keys of a namespace without Done.
const fixtureWorkers = 10_000

// newFixture returns a fixture whose API server has live. An object that is equal in cached and live gets the same
// resourceVersion in both.
func newFixture(t *testing.T, cached, live []runtime.Object) *fixture {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	f := &fixture{t: t, ctx: ctx, api: apisim.New(fooKindWithoutRules(), deploymentKind, apisim.Events()),
		events: events.NewFakeRecorder(10)}
	if err := f.api.Load(live...); err != nil {
		t.Fatal(err)
	}
	f.api.Intercept(f.intercept)
	config := f.api.Config(controllerName)
	kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
	foos := fooinformers.NewSharedInformerFactory(samples, 0).Samplecontroller().V1alpha1().Foos()
	deployments := kubeinformers.NewSharedInformerFactory(kube, 0).Apps().V1().Deployments()
	controller, err := New(ctx, Clients{kube, samples}, f.events, foos, deployments, fixtureWorkers)
	if err != nil {
		t.Fatal(err)
	}
	f.Controller = controller
	f.writes = consistency.New(func(resource, _ string) consistency.Store { return progressOf{f, resource} })
	f.foos, f.deps = foos.Informer().GetIndexer(), deployments.Informer().GetIndexer()
	f.fill(f.current(cached, live))
	f.enqueueLater, f.enqueueFanOut = f.enqueueFanOut, f.enqueueFoosOf // At once, because no other goroutine runs.
	t.Cleanup(f.queue.ShutDown)
	t.Cleanup(f.fanOuts.ShutDown)
	return f
}

var (
	fooResource        = footest.FooKind().Resource
	deploymentKind     = apisim.Deployments()
	deploymentResource = deploymentKind.Resource
)

// fooKindWithoutRules is the kind Foo without validation: invalid Foos may have been stored before the rules existed.
func fooKindWithoutRules() apisim.Kind {
	kind := footest.FooKind()
	kind.Validate, kind.ValidateStatus = nil, nil
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
func (f *fixture) intercept(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
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
func describe(r *apisim.Request) string {
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
			foos = append(foos, foo.DeepCopy())
			f.claims.Update(foo)
			continue
		}
		trimmed, err := plan.Trim(obj.DeepCopyObject())
		if err != nil {
			f.t.Fatal(err)
		}
		deps = append(deps, trimmed)
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

// cacheContent returns copies of all cached objects.
func (f *fixture) cacheContent() map[string]runtime.Object {
	content := map[string]runtime.Object{}
	for _, obj := range append(f.foos.List(), f.deps.List()...) {
		key := fmt.Sprintf("%T %s", obj, cache.MetaObjectToName(obj.(metav1.Object)))
		content[key] = obj.(runtime.Object).DeepCopyObject()
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
	state := &plan.State{Foo: foo, Deployment: dep, Now: time.Unix(1e9, 0)}
	return state.Next().Foo.Status
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
