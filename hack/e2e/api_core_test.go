package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

// noRules is a CRD for the same Foos without validation, as a cluster may have had before ours.
const noRules = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: foos.samplecontroller.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, a test"}
spec:
  group: samplecontroller.k8s.io
  names: {kind: Foo, listKind: FooList, plural: foos, singular: foo}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// storedFoos are Foos that our validation refuses, or that our controller would not write like this. Each of them can
// be decoded into the Go type: one that cannot would make every list of Foos fail.
var storedFoos = []struct {
	name   string
	fields string

	waiting     bool   // The server returns it with the default conditions.
	fix         string // The patch that corrects the spec. Empty if the spec is valid.
	otherChange string // The error for a change of another field of the spec. Empty if the server allows it.
	// metadataError is the error for each write of metadata until the Foo is fixed. Empty if the server allows it.
	// If the server refuses it, no finalizer can be removed before the fix, not even that of a foreground deletion.
	metadataError string
}{
	{
		name:        "no-spec",
		waiting:     true,
		fix:         `{"spec":{"deploymentName":"web"}}`,
		otherChange: "spec.deploymentName: Required value",
	},
	{
		name:        "null-spec",
		fields:      `"spec":null`,
		waiting:     true,
		fix:         `{"spec":{"deploymentName":"web"}}`,
		otherChange: "spec.deploymentName: Required value",
	},
	{
		name:        "empty-spec",
		fields:      `"spec":{}`,
		waiting:     true,
		fix:         `{"spec":{"deploymentName":"web"}}`,
		otherChange: "spec.deploymentName: Required value",
	},
	{
		name:        "no-name",
		fields:      `"spec":{"replicas":1}`,
		waiting:     true,
		fix:         `{"spec":{"deploymentName":"web"}}`,
		otherChange: "spec.deploymentName: Required value",
	},
	{name: "empty-name", fields: `"spec":{"deploymentName":""}`, waiting: true, fix: `{"spec":{"deploymentName":"web"}}`},
	{
		name:    "bad-name",
		fields:  `"spec":{"deploymentName":"Web_1"}`,
		waiting: true,
		fix:     `{"spec":{"deploymentName":"web"}}`,
	},
	{
		name:    "long-name",
		fields:  `"spec":{"deploymentName":"` + strings.Repeat("a", 254) + `"}`,
		waiting: true,
		fix:     `{"spec":{"deploymentName":"web"}}`,
	},
	{
		name:    "image-with-spaces",
		fields:  `"spec":{"deploymentName":"web","image":"a b"}`,
		waiting: true,
		fix:     `{"spec":{"image":"nginx:1.29"}}`,
	},
	{
		name:    "image-too-long",
		fields:  `"spec":{"deploymentName":"web","image":"` + strings.Repeat("a", 1025) + `"}`,
		waiting: true,
		fix:     `{"spec":{"image":"nginx:1.29"}}`,
	},
	{
		name:    "image-empty",
		fields:  `"spec":{"deploymentName":"web","image":""}`,
		waiting: true,
		fix:     `{"spec":{"image":null}}`,
	},
	{
		// Because of the scale subresource, the server validates replicas in every write, even if they do not change.
		name:          "negative-replicas",
		fields:        `"spec":{"deploymentName":"web","replicas":-1}`,
		waiting:       true,
		fix:           `{"spec":{"replicas":0}}`,
		metadataError: ".spec.replicas: Invalid value: -1: should be a non-negative integer",
		otherChange:   ".spec.replicas: Invalid value: -1: should be a non-negative integer",
	},
	{name: "unknown-fields", fields: `"other":1,"spec":{"deploymentName":"web","other":{"a":1}}`, waiting: true},

	{name: "no-status", fields: `"spec":{"deploymentName":"web"}`, waiting: true},
	{name: "null-status", fields: `"spec":{"deploymentName":"web"},"status":null`, waiting: true},
	{
		name:    "status-without-conditions",
		fields:  `"spec":{"deploymentName":"web"},"status":{"availableReplicas":1}`,
		waiting: true,
	},
	{
		name:    "null-conditions",
		fields:  `"spec":{"deploymentName":"web"},"status":{"availableReplicas":1,"conditions":null}`,
		waiting: true,
	},
	{name: "empty-conditions", fields: `"spec":{"deploymentName":"web"},"status":{"conditions":[]}`},
	{
		name: "odd-conditions",
		fields: `"spec":{"deploymentName":"web"},"status":{"conditions":[
			{"type":"Ready","status":"Maybe","reason":"no good","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`,
	},
	{
		name:   "unfinished-conditions",
		fields: `"spec":{"deploymentName":"web"},"status":{"conditions":[{"type":"Ready","status":"True"}]}`,
	},
	{
		name:    "negative-generation",
		fields:  `"spec":{"deploymentName":"web"},"status":{"observedGeneration":-1}`,
		waiting: true,
	},
	{
		// The server cannot distinguish the old one of two entries with the same key, so it validates both as new.
		name: "doubled-conditions",
		fields: `"spec":{"deploymentName":"web"},"status":{"conditions":[
			{"type":"Ready","status":"True"},{"type":"Ready","status":"False"}]}`,
		metadataError: "status.conditions[1].reason: Required value",
		otherChange:   "status.conditions[1].reason: Required value",
	},
}

