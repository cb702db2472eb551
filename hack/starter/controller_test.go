package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	clientset "acme.example.com/widget-controller/pkg/generated/clientset/versioned"
	"acme.example.com/widget-controller/pkg/plan"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
	"example.com/foo-controller/pkg/sim/simtest"
)

// status is the write of a status, as the simulated API server records it.
const status = "patch widgets/status web"

var (
	web           = cache.NewObjectName("default", "web")
	widgetGVR     = plan.WidgetKind.GroupVersion().WithResource("widgets")
	configMapGVR  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deploymentGVR = appsv1.SchemeGroupVersion.WithResource("deployments")
	created       = []string{"create configmaps web", "create deployments web", status}
	quota         = apierrors.NewForbidden(corev1.Resource("configmaps"), "web", errors.New("exceeded quota"))
	conflict      = apierrors.NewConflict(corev1.Resource("configmaps"), "web", errors.New("it has changed"))
)

// TestSync syncs one Widget, default/web, and compares what the API server received and stored. A row whose sync does
// not fail is synced once more: that sync must write nothing. No sync may change a cached object.
func TestSync(t *testing.T) {
	const available = "Normal Available 3 of 3 replicas available"
	const waits = ". The Deployment waits for its ConfigMap"
	const refusedByQuota = `refused by the API server: configmaps "web" is forbidden: exceeded quota. ` +
		"Raise the quota or delete what uses it, or ask an administrator of the cluster to do it. " + reconcile.TriesAgain
	for _, test := range []struct {
		name   string
		stored []runtime.Object
		fails  map[string]error                 // By write.
		admit  func(*apiserver.Admission) error // A webhook.
		writes []string
		ready  string // Status and reason of Ready after the sync.
		events []string
		err    string
	}{
		{name: "a Widget that does not exist needs nothing"},
		{name: "a Widget that is being deleted gets no child", stored: objects{widget(deleting)}},
		{name: "a new Widget gets its children", stored: objects{widget()}, writes: created, ready: "False/Progressing"},
		{
			name: "a Widget whose children are as it asks gets a status", stored: complete(),
			writes: []string{status}, ready: "True/Available", events: []string{available},
		},
		{
			name:   "an edited ConfigMap is corrected",
			stored: complete(reported, func(c *corev1.ConfigMap) { c.Data["message"] = "x" }),
			writes: []string{"patch configmaps web", status}, ready: "True/Available",
			events: []string{`Normal Corrected Corrected ConfigMap "web": data.message`, available},
		},
		{
			name:   "an edited Deployment is corrected",
			stored: complete(reported, func(d *appsv1.Deployment) { setImage(d, "other") }),
			writes: []string{"patch deployments web", status}, ready: "False/Progressing",
			events: []string{`Normal Corrected Corrected Deployment "web": spec.template.spec.containers`},
		},
		{
			name:   "a Deployment that a new spec changes is updated without an event",
			stored: complete(func(d *appsv1.Deployment) { setImage(d, "other") }),
			writes: []string{"patch deployments web", status}, ready: "False/Progressing",
		},
		{
			name: "what the Widget leaves out is left alone",
			stored: complete(func(w *v1alpha1.Widget) { w.Spec.Replicas = nil }, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Command, d.Spec.Replicas = []string{"-v"}, new(int32(5))
			}),
			writes: []string{status}, ready: "False/Progressing",
		},
		{
			name:   "a Deployment of somebody else is reported, and not changed",
			stored: complete(func(d *appsv1.Deployment) { d.OwnerReferences = nil }),
			writes: []string{status}, ready: "False/NotOwned",
			events: []string{`Warning NotOwned Deployment "web" exists and is controlled by nobody. ` +
				"Delete it, or give the Widget another name"},
		},
		{
			name:   "the ConfigMap of a deleted Widget of this name will be deleted, and is not mounted",
			stored: without[*appsv1.Deployment](complete(func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = "old" })),
			writes: []string{status}, ready: "False/Waiting",
		},
		{
			name:   "a Deployment that is being deleted is awaited",
			stored: complete(func(d *appsv1.Deployment) { setImage(d, "x"); deleting(d) }),
			writes: []string{status}, ready: "False/Waiting",
		},
		{
			name:   "a ConfigMap of somebody else is not mounted",
			stored: without[*appsv1.Deployment](complete(func(c *corev1.ConfigMap) { c.OwnerReferences = nil })),
			writes: []string{status}, ready: "False/NotOwned",
			events: []string{`Warning NotOwned ConfigMap "web" exists and is controlled by nobody. ` +
				"Delete it, or give the Widget another name" + waits},
		},
		{
			name:   "a ConfigMap that is being deleted is not mounted",
			stored: without[*appsv1.Deployment](complete(deleting[*corev1.ConfigMap])),
			writes: []string{status}, ready: "False/Waiting",
		},
		{
			name:   "a refused ConfigMap is reported, and not mounted",
			stored: without[*corev1.ConfigMap](without[*appsv1.Deployment](complete())),
			fails:  map[string]error{"create configmaps web": quota},
			writes: []string{"create configmaps web", status}, ready: "False/Refused",
			events: []string{"Warning Refused Cannot create ConfigMap web: " + refusedByQuota + waits},
			err:    "exceeded quota",
		},
		{
			name:   "a Deployment follows its Widget while a correction of the ConfigMap is refused",
			stored: without[*appsv1.Deployment](complete(func(c *corev1.ConfigMap) { c.Data = nil })),
			fails:  map[string]error{"patch configmaps web": quota},
			writes: []string{"patch configmaps web", "create deployments web", status}, ready: "False/Refused",
			events: []string{"Warning Refused Cannot patch ConfigMap web: " + refusedByQuota},
			err:    "exceeded quota",
		},
		{
			name: "a correction that a webhook undoes is reported, and retried", admit: replacesImage,
			stored: complete(func(d *appsv1.Deployment) { setImage(d, "other") }),
			writes: []string{"patch deployments web", status}, ready: "False/Overridden",
			events: []string{`Warning Overridden Deployment "web": a webhook or a policy of this cluster changes ` +
				"spec.template.spec.containers. Set what it accepts"},
			err: "a webhook or a policy",
		},
		{
			name:   "after a conflict the status stays as it is, and the ConfigMap may be that of somebody else",
			stored: without[*appsv1.Deployment](complete(func(c *corev1.ConfigMap) { c.Data = nil })),
			fails:  map[string]error{"patch configmaps web": conflict},
			writes: []string{"patch configmaps web"}, err: "it has changed",
		},
		{
			name: "a status that is not written is retried", stored: complete(),
			fails: map[string]error{status: conflict}, writes: []string{status}, err: "it has changed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, test.fails, test.stored...)
				if test.admit != nil {
					f.server.Admit(test.admit)
				}
				changed := simtest.Cached(f.informers...)
				outcome := f.queue.Sync(t.Context(), web)
				if err := outcome.Err; test.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				f.check(t, test.writes, test.ready, test.events)
				if test.err == "" {
					synctest.Wait() // Until the caches show the writes.
					outcome = f.queue.Sync(t.Context(), web)
					if writes := f.writes.Take(); !reflect.DeepEqual(outcome, kit.Done()) || len(writes) > 0 {
						t.Errorf("the second sync ended with %+v, and wrote %q", outcome, writes)
					}
				}
				if objects := changed(); len(objects) > 0 {
					t.Errorf("cached objects were changed: %q", objects)
				}
			})
		})
	}
}

