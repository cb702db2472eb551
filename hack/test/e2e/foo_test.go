package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestFooBecomesReadyAndScalesWithoutRestartingPods(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web-1", Replicas: new(int32(2)), Image: "nginx:1.29"})

	foo := e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	if got := foo.Status; got.AvailableReplicas != 2 || got.Replicas != 2 || got.ObservedGeneration != foo.Generation {
		t.Errorf("status = %+v, want 2 of 2 replicas of generation %d", got, foo.Generation)
	}
	before := e.pods(t, foo.Status.Selector)
	if len(before) != 2 {
		t.Fatalf("the status' selector %q selects %d pods, want 2", foo.Status.Selector, len(before))
	}
	e.kubectl(t, "", "wait", "--for=condition=Ready", "foo/web", "-n", e.namespace, "--timeout=30s")

	e.kubectl(t, "", "scale", "foo/web", "--replicas=4", "-n", e.namespace)
	foo = e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	after := e.pods(t, foo.Status.Selector)
	if foo.Status.AvailableReplicas != 4 || len(after) != 4 {
		t.Errorf("after scaling to 4: %d available, %d pods", foo.Status.AvailableReplicas, len(after))
	}
	for _, uid := range before {
		if !slices.Contains(after, uid) {
			t.Errorf("pod %s was restarted by a scale", uid)
		}
	}
	if events := e.events(t, "web"); len(events) != 2 || events[0].Reason != v1alpha1.EventSynced {
		t.Errorf("events = %v, want one %s for each of the two generations", events, v1alpha1.EventSynced)
	}
}

func TestDriftIsCorrectedByOneWriteAndOnlyInFieldsThatTheFooSets(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createFoo(t, "set", v1alpha1.FooSpec{DeploymentName: "set", Replicas: new(int32(2)), Image: "nginx:1.29"})
	e.createFoo(t, "free", v1alpha1.FooSpec{DeploymentName: "free"})
	e.waitForReason(t, "set", v1alpha1.ReasonAvailable)
	e.waitForReason(t, "free", v1alpha1.ReasonAvailable)
	edit := `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:edited"}]}}}}`

	before := e.countWrites(t, "patch deployments/")
	e.kubectl(t, "", "patch", "deployment/set", "-n", e.namespace, "-p", edit)
	until(t, "the drift is corrected", func(context.Context) (bool, error) {
		dep := e.deployment(t, "set")
		return *dep.Spec.Replicas == 2 && dep.Spec.Template.Spec.Containers[0].Image == "nginx:1.29", nil
	})
	e.waitForReason(t, "set", v1alpha1.ReasonAvailable)
	if got := e.countWrites(t, "patch deployments/") - before; got != 1 {
		t.Errorf("correcting one edit took %d patches, want 1", got)
	}

	e.kubectl(t, "", "patch", "deployment/free", "-n", e.namespace, "-p", edit)
	until(t, "the Foo reports the values that others set", func(context.Context) (bool, error) {
		foo := e.foo(t, "free")
		return foo.Status.AvailableReplicas == 3 && isReady(foo), nil
	})
	e.settle(t)
	dep := e.deployment(t, "free")
	if *dep.Spec.Replicas != 3 || dep.Spec.Template.Spec.Containers[0].Image != "nginx:edited" {
		t.Errorf("fields that the Foo does not set were changed back: %d replicas of %s", *dep.Spec.Replicas,
			dep.Spec.Template.Spec.Containers[0].Image)
	}
	if got := e.countWrites(t, "patch deployments/") - before; got != 1 {
		t.Errorf("%d patches, want only the first", got)
	}
}

func TestTheDeploymentOfADeletedFooIsDeletedAndNoneIsCreatedMeanwhile(t *testing.T) {
	run := parts(t, servedCluster)
	for _, propagation := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
	} {
		run(string(propagation), func(t *testing.T, e *env) {
			e.createReady(t, "web", fooSpec("web"))
			e.settle(t)
			e.deleteFoo(t, "web", propagation)
			until(t, "the Deployment and the Foo are deleted", func(ctx context.Context) (bool, error) {
				_, err := e.foos().Get(ctx, "web", metav1.GetOptions{})
				return apierrors.IsNotFound(err) && !e.exists(t, "web"), nil
			})
			e.settle(t)
			if n := e.countWrites(t, "create deployments/ "+e.namespace+"/web"); n != 1 {
				t.Errorf("the Deployment was created %d times, want once", n)
			}
		})
	}
}