func TestAPIFoosStoredBeforeValidationCanBeReadReportedFixedAndDeleted(t *testing.T) {
	c := newDedicatedEnv(t, apiCluster).cluster // The test replaces the CRD.
	c.needsMinor(t, 33, "status update of what was stored before a rule of the CustomResourceDefinition")
	c.config.WarningHandler = rest.NoWarnings{} // The server warns about each invalid value that it keeps.
	c.samples = clientset.NewForConfigOrDie(c.config)
	touched, fixed := c.foosIn(c.namespace(t)), c.foosIn(c.namespace(t))
	foreground, background := c.foosIn(c.namespace(t)), c.foosIn(c.namespace(t))
	// takes waits until the server uses the CRD that accepts every field, or the one that does not.
	takes := func(everything bool) {
		t.Helper()
		until(t, "the server uses the new CRD", func(ctx context.Context) (bool, error) {
			probe := fooManifest("probe", `"other":1,"spec":{"deploymentName":"web"}`)
			answer, err := touched.client.RESTClient().Post().Namespace(touched.namespace).Resource("foos").
				Param("dryRun", metav1.DryRunAll).Body([]byte(probe)).Do(ctx).Raw()
			return err == nil && strings.Contains(string(answer), `"other"`) == everything, nil
		})
	}
	// report writes the status that the controller writes before the Deployment exists.
	report := func(t *testing.T, foos *fooClient, name string) {
		t.Helper()
		foo := foos.get(t, name)
		sync := plan.Foos.Sync(&plan.Input{Foo: foo})
		sync.Begin(reconcile.Memory{}, time.Now(), 0)
		step := sync.Next()
		for ; step.Verb != reconcile.UpdateStatus; step = sync.Next() {
			answer := step.Have() // Of a live read.
			if step.Verb == reconcile.Create {
				created, _ := plan.Trim(step.Body)
				answer = created.(metav1.Object)
			}
			sync.Record(step, reconcile.Reply{Object: answer}, time.Now())
		}
		foo.Status = step.Body.(*v1alpha1.Foo).Status
		patch, err := step.StatusPatch()
		if err != nil {
			t.Fatal(err)
		}
		updated, err := foos.Patch(t.Context(), name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: controllerName}, "status")
		if err != nil {
			t.Fatalf("write the status: %v", err)
		}
		if diff := cmp.Diff(foo.Status, updated.Status); diff != "" {
			t.Errorf("status (-written +stored):\n%s", diff)
		}
	}
	// fix corrects a Foo: the spec as a user does, the status as the controller does.
	fix := func(t *testing.T, foos *fooClient, name, patch string) {
		t.Helper()
		if patch == "" {
			report(t, foos, name)
			return
		}
		if err := foos.patch(t.Context(), name, patch); err != nil {
			t.Fatalf("fix it with %s: %v", patch, err)
		}
	}
	expect := func(t *testing.T, what string, err error, want string) {
		t.Helper()
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
	}

	c.kubectl(t, noRules, "apply", "-f", "-")
	takes(true)
	for _, test := range storedFoos {
		for _, foos := range []*fooClient{touched, fixed, foreground, background} {
			if err := foos.create(t.Context(), test.name, test.fields); err != nil {
				t.Fatal(err)
			}
		}
	}
	const want = "customresourcedefinition.apiextensions.k8s.io/foos.samplecontroller.k8s.io configured\n"
	if got := c.kubectl(t, "", "apply", "-f", crdFile); got != want {
		t.Errorf("kubectl apply of our CRD prints %q, want only %q", got, want)
	}
	takes(false)
	list, err := touched.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("list, as informers do: %v", err)
	}
	if got, want := len(list.Items), len(storedFoos); got != want {
		t.Errorf("%d Foos in the list, want %d", got, want)
	}

	for _, test := range storedFoos {
		t.Run(test.name, func(t *testing.T) {
			foo := touched.get(t, test.name)
			if got := cmp.Equal(waitingForController(), foo.Status.Conditions); got != test.waiting {
				t.Errorf("read with the default conditions: %t, want %t; they are %v", got, test.waiting, foo.Status.Conditions)
			}
			if strings.Contains(test.fields, `"availableReplicas":1`) && foo.Status.AvailableReplicas != 1 {
				t.Errorf("the default has replaced the stored status: %+v", foo.Status)
			}
			isBad := ""
			if test.fix != "" {
				isBad = "invalid"
			}
			if test.name != "unknown-fields" { // The server drops unknown fields by default.
				expect(t, "create another like it", touched.create(t.Context(), "new-"+test.name, test.fields), isBad)
			}

			expect(t, "label", touched.patch(t.Context(), test.name, `{"metadata":{"labels":{"a":"b"}}}`), test.metadataError)
			err := touched.patch(t.Context(), test.name, `{"metadata":{"annotations":{"a":"b"}}}`)
			expect(t, "annotate", err, test.metadataError)
			expect(t, "give a finalizer",
				touched.patch(t.Context(), test.name, `{"metadata":{"finalizers":["example.com/hold"]}}`), test.metadataError)
			err = touched.patch(t.Context(), test.name, `{"metadata":{"finalizers":null}}`)
			expect(t, "remove a finalizer", err, test.metadataError)
			expect(t, "change another field of the spec", touched.patch(t.Context(), test.name, `{"spec":{"paused":true}}`),
				test.otherChange)
			before := touched.stored(t, test.name, "spec")
			report(t, touched, test.name)
			if diff := cmp.Diff(before, touched.stored(t, test.name, "spec")); diff != "" {
				t.Errorf("a status update has changed the spec (-before +after):\n%s", diff)
			}

			fix(t, fixed, test.name, test.fix)
			for _, patch := range []string{`{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"paused":true}}`} {
				expect(t, "after fixing it, "+patch, fixed.patch(t.Context(), test.name, patch), "")
			}
			good := fixed.get(t, test.name)
			good.ObjectMeta = metav1.ObjectMeta{Name: "good-" + test.name}
			_, err = fixed.Create(t.Context(), good, metav1.CreateOptions{})
			expect(t, "create another like the fixed one", err, "")
		})
	}

	t.Run("kubectl warns about an invalid value that the server keeps", func(t *testing.T) {
		const want = "Warning: spec.deploymentName: Invalid value: \"Web_1\": " + nameRule
		out := c.kubectl(t, "", "annotate", "foo/bad-name", "-n", background.namespace, "a=b")
		if !hasError(out, want, nameRule) {
			t.Errorf("kubectl annotate prints %q, want %q", out, want)
		}
	})

	t.Run("a typed update of metadata keeps a Foo without spec as it is", func(t *testing.T) {
		foo := background.get(t, "no-spec")
		foo.Annotations = map[string]string{"a": "b"}
		_, err := background.Update(t.Context(), foo, metav1.UpdateOptions{})
		expect(t, "update", err, "")
		if spec := background.stored(t, "no-spec", "spec"); spec != nil {
			t.Errorf("the update has given it a spec: %v", spec)
		}
	})

	t.Run("deleted in the background", func(t *testing.T) {
		c.kubectl(t, "", "delete", "foos", "--all", "-n", background.namespace, "--cascade=background")
		left, err := background.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(left.Items) != 0 {
			t.Errorf("%d Foos are left", len(left.Items))
		}
	})

	c.kubectl(t, "", "delete", "foos", "--all", "-n", foreground.namespace, "--cascade=foreground", "--wait=false")
	for _, test := range storedFoos {
		t.Run("deleted in the foreground/"+test.name, func(t *testing.T) {
			foo := foreground.get(t, test.name)
			if foo.DeletionTimestamp == nil || !slices.Equal(foo.Finalizers, []string{metav1.FinalizerDeleteDependents}) {
				t.Fatalf("deletionTimestamp %v, finalizers %v; want the one set, and the garbage collector's finalizer",
					foo.DeletionTimestamp, foo.Finalizers)
			}
			collected := `{"metadata":{"finalizers":null}}` // The last write of the garbage collector.
			expect(t, "remove the finalizer", foreground.patch(t.Context(), test.name, collected), test.metadataError)
			if test.metadataError != "" {
				fix(t, foreground, test.name, test.fix)
				expect(t, "after fixing it, remove the finalizer", foreground.patch(t.Context(), test.name, collected), "")
			}
			if _, err := foreground.Get(t.Context(), test.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the Foo still exists: %v", err)
			}
		})
	}
}