// TestTheAnswerOfAnotherServer has pages of a proxy. After each, the outcome of the write is unknown: the API server
// has not refused it, and the cache may be right. So it is repeated soon, and then reported.
func TestTheAnswerOfAnotherServer(t *testing.T) {
	for _, answer := range []struct {
		code        int
		contentType string
	}{{200, "text/html"}, {200, "application/json"}, {403, "text/html"}, {404, "text/html"}, {409, "text/html"},
		{422, "application/json"}, {503, "text/html"}} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, nil, complete(func(c *corev1.ConfigMap) { c.Data = nil })...)
				f.Random = func() float64 { return 0 }
				f.server.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
					if r.Verb != "patch" || r.Subresource != "" {
						return next()
					}
					return &http.Response{
						StatusCode: answer.code, Header: http.Header{"Content-Type": {answer.contentType}},
						Body: io.NopCloser(strings.NewReader("<html>default backend")),
					}, nil
				})
				for range 2 {
					outcome := f.queue.Sync(t.Context(), web)
					if outcome.Err == nil || outcome.Expected || outcome.After != 5*time.Millisecond {
						t.Errorf("the outcome is %+v, want a failure that is retried soon", outcome)
					}
					f.check(t, []string{"patch configmaps web"}, "", nil)
					time.Sleep(outcome.After)
				}
				f.queue.Sync(t.Context(), web)
				if event := strings.Join(simtest.Events(f.events), "\n"); !strings.HasPrefix(event, "Warning RequestFailed ") {
					t.Errorf("the event is %q", event)
				}
				f.check(t, []string{status}, "False/RequestFailed", nil)
			})
		})
	}
}

