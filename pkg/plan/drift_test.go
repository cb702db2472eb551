package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// apply does with patch what the API server does with it.
func apply(t *testing.T, dep *appsv1.Deployment, patch *plan.Patch) *appsv1.Deployment {
	t.Helper()
	before, err := json.Marshal(dep)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch.Body, appsv1.Deployment{})
	if err != nil {
		t.Fatalf("apply %s: %v", patch.Body, err)
	}
	patched := &appsv1.Deployment{}
	if err := json.Unmarshal(after, patched); err != nil {
		t.Fatal(err)
	}
	return patched
}

// drift returns the patch, or fails the test.
func drift(t *testing.T, dep *appsv1.Deployment, foo *v1alpha1.Foo) *plan.Patch {
	t.Helper()
	patch, err := plan.Drift(dep, foo)
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

func TestDrift(t *testing.T) {
	full := newFoo(withReplicas(3), withImage("nginx:1.29"))
	const (
		of         = `"uid":"dep-uid","resourceVersion":"20"`
		managedBy  = `"app.kubernetes.io/managed-by":"foo-controller"`
		generation = `"samplecontroller.k8s.io/foo-generation":"2"`
		madeFor    = `"samplecontroller.k8s.io/made-for":"4523b0c0fe38360bd759"`
		reference  = `"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"web","uid":"foo-uid","controller":true,"blockOwnerDeletion":true}]`
		image      = `"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.29"}]}}`

		inManagedBy  = "metadata.labels[app.kubernetes.io/managed-by]"
		inGeneration = "metadata.labels[samplecontroller.k8s.io/foo-generation]"
		inMadeFor    = "metadata.labels[samplecontroller.k8s.io/made-for]"
		inReference  = "metadata.ownerReferences"
		inReplicas   = "spec.replicas"
		inImage      = "spec.template.spec.containers[name=nginx].image"
	)
	repairReference := `{"metadata":{` + of + `,` + reference + `}}`

	for _, tc := range []struct {
		name   string
		foo    *v1alpha1.Foo
		with   []deploymentOption
		want   string // The whole patch; "" for none.
		fields []string
	}{
		{name: "nothing differs", foo: full},
		{name: "foreign data does not count", foo: full, with: []deploymentOption{foreignData}},
		{name: "nothing differs, so nothing needs a uid", foo: full, with: []deploymentOption{withoutUID, withoutResourceVersion}},
		{name: "replicas that the Foo does not set are left to others", foo: newFoo(), with: []deploymentOption{scaled(7)}},
		{name: "replicas of a Foo that sets 1 may be absent, which is 1", foo: newFoo(withReplicas(1)), with: []deploymentOption{withoutReplicas}},
		{name: "an image that the Foo does not set is left to others", foo: newFoo(), with: []deploymentOption{running("nginx:debug")}},
		{name: "a missing container is left to others when the Foo sets no image", foo: newFoo(), with: []deploymentOption{withoutContainers}},

		{name: "replicas differ", foo: full, with: []deploymentOption{scaled(5)},
			want: `{"metadata":{` + of + `},"spec":{"replicas":3}}`, fields: []string{inReplicas}},
		{name: "replicas are wanted to be 0", foo: newFoo(withReplicas(0)), with: []deploymentOption{scaled(1)},
			want: `{"metadata":{` + of + `},"spec":{"replicas":0}}`, fields: []string{inReplicas}},
		{name: "replicas are absent, which is 1", foo: full, with: []deploymentOption{withoutReplicas},
			want: `{"metadata":{` + of + `},"spec":{"replicas":3}}`, fields: []string{inReplicas}},
		{name: "the image differs", foo: full, with: []deploymentOption{running("nginx:latest"), foreignData},
			want: `{"metadata":{` + of + `},"spec":{` + image + `}}`, fields: []string{inImage}},
		{name: "the container is missing", foo: full, with: []deploymentOption{withoutContainers},
			want: `{"metadata":{` + of + `},"spec":{` + image + `}}`, fields: []string{inImage}},
		{name: "the generation is an older one", foo: full, with: []deploymentOption{withFence("1")},
			want: `{"metadata":{` + of + `,"labels":{` + generation + `}}}`, fields: []string{inGeneration}},
		{name: "the mark of whom it was made for is wrong", foo: full, with: []deploymentOption{withLabel(v1alpha1.LabelMadeFor, "x")},
			want: `{"metadata":{` + of + `,"labels":{` + madeFor + `}}}`, fields: []string{inMadeFor}},
		{name: "the label for people is wrong", foo: full, with: []deploymentOption{withLabel("app.kubernetes.io/managed-by", "Helm")},
			want: `{"metadata":{` + of + `,"labels":{` + managedBy + `}}}`, fields: []string{inManagedBy}},
		{name: "all labels are missing", foo: full, with: []deploymentOption{withoutLabels},
			want: `{"metadata":{` + of + `,"labels":{` + managedBy + `,` + generation + `,` + madeFor + `}}}`, fields: []string{inManagedBy, inGeneration, inMadeFor}},
		{name: "the owner does not block its deletion", foo: full, with: []deploymentOption{owned(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = nil })},
			want: repairReference, fields: []string{inReference}},
		{name: "the owner expressly does not block its deletion", foo: full, with: []deploymentOption{owned(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = new(false) })},
			want: repairReference, fields: []string{inReference}},
		{name: "the owner is not the controller", foo: full, with: []deploymentOption{owned(func(ref *metav1.OwnerReference) { ref.Controller = nil })},
			want: repairReference, fields: []string{inReference}},
		{name: "the owner is an earlier Foo", foo: full, with: []deploymentOption{owned(func(ref *metav1.OwnerReference) { ref.UID = "earlier" })},
			want: repairReference, fields: []string{inReference}},
		{name: "the owner has another kind", foo: full, with: []deploymentOption{owned(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" })},
			want: repairReference, fields: []string{inReference}},
		{name: "the owner has another version", foo: full, with: []deploymentOption{owned(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io/v1" })},
			want: repairReference, fields: []string{inReference}},
		{name: "the owner has another name", foo: full, with: []deploymentOption{owned(func(ref *metav1.OwnerReference) { ref.Name = "old" })},
			want: repairReference, fields: []string{inReference}},
		{name: "everything differs", foo: full,
			with:   []deploymentOption{withoutLabels, scaled(5), running("nginx:latest"), owned(func(ref *metav1.OwnerReference) { ref.Name = "old" })},
			want:   `{"metadata":{` + of + `,"labels":{` + managedBy + `,` + generation + `,` + madeFor + `},` + reference + `},"spec":{"replicas":3,` + image + `}}`,
			fields: []string{inManagedBy, inGeneration, inMadeFor, inReference, inReplicas, inImage}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dep := newDeployment(tc.foo, tc.with...)
			unchanged(t, tc.foo, dep)
			patch := drift(t, dep, tc.foo)
			if patch == nil {
				patch = &plan.Patch{}
			}
			if diff := cmp.Diff([]any{tc.want, tc.fields}, []any{string(patch.Body), paths(patch.Fields)}); diff != "" {
				t.Errorf("wrong patch (-want +got):\n%s", diff)
			}
			if tc.want == "" {
				return
			}
			if again := drift(t, apply(t, dep, patch), tc.foo); again != nil {
				t.Errorf("applied, it leaves a difference: %s", again.Body)
			}
		})
	}
}

// The words are for people: in logs, and in what is said when somebody else keeps setting a field.
func TestDriftSaysWhatItFoundAndWhatItWants(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	for _, tc := range []struct {
		name string
		with deploymentOption
		want plan.Field
		text string
	}{
		{"replicas", scaled(5), plan.Field{Path: "spec.replicas", Have: "5", Want: "3"}, "spec.replicas 5 -> 3"},
		{"absent replicas", withoutReplicas, plan.Field{Path: "spec.replicas", Have: "1", Want: "3"}, "spec.replicas 1 -> 3"},
		{"the image", running("nginx:0"), plan.Field{Path: "spec.template.spec.containers[name=nginx].image", Have: "nginx:0", Want: "nginx:1.29"},
			"spec.template.spec.containers[name=nginx].image nginx:0 -> nginx:1.29"},
		{"a missing container", withoutContainers, plan.Field{Path: "spec.template.spec.containers[name=nginx].image", Have: "none", Want: "nginx:1.29"},
			"spec.template.spec.containers[name=nginx].image none -> nginx:1.29"},
		{"a label", withFence("1"), plan.Field{Path: "metadata.labels[samplecontroller.k8s.io/foo-generation]", Have: "1", Want: "2"},
			"metadata.labels[samplecontroller.k8s.io/foo-generation] 1 -> 2"},
		{"the owner", owned(func(ref *metav1.OwnerReference) { ref.Name = "old" }), plan.Field{Path: "metadata.ownerReferences", Have: "another", Want: "Foo web"},
			"metadata.ownerReferences another -> Foo web"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fields := drift(t, newDeployment(foo, tc.with), foo).Fields
			if diff := cmp.Diff([]plan.Field{tc.want}, fields); diff != "" {
				t.Fatalf("wrong field (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.text, fields[0].String()); diff != "" {
				t.Errorf("wrong words (-want +got):\n%s", diff)
			}
		})
	}
}

// The API server takes an empty uid or resourceVersion as no condition at all.
func TestIdentified(t *testing.T) {
	foo := newFoo()
	if err := plan.Identified("Deployment", newDeployment(foo)); err != nil {
		t.Errorf("a Deployment that has both: %v", err)
	}
	for name, missing := range map[string]deploymentOption{"uid": withoutUID, "resourceVersion": withoutResourceVersion} {
		want := &plan.TerminalError{Reason: v1alpha1.ReasonRefused, Message: `Deployment "web-1" has no uid or no resourceVersion, and is not written without`, Unseen: true}
		if diff := cmp.Diff(want, terminalError(t, plan.Identified("Deployment", newDeployment(foo, missing)))); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", name, diff)
		}
		if _, err := plan.Drift(newDeployment(foo, withFence("1"), missing), foo); err == nil || err.Error() != "Refused: "+want.Message {
			t.Errorf("a patch without %s: %v", name, err)
		}
	}
}

func TestDriftRefusesToPatchWithoutPreconditions(t *testing.T) {
	foo := newFoo(withReplicas(3))
	for name, missing := range map[string]deploymentOption{"uid": withoutUID, "resourceVersion": withoutResourceVersion} {
		t.Run("without "+name, func(t *testing.T) {
			patch, err := plan.Drift(newDeployment(foo, scaled(5), missing), foo)
			if patch != nil || err == nil {
				t.Fatalf("got patch %v and error %v", patch, err)
			}
			if outcome := plan.OutcomeOf(err); outcome.Kind != plan.Retry || outcome.Quiet {
				t.Errorf("outcome %+v is neither tried again nor told", outcome)
			}
		})
	}
}

func TestDriftLeavesForeignDataAlone(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	dep := newDeployment(newFoo(), foreignData, withFence("1"), withLabel(v1alpha1.LabelMadeFor, "x"), withLabel("app.kubernetes.io/managed-by", "Helm"),
		owned(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = nil }))

	want := dep.DeepCopy()
	made := plan.Deployment(foo)
	for label, value := range made.Labels {
		want.Labels[label] = value
	}
	want.OwnerReferences[0] = made.OwnerReferences[0]
	want.Spec.Replicas = new(int32(3))
	want.Spec.Template.Spec.Containers[1].Image = "nginx:1.29"
	if diff := cmp.Diff(want, apply(t, dep, drift(t, dep, foo))); diff != "" {
		t.Errorf("after the patch (-want +got):\n%s", diff)
	}
}

