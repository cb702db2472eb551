package plan_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
	"example.com/foo-controller/pkg/plan"
)

func TestDeploymentIsTheSameEveryTimeAndHasNoDrift(t *testing.T) {
	full := newFoo(withReplicas(3), withImage("nginx:1.29"))
	for _, foo := range []*v1alpha1.Foo{newFoo(), newFoo(withReplicas(0)), full} {
		unchanged(t, foo, nil)
		if diff := cmp.Diff(plan.Deployment(foo), plan.Deployment(foo)); diff != "" {
			t.Errorf("two calls differ:\n%s", diff)
		}
		if patch := driftOf(newDeployment(foo), foo); patch != nil {
			t.Errorf("just created, it is patched: %s", patch.Body)
		}
	}
}

// Names may have 253 characters, the values of labels 63.
func TestDeploymentOfLongNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		long string
		want string
	}{
		{name: "63 characters are kept", long: strings.Repeat("a", 63), want: strings.Repeat("a", 63)},
		{
			name: "64 characters are shortened", long: strings.Repeat("a", 64),
			want: strings.Repeat("a", 52) + "-79ed788752",
		},
		{
			name: "253 characters are shortened", long: strings.Repeat("a", 253),
			want: strings.Repeat("a", 52) + "-9017330f29",
		},
		{
			name: "a cut behind a dot is a valid value", long: strings.Repeat("a.", 100) + "a",
			want: strings.Repeat("a.", 26) + "-5e55802a9d",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dep := plan.Deployment(newFoo(withName(tc.long), withDeploymentName(tc.long)))
			if dep.Name != tc.long {
				t.Errorf("the Deployment is named %q", dep.Name)
			}
			got := dep.Spec.Template.Labels
			want := map[string]string{"app": "nginx", "controller": tc.want, "samplecontroller.k8s.io/deployment": tc.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong labels (-want +got):\n%s", diff)
			}
			for label, value := range got {
				if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
					t.Errorf("%s=%s: %v", label, value, problems)
				}
			}
			selector, err := metav1.LabelSelectorAsSelector(dep.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			if !selector.Matches(labels.Set(got)) {
				t.Errorf("selector %s does not match pods %v", selector, got)
			}
		})
	}
}

// The Deployments in testdata/deployments are those that versions of the controller have created, byte for byte: a
// directory for each form that they had, with a file for each Foo below. The one with the highest number is the present
// form. An upgrade must not restart the pods of users, so:
//
//   - The Deployment for a Foo must not change by accident. A change of its pod template gives new Foos other pods than
//     old ones. A change of its selector or of its made-for label leaves the Deployments of all Foos behind.
//   - If it must change, copy the directory with the highest number to the next number, and run
//     `go test ./pkg/plan -run TestTheDeploymentOfAFoo -rewrite`. Never change a directory that a release had. The
//     other test then still checks that the new version leaves the Deployments of the older ones alone. The template
//     of an existing Deployment is the user's, except for the image: do not change Drift to correct more of it. That
//     would restart the pods of all Foos of the cluster at the same time.
var rewriteDeployments = flag.Bool("rewrite", false, "rewrite the newest directory of testdata/deployments")

// renderedFoos has the Foos whose Deployments are in testdata/deployments, by the name of the file.
func renderedFoos() map[string]*v1alpha1.Foo {
	long := strings.Repeat("long.", 50) + "end" // Labels have a hash instead of a name of this length.
	return map[string]*v1alpha1.Foo{
		"minimal": newFoo(),
		"all-fields": named("shop", "shop-backend", withGeneration(7), withReplicas(3),
			withImage("registry.example.com/shop/backend@sha256:"+strings.Repeat("0123456789abcdef", 4)), withPaused),
		"no-replicas": newFoo(withReplicas(0)),
		"long-names":  newFoo(withName(long), withDeploymentName(long)),
	}
}

