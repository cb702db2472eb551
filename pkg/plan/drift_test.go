package plan_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

const (
	inManagedBy  = "metadata.labels[app.kubernetes.io/managed-by]"
	inGeneration = "metadata.labels[samplecontroller.k8s.io/foo-generation]"
	inMadeFor    = "metadata.labels[samplecontroller.k8s.io/made-for]"
	inReference  = "metadata.ownerReferences"
	inReplicas   = "spec.replicas"
	inImage      = "spec.template.spec.containers[name=nginx].image"
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

func TestDrift(t *testing.T) {
	full := newFoo(withReplicas(3), withImage("nginx:1.29"))
	const (
		of         = `"uid":"dep-uid","resourceVersion":"20"`
		managedBy  = `"app.kubernetes.io/managed-by":"foo-controller"`
		generation = `"samplecontroller.k8s.io/foo-generation":"2"`
		madeFor    = `"samplecontroller.k8s.io/made-for":"4523b0c0fe38360bd759"`
		reference  = `"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"web",` +
			`"uid":"foo-uid","controller":true,"blockOwnerDeletion":true}]`
		replicas = `"replicas":3`
		image    = `"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.29"}]}}`
	)
	repairReference := `{"metadata":{` + of + `,` + reference + `}}`
	with := func(options ...deploymentOption) []deploymentOption { return options }
	ref := func(change func(*metav1.OwnerReference)) []deploymentOption { return with(owned(change)) }

	for _, tc := range []struct {
		name   string
		foo    *v1alpha1.Foo
		with   []deploymentOption
		want   string // The whole patch; "" for none.
		fields []string
	}{
		{name: "nothing differs", foo: full},
		{name: "foreign data does not count", foo: full, with: with(foreignData)},
		{
			name: "nothing differs, so nothing needs a uid",
			foo:  full, with: with(withoutUID, withoutResourceVersion),
		},
		{name: "replicas that the Foo does not set are left to others", foo: newFoo(), with: with(scaled(7))},
		{
			name: "replicas of a Foo that sets 1 may be absent, which is 1",
			foo:  newFoo(withReplicas(1)), with: with(withoutReplicas),
		},
		{name: "an image that the Foo does not set is left to others", foo: newFoo(), with: with(running("nginx:debug"))},
		{
			name: "a missing container is left to others when the Foo sets no image",
			foo:  newFoo(), with: with(withoutContainers),
		},

		{
			name: "replicas differ", foo: full, with: with(scaled(5)),
			want: `{"metadata":{` + of + `},"spec":{` + replicas + `}}`, fields: []string{inReplicas},
		},
		{
			name: "replicas are wanted to be 0", foo: newFoo(withReplicas(0)), with: with(scaled(1)),
			want: `{"metadata":{` + of + `},"spec":{"replicas":0}}`, fields: []string{inReplicas},
		},
		{
			name: "replicas are absent, which is 1", foo: full, with: with(withoutReplicas),
			want: `{"metadata":{` + of + `},"spec":{` + replicas + `}}`, fields: []string{inReplicas},
		},
		{
			name: "the image differs", foo: full, with: with(running("nginx:latest"), foreignData),
			want: `{"metadata":{` + of + `},"spec":{` + image + `}}`, fields: []string{inImage},
		},
		{
			name: "the container is missing", foo: full, with: with(withoutContainers),
			want: `{"metadata":{` + of + `},"spec":{` + image + `}}`, fields: []string{inImage},
		},
		{
			name: "the generation is an older one", foo: full, with: with(withFence("1")),
			want: `{"metadata":{` + of + `,"labels":{` + generation + `}}}`, fields: []string{inGeneration},
		},
		{
			name: "the made-for label is wrong", foo: full, with: with(withLabel(v1alpha1.LabelMadeFor, "x")),
			want: `{"metadata":{` + of + `,"labels":{` + madeFor + `}}}`, fields: []string{inMadeFor},
		},
		{
			name: "the label for people is wrong",
			foo:  full, with: with(withLabel("app.kubernetes.io/managed-by", "Helm")),
			want: `{"metadata":{` + of + `,"labels":{` + managedBy + `}}}`, fields: []string{inManagedBy},
		},
		{
			name: "all labels are missing", foo: full, with: with(withoutLabels),
			want:   `{"metadata":{` + of + `,"labels":{` + managedBy + `,` + generation + `,` + madeFor + `}}}`,
			fields: []string{inManagedBy, inGeneration, inMadeFor},
		},
		{
			name: "the owner does not block its deletion",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = nil }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "the owner expressly does not block its deletion",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = new(false) }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "the owner is not the controller",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.Controller = nil }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "the owner is an earlier Foo",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.UID = "earlier" }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "the owner has another kind",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "the owner has another version",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io/v1" }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "the owner has another name",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.Name = "old" }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "everything differs", foo: full,
			with: with(withoutLabels, scaled(5), running("nginx:latest"),
				owned(func(ref *metav1.OwnerReference) { ref.Name = "old" })),
			want: `{"metadata":{` + of + `,"labels":{` + managedBy + `,` + generation + `,` + madeFor + `},` + reference +
				`},"spec":{` + replicas + `,` + image + `}}`,
			fields: []string{inManagedBy, inGeneration, inMadeFor, inReference, inReplicas, inImage},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dep := newDeployment(tc.foo, tc.with...)
			unchanged(t, tc.foo, dep)
			patch := plan.Drift(dep, tc.foo)
			if patch == nil {
				patch = &plan.Patch{}
			}
			if diff := cmp.Diff([]any{tc.want, tc.fields}, []any{string(patch.Body), paths(patch.Fields)}); diff != "" {
				t.Errorf("wrong patch (-want +got):\n%s", diff)
			}
			if tc.want == "" {
				return
			}
			if again := plan.Drift(apply(t, dep, patch), tc.foo); again != nil {
				t.Errorf("applied, it leaves a difference: %s", again.Body)
			}
		})
	}
}

