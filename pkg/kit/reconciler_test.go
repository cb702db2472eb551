package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/syncs"
	"example.com/foo-controller/pkg/kit/telemetry"
	"example.com/foo-controller/pkg/sim/simtest"
)

// A box is what the syncs of these tests observe: a ConfigMap, and another one as its child. step is what the rule
// wants.
type box struct {
	Box, Child *corev1.ConfigMap
	step       func(*box) *reconcile.Step
}

var (
	boxKind   = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("Box"))
	childKind = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("Child"))
)

var boxes = reconcile.New(reconcile.Plan[box]{
	Object:             func(in *box) reconcile.Ref { return reconcile.RefTo(boxKind, &in.Box) },
	ObservedGeneration: func(*box) int64 { return 1 },
	Describe:           func(*box) (string, string) { return "a box", "closed" },
	Rules: []reconcile.Rule[box]{{Name: "fill", Ask: func(in *box) (a reconcile.Answer) {
		if step := in.step(in); step != nil {
			a.Steps = append(a.Steps, step)
		}
		return a
	}}},
	Status: func(*box, *reconcile.Sync) *reconcile.Step { return nil },
})

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "7", Generation: 1,
	}}
}

// What is logged, counted, shown, and expected of the caches after each kind of request.
func TestWhatFollowsARequest(t *testing.T) {
	create := func(in *box) *reconcile.Step {
		return reconcile.CreateStep(childKind, &in.Child, newConfigMap("child"))
	}
	patch := func(spec bool) func(*box) *reconcile.Step {
		return func(in *box) *reconcile.Step {
			step := reconcile.PatchStep(childKind, &in.Child, []byte("{}"), []reconcile.Field{{Path: "a", Have: "1", Want: "2"}})
			step.Spec, step.Event = spec, &reconcile.Event{Type: "Normal", Reason: "Corrected", Note: "a"}
			return step
		}
	}
	remove := func(in *box) *reconcile.Step {
		if in.Child == nil {
			return nil
		}
		return reconcile.DeleteStep(childKind, &in.Child)
	}
	status := func(in *box) *reconcile.Step {
		return reconcile.StatusStep(boxKind, &in.Box, in.Box.DeepCopy(), nil, nil)
	}
	confirmed := func(in *box) *reconcile.Step {
		step := remove(in)
		if step != nil {
			step.Confirm = []reconcile.Ref{reconcile.RefTo(childKind, &in.Child)}
		}
		return step
	}
	quota := apierrors.NewForbidden(corev1.Resource("configmaps"), "child", errors.New("quota"))
	const read, readBox = "Read Child rule=fill child=default/child", "Read Box rule=fill box=default/box"
	for _, test := range []struct {
		name    string
		step    func(*box) *reconcile.Step
		err     error // Of writes.
		outside bool  // The child is in no cache.
		log     []string
		counted string
		shown   string
		held    bool
		event   string
	}{
		{name: "created", step: create, counted: "create Child 2xx", held: true, shown: "create Child child ok",
			log: []string{"Created Child rule=fill child=default/child"}},
		{name: "updated", step: patch(true), counted: "patch Child 2xx", held: true, event: "Normal Corrected a",
			shown: "patch Child child a 1 -> 2 ok",
			log:   []string{"Updated Child rule=fill child=default/child fields=a 1 -> 2"}},
		{name: "corrected", step: patch(false), counted: "patch Child 2xx", held: true, event: "Normal Corrected a",
			shown: "patch Child child a 1 -> 2 ok",
			log:   []string{"Corrected Child rule=fill child=default/child fields=a 1 -> 2"}},
		{name: "deleted", step: remove, counted: "get Box 2xx, delete Child 2xx", held: true,
			shown: "get Box box ok, delete Child child ok",
			log:   []string{readBox, "Deleted Child rule=fill child=default/child"}},
		{name: "read before", step: confirmed, counted: "get Child 2xx, get Box 2xx, delete Child 2xx", held: true,
			shown: "get Box box ok, get Child child ok, delete Child child ok",
			log:   []string{readBox, read, "Deleted Child rule=fill child=default/child"}},
		{name: "a status", step: status, counted: "update status of Box 2xx", held: true,
			shown: "update status of Box box status no conditions -> no conditions ok",
			log:   []string{"Updated status rule=fill status=no conditions"}},
		{name: "refused", step: patch(false), err: quota, counted: "patch Child 403",
			shown: `patch Child child a 1 -> 2 configmaps "child" is forbidden: quota`,
			log: []string{`Request failed rule=fill request=patch Child name=child ` +
				`err=configmaps "child" is forbidden: quota`}},
		{name: "outside of the cluster", step: create, outside: true, counted: "create Child 2xx",
			shown: "create Child child ok",
			log:   []string{"Created Child rule=fill child=default/child"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newReconcilerFixture(t, test.err)
				defer f.Queue.ShutDown()
				if test.outside {
					f.Kinds[1].Store = nil
				}
				in := &box{Box: newConfigMap("box"), Child: newConfigMap("child"), step: test.step}
				if strings.HasPrefix(test.counted, "create") {
					in.Child = nil
				}
				f.Reconcile(f.ctx, boxes.Sync(in))
				f.check(t, "log", strings.Join(test.log, "\n"), strings.Join(f.lines(), "\n"))
				f.check(t, "counted", test.counted, f.counted(t))
				f.check(t, "shown", "a box, closed: "+test.shown, f.shown(t))
				f.check(t, "event", test.event, strings.Join(simtest.Events(f.events), ","))
				if held := f.Queue.Writes.HoldDelay(boxKey) > 0; held != test.held {
					t.Errorf("the key is held: %t, want %t", held, test.held)
				}
				f.Gone(f.ctx, boxKey)
				if len(f.memories) > 0 || f.Queue.Writes.HoldDelay(boxKey) > 0 {
					t.Error("something is remembered of an object that is gone")
				}
			})
		})
	}
}

