package scenario

import (
	"bytes"
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
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"example.com/foo-controller/pkg/sim/apiserver"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the outputs in testdata")

func TestScenarios(t *testing.T) { Play(t, budgets(), "testdata/*.txt", *rewrite) }

func TestStepsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range StepWords(Kind{}) {
		if !strings.Contains(string(text), "\n//	"+words) {
			t.Errorf("doc.go does not have the step %q", words)
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
			_, err := configMaps.Patch(ctx, "a", types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "budgeteer"})
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
	patch := fmt.Sprintf(`{"metadata":{"finalizers":null,"uid":%q,"resourceVersion":%q}}`, stored.UID, stored.ResourceVersion)
	_, err = kubernetes.NewForConfigOrDie(s.Server.Config("budgeteer")).PolicyV1().PodDisruptionBudgets("default").Patch(
		t.Context(), "deleted", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "budgeteer"})
	if err != nil {
		t.Error(err)
	}
}

func TestArgumentsMustBeUsed(t *testing.T) {
	args := parseArguments(` web-1 forbidden "not today" label.a/b=c replicas=3 once`)
	want := Arguments{
		words:  []string{"web-1", "forbidden", "not today", "once"},
		values: map[string]string{"label.a/b": "c", "replicas": "3"},
		used:   map[string]bool{},
	}
	if diff := cmp.Diff(want, args, cmp.AllowUnexported(Arguments{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	args.Value("label.a/b")
	if n := args.Number("replicas", 7); n != 3 {
		t.Errorf("replicas = %d, want 3", n)
	}
	for i := range 3 {
		args.Word(i)
	}
	if err := args.unused(); err == nil || !strings.Contains(err.Error(), `"once"`) {
		t.Errorf("error %v, want one about the unused argument", err)
	}
	if !args.Has("once") || args.unused() != nil {
		t.Errorf("error %v although all arguments were used", args.unused())
	}
}

func TestASimulationCanBeRead(t *testing.T) {
	const write, shown = "12.500s user: update widgets/status default/web: ", "00:00:12.500 user: update widgets/status default/web: "
	for line, want := range map[string]string{
		write + "200, version 7":                            "", // It has a line in words.
		write + "409 Conflict: object was modified":         shown + "409 Conflict: object was modified\n",
		write + "no answer: EOF (the server: 200)":          shown + "no answer: EOF (the server: 200)\n",
		"1.000s user: widgets: sent BOOKMARK, version 7":    "",
		"1.000s user: create widgets -n default (web): 201": "00:00:01.000 user: create widgets -n default (web): 201\n",
	} {
		if got := readable(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	status := &apiserver.Request{
		Resource: apiserver.Deployments().Resource, Subresource: "status", HTTP: &http.Request{},
		Body: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"status":{"availableReplicas":1}}`),
	}
	if got, want := (&Kind{Served: []apiserver.Kind{apiserver.Deployments()}}).wordsFor(status), "status deployment web 1 of ? replicas available"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