// These are for people: in logs, and in the status while something else keeps setting a field.
func TestDriftReturnsWhatItFoundAndWhatItWants(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	for _, tc := range []struct {
		name string
		with deploymentOption
		want plan.Field
		text string
	}{
		{
			name: "replicas", with: scaled(5),
			want: plan.Field{Path: inReplicas, Have: "5", Want: "3"}, text: "spec.replicas 5 -> 3",
		},
		{
			name: "absent replicas", with: withoutReplicas,
			want: plan.Field{Path: inReplicas, Have: "1", Want: "3"}, text: "spec.replicas 1 -> 3",
		},
		{
			name: "the image", with: running("nginx:0"),
			want: plan.Field{Path: inImage, Have: "nginx:0", Want: "nginx:1.29"},
			text: "spec.template.spec.containers[name=nginx].image nginx:0 -> nginx:1.29",
		},
		{
			name: "a missing container", with: withoutContainers,
			want: plan.Field{Path: inImage, Have: "none", Want: "nginx:1.29"},
			text: "spec.template.spec.containers[name=nginx].image none -> nginx:1.29",
		},
		{
			name: "a label", with: withFence("1"),
			want: plan.Field{Path: inGeneration, Have: "1", Want: "2"},
			text: "metadata.labels[samplecontroller.k8s.io/foo-generation] 1 -> 2",
		},
		{
			name: "the owner", with: owned(func(ref *metav1.OwnerReference) { ref.Name = "old" }),
			want: plan.Field{Path: inReference, Have: "another value", Want: "Foo web"},
			text: "metadata.ownerReferences another value -> Foo web",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fields := plan.Drift(newDeployment(foo, tc.with), foo).Fields
			if diff := cmp.Diff([]plan.Field{tc.want}, fields); diff != "" {
				t.Fatalf("wrong field (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.text, fields[0].String()); diff != "" {
				t.Errorf("wrong text (-want +got):\n%s", diff)
			}
		})
	}
}