// A document that can be decoded need not be from the API server.
func TestAnAnswerWithoutTheObjectIsAFailure(t *testing.T) {
	for name, answered := range map[string]*corev1.ConfigMap{
		"nothing": {}, "no uid": {ObjectMeta: metav1.ObjectMeta{Name: "child"}}, "another one": newConfigMap("other"),
	} {
		kind := KindOf(childKind, "configmaps", cache.NewSharedIndexInformer(nil, nil, 0, nil),
			func(string) fixedClient { return fixedClient{answered} })
		for _, verb := range []reconcile.Verb{reconcile.Get, reconcile.Create, reconcile.Patch, reconcile.UpdateStatus} {
			step := &reconcile.Step{Op: reconcile.Op{Verb: verb, Kind: "Child", Name: "child"}, Body: newConfigMap("child")}
			if verb == reconcile.UpdateStatus {
				step.Body = &corev1.Namespace{} // It has a status.
			}
			if _, err := kind.Send(t.Context(), "test", step); !errors.Is(err, errOtherObject) {
				t.Errorf("%s: %s returns the error %v", name, verb, err)
			}
		}
	}
}

// fixedClient answers each request with an object.
type fixedClient struct{ obj *corev1.ConfigMap }

func (c fixedClient) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	return c.obj, nil
}
func (c fixedClient) Create(context.Context, *corev1.ConfigMap, metav1.CreateOptions) (*corev1.ConfigMap, error) {
	return c.obj, nil
}
func (c fixedClient) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions,
	...string) (*corev1.ConfigMap, error) {
	return c.obj, nil
}
func (c fixedClient) Delete(context.Context, string, metav1.DeleteOptions) error { return nil }
func (c fixedClient) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return &corev1.ConfigMapList{}, nil
}

var boxKey = cache.NewObjectName("default", "box")

// A namespace without objects may be a wrong name.
func TestExplainNoObjects(t *testing.T) {
	f := newReconcilerFixture(t, nil)
	defer f.Queue.ShutDown()
	informer := cache.NewSharedIndexInformer(nil, &corev1.ConfigMap{}, 0, cache.Indexers{})
	f.Kinds[0].Store, f.Kinds[1].Store = informer.GetIndexer(), nil
	f.Kinds[0].Informer = NewInformer(corev1.SchemeGroupVersion.WithResource("boxes"), informer,
		func(string) boxLister { return 0 })
	for namespace, want := range map[string]string{"tenat": "there are no boxes in the namespace tenat", "": "<nil>"} {
		question := &Question{Kind: "Box", Object: cache.ObjectName{Namespace: namespace, Name: "*"}, format: asJSON}
		f.check(t, "error", want, fmt.Sprint(f.Explain(f.ctx, question, nil, &strings.Builder{})))
	}
	f.check(t, "log", strings.TrimSpace(strings.Repeat("Explained objects=0 of=0 wouldBeWritten=0 failed=0\n", 2)),
		strings.Join(f.lines(), "\n"))
}

// A boxLister lists so many ConfigMaps.
type boxLister int

func (l boxLister) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	list := &corev1.ConfigMapList{}
	for i := range l {
		list.Items = append(list.Items, *newConfigMap(fmt.Sprintf("box-%04d", i)))
	}
	return list, nil
}

