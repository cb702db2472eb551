package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

func TestRatiosAreBetweenRunsOfOneRound(t *testing.T) {
	b := &bench{runs: map[string]metrics{
		"burst/foo-controller/1": {"seconds": 1}, "burst/plain/1": {"seconds": 10},
		"burst/foo-controller/2": {"seconds": 2}, "burst/plain/2": {"seconds": 40},
		"burst/foo-controller/3": {"seconds": 5}, "burst/plain/3": {"seconds": 150}, "burst/plain/4": {"seconds": 1000},
	}}
	have := b.call("goal at least|20|burst/plain/seconds|burst/foo-controller/seconds")
	if want := "at least 20 | 20 (10 to 30) | reached"; have != want {
		t.Errorf("a goal: %s, want %s", have, want)
	}
	if have := b.call("goal at most|19|burst/plain/seconds"); !strings.Contains(have, "missed") {
		t.Errorf("40 is at most 19: %s", have)
	}
	if m := (figure{1, 2, 3, 4}).median(); m != 2.5 || !math.IsNaN(figure(nil).median()) {
		t.Errorf("the median of 1 to 4 is %v", m)
	}
}

func TestWrongObjectsVoidARun(t *testing.T) {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "uid", ResourceVersion: "1", Generation: 1},
		Spec:       v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2)), Image: "nginx:1.29"},
	}
	dep := plan.Deployment(foo)
	dep.UID, dep.ResourceVersion, dep.Generation = "dep", "1", 1
	foo = nextStep(foo, dep).Body.(*v1alpha1.Foo)
	drifted, second := dep.DeepCopy(), dep.DeepCopy()
	*drifted.Spec.Replicas++
	second.Name = "second"
	available := dep.DeepCopy()
	available.Status.ObservedGeneration, available.Status.AvailableReplicas = 1, 1
	const still = "foo a/web: foo-controller would still "
	for _, test := range []struct {
		deployments []appsv1.Deployment
		err         string
	}{
		{deployments: []appsv1.Deployment{*dep}, err: "<nil>"},
		{err: still + "get Foo"},
		{deployments: []appsv1.Deployment{*drifted}, err: still + "get Foo"}, // Before it corrects.
		{deployments: []appsv1.Deployment{*available}, err: still + "update status of Foo"},
		{deployments: []appsv1.Deployment{*dep, *second}, err: "1 Foos have 2 Deployments"},
	} {
		if have := fmt.Sprint(checkObjects([]v1alpha1.Foo{*foo}, test.deployments)); have != test.err {
			t.Errorf("%s, want %s", have, test.err)
		}
	}
}

func TestTheAuditLogHasTheRequestsOfTheContender(t *testing.T) {
	const mine = `{"verb":"VERB","impersonatedUser":{},` +
		`"objectRef":{"resource":"RESOURCE","namespace":"a","name":"web"},"responseStatus":{"code":201},` +
		`"requestReceivedTimestamp":"2026-11-23T00:00:0SECOND.000000Z",` +
		`"stageTimestamp":"2026-11-23T00:00:0SECOND.250000Z"}` + "\n"
	line := func(verb, resource, second string) string {
		return strings.NewReplacer("VERB", verb, "RESOURCE", resource, "SECOND", second).Replace(mine)
	}
	text := strings.ReplaceAll(line("create", "foos", "1"), "impersonatedUser", "x") +
		line("create", "deployments", "3") + line("watch", "foos", "3") + line("list", "foos", "4") +
		line("create", "selfsubjectaccessreviews", "4") + `{"verb`
	log := &bytes.Buffer{}
	a := &auditLog{file: bufio.NewReader(log)}
	log.WriteString(text)
	if err := a.reset(); err != nil || a.requests != 0 {
		t.Fatalf("after a reset: %d requests, %v", a.requests, err)
	}
	log.WriteString(strings.TrimPrefix(text, `{"verb`)) // The rest of the last line, and all again.
	if err := a.update(); err != nil || a.requests != 3 || len(a.writes) != 1 {
		t.Errorf("%d requests and %d writes, %v; want 3 and 1", a.requests, len(a.writes), err)
	}
	if waited := a.latencies(fooCreation, deploymentCreation); len(waited) != 1 || waited[0] != 2250 {
		t.Errorf("latencies %v, want 2250 ms", waited)
	}
}
