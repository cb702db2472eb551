package scenario

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
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
	"example.com/foo-controller/pkg/sim/apiserver"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the outputs in testdata")

func TestScenarios(t *testing.T) { Play(t, budgets(), "testdata/*.txt", *rewrite) }

func TestStepsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("kind.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range StepWords(Kind{}) {
		if !strings.Contains(string(text), "\n//	"+words) {
			t.Errorf("kind.go does not have the step %q", words)
		}
	}
}

func TestBlocksAreCompared(t *testing.T) {
	const text = "a\n----\nweb waits for the caches\nb\n\nc\n----\nnothing\n"
	if diff := cmp.Diff([]string{"when now, block 2 is\nd\n\nwant\nc\n----\n"},
		compareBlocks("now", withoutDelays(text), withoutDelays("a\n----\nb\n\nd\n"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestScenariosNoticeFaults plays a small scenario once for each fault around the controller.
func TestScenariosNoticeFaults(t *testing.T) {
	const text = "create poddisruptionbudget web spec.maxUnavailable=1\n----\ncreate configmap web\n" +
		"status web Ready=True Kept: All is kept\nevent web Normal Kept: All is kept\n"
	for _, test := range []struct {
		name      string
		onRequest func(*Env, *request)
		differs   bool   // The output differs from the wanted one.
		problem   string // Part of the problem that is reported, "" for none.
	}{
		{name: "none", onRequest: func(*Env, *request) {}},
		{
			name:      "another write than expected",
			onRequest: func(_ *Env, r *request) { r.line += " more" },
			differs:   true,
		},
		{
			name:      "a status that is acknowledged and not stored, so that it is written again and again",
			onRequest: loseStatus,
			differs:   true,
			problem:   "one more sync of every object sends",
		},
		{
			name: "a cached object that changes during a sync",
			onRequest: func(e *Env, _ *request) {
				obj := e.controllers[0].cacheOf("poddisruptionbudgets").store.List()[0]
				obj.(*policyv1.PodDisruptionBudget).Labels = map[string]string{"changed": "yes"}
			},
			problem: "the sync of web changed a cached object",
		},
		{
			name:      "a panic",
			onRequest: func(*Env, *request) { panic("planted") },
			differs:   true,
			problem:   "panicked",
		},
		{
			name:      "a request that lacks something",
			onRequest: func(_ *Env, r *request) { r.flaw = errors.New("a flaw") },
			differs:   true,
			problem:   "a flaw",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			kind := budgets()
			got, problems := playInBubble(t, text, player{kind: &kind, onRequest: test.onRequest})
			if differs := got != text; differs != test.differs {
				t.Errorf("the output differs: %t, want %t\n%s", differs, test.differs, got)
			}
			all := strings.Join(problems, "\n")
			if (test.problem == "") != (all == "") || !strings.Contains(all, test.problem) {
				t.Errorf("problems are %q, want %q", all, test.problem)
			}
		})
	}
}

func TestStepsThatCannotBeDoneAreProblems(t *testing.T) {
	for line, want := range map[string]string{
		"fly":                           "block 1: fly: no such step",
		"create cat web":                `no such kind: "cat"`,
		"delete cat web":                `no such resource: "cat"`,
		"edit configmap web data.a=b":   `configmaps "web" not found`,
		"refuse create cats broken":     `no such resource: "cats"`,
		"refuse create configmaps 7":    `no such answer: "7"`,
		"wait long":                     "invalid duration",
		"wait until web is tried again": "tried again 0 times",
		"collect garbage now":           `this step has no argument "now"`,
		`wait 1s "not today" a/b=c`:     `this step has no argument "a/b"`,
	} {
		kind := budgets()
		got, problems := playInBubble(t, line+"\n----\n", player{kind: &kind})
		if len(problems) != 1 || !strings.Contains(problems[0], want) || got != line+"\n----\nnothing\n" {
			t.Errorf("%s: %q, want %q\n%s", line, problems, want, got)
		}
	}
}

// loseStatus acknowledges a write of a status without storing it.
func loseStatus(e *Env, r *request) {
	if r.verb != "status" {
		return
	}
	r.next = func() (*http.Response, error) {
		stored, err := json.Marshal(e.Server.Object(r.Resource, r.Namespace, r.Name))
		if err != nil {
			return nil, err
		}
		patch, err := jsonpatch.DecodePatch(r.Body)
		if err != nil {
			return nil, err
		}
		answer, err := patch.Apply(stored)
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(answer))}, err
	}
}

func TestSchedules(t *testing.T) { PlaySchedules(t, budgets(), budgetUsers, 10, "seed ") }

func TestASeedReplaysExactly(t *testing.T) { ReplaySchedules(t, budgets(), budgetUsers, 2, 2) }

// TestASimulationNoticesWrongWrites sends requests as the controller that no controller on the kit may send.
func TestASimulationNoticesWrongWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSimulation(budgets(), 1)
		defer s.cancel()
		ctx, user, as := t.Context(), s.User(), s.Server.Config("budgeteer")
		theirs := kubernetes.NewForConfigOrDie(user).CoreV1().ConfigMaps("default")
		if err := budgetUsers().Setup(ctx, user); err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		budgets := kubernetes.NewForConfigOrDie(as).PolicyV1().PodDisruptionBudgets("default")
		configMaps := kubernetes.NewForConfigOrDie(as).CoreV1().ConfigMaps("default")
		patch := func(body string) {
			_, err := configMaps.Patch(ctx, "a", types.MergePatchType, []byte(body),
				metav1.PatchOptions{FieldManager: "budgeteer"})
			if err != nil {
				t.Error(err)
			}
		}
		patch(`{"data":{"a":"b"}}`)
		patch(`{"data":{"a":"b"}}`)
		if _, err := budgets.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"add","path":"/status","value":{
			"observedGeneration":7,"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}]`),
			metav1.PatchOptions{FieldManager: "other"}, "status"); err != nil {
			t.Error(err)
		}
		_, err := budgets.Patch(ctx, "b", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{FieldManager: "other"})
		if err := errors.Join(err, budgets.Delete(ctx, "b", metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "other", Controller: new(true)},
		}}}
		if _, err := configMaps.Create(ctx, child, metav1.CreateOptions{FieldManager: "other"}); err != nil {
			t.Error(err)
		}
		removeFinalizer(t, s) // That is no problem.
		got := strings.Join(s.problems(), "\n")
		const want = `patch configmaps default/a: it lacks a uid or resourceVersion
patch configmaps default/a: it lacks a uid or resourceVersion
patch configmaps default/a: it changed nothing
patch poddisruptionbudgets/status default/a: it lacks a uid or resourceVersion
patch poddisruptionbudgets default/b: it lacks a uid or resourceVersion
delete poddisruptionbudgets default/b: its propagation policy is not Background
create configmaps -n default: its field manager is "other"
PodDisruptionBudget a: generation 1, observed 7
version 6, configmaps a: no PodDisruptionBudget owns it
version 7, poddisruptionbudgets a: observedGeneration 7 after 0, of 1
version 8, poddisruptionbudgets b: more than the status changes
version 9, poddisruptionbudgets b: it is DELETED by its controller
version 10, configmaps c: no PodDisruptionBudget owns it`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
}

