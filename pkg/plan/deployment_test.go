package plan_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/state"
	"example.com/foo-controller/pkg/plan"
)

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

// The files in testdata/deployments have the Deployments that versions of the controller have created for the Foos
// below, byte for byte: a file for each form that they had. The one with the highest number has the present form. An
// upgrade must not restart the pods of users, so:
//
//   - The Deployment for a Foo must not change by accident. A change of its pod template gives new Foos other pods than
//     old ones. A change of its selector or of its made-for label leaves the Deployments of all Foos behind.
//   - If it must change, copy the file with the highest number to the next number, and run
//     `go test ./pkg/plan -run TestTheDeploymentOfAFoo -rewrite`. Never change a file that a release had. The other
//     test then still checks that the new version leaves the Deployments of the older ones alone. The template of an
//     existing Deployment is the user's, except for the image: do not change Drift to correct more of it. That would
//     restart the pods of all Foos of the cluster at the same time.
var rewriteDeployments = flag.Bool("rewrite", false, "rewrite the newest file of testdata/deployments")

// renderedFoos has the Foos whose Deployments are in testdata/deployments.
func renderedFoos() map[string]*v1alpha1.Foo {
	long := strings.Repeat("long.", 50) + "end" // Labels have a hash instead of a name of this length.
	return map[string]*v1alpha1.Foo{
		"minimal": newFoo(),
		"all fields": named("shop", "shop-backend", withGeneration(7), withReplicas(3),
			withImage("registry.example.com/shop/backend@sha256:"+strings.Repeat("0123456789abcdef", 4)), withPaused),
		"no replicas": newFoo(withReplicas(0)),
		"long names":  newFoo(withName(long), withDeploymentName(long)),
	}
}

func TestTheDeploymentOfAFooIsTheSameInEachVersion(t *testing.T) {
	deployments := map[string]*appsv1.Deployment{}
	for name, foo := range renderedFoos() {
		deployments[name] = plan.Deployment(foo)
	}
	rendered, err := json.MarshalIndent(deployments, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	rendered = append(rendered, '\n')
	files := deploymentFiles(t)
	newest := files[len(files)-1]
	if *rewriteDeployments {
		if err := os.WriteFile(newest, rendered, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(rendered)); diff != "" {
		t.Errorf("a Deployment has changed, see the comment in this file (-want +got):\n%s", diff)
	}
}

// A patch of the template would restart all pods. A patch of anything else would be a write for each Foo.
func TestAnUpgradeWritesNothingToTheDeploymentsOfEarlierVersions(t *testing.T) {
	for _, file := range deploymentFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var stored map[string]*appsv1.Deployment
		if err := json.Unmarshal(text, &stored); err != nil {
			t.Fatal(err)
		}
		for name, foo := range renderedFoos() {
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) {
				have := stored[name]
				if have == nil {
					t.Fatal("the file does not have it")
				}
				have.UID, have.ResourceVersion = "deployment-uid", "20"
				if patch := driftOf(have, foo); patch != nil {
					t.Errorf("an upgrade patches %v:\n%s", patch.Fields, patch.Body)
				}
			})
		}
	}
}

// deploymentFiles returns the files of testdata/deployments, the newest last.
func deploymentFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/deployments/[0-9][0-9].json")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/deployments has %d files: %v", len(files), err)
	}
	return files
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
	owner := driftOf(newDeployment(full, owned(func(ref *metav1.OwnerReference) { ref.Name = "old" })), full).Fields[0]
	if text := owner.String(); text != inReference+" another value -> Foo web" {
		t.Errorf("the log has %q", text)
	}
}

// Foos that name a Deployment and do not control it need not hear of its rollout, or of an annotation.
func TestSameDeploymentForWaiters(t *testing.T) {
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
		if got := plan.SameDeploymentForWaiters(have, dep); got != tc.same {
			t.Errorf("%s: SameDeploymentForWaiters = %t", tc.name, got)
		}
		if got := plan.SameDeploymentForWaiters(dep, have); got != tc.same {
			t.Errorf("%s, the other way round: SameDeploymentForWaiters = %t", tc.name, got)
		}
	}
	serving, lost := newDeployment(foo, deleted), newDeployment(foo, deleted, rollout(3, 3, 0))
	if !plan.SameDeploymentForWaiters(plan.TrimDeployment(serving), plan.TrimDeployment(lost)) {
		t.Error("it loses its pods while it is being deleted: SameDeploymentForWaiters = false")
	}
}

// The Foos that name a Deployment which a Foo controls depend on whether it exists, is being deleted, and names that
// Deployment. What it reports, and the rest of its spec, does not concern them.
func TestSameFooForWaiters(t *testing.T) {
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
		if got := plan.SameFooForWaiters(newFoo(), tc.after); got != tc.same {
			t.Errorf("%s: SameFooForWaiters = %t", tc.name, got)
		}
		if got := plan.SameFooForWaiters(tc.after, newFoo()); got != tc.same {
			t.Errorf("%s, the other way round: SameFooForWaiters = %t", tc.name, got)
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

// notOfTheDeployment are the fields that are not a field of the Deployment.
var notOfTheDeployment = map[string]string{
	"DeploymentName": "another name means another Deployment, and the API server allows no Deployment to be renamed",
	"Paused":         "it decides whether the controller writes, not what",
}

// If Deployment, Trim or Drift forgets a field of FooSpec, the field is never corrected, or corrected in every sync.
// This test asks all three about every field, including those that are added later.
func TestEveryFieldOfTheSpecIsCreatedAndKept(t *testing.T) {
	foo := fooWithAllFields(t)
	dep := newDeployment(foo)
	if drift := driftOf(dep, foo); drift != nil {
		t.Errorf("a new Deployment differs from its Foo: %v", drift.Fields)
	}

	for field := range reflect.TypeFor[v1alpha1.FooSpec]().Fields() {
		if notOfTheDeployment[field.Name] != "" {
			continue
		}
		t.Run(field.Name, func(t *testing.T) {
			changed := foo.DeepCopy()
			setField(t, field, reflect.ValueOf(&changed.Spec).Elem().FieldByIndex(field.Index), 3)
			if driftOf(dep, changed) == nil {
				t.Errorf("spec.%s of the Foo has changed, and nothing is patched", field.Name)
			}
		})
	}
}

// fooWithAllFields returns a Foo that sets every field of its spec. A paused one is created and compared alike.
func fooWithAllFields(t *testing.T) *v1alpha1.Foo {
	t.Helper()
	foo := newFoo()
	for field := range reflect.TypeFor[v1alpha1.FooSpec]().Fields() {
		setField(t, field, reflect.ValueOf(&foo.Spec).Elem().FieldByIndex(field.Index), 2)
	}
	return foo
}

// setField gives a field a value that stands for n. It is neither the zero value nor a default.
func setField(t *testing.T, field reflect.StructField, value reflect.Value, n int64) {
	t.Helper()
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		setField(t, field, value.Elem(), n)
	case reflect.String:
		value.SetString(fmt.Sprint("value-", n))
	case reflect.Int32, reflect.Int64:
		value.SetInt(n)
	case reflect.Bool:
		value.SetBool(n == 2)
	default:
		t.Fatalf("spec.%s is of the kind %s: add a case here that sets it", field.Name, value.Kind())
	}
}