// TestANamespaceThatIsBeingDeleted has the answer of an API server that may be behind: the namespace may exist again.
func TestANamespaceThatIsBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminating := apierrors.NewForbidden(corev1.Resource("configmaps"), "web", errors.New("it is being terminated"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		fails := map[string]error{created[0]: terminating}
		f := newFixture(t, fails, widget())
		outcome := f.queue.Sync(t.Context(), web)
		if want := reconcile.WaitFor(reconcile.Backoff, time.Minute); !reflect.DeepEqual(outcome, want) {
			t.Errorf("the outcome is %+v, want %+v", outcome, want)
		}
		f.check(t, created[:1], "", nil)
		clear(fails)
		time.Sleep(outcome.After)
		f.queue.Sync(t.Context(), web)
		f.check(t, created, "False/Progressing", nil)
	})
}

// TestNoChildOfADeletedWidgetIsCreated breaks the watch of Widgets. While it is down, a user deletes the Widget. The
// garbage collector deletes its children, which the controller sees.
func TestNoChildOfADeletedWidgetIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, complete(reported)...)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		running.Go(func() { apiserver.RunGarbageCollector(ctx, f.server, time.Second) })
		time.Sleep(time.Minute)
		f.writes.Take()
		faults.Schedule{Faults: []faults.Fault{{Kind: faults.WatchBroken, Resource: "widgets", For: 10 * time.Minute}}}.
			Inject(f.server, controllerName)
		time.Sleep(time.Second)
		widgets := f.clientsOf("user").widgets.AcmeV1alpha1().Widgets("default")
		if err := widgets.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute)
		if writes := f.writes.Take(); len(writes) > 0 || len(f.server.Objects(deploymentGVR)) > 0 {
			t.Errorf("after the deletion, the controller wrote %q", writes)
		}
		stop()
		running.Wait()
	})
}

// TestASyncWaitsForItsOwnWrites delays the watches by a second, so that the caches lack what the first sync created.
func TestASyncWaitsForItsOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, widget())
		f.server.InterceptEvents(func(*apiserver.Watch, apiserver.Event) error { time.Sleep(time.Second); return nil })
		outcome, start := f.queue.Sync(t.Context(), web), time.Now()
		f.check(t, created, "False/Progressing", nil)
		for outcome.After > 0 {
			time.Sleep(outcome.After)
			outcome = f.queue.Sync(t.Context(), web)
		}
		f.check(t, nil, "False/Progressing", nil)
		if took := time.Since(start); !reflect.DeepEqual(outcome, kit.Done()) || took < time.Second {
			t.Errorf("after %s, the outcome was %+v", took, outcome)
		}
	})
}

// served are the kinds of the simulated API server.
var served = []apiserver.Kind{
	{Resource: widgetGVR, Kind: plan.WidgetKind.Kind, Object: &v1alpha1.Widget{}, Status: true},
	apiserver.ConfigMaps(),
	apiserver.Deployments(),
}

