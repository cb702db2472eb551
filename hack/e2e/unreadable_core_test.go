package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/hack/cluster/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
)

// unreadableTimes are values that API servers accept for the format date-time and that Go cannot read, as JSON.
var unreadableTimes = []string{
	`"2020-01-01t00:00:00z"`, `"2020-01-01t00:00:00Z"`, `"2020-01-01T00:00:00z"`, `"2020-01-01T00:00:00+25:00"`,
	`"2020-01-01T00:00:00ZT00:00:00Z"`, `"2020-01-01T00:00:00x5Z"`, `["x"]`, `[]`,
}

// unsendableTimes are times that Go can read. In UTC, they are in a year that has no four digits, or the zero time,
// which is sent as null.
var unsendableTimes = []string{
	`"9999-12-31T23:59:59-23:59"`, `"0000-01-01T00:00:00+23:59"`, `"0001-01-01T00:00:00Z"`,
}

// statusWith returns a merge patch of a status with a condition of this time.
func statusWith(time string) string {
	return fmt.Sprintf(`{"status":{"conditions":[
		{"type":"Ready","status":"Unknown","reason":"X","message":"","lastTransitionTime":%s}]}}`, time)
}

// patchStatus sends a merge patch of the status. With dryRun nothing is stored.
func (f *fooClient) patchStatus(ctx context.Context, name, patch string, dryRun ...string) error {
	request := f.client.RESTClient().Patch(types.MergePatchType).Namespace(f.namespace).Resource("foos").Name(name).
		SubResource("status").Body([]byte(patch))
	for _, value := range dryRun {
		request.Param("dryRun", value)
	}
	return request.Do(ctx).Error()
}