func TestTheDeploymentOfAFooIsTheSameInEachVersion(t *testing.T) {
	directories := deploymentDirectories(t)
	newest := directories[len(directories)-1]
	for name, foo := range renderedFoos() {
		t.Run(name, func(t *testing.T) {
			rendered, err := json.MarshalIndent(plan.Deployment(foo), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			rendered = append(rendered, '\n')
			file := filepath.Join(newest, name+".json")
			if *rewriteDeployments {
				if err := os.WriteFile(file, rendered, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(rendered)); diff != "" {
				t.Errorf("the Deployment has changed, see the comment in this file (-want +got):\n%s", diff)
			}
		})
	}
}

// A patch of the template would restart all pods. A patch of anything else would be a write for each Foo.
func TestAnUpgradeWritesNothingToTheDeploymentsOfEarlierVersions(t *testing.T) {
	for _, directory := range deploymentDirectories(t) {
		for name, foo := range renderedFoos() {
			t.Run(filepath.Base(directory)+"/"+name, func(t *testing.T) {
				stored, err := os.ReadFile(filepath.Join(directory, name+".json"))
				if err != nil {
					t.Fatal(err)
				}
				have := &appsv1.Deployment{}
				if err := json.Unmarshal(stored, have); err != nil {
					t.Fatal(err)
				}
				have.UID, have.ResourceVersion = "deployment-uid", "20"
				if patch := driftOf(have, foo); patch != nil {
					t.Errorf("an upgrade patches %v:\n%s", patch.Fields, patch.Body)
				}
			})
		}
	}
}

// deploymentDirectories returns the directories of testdata/deployments, the newest last.
func deploymentDirectories(t *testing.T) []string {
	t.Helper()
	directories, err := filepath.Glob("testdata/deployments/[0-9][0-9]")
	if err != nil || len(directories) == 0 {
		t.Fatalf("testdata/deployments has %d directories: %v", len(directories), err)
	}
	return directories
}

const (
	inManagedBy  = "metadata.labels[app.kubernetes.io/managed-by]"
	inGeneration = "metadata.labels[samplecontroller.k8s.io/foo-generation]"
	inMadeFor    = "metadata.labels[samplecontroller.k8s.io/made-for]"
	inReference  = "metadata.ownerReferences"
	inReplicas   = "spec.replicas"
	inImage      = "spec.template.spec.containers[name=nginx].image"
)

// apply does with patch what the API server does with it.
func apply(t *testing.T, dep *appsv1.Deployment, patch []byte) *appsv1.Deployment {
	t.Helper()
	before, err := json.Marshal(dep)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.Deployment{})
	if err != nil {
		t.Fatalf("apply %s: %v", patch, err)
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
		{name: "replicas that the Foo does not set are left to others", foo: newFoo(), with: with(scaled(7))},
		{
			name: "replicas of a Foo that sets 1 may be absent, which is 1",
			foo:  newFoo(withReplicas(1)), with: with(withoutReplicas),
		},
		{name: "an image that the Foo does not set is left to others", foo: newFoo(), with: with(running("nginx:debug"))},

		{
			name: "replicas differ", foo: full, with: with(scaled(5)),
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
			name: "the made-for label is wrong", foo: full, with: with(withLabel(v1alpha1.LabelMadeFor, "x")),
			want: `{"metadata":{` + of + `,"labels":{` + madeFor + `}}}`, fields: []string{inMadeFor},
		},
		{
			name: "the label for people is wrong",
			foo:  full, with: with(withLabel("app.kubernetes.io/managed-by", "Helm")),
			want: `{"metadata":{` + of + `,"labels":{` + managedBy + `}}}`, fields: []string{inManagedBy},
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
			name: "the owner is an earlier Foo",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.UID = "earlier" }),
			want: repairReference, fields: []string{inReference},
		},
		{
			name: "the owner has another version",
			foo:  full, with: ref(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io/v1" }),
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
			patch := driftOf(dep, tc.foo)
			if patch == nil {
				patch = &state.Patch{}
			}
			got := []any{sorted(t, string(patch.Body)), paths(patch.Fields)}
			if diff := cmp.Diff([]any{sorted(t, tc.want), tc.fields}, got); diff != "" {
				t.Errorf("wrong patch (-want +got):\n%s", diff)
			}
			if tc.want == "" {
				return
			}
			if again := driftOf(apply(t, dep, patch.Body), tc.foo); again != nil {
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
		want reconcile.Field
		text string
	}{
		{
			name: "replicas", with: scaled(5),
			want: reconcile.Field{Path: inReplicas, Have: "5", Want: "3"}, text: "spec.replicas 5 -> 3",
		},
		{
			name: "absent replicas", with: withoutReplicas,
			want: reconcile.Field{Path: inReplicas, Have: "1", Want: "3"}, text: "spec.replicas 1 -> 3",
		},
		{
			name: "the image", with: running("nginx:0"),
			want: reconcile.Field{Path: inImage, Have: "nginx:0", Want: "nginx:1.29"},
			text: "spec.template.spec.containers[name=nginx].image nginx:0 -> nginx:1.29",
		},
		{
			name: "a missing container", with: withoutContainers,
			want: reconcile.Field{Path: inImage, Have: "none", Want: "nginx:1.29"},
			text: "spec.template.spec.containers[name=nginx].image none -> nginx:1.29",
		},
		{
			name: "a label", with: withFence("1"),
			want: reconcile.Field{Path: inGeneration, Have: "1", Want: "2"},
			text: "metadata.labels[samplecontroller.k8s.io/foo-generation] 1 -> 2",
		},
		{
			name: "the owner", with: owned(func(ref *metav1.OwnerReference) { ref.Name = "old" }),
			want: reconcile.Field{Path: inReference, Have: "another value", Want: "Foo web"},
			text: "metadata.ownerReferences another value -> Foo web",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fields := driftOf(newDeployment(foo, tc.with), foo).Fields
			if diff := cmp.Diff([]reconcile.Field{tc.want}, fields); diff != "" {
				t.Fatalf("wrong field (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.text, fields[0].String()); diff != "" {
				t.Errorf("wrong text (-want +got):\n%s", diff)
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
	if diff := cmp.Diff(want, apply(t, dep, driftOf(dep, foo).Body)); diff != "" {
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
	patched := apply(t, dep, driftOf(dep, foo).Body)
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
		patch := driftOf(dep, foo)
		if patch == nil || plan.FooReference(dep) == nil { // What no Foo controls is left alone.
			return
		}
		patches++
		patched := apply(t, dep, patch.Body)
		if again := driftOf(patched, foo); again != nil {
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

// Foos that name a Deployment and do not control it need not hear of its rollout, or of an annotation.
func TestSameOwnership(t *testing.T) {
	foo := newFoo(withReplicas(3))
	other := *metav1.NewControllerRef(named("api", "web-1"), plan.FooKind.GroupVersionKind)
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
		have, dep := plan.TrimDeployment(newDeployment(foo)), plan.TrimDeployment(tc.dep)
		if got := plan.SameOwnership(have, dep); got != tc.same {
			t.Errorf("%s: SameOwnership = %t", tc.name, got)
		}
		if got := plan.SameOwnership(dep, have); got != tc.same {
			t.Errorf("%s, the other way round: SameOwnership = %t", tc.name, got)
		}
	}
	serving, lost := newDeployment(foo, deleted), newDeployment(foo, deleted, rollout(3, 3, 0))
	if !plan.SameOwnership(plan.TrimDeployment(serving), plan.TrimDeployment(lost)) {
		t.Error("it loses its pods while it is being deleted: SameOwnership = false")
	}
}

// The Foos that name a Deployment which a Foo controls depend on whether it exists, is being deleted, and names that
// Deployment. What it reports, and the rest of its spec, does not concern them.
func TestSameToOthers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after *v1alpha1.Foo
		same  bool
	}{
		{name: "nothing", after: newFoo(), same: true},
		{name: "the status", after: newFoo(reports(metav1.Condition{Type: "Ready", Status: "True"})), same: true},
		{name: "paused", after: newFoo(withPaused), same: true},
		{name: "the generation", after: newFoo(withGeneration(9), withReplicas(7)), same: true},
		{name: "another Deployment", after: newFoo(withDeploymentName("web-2"))},
		{name: "it is being deleted", after: newFoo(deletedFoo)},
		{name: "another of the same name", after: newFoo(withUID("other"))},
	} {
		if got := plan.SameToOthers(newFoo(), tc.after); got != tc.same {
			t.Errorf("%s: SameToOthers = %t", tc.name, got)
		}
		if got := plan.SameToOthers(tc.after, newFoo()); got != tc.same {
			t.Errorf("%s, the other way round: SameToOthers = %t", tc.name, got)
		}
	}
}

// sorted returns a JSON object with sorted keys; "" for "".
func sorted(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		return ""
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}