// A fixture is a Controller with filled caches and its permissions, on a simulated API server.
type fixture struct {
	*Controller
	server    *apiserver.Server
	informers []cache.SharedIndexInformer
	writes    *simtest.Writes
	events    *events.FakeRecorder
	unused    func() []string // Permissions that no request has needed.
}

// newFixture returns a fixture whose server has these objects. fails are writes that the server refuses.
func newFixture(t *testing.T, fails map[string]error, stored ...runtime.Object) *fixture {
	f := &fixture{events: events.NewFakeRecorder(10)}
	f.server = apiserver.New(served...)
	if err := f.server.Load(stored...); err != nil {
		t.Fatal(err)
	}
	f.writes = simtest.RecordWrites(f.server, controllerName, fails)
	f.unused = simtest.Authorize(f.server, controllerName, clusterRole(t).Rules)
	clients := f.clientsOf(controllerName)
	f.Controller = New(t.Context(), clients, newCaches(clients, nil, &kit.Options{}), f.events, 4)
	t.Cleanup(f.queue.ShutDown)
	for _, informer := range f.Informers() {
		f.informers = append(f.informers, informer)
	}
	simtest.RunInformers(t, f.informers...)
	return f
}

// clientsOf returns the clients of a user of the server.
func (f *fixture) clientsOf(as string) clients {
	return clientsFor(f.server.Config(as))
}

func clientsFor(config *rest.Config) clients {
	return clients{kube: kubernetes.NewForConfigOrDie(config), widgets: clientset.NewForConfigOrDie(config)}
}

// check compares the writes, the stored condition Ready and the events since the last check.
func (f *fixture) check(t *testing.T, writes []string, ready string, events []string) {
	t.Helper()
	if diff := cmp.Diff(writes, f.writes.Take()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := simtest.Condition(f.server, widgetGVR, web.Namespace, web.Name, state.Ready); got != ready {
		t.Errorf("Ready is %q, want %q", got, ready)
	}
	if diff := cmp.Diff(events, simtest.Events(f.events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

type objects = []runtime.Object

func deleting[T metav1.Object](obj T) { obj.SetDeletionTimestamp(new(metav1.Now())) }

func setImage(d *appsv1.Deployment, to string) { d.Spec.Template.Spec.Containers[0].Image = to }

// replacesImage is a webhook that permits one image only.
func replacesImage(a *apiserver.Admission) error {
	if d, ok := a.Object.(*appsv1.Deployment); ok {
		setImage(d, "other")
	}
	return nil
}

func widget(edits ...func(*v1alpha1.Widget)) *v1alpha1.Widget {
	return edited(&v1alpha1.Widget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec:       v1alpha1.WidgetSpec{Replicas: new(int32(3)), Image: "web:1", Message: "Hello"},
	}, edits)
}

// reported gives a Widget the status that was written for its spec.
func reported(w *v1alpha1.Widget) { w.Status.ObservedGeneration = w.Generation }

// complete returns a Widget and the children that it asks for. Each edit is of the object with its type.
func complete(edits ...any) objects {
	w, c, d := widget(), configMap(), deployment()
	for _, edit := range edits {
		switch edit := edit.(type) {
		case func(*v1alpha1.Widget):
			edit(w)
		case func(*corev1.ConfigMap):
			edit(c)
		case func(*appsv1.Deployment):
			edit(d)
		}
	}
	return objects{w, c, d}
}

// without returns objects without those of a type.
func without[T runtime.Object](from objects) objects {
	return slices.DeleteFunc(from, func(obj runtime.Object) bool {
		_, is := obj.(T)
		return is
	})
}

// configMap returns the ConfigMap that the Widget asks for.
func configMap(edits ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	return edited(plan.ConfigMap(widget()), edits)
}

// deployment returns the Deployment that the Widget asks for, with all pods available.
func deployment(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := plan.Deployment(widget())
	d.Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	return edited(d, edits)
}

func edited[T metav1.Object](obj T, edits []func(T)) T {
	obj.SetUID("uid")
	for _, edit := range edits {
		edit(obj)
	}
	return obj
}