func TestForeignDeploymentIsNeverWrittenAndReportedOnce(t *testing.T) {
	e := newEnv(t, apiCluster) // There is no Deployment controller that could change the resourceVersion.
	e.controller(t)
	foreign := e.createDeployment(t, "web", nothing)

	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(5)), Image: "nginx:1.29"})
	foo := e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)
	if !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("conditions = %v, want Stalled", foo.Status.Conditions)
	}
	for range 3 { // Changes of either of them must not trigger a write.
		e.kubectl(t, "", "label", "foo/web", "-n", e.namespace, "touched=yes", "--overwrite")
		e.kubectl(t, "", "label", "foo/web", "-n", e.namespace, "touched-")
	}
	e.settle(t)
	if dep := e.deployment(t, "web"); dep.ResourceVersion != foreign.ResourceVersion || dep.UID != foreign.UID {
		t.Errorf("a foreign Deployment was changed: %+v", dep)
	}
	if events := e.events(t, "web"); len(events) != 1 || events[0].Reason != v1alpha1.EventResourceExists ||
		events[0].Type != corev1.EventTypeWarning {
		t.Errorf("events = %v, want one warning %s", events, v1alpha1.EventResourceExists)
	}

	e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	if dep := e.deployment(t, "web"); *dep.Spec.Replicas != 5 {
		t.Errorf("the name became free and the Deployment created has %d replicas, want 5", *dep.Spec.Replicas)
	}
}

// TestRename renames Foos while the Deployment controller replaces pods. There must never be fewer replicas available
// than before, or than the Foo asks for. docs/scenarios has the other ways to rename one.
func TestRename(t *testing.T) {
	run := parts(t, servedCluster)

	run("the old Deployment serves until the new one is available", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old"})
		e.kubectl(t, "", "scale", "deployment/old", "--replicas=3", "-n", e.namespace) // The Foo does not set replicas.
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.AvailableReplicas == 3 })
		lowest := e.sampleAvailableOf(t, "")

		e.rename(t, "web", "new")
		foo := e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "new") })
		if foo.Status.AvailableReplicas != 3 || readyCondition(foo).Message != "3 of 3 replicas available" {
			t.Errorf("status = %+v, want the old Deployment's 3 replicas", foo.Status)
		}
		if n := lowest(); n < 3 {
			t.Errorf("%d replicas were available at one time, want 3 at all times", n)
		}
		want := map[string]int{"create deployments/": 2, "delete deployments/": 1, "patch deployments/": 0}
		got := map[string]int{}
		for prefix := range want {
			got[prefix] = e.countWrites(t, prefix)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})

	for image, outcome := range map[string]string{"nginx:1.28": "is good", neverReadyImage: "never becomes ready"} {
		run("back, with the strategy Recreate and an image that "+outcome, func(t *testing.T, e *env) {
			e.renameBack(t, image)
		})
	}
}