// In a foreground deletion, the garbage collector deletes the dependents of the Foo and then removes its finalizer from
// the Foo. Validation must allow this write although the Foo is invalid.
func TestAPIFoosStoredBeforeValidationCanBeDeletedInTheForeground(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	const probe = `"spec":{"replicas":1}` // Without a name: only the CRD without validation accepts it.
	dryRun := []string{"create", "-n", e.namespace, "--dry-run=server", "--validate=false", "-f", "-"}
	e.kubectl(t, noRules, "apply", "-f", "-")
	until(t, "the server takes every Foo", func(context.Context) (bool, error) {
		_, err := e.try(fooManifest("probe", probe), dryRun...)
		return err == nil, nil
	})
	var names []string
	for _, test := range storedFoos {
		if test.metadataError != "" {
			continue // The other test shows how to delete these.
		}
		names = append(names, test.name)
		e.kubectl(t, fooManifest(test.name, test.fields), "create", "-n", e.namespace, "--validate=false", "-f", "-")
	}
	e.kubectl(t, "", "apply", "-f", crdFile)
	until(t, "the server uses our CRD", func(context.Context) (bool, error) {
		_, err := e.try(fooManifest("probe", probe), dryRun...)
		return err != nil, nil
	})

	for _, name := range names {
		foo := e.foo(t, name)
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)},
		}}
		if _, err := e.kube.CoreV1().ConfigMaps(e.namespace).Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		e.deleteFoo(t, name, metav1.DeletePropagationForeground)
	}
	until(t, "all of them and their dependents are deleted", func(ctx context.Context) (bool, error) {
		foos, fooErr := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace).List(ctx, metav1.ListOptions{})
		owned, ownedErr := e.kube.CoreV1().ConfigMaps(e.namespace).List(ctx, metav1.ListOptions{})
		// kube-root-ca.crt is not a dependent.
		return fooErr == nil && ownedErr == nil && len(foos.Items) == 0 && len(owned.Items) == 1, nil
	})
}