// A rule that panics for one of 1,500 objects does not hide the others. The log shows the progress, and with JSON the
// numbers. A signal ends it.
func TestExplainManyObjects(t *testing.T) {
	const listed, done = "Listed resource=boxes objects=1000", "\nExplained objects=%d of=1500 wouldBeWritten=1 failed=1"
	for stopAt, want := range map[string]struct {
		as            format
		out, log, err string
	}{
		"": {
			as: asJSON, out: `"error":"sync panicked: empty\nbox"}`, log: listed + fmt.Sprintf(done+done, 1000, 1500),
			err: "1500 boxes: 1 would be written, 1 could not be explained",
		},
		"box-0100": {
			as: text, out: ": error: sync panicked: empty\\u000abox\nBox default/box-0008: create Child child: missing\n",
			log: listed, err: "stopped after 100 of 1500 boxes: context canceled",
		},
	} {
		f := newReconcilerFixture(t, nil)
		ctx, stop := context.WithCancel(f.ctx)
		informer := cache.NewSharedIndexInformer(nil, &corev1.ConfigMap{}, 0, cache.Indexers{})
		f.Kinds[0].Store, f.Kinds[1].Store = informer.GetIndexer(), nil
		f.Kinds[0].Informer = NewInformer(corev1.SchemeGroupVersion.WithResource("boxes"), informer,
			func(string) boxLister { return 1500 })
		begin := func(key cache.ObjectName) *reconcile.Sync {
			return boxes.Sync(&box{Box: newConfigMap(key.Name), step: func(in *box) (step *reconcile.Step) {
				switch {
				case key.Name == stopAt:
					stop()
				case key.Name == "box-0007":
					panic("empty\nbox")
				case key.Name == "box-0008" && in.Child == nil:
					step = reconcile.CreateStep(childKind, &in.Child, newConfigMap("child"))
					step.Why = "missing"
				}
				return step
			}})
		}
		var out strings.Builder
		question := &Question{Kind: "Box", Object: cache.ObjectName{Name: "*"}, format: want.as}
		f.check(t, "error", want.err, fmt.Sprint(f.Explain(ctx, question, begin, &out)))
		if !strings.Contains(out.String(), want.out) || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("output\n%s, want two lines with\n%s", out.String(), want.out)
		}
		f.check(t, "log", want.log, strings.Join(f.lines(), "\n"))
		f.Queue.ShutDown()
		stop()
	}
}

// A reconcilerFixture is a Reconciler whose requests get an answer at once: newer versions of what they are about, with
// annotations, which Trim drops, or the error of writes.
type reconcilerFixture struct {
	*Reconciler
	ctx      context.Context
	logger   klog.Logger
	log      *syncs.Log
	registry metrics.KubeRegistry
	events   *events.FakeRecorder
}

func newReconcilerFixture(t *testing.T, err error) *reconcilerFixture {
	f := &reconcilerFixture{
		logger: ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2))),
		log:    syncs.New("box", func() syncs.Queue { return syncs.Queue{} }), registry: metrics.NewKubeRegistry(),
		events: events.NewFakeRecorder(10),
	}
	f.ctx = syncs.NewContext(klog.NewContext(t.Context(), f.logger), f.log.Begin(boxKey, "1"))
	queue := NewQueue(t.Context(), QueueConfig{Kind: "box", Sync: returnsDone})
	queue.Metrics = telemetry.NewMetrics("box_controller", f.registry.MustRegister)
	send := func(_ context.Context, _ string, step *reconcile.Step) (metav1.Object, error) {
		if err != nil && !step.IsRead() {
			return nil, err
		}
		if step.Verb == reconcile.Delete {
			return nil, nil
		}
		stored := newConfigMap(step.Name)
		stored.Annotations = map[string]string{"a": "b"}
		return stored, nil
	}
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	f.Reconciler = &Reconciler{
		Name: "box-controller", Queue: queue, Recorder: f.events,
		Trim: func(obj any) (any, error) {
			trimmed := obj.(*corev1.ConfigMap).DeepCopy()
			trimmed.Annotations = nil
			return trimmed, nil
		},
		Kinds: []Kind{{Name: "Box", Store: store, Send: send}, {Name: "Child", Store: store, Send: send}},
	}
	return f
}

func (f *reconcilerFixture) check(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// lines returns what was logged up to V(2).
func (f *reconcilerFixture) lines() (lines []string) {
	for _, entry := range f.logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		line := entry.Message
		for i, pairs := 0, append(entry.WithKVList, entry.ParameterKVList...); i+1 < len(pairs); i += 2 {
			line += fmt.Sprintf(" %v=%v", pairs[i], pairs[i+1])
		}
		lines = append(lines, line)
	}
	return lines
}

// counted returns the requests that were counted, with their codes.
func (f *reconcilerFixture) counted(t *testing.T) string {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if strings.HasSuffix(family.GetName(), "_requests_total") {
				all = append(all, labels["request"]+" "+labels["code"])
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(b, a) }) // "get" before "delete".
	return strings.Join(all, ", ")
}

// shown returns what /debug/syncs has of the sync.
func (f *reconcilerFixture) shown(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	f.log.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/syncs?format=json", nil))
	var state syncs.State
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	var requests []string
	for _, r := range state.Syncs[0].Requests {
		words := []string{r.Request, r.Name}
		for _, field := range r.Fields {
			words = append(words, reconcile.Field(field).String())
		}
		requests = append(requests, strings.Join(append(words, r.Answer), " "))
	}
	return state.Syncs[0].Observed + ", " + state.Syncs[0].StatusBefore + ": " + strings.Join(requests, ", ")
}