const noPreconditions = `Deployment "web-1" has no uid or no resourceVersion, and no write is sent without both`

// The API server takes an empty uid or resourceVersion as no precondition at all.
func TestCheckPreconditions(t *testing.T) {
	foo := newFoo()
	if err := plan.CheckPreconditions("Deployment", newDeployment(foo)); err != nil {
		t.Errorf("a Deployment that has both: %v", err)
	}
	for name, missing := range map[string]deploymentOption{"uid": withoutUID, "resourceVersion": withoutResourceVersion} {
		var report *plan.ConditionError
		if err := plan.CheckPreconditions("Deployment", newDeployment(foo, missing)); !errors.As(err, &report) {
			t.Fatalf("without %s: %v is not for the status", name, err)
		}
		want := &plan.ConditionError{Reason: v1alpha1.ReasonRefused, Message: noPreconditions, Advice: triesAgain[2:]}
		if diff := cmp.Diff(want, report); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", name, diff)
		}
	}
	if err := plan.CheckPreconditions("Foo", newFoo(withUID(""))); err == nil {
		t.Error("a Foo without a uid may be written")
	}
}

// Such an object is never written; the sync fails as if the API server had refused, and the status has the reason.
func TestWithoutPreconditionsNothingIsWritten(t *testing.T) {
	foo, noUID := newFoo(withReplicas(3)), newFoo(withReplicas(3), withUID(""))
	none := func(foo *v1alpha1.Foo) { foo.ResourceVersion = "" }
	named := newDeployment(renamed())
	for _, tc := range []struct {
		name   string
		state  plan.State
		sent   string
		report string
		err    string
	}{
		{
			name:   "a patch without uid",
			state:  plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5), withoutUID)},
			sent:   "nothing",
			report: cannotPatch + noPreconditions + triesAgain,
			err:    "Refused: " + noPreconditions,
		},
		{
			name:   "a patch without resourceVersion",
			state:  plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(5), withoutResourceVersion)},
			sent:   "nothing",
			report: cannotPatch + noPreconditions + triesAgain,
			err:    "Refused: " + noPreconditions,
		},
		{
			name: "a delete without uid",
			state: plan.State{
				Foo: renamed(), Deployment: named, Previous: all(func() *appsv1.Deployment {
					dep := earlier(renamed(), "web-1")
					dep.UID = ""
					return dep
				}()),
			},
			sent:   "nothing",
			report: available3 + undeleted + noPreconditions + triesAgain,
			err:    "Refused: " + noPreconditions,
		},
		{
			name: "a status without uid", state: plan.State{Foo: noUID, Deployment: newDeployment(noUID)},
			sent: "nothing", report: " : ",
			err: `Refused: Foo "web" has no uid or no resourceVersion, and no write is sent without both`,
		},
		{
			name: "a status without resourceVersion",
			state: plan.State{
				Foo: newFoo(withReplicas(3), none), Deployment: newDeployment(foo),
			},
			sent: "nothing", report: " : ",
			err: `Refused: Foo "web" has no uid or no resourceVersion, and no write is sent without both`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state)
			checkSent(t, tc.sent, c.sent())
			if diff := cmp.Diff(tc.report, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			if c.outcome.Kind != plan.Retry || c.outcome.Expected || c.outcome.Err.Error() != tc.err {
				t.Errorf("outcome %+v, want a retry because of %q that is logged", c.outcome, tc.err)
			}
		})
	}
}

func TestDriftLeavesForeignDataAlone(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	dep := newDeployment(newFoo(), foreignData, withFence("1"), withLabel(v1alpha1.LabelMadeFor, "x"),
		withLabel("app.kubernetes.io/managed-by", "Helm"),
		owned(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = nil }))

	want := dep.DeepCopy()
	made := plan.Deployment(foo)
	for label, value := range made.Labels {
		want.Labels[label] = value
	}
	want.OwnerReferences[0] = made.OwnerReferences[0]
	want.Spec.Replicas = new(int32(3))
	want.Spec.Template.Spec.Containers[1].Image = "nginx:1.29"
	if diff := cmp.Diff(want, apply(t, dep, plan.Drift(dep, foo))); diff != "" {
		t.Errorf("after the patch (-want +got):\n%s", diff)
	}
}

