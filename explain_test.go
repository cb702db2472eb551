package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

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
				if strings.Contains(rest, "/status ") {
					verb = "update" // As people call it.
				}
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