// removeFinalizer lets a user delete an object with a finalizer, which the controller then removes.
func removeFinalizer(t *testing.T, s *Simulation) {
	t.Helper()
	theirs := kubernetes.NewForConfigOrDie(s.User()).PolicyV1().PodDisruptionBudgets("default")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "deleted", Finalizers: []string{"example.com/finalizer"}},
	}
	_, err := theirs.Create(t.Context(), budget, metav1.CreateOptions{})
	err = errors.Join(err, theirs.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	stored, getErr := theirs.Get(t.Context(), "deleted", metav1.GetOptions{})
	if err := errors.Join(err, getErr); err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"finalizers":null,"uid":%q,"resourceVersion":%q}}`, stored.UID,
		stored.ResourceVersion)
	_, err = kubernetes.NewForConfigOrDie(s.Server.Config("budgeteer")).PolicyV1().PodDisruptionBudgets("default").Patch(
		t.Context(), "deleted", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "budgeteer"})
	if err != nil {
		t.Error(err)
	}
}

func TestASimulationCanBeRead(t *testing.T) {
	var shown strings.Builder
	ShowSchedule(t, budgets(), budgetUsers(), 0, &shown)
	for _, want := range []string{
		"Schedule 0, with few faults. These happen:\n\n", "\nconverged\n",
		" users: create poddisruptionbudgets -n default (a): 201, version ",
		" budgeteer: status a Ready=True Kept: All is kept\n",
	} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if strings.Contains(shown.String(), "BOOKMARK") {
		t.Error("it has bookmarks")
	}
}

// The controller of these tests keeps a ConfigMap for each PodDisruptionBudget. This kind comes with Kubernetes, and
// has observedGeneration and state.
type budgetInput struct {
	Budget    *policyv1.PodDisruptionBudget
	ConfigMap *corev1.ConfigMap
}

var (
	budgetKind = reconcile.KindOf[*policyv1.PodDisruptionBudget](
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"))
	configMapKind = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	budgetGVR     = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	configMapGVR  = corev1.SchemeGroupVersion.WithResource("configmaps")
)

var budgetPlan = reconcile.New(reconcile.Plan[budgetInput]{
	Object:             func(in *budgetInput) reconcile.Ref { return reconcile.RefTo(budgetKind, &in.Budget) },
	ObservedGeneration: func(in *budgetInput) int64 { return in.Budget.Status.ObservedGeneration },
	Rules: []reconcile.Rule[budgetInput]{{Name: "keep ConfigMap", Ask: func(in *budgetInput) reconcile.Answer {
		return reconcile.Keep(configMapKind, &in.ConfigMap, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: in.Budget.Namespace, Name: in.Budget.Name,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.Budget, budgetKind.GroupVersionKind)},
			},
			Data: map[string]string{"max": in.Budget.Spec.MaxUnavailable.String()},
		})
	}}},
	Status: func(in *budgetInput, s *reconcile.Sync) *reconcile.Step {
		report := state.Report{True: state.Ready, Reason: "Kept", Message: "All is kept"}
		if problem := s.First(); problem != nil {
			report = problem.Report()
		}
		b := in.Budget.DeepCopy()
		b.Status.ObservedGeneration = b.Generation
		b.Status.Conditions = state.Conditions(b.Status.Conditions, report, b.Generation, s.Now())
		if reconcile.Summary(b.Status.Conditions) == reconcile.Summary(in.Budget.Status.Conditions) &&
			b.Status.ObservedGeneration == in.Budget.Status.ObservedGeneration {
			return nil
		}
		return reconcile.StatusStep(budgetKind, &in.Budget, b, in.Budget.Status.Conditions, b.Status.Conditions)
	},
})

func newBudgets(ctx context.Context, w Wiring) (*Controller, error) {
	client := kubernetes.NewForConfigOrDie(w.Config)
	factory := informers.NewSharedInformerFactory(client, 0)
	budgets, configMaps := factory.Policy().V1().PodDisruptionBudgets(), factory.Core().V1().ConfigMaps()
	r := &kit.Reconciler{
		Name: "budgeteer", Recorder: w.Recorder, Trim: func(obj any) (any, error) { return obj, nil },
		Kinds: []kit.Kind{
			kit.KindOf(budgetKind, budgetGVR.Resource, budgets.Informer(), client.PolicyV1().PodDisruptionBudgets),
			kit.KindOf(configMapKind, configMapGVR.Resource, configMaps.Informer(), client.CoreV1().ConfigMaps),
		},
	}
	r.Queue = kit.NewQueue(ctx, kit.QueueConfig{
		Kind: "budget", Workers: w.Workers,
		Sync: func(ctx context.Context, key cache.ObjectName) kit.Outcome {
			budget, err := budgets.Lister().PodDisruptionBudgets(key.Namespace).Get(key.Name)
			if err != nil || budget.DeletionTimestamp != nil {
				return r.Gone(ctx, key)
			}
			in := &budgetInput{Budget: budget}
			in.ConfigMap, _ = configMaps.Lister().ConfigMaps(key.Namespace).Get(key.Name)
			return r.Reconcile(ctx, budgetPlan.Sync(in))
		},
	})
	watch := func(klog.Logger) ([]cache.DoneChecker, error) {
		own, ownErr := budgets.TypedInformer().AddTypedEventHandler(kit.Objects[*policyv1.PodDisruptionBudget](r.Queue))
		children, childErr := configMaps.TypedInformer().AddTypedEventHandler(
			kit.Children[*corev1.ConfigMap](budgetKind.GroupKind(), r.Queue.Add))
		if err := errors.Join(ownErr, childErr); err != nil {
			return nil, err
		}
		return []cache.DoneChecker{own.HasSyncedChecker(), children.HasSyncedChecker()}, nil
	}
	run := func(ctx context.Context) {
		if handled, err := watch(klog.Logger{}); err == nil && cache.WaitFor(ctx, "", handled...) {
			r.Queue.Run(ctx)
		}
		r.Queue.ShutDown()
	}
	return &Controller{Reconciler: r, Watch: watch, Run: run}, nil
}

func budgets() Kind {
	kind := apiserver.KindOf(&policyv1.PodDisruptionBudget{}, kubescheme.Scheme)
	return Kind{
		Controller: "budgeteer", New: newBudgets, Served: []apiserver.Kind{kind, apiserver.ConfigMaps()},
	}
}

func budgetUsers() Users {
	kind, names := budgets(), []string{"a", "b"}
	return Users{
		Setup: func(ctx context.Context, user *rest.Config) error {
			for _, name := range names {
				budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
				_, err := kubernetes.NewForConfigOrDie(user).PolicyV1().PodDisruptionBudgets("default").
					Create(ctx, budget, metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		},
		Edits: []Edit{
			kind.Patch(budgetGVR, names, `{"spec":{"maxUnavailable":N}}`),
			kind.Patch(configMapGVR, names, `{"data":{"max":"x"}}`),
		},
		Dense: []Edit{kind.Delete(configMapGVR, names)},
	}
}

// TestMain fails if the tests leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