// renameBack renames a Foo from a to b, which a quota permits only in part, and back to a with another image. As soon
// as the Deployment controller has observed that image, it ends all pods of a, and until then it reports them as
// available.
func (e *env) renameBack(t *testing.T, image string) {
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "a", Replicas: new(int32(3)), Image: "nginx:1.29"})
	e.kubectl(t, "", "patch", "deployment/a", "-n", e.namespace, "-p",
		`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
	e.quota(t, "pods=5")
	e.rename(t, "web", "b")
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return foo.Status.AvailableReplicas == 2 })

	lowest := e.sampleAvailableOf(t, "")
	e.editFoo(t, "web", `{"spec":{"deploymentName":"a","image":"`+image+`"}}`)
	if image == neverReadyImage {
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return foo.Status.AvailableReplicas == 0 &&
				strings.Contains(readyCondition(foo).Message, `Previous Deployment "b"`)
		})
		e.settle(t)
		if !e.hasDeployments(t, "a", "b") {
			t.Error("the only Deployment that serves was deleted")
		}
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
	}
	// The last pod of b may have taken the place of one of a.
	e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "a") })
	if n := lowest(); n < 2 {
		t.Errorf("%d replicas were available at one time, want 2 at all times", n)
	}
}

// Labels have at most 63 characters, and the names of ReplicaSets 253: longer ones are shortened for them.
func TestFoosWithAllKindsOfNamesBecomeReadyAndShareNoPods(t *testing.T) {
	e := newEnv(t, servedCluster)
	long := func(length int, last string) string { return strings.Repeat("a", length-len(last)) + last }
	foos := map[string]string{ // The Deployment's name by the Foo's.
		"0.1-2.3": "0.1-2.3", long(63, ""): long(63, ""),
		long(64, ""): long(64, ""), long(64, "b"): long(64, "b"), long(64, "c"): "of-a-long-foo", "short": long(64, "d"),
		long(253, ""): long(253, ""), long(253, "b"): long(253, "b"), "shorter": long(253, "d"),
	}
	for foo, deployment := range foos {
		e.createFoo(t, foo, fooSpec(deployment))
	}
	owner := map[types.UID]string{} // The Foo by the uid of a pod.
	for name := range foos {
		foo := e.waitForReason(t, name, v1alpha1.ReasonAvailable)
		pods := e.pods(t, foo.Status.Selector)
		if len(pods) != 1 {
			t.Errorf("the selector of Foo %s selects %d pods, want its own", name, len(pods))
		}
		for _, pod := range pods {
			if other := owner[pod]; other != "" {
				t.Errorf("Foos %s and %s select the same pod", name, other)
			}
			owner[pod] = name
		}
	}
}

// The caches do not have the metadata and the managed fields that others write, so the controller writes statuses
// without them. The API server keeps them.
func TestStatusWritesKeepTheMetadata(t *testing.T) {
	e := newEnv(t, apiCluster) // A garbage collector would delete the Foo: its owner does not exist.
	e.controller(t)
	e.createFoo(t, "web", fooSpec("web"))
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	e.kubectl(t, `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"web",
		"labels":{"team":"blue"},"annotations":{"note":"keep"},"finalizers":["example.com/keep"],"ownerReferences":[
		{"apiVersion":"v1","kind":"ConfigMap","name":"parent","uid":"00000000-0000-0000-0000-000000000001"}]}}`,
		"apply", "--server-side", "-f", "-", "-n", e.namespace)
	read := func() (metav1.ObjectMeta, map[string]string) {
		metadata, managers := e.foo(t, "web").ObjectMeta, map[string]string{}
		for _, entry := range metadata.ManagedFields {
			if entry.Manager != controllerName {
				managers[entry.Manager] = entry.FieldsV1.String()
			}
		}
		metadata.ResourceVersion, metadata.ManagedFields = "", nil
		return metadata, managers
	}
	before, managersBefore := read()
	for available := 1; available < 4; available++ { // Each number is a status.
		e.reportAvailable(t, "web", available)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return int(foo.Status.AvailableReplicas) == available })
	}
	after, managersAfter := read()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("metadata (-before +after writes of the status):\n%s", diff)
	}
	if diff := cmp.Diff(managersBefore, managersAfter); diff != "" || managersBefore["kubectl"] == "" {
		t.Errorf("managers beside the controller (-before +after):\n%s", diff)
	}
	e.editFoo(t, "web", `{"metadata":{"finalizers":null}}`)
}

// The tests below are about the definition of Foos, with the messages that users see. No controller runs there.

const (
	crdFile = "artifacts/crd/samplecontroller.k8s.io_foos.yaml"

	specRequired = "spec: Required value: set at least spec.deploymentName, the name of the Deployment to create"
	nameRequired = "spec.deploymentName: Required value"
	nameRule     = `deploymentName must be a name that a Deployment can have: lowercase letters, digits, '-' and '.', ` +
		`beginning and ending with a letter or digit, for example "web-1"`
	imageRule = `image must not contain spaces: give a reference such as "nginx:1.29"`
	// timeRule is what a write of a time is refused with that Go cannot read.
	timeRule = `must be a time such as "2026-01-31T12:00:00Z"`
)

// createRaw creates a Foo with these fields beside its metadata.
func (e *env) createRaw(ctx context.Context, name, fields string, options metav1.CreateOptions) error {
	if fields != "" {
		fields = "," + fields
	}
	manifest := fmt.Sprintf(`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":%q}%s}`,
		name, fields)
	return e.samples.SamplecontrollerV1alpha1().RESTClient().Post().Namespace(e.namespace).Resource("foos").
		VersionedParams(&options, metav1.ParameterCodec).Body([]byte(manifest)).Do(ctx).Error()
}

// patchRaw sends a merge patch of a Foo or of a subresource.
func (e *env) patchRaw(ctx context.Context, name, patch string, subresource ...string) error {
	return e.samples.SamplecontrollerV1alpha1().RESTClient().Patch(types.MergePatchType).Namespace(e.namespace).
		Resource("foos").Name(name).SubResource(subresource...).Body([]byte(patch)).Do(ctx).Error()
}

