package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/footest"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A fixture is a Controller with caches that the test fills and a simulated API server that records the requests. No
// informer runs, so the caches change only when the test changes them.
type fixture struct {
	*Controller
	t      testing.TB
	ctx    context.Context
	api    *apiserver.Server
	foos   cache.Indexer
	deps   cache.Indexer
	events *events.FakeRecorder
	// fails has the errors to return instead of the real answers, by request as describe returns it.
	fails map[string]error
	log   []string // The requests, in order.
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
	f.Controller = controller
	f.foos, f.deps = foos.Informer().GetIndexer(), deployments.GetIndexer()
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
	if foo == nil || f.fails["patch foos/status web"] != nil {
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
func cachedDeployment(edits ...func(*appsv1.Deployment)) *plan.TrimmedDeployment {
	return plan.TrimDeployment(newDeployment(edits...))
}

// observe returns the informer of Deployments.
func observe(factory kubeinformers.SharedInformerFactory) deploymentInformer {
	return cache.NewTypedSharedIndexInformer[*plan.TrimmedDeployment](factory.Apps().V1().Deployments().Informer())
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
