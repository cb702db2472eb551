package main

import (
	"errors"
	"flag"
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

// TestExplainAll asks about many Foos. They are listed in pages, and each that would be written has a line.
func TestExplainAll(t *testing.T) {
	var stored []runtime.Object
	for i := range 250 {
		foo := newFoo(fooNamed(fmt.Sprintf("web-%d", i)), func(foo *v1alpha1.Foo) {
			foo.Namespace = []string{"team-b", "team"}[i%2] // Their keys have another order.
			foo.Spec.DeploymentName = foo.Name
		})
		dep := plan.Deployment(foo)
		dep.UID, dep.Generation, dep.Status = "of-"+foo.UID, 1, newDeployment().Status
		deploymentKind.Default(dep)
		foo.Status = statusOf(foo, dep)
		switch i {
		case 100:
			foo.Status = v1alpha1.FooStatus{}
		case 105:
			deleting(foo)
			fallthrough
		case 103, 104:
			scaledTo(9)(dep)
		}
		stored = append(stored, foo, dep)
	}
	const team = "Foo team/web-103: patch Deployment web-103: spec.replicas 9 -> 3\n"
	const counts = "%d foos: %d would be written, %d could not be explained"
	ofTeam, ofAll := fmt.Sprintf(counts, 125, 1, 0), fmt.Sprintf(counts, 250, 2, 1)
	const teamB = "Foo team-b/web-100: update status of Foo web-100: status no conditions -> " +
		"Ready=True Available: 3 of 3 replicas available\nFoo team-b/web-104: error: patch Deployment team-b/web-104: " +
		`Get "http://apiserver/apis/apps/v1/namespaces/team-b/deployments/web-104": no answer` + "\n"
	for _, test := range []struct{ asked, namespace, out, requests, err string }{
		{asked: "*/*", out: team + teamB + ofAll + "\n", requests: "3 3 2", err: ofAll},
		{asked: "team/*", out: team + ofTeam + "\n", requests: "2 2 1", err: kit.ErrWouldWrite.Error()},
		{asked: "*/*", namespace: "team", out: team + ofTeam + "\n", requests: "2 2 1", err: kit.ErrWouldWrite.Error()},
		{asked: "team-b/*", namespace: "team", requests: "0 0 0",
			err: "--namespace=team: this controller does not see the Foo team-b/*"},
	} {
		f := newFixture(t, nil, stored)
		f.fails = map[string]error{"get deployments web-104": errors.New("no answer")}
		var out strings.Builder
		question, flags := &kit.Question{Kind: "Foo"}, flag.NewFlagSet("", 0)
		question.AddFlags(flags)
		if err := flags.Parse([]string{"--explain=" + test.asked}); err != nil {
			t.Fatal(err)
		}
		_, err := question.Check(&kit.Options{Namespace: test.namespace})
		if err == nil {
			err = f.Explain(f.ctx, question, f.syncOf, &out)
		}
		sent := fmt.Sprint(f.requests())
		requests := fmt.Sprint(
			strings.Count(sent, "list foos"), strings.Count(sent, "list deployments"), strings.Count(sent, "get "))
		if fmt.Sprint(err) != test.err || requests != test.requests || out.String() != test.out {
			t.Errorf("%s: requests %s, want %s; error %q, want %q; output\n%s, want\n%s",
				test.asked, requests, test.requests, err, test.err, out.String(), test.out)
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