// The sample that this controller descends from selects pods by two labels and marks Deployments by nothing but the
// owner. Taking one over must not start a rollout.
func TestDriftTakesOverADeploymentOfTheUpstreamSampleByItsMetadata(t *testing.T) {
	foo := newFoo(withReplicas(1))
	podLabels := map[string]string{"app": "nginx", "controller": foo.Name}
	dep := newDeployment(foo, withoutLabels, func(dep *appsv1.Deployment) {
		dep.Spec.Selector.MatchLabels, dep.Spec.Template.Labels = podLabels, podLabels
	})
	patched := apply(t, dep, plan.Drift(dep, foo))
	if diff := cmp.Diff(dep.Spec, patched.Spec); diff != "" {
		t.Errorf("the spec changed:\n%s", diff)
	}
	want := dep.DeepCopy()
	want.Labels = plan.Deployment(foo).Labels
	if diff := cmp.Diff(want, patched); diff != "" {
		t.Errorf("after the patch (-want +got):\n%s", diff)
	}
}

// One patch corrects everything that is found, and a second one is not needed.
func TestDriftIsCorrectedByOnePatch(t *testing.T) {
	patches := 0
	somePairs(t, func(t *testing.T, foo *v1alpha1.Foo, dep *appsv1.Deployment) {
		patch := plan.Drift(dep, foo)
		if patch == nil {
			return
		}
		patches++
		patched := apply(t, dep, patch)
		if again := plan.Drift(patched, foo); again != nil {
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

func TestDriftAlwaysReturnsTheSamePatch(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	dep := newDeployment(newFoo(), withoutLabels)
	first := plan.Drift(dep, foo)
	for range 20 {
		if diff := cmp.Diff(first, plan.Drift(dep, foo)); diff != "" {
			t.Fatalf("another patch:\n%s", diff)
		}
	}
}

// Foos that name a Deployment and do not control it need not hear of its rollout, or of an annotation.
func TestSameOwnership(t *testing.T) {
	foo := newFoo(withReplicas(3))
	other := *metav1.NewControllerRef(named("api", "web-1"), plan.FooKind)
	for _, tc := range []struct {
		name string
		dep  *appsv1.Deployment
		same bool
	}{
		{name: "nothing", dep: newDeployment(foo), same: true},
		{name: "the status", dep: newDeployment(foo, rollout(3, 3, 3)), same: true},
		{name: "the replicas", dep: newDeployment(foo, scaled(9)), same: true},
		{name: "foreign data", dep: newDeployment(foo, foreignData), same: true},
		{name: "the label with the generation", dep: newDeployment(foo, withFence("9")), same: true},
		{name: "the label of what it was made for", dep: newDeployment(foo, withLabel(v1alpha1.LabelMadeFor, "other"))},
		{name: "no controller", dep: newDeployment(foo, ownedBy())},
		{name: "another controller", dep: newDeployment(foo, ownedBy(other))},
		{name: "it is being deleted", dep: newDeployment(foo, deleted)},
		{name: "another of the same name", dep: newDeployment(foo, func(dep *appsv1.Deployment) { dep.UID = "other" })},
	} {
		if got := plan.SameOwnership(newDeployment(foo), tc.dep); got != tc.same {
			t.Errorf("%s: SameOwnership = %t", tc.name, got)
		}
		if got := plan.SameOwnership(tc.dep, newDeployment(foo)); got != tc.same {
			t.Errorf("%s, the other way round: SameOwnership = %t", tc.name, got)
		}
	}
	if !plan.SameOwnership(newDeployment(foo, deleted), newDeployment(foo, deleted, rollout(3, 3, 0))) {
		t.Error("it loses its pods while it is being deleted: SameOwnership = false")
	}
}