// The sample that this controller descends from selects pods by two labels and marks Deployments by
// nothing but the owner. Taking one over must not start a rollout.
func TestDriftTakesOverADeploymentOfTheUpstreamSampleByItsMetadata(t *testing.T) {
	foo := newFoo(withReplicas(1))
	podLabels := map[string]string{"app": "nginx", "controller": foo.Name}
	dep := newDeployment(foo, withoutLabels, func(dep *appsv1.Deployment) {
		dep.Spec.Selector.MatchLabels, dep.Spec.Template.Labels = podLabels, podLabels
	})
	patch := drift(t, dep, foo)
	patched := apply(t, dep, patch)
	if diff := cmp.Diff(dep.Spec, patched.Spec); diff != "" {
		t.Errorf("the spec changed:\n%s", diff)
	}
	want := dep.DeepCopy()
	want.Labels = plan.Deployment(foo).Labels
	if diff := cmp.Diff(want, patched); diff != "" {
		t.Errorf("after the patch (-want +got):\n%s", diff)
	}
}

// Of whatever is found, one patch repairs all, and a second one is not needed.
func TestDriftIsRepairedByOnePatch(t *testing.T) {
	patches := 0
	somePairs(t, func(t *testing.T, foo *v1alpha1.Foo, dep *appsv1.Deployment) {
		patch := drift(t, dep, foo)
		if patch == nil {
			return
		}
		patches++
		patched := apply(t, dep, patch)
		if again := drift(t, patched, foo); again != nil {
			t.Errorf("patch %s leaves %s", patch.Body, again.Body)
		}
		if foo.Spec.Replicas == nil {
			if diff := cmp.Diff(dep.Spec.Replicas, patched.Spec.Replicas); diff != "" {
				t.Errorf("replicas that are not the Foo's changed:\n%s", diff)
			}
		}
	})
	if patches < 100 {
		t.Errorf("only %d patches: the Deployments are too good to show anything", patches)
	}
}

func TestDriftAlwaysGivesTheSamePatch(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	dep := newDeployment(newFoo(), withoutLabels)
	first := drift(t, dep, foo)
	for range 20 {
		if diff := cmp.Diff(first, drift(t, dep, foo)); diff != "" {
			t.Fatalf("another patch:\n%s", diff)
		}
	}
}