func TestAPIValidatesEachField(t *testing.T) {
	e := newEnv(t, apiCluster)
	name := func(value string) string { return fmt.Sprintf(`"spec":{"deploymentName":%s}`, value) }
	with := func(field string) string { return `"spec":{"deploymentName":"web",` + field + `}` }
	long := func(length int) string { return `"` + strings.Repeat("a", length) + `"` }
	for fields, want := range map[string]string{ // A part of the error, or "" if the Foo is accepted.
		with(`"replicas":2,"image":"nginx:1.29","paused":true`): "",

		"":            specRequired,
		`"spec":null`: specRequired,
		`"spec":{}`:   nameRequired,

		name(`null`):          nameRequired,
		name(`5`):             "spec.deploymentName in body must be of type string",
		name(`""`):            nameRule,
		name(`"Web"`):         nameRule,
		name(`"web_1"`):       nameRule,
		name(`"default/web"`): nameRule,
		name(`"web."`):        nameRule,
		name(`"a.b-1"`):       "",
		name(long(253)):       "",
		name(long(254)):       "spec.deploymentName: Too long: may not be more than 253 bytes",

		with(`"replicas":0`):          "",
		with(`"replicas":2147483647`): "",
		with(`"replicas":2147483648`): "should be less than or equal to 2147483647",
		with(`"replicas":-1`):         "spec.replicas in body should be greater than or equal to 0",
		with(`"replicas":"3"`):        "spec.replicas in body must be of type integer",

		with(`"image":""`): "spec.image in body should be at least 1 chars long",
		with(`"image":"registry.example:5000/a/b:1@sha256:0"`): "",
		with(`"image":"` + strings.Repeat("é", 1024) + `"`):    "",
		with(`"image":` + long(1025)):                          "spec.image: Too long: may not be more than 1024 bytes",
		with(`"image":"a b"`):                                  imageRule,
		with(`"image":"a\n"`):                                  imageRule,
		with(`"image":"\u00a0a"`):                              imageRule,

		with(`"paused":"true"`): "spec.paused in body must be of type boolean",

		with(`"replica":3`):             `strict decoding error: unknown field "spec.replica"`,
		name(`"web"`) + `,"replicas":3`: `strict decoding error: unknown field "replicas"`,
	} {
		err := e.createRaw(t.Context(), "web", fields, metav1.CreateOptions{DryRun: dryRun, FieldValidation: "Strict"})
		if (want == "") != (err == nil) {
			t.Errorf("%s: %v, want %q", fields, err, want)
		} else if err != nil && !strings.Contains(err.Error(), want) && *kubernetesFile == "" { // Others have other words.
			t.Errorf("%s: refused with %v, want %q", fields, err, want)
		}
	}

	e.createFoo(t, "web", fooSpec("web"))
	if err := e.patchRaw(t.Context(), "web", `{"spec":null}`); err == nil || !strings.Contains(err.Error(), specRequired) {
		t.Errorf("the spec of a Foo is removed: %v, want %q", err, specRequired)
	}
}

// The columns of kubectl are those of docs/try.md, which TestTryWithMakeRun shows.
func TestAPINewFooWaitsForController(t *testing.T) {
	e := newEnv(t, apiCluster)
	if err := e.createRaw(t.Context(), "web", `"spec":{"deploymentName":"web-1"},"status":{"observedGeneration":7,
		"conditions":[{"type":"Ready","status":"True","reason":"Available","message":"",
		"lastTransitionTime":"2020-01-01T00:00:00Z"}]}`, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.FooStatus{Conditions: []metav1.Condition{{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionUnknown,
		Reason:             v1alpha1.ReasonPending,
		Message:            "No controller has seen this Foo yet. Is foo-controller running?",
		LastTransitionTime: metav1.Unix(0, 0),
	}}}
	if diff := cmp.Diff(want, e.foo(t, "web").Status); diff != "" {
		t.Errorf("status, which a user must not be able to set (-want +got):\n%s", diff)
	}
	if out, err := e.try("", "wait", "--for=condition=Ready", "foo/web", "-n", e.namespace, "--timeout=0"); err == nil {
		t.Errorf("kubectl wait reports the new Foo as ready: %s", out)
	}
	for selector, want := range map[string]string{"=": "foo.samplecontroller.k8s.io/web\n", "!=": ""} {
		if got := e.kubectl(t, "", "get", "fo", "-o", "name", "--field-selector", "spec.deploymentName"+selector+"web-1",
			"-n", e.namespace); got != want {
			t.Errorf("Foos with the name %sweb-1: %q, want %q", selector, got, want)
		}
	}
}