// olderCRD returns our CRD as it was before it had a rule for times.
func olderCRD(t *testing.T) string {
	t.Helper()
	crd, err := controlplane.OlderCRD(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

func TestAFooWithATimeThatCannotBeReadStopsNoOther(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster) // The test replaces the CRD.
	next := e.cluster.env(t)
	foos := e.foosIn(e.namespace)
	times := append(unreadableTimes[:len(unreadableTimes):len(unreadableTimes)], unsendableTimes...)
	name := func(i int) string { return fmt.Sprintf("web-%d", i) }
	store := func() {
		t.Helper()
		for i, value := range times {
			if err := foos.patchStatus(t.Context(), name(i), statusWith(value)); err != nil {
				t.Fatalf("store the time %s: %v", value, err)
			}
		}
	}
	expectAllServed := func(newFoo string) {
		t.Helper()
		next.createFoo(t, newFoo, v1alpha1.FooSpec{DeploymentName: newFoo, Replicas: new(int32(1))})
		next.waitForReason(t, newFoo, v1alpha1.ReasonAvailable)
		for i, value := range times {
			foo := e.waitForReason(t, name(i), v1alpha1.ReasonAvailable)
			if time := readyCondition(foo).LastTransitionTime; len(foo.Unread) > 0 || time.IsZero() {
				t.Errorf("the time %s is still stored: %+v", value, foo.Status)
			}
		}
	}

	e.kubectl(t, olderCRD(t), "apply", "-f", "-")
	e.createFoo(t, "probe", v1alpha1.FooSpec{DeploymentName: "probe", Paused: true})
	until(t, "the server uses the older CRD", func(ctx context.Context) (bool, error) {
		return foos.patchStatus(ctx, "probe", statusWith(unreadableTimes[0]), metav1.DryRunAll) == nil, nil
	})
	for i := range times {
		e.createFoo(t, name(i), v1alpha1.FooSpec{DeploymentName: name(i), Replicas: new(int32(1))})
	}
	store()
	p := e.cluster.controller(t)
	expectAllServed("new-at-start")
	store() // The watch has them.
	expectAllServed("new-behind-them")
	p.stop(t)
	store()
	next.editFoo(t, "new-at-start", `{"spec":{"replicas":2}}`)
	restarted := e.cluster.controller(t)
	next.waitForFoo(t, "new-at-start", func(foo *v1alpha1.Foo) bool { return foo.Status.AvailableReplicas == 2 })
	expectAllServed("new-after-restart")
	for _, log := range []*process{p, restarted} {
		for _, words := range []string{"Cannot list and watch", "Watch ended", "unable to decode", "Sync failed"} {
			if n := log.countLog(words); n > 0 {
				t.Errorf("%q is logged %d times", words, n)
			}
		}
	}

	e.kubectl(t, "", "apply", "-f", crdFile)
	until(t, "the server uses our CRD", func(ctx context.Context) (bool, error) {
		return foos.patchStatus(ctx, "probe", statusWith(unreadableTimes[0]), metav1.DryRunAll) != nil, nil
	})
	for _, time := range unreadableTimes {
		out, err := e.try("", "patch", "foo/probe", "-n", e.namespace, "--subresource=status", "--type=merge", "-p",
			statusWith(time))
		want, rule := "status.conditions[0].lastTransitionTime: Invalid value: "+time+": "+timeRule, timeRule
		if strings.HasPrefix(time, "[") {
			want, rule = "conditions[0].lastTransitionTime in body must be of type string", "must be of type string"
		}
		if err == nil || !hasError(out, want, rule) {
			t.Errorf("a time of %s: kubectl prints %q (%v), want the error %q", time, out, err, want)
		}
	}
}

// createDeep creates a Foo whose managed fields have so many levels that Go can decode the Foo alone, but neither a
// watch event with it nor a list of it. The API server stores it.
func (e *env) createDeep(t *testing.T, name string) {
	t.Helper()
	const levels = 10_000 - 4 // The Foo, its metadata, the list of managed fields and its first entry are levels too.
	fields := strings.Repeat(`{"f:a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
	foo := fmt.Sprintf(`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo",
		"metadata":{"name":%q,"managedFields":[{"manager":"deep","operation":"Update","fieldsType":"FieldsV1",
		"apiVersion":"samplecontroller.k8s.io/v1alpha1","time":"2026-01-01T00:00:00Z","fieldsV1":%s}]},
		"spec":{"deploymentName":%q,"replicas":1}}`, name, fields, name)
	foos := e.samples.SamplecontrollerV1alpha1()
	post := foos.RESTClient().Post().Namespace(e.namespace).Resource("foos").Body([]byte(foo))
	if err := post.Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := foos.Foos(e.namespace).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatalf("Foo %s can be read in a list: the test is without effect", name)
	}
}

func TestAFooTooDeepForAListIsServedAndStopsNoOther(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)                             // No other test can list Foos meanwhile.
	e.needsMinor(t, 33, "list of objects that are too deep for one") // It answers 500, also to the check at the start.
	next := e.cluster.env(t)
	expectServed := func(e *env, name string) {
		t.Helper()
		e.waitForReason(t, name, v1alpha1.ReasonAvailable)
		e.deployment(t, name)
	}
	first := e.cluster.controller(t)
	e.createDeep(t, "deep-in-watch")
	next.createFoo(t, "behind-it", v1alpha1.FooSpec{DeploymentName: "behind-it", Replicas: new(int32(1))})
	expectServed(next, "behind-it")
	expectServed(e, "deep-in-watch")
	first.stop(t)

	e.createDeep(t, "deep-in-list")
	next.editFoo(t, "behind-it", `{"spec":{"replicas":2}}`)
	restarted := e.cluster.controller(t)
	next.createFoo(t, "beside-it", v1alpha1.FooSpec{DeploymentName: "beside-it", Replicas: new(int32(1))})
	next.waitForFoo(t, "behind-it", func(foo *v1alpha1.Foo) bool { return foo.Status.AvailableReplicas == 2 })
	expectServed(next, "beside-it")
	expectServed(e, "deep-in-list")
	for _, log := range []*process{first, restarted} {
		for _, words := range []string{"Cannot list and watch", "Watch ended", "unable to decode", "Sync failed"} {
			if n := log.countLog(words); n > 0 {
				t.Errorf("%q is logged %d times", words, n)
			}
		}
	}
}

// TestAFooWithASpecThatCannotBeReadIsReportedAndStopsNoOther: the type of a field was another one when it was stored.
func TestAFooWithASpecThatCannotBeReadIsReportedAndStopsNoOther(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	e.config.WarningHandler = rest.NoWarnings{}
	e.samples = clientset.NewForConfigOrDie(e.config)
	foos := e.foosIn(e.namespace)
	takes := func(everything bool) {
		t.Helper()
		until(t, "the server uses the new CRD", func(ctx context.Context) (bool, error) {
			err := foos.client.RESTClient().Post().Namespace(e.namespace).Resource("foos").
				Param("dryRun", metav1.DryRunAll).Body([]byte(fooManifest("probe", `"spec":{"replicas":"x"}`))).Do(ctx).Error()
			return (err == nil) == everything, nil
		})
	}
	stored := []struct {
		name, spec, fix string
		message         string
		// stuck is true if the server refuses every write but the one that corrects the field, because it has a rule that
		// is written for the right type. Then only the log has the message.
		stuck bool
	}{
		{
			name: "name", stuck: true, spec: `{"deploymentName":5}`, fix: `{"spec":{"deploymentName":"name"}}`,
		},
		{
			name: "paused", spec: `{"deploymentName":"paused","paused":"no"}`, fix: `{"spec":{"paused":null}}`,
			message: `spec.paused cannot be read: it is "no", and not true or false`,
		},
		{
			name: "image", stuck: true, spec: `{"deploymentName":"image","image":["nginx"]}`, fix: `{"spec":{"image":null}}`,
		},
		{
			name: "replicas", spec: `{"deploymentName":"replicas","replicas":"three"}`, fix: `{"spec":{"replicas":3}}`,
			message: `spec.replicas cannot be read: it is "three", and not an integer of at most 32 bits`,
		},
		{
			name: "many", spec: `{"deploymentName":"many","replicas":4294967296}`, fix: `{"spec":{"replicas":3}}`,
			message: `spec.replicas cannot be read: it is 4294967296, and not an integer of at most 32 bits`,
		},
		{
			name: "all", stuck: true, spec: `"all"`, fix: `{"spec":{"deploymentName":"all"}}`,
		},
	}
	e.kubectl(t, noRules, "apply", "-f", "-")
	takes(true)
	for _, test := range stored {
		if err := foos.create(t.Context(), test.name, `"spec":`+test.spec); err != nil {
			t.Fatal(err)
		}
	}
	e.kubectl(t, "", "apply", "-f", crdFile)
	takes(false)
	p := e.cluster.controller(t)
	next := e.cluster.env(t)
	next.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	next.waitForReason(t, "web", v1alpha1.ReasonCreating)
	for _, test := range stored {
		if test.stuck {
			p.waitForLog(t, fmt.Sprintf(`"Sync failed" err="update status of Foo %s: `, test.name))
			continue
		}
		foo := e.waitForReason(t, test.name, v1alpha1.ReasonInvalid)
		if message := readyCondition(foo).Message; !strings.HasPrefix(message, test.message) {
			t.Errorf("%s: message %q, want %q", test.name, message, test.message)
		}
	}
	if deps := e.deployments(t); len(deps) > 0 {
		t.Errorf("Deployments were created: %v", deps)
	}
	for _, test := range stored {
		e.editFoo(t, test.name, test.fix)
		e.waitForReason(t, test.name, v1alpha1.ReasonCreating)
	}
}
