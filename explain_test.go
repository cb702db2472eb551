package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/plan"
)

// TestExplain lists what is stored, and prints what the controller would do. Its requests are reads.
func TestExplain(t *testing.T) {
	f := newFixture(t, nil, objects(newFoo(upToDate), newDeployment(scaledTo(9)), newFoo(fooNamed("leaving"), deleting)))
	config := f.api.Config("reader")
	clients := Clients{kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)}
	foos, deployments := newInformers(clients, nil, &kit.Options{Namespace: "default"})
	c, err := New(f.ctx, clients, nil, foos, deployments, 1)
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
