package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file changes Foos from each value of a field to each other one. It compares their final state with that of Foos
// that were created with the second value: the history of a Foo must not matter. The intended exceptions are in
// transition.equivalent and transition.expected.

// A spec is the spec of a Foo as a client sends it. A missing field is absent, which is not the same as false or 0.
type spec map[string]any

// with returns s with another value of one field. nil removes the field.
func (s spec) with(field string, value any) spec {
	changed := maps.Clone(s)
	changed[field] = value
	if value == nil {
		delete(changed, field)
	}
	return changed
}

// json returns s as JSON.
func (s spec) json(t *testing.T) string {
	t.Helper()
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// A transition is a change of a Foo's spec.
type transition struct {
	name        string
	first, then spec
}

// numbered returns tr with unique names of Deployments: number replaces "000" in them.
func (tr transition) numbered(number string) transition {
	for _, s := range []*spec{&tr.first, &tr.then} {
		*s = s.with("deploymentName", strings.Replace((*s)["deploymentName"].(string), "000", number, 1))
	}
	return tr
}

func (tr transition) renames() bool { return tr.first["deploymentName"] != tr.then["deploymentName"] }

// pauses reports whether the Foo has a Deployment and is then paused.
func (tr transition) pauses() bool { return tr.first["paused"] != true && tr.then["paused"] == true }

// equivalent returns the spec with which a new Foo has the same final state as a Foo after the transition.
func (tr transition) equivalent() spec {
	same := tr.then
	stays := func(field string) {
		if same[field] == nil {
			same = same.with(field, tr.first[field])
		}
	}
	switch {
	case tr.first["paused"] == true: // The first spec had no effect.
	case tr.pauses(): // The other spec has no effect.
		return tr.first
	case tr.renames(): // The new Deployment gets the replicas of the old one, and the default image.
		stays("replicas")
	default: // A field that becomes absent keeps its value in the Deployment.
		stays("replicas")
		stays("image")
	}
	return same
}

// expected returns the expected final state of the transition, given the final state of the equivalent Foo.
func (tr transition) expected(alike ending) ending {
	end := ending{Name: alike.Name, Status: *alike.Status.DeepCopy(), Deployments: alike.Deployments}
	if tr.pauses() { // The status reports the pause, and the Deployment that the paused spec names.
		ready := &end.Status.Conditions[0]
		observed := "has " + ready.Message
		if tr.renames() {
			end.Status.Replicas, end.Status.AvailableReplicas, end.Status.Selector = 0, 0, ""
			ready.Status = metav1.ConditionFalse
			observed = fmt.Sprintf("does not exist. Previous Deployment %q (%v available) is kept while this Foo is paused",
				tr.first["deploymentName"], tr.first["replicas"])
		}
		ready.Reason = v1alpha1.ReasonPaused
		ready.Message = fmt.Sprintf("No Deployment is created, changed or deleted for this Foo while spec.paused is true. "+
			"Deployment %q %s. To resume: kubectl -n NAMESPACE patch foo %s --type=merge -p '%s'",
			tr.then["deploymentName"], observed, alike.Name, `{"spec":{"paused":false}}`)
	}
	for _, dep := range end.Deployments { // A later change of the image does not change this.
		dep.Spec.Template.Spec.Containers[0].ImagePullPolicy = tr.pullPolicy()
	}
	return end
}

// pullPolicy returns the default of the API server for the image with which the Deployment is created.
func (tr transition) pullPolicy() corev1.PullPolicy {
	created := tr.first
	if created["paused"] == true || tr.renames() && !tr.pauses() {
		created = tr.then
	}
	if image := created["image"]; image == nil || image == plan.DefaultImage {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// A value is a value of a field, and its name in the tests.
type value struct {
	name  string
	value any
}

// transitionsOf returns the transitions of a field from each value to each other one.
func transitionsOf(field string, values ...value) []transition {
	base := spec{"deploymentName": "web-000", "replicas": 1, "image": "nginx:1.29"}
	var all []transition
	for _, first := range values {
		for _, then := range values {
			if first != then {
				all = append(all, transition{
					name:  fmt.Sprintf("%s from %s to %s", field, first.name, then.name),
					first: base.with(field, first.value),
					then:  base.with(field, then.value),
				})
			}
		}
	}
	return all
}

func TestTransitions(t *testing.T) {
	inParallel(t) // Its parts use the cluster.
	absent := value{"absent", nil}
	name := func(length int) value {
		return value{fmt.Sprint(length, " characters"), "000" + strings.Repeat("a", length-len("000"))}
	}

	t.Run("with pods", func(t *testing.T) {
		transitions := transitionsOf("replicas", absent, value{"0", 0}, value{"1", 1}, value{"3", 3})
		transitions = append(transitions,
			transitionsOf("image", absent, value{"a tag", "nginx:1.29"}, value{"the default", plan.DefaultImage},
				value{"a digest", "registry.example.com:5000/nginx@sha256:" + strings.Repeat("0f", 32)},
				value{"1024 characters", strings.Repeat("a", 1024)})...)
		transitions = append(transitions,
			transitionsOf("deploymentName", name(3), name(63), name(64), name(253), value{"dots and digits", "0.000.a-1"})...)
		transitions = append(transitions, transitionsOf("paused", absent, value{"false", false}, value{"true", true})...)

		old := spec{"deploymentName": "old-000", "replicas": 2, "image": "nginx:1.29"}
		renamed := spec{"deploymentName": "new-000"}
		paused := old.with("paused", true)
		transitions = append(transitions, []transition{
			{"all but the name becomes absent", old, old.with("replicas", nil).with("image", nil)},
			{"replicas become absent and the image another", old, old.with("replicas", nil).with("image", "nginx:1.30")},
			{"a new name and all else absent", old, renamed},
			{"a new name and all else absent, from no replicas", old.with("replicas", 0), renamed},
			{"a new name, fewer replicas, another image", old, renamed.with("replicas", 1).with("image", "nginx:1.30")},
			{"paused with other replicas and another image", old, paused.with("replicas", 3).with("image", "nginx:1.30")},
			{"paused with all else absent", old, paused.with("replicas", nil).with("image", nil)},
			{"paused with a new name", old, renamed.with("paused", true)},
			{"a new name, replicas and image while paused", paused, renamed.with("paused", true).with("replicas", 3)},
			{"no longer paused, and all else absent", paused, old.with("replicas", nil).with("image", nil)},
			{"no longer paused, and a new name", paused, renamed},
		}...)
		compareTransitions(t, newEnv(t, servedCluster), newEnv(t, servedCluster), v1alpha1.ReasonAvailable, transitions)
	})

	t.Run("without pods", func(t *testing.T) { // The nodes have no room for so many pods.
		transitions := transitionsOf("replicas", absent, value{"0", 0}, value{"1", 1}, value{"3", 3},
			value{"2147483647", math.MaxInt32})
		changed, made := newEnv(t, apiCluster), newEnv(t, apiCluster)
		changed.controller(t)
		made.controller(t)
		compareTransitions(t, changed, made, v1alpha1.ReasonCreating, transitions)
	})
}

// compareTransitions makes all transitions at once in one namespace, and creates the equivalent Foos in another. A
// transition has ended when the reason is end or Paused, and no Deployment with an earlier name exists.
func compareTransitions(t *testing.T, changed, made *env, end string, transitions []transition) {
	nameOf := func(i int) string { return fmt.Sprintf("%03d", i) }
	create := func(e *env, i int, s spec) {
		t.Helper()
		if err := e.foosIn(e.namespace).create(t.Context(), nameOf(i), `"spec":`+s.json(t)); err != nil {
			t.Fatalf("%s: %v", transitions[i].name, err)
		}
	}
	finish := func(e *env) {
		t.Helper()
		for i := range transitions {
			e.waitForFoo(t, nameOf(i), func(foo *v1alpha1.Foo) bool {
				ready := readyCondition(foo)
				return ready.Reason == v1alpha1.ReasonPaused || ready.Reason == end &&
					!strings.Contains(ready.Message, "Previous Deployment ")
			})
		}
	}

	for i := range transitions {
		transitions[i] = transitions[i].numbered(nameOf(i))
	}
	for i, tr := range transitions {
		create(changed, i, tr.first)
		create(made, i, tr.equivalent())
	}
	finish(changed)
	for i, tr := range transitions {
		replace := fmt.Sprintf(`[{"op":"replace","path":"/spec","value":%s}]`, tr.then.json(t))
		foos := changed.samples.SamplecontrollerV1alpha1().Foos(changed.namespace)
		if _, err := foos.Patch(t.Context(), nameOf(i), types.JSONPatchType, []byte(replace),
			metav1.PatchOptions{}); err != nil {
			t.Fatalf("%s: %v", tr.name, err)
		}
	}
	finish(changed)
	finish(made)

	got, want := changed.endings(t), made.endings(t)
	for i, tr := range transitions {
		t.Run(tr.name, func(t *testing.T) {
			got, want := got[nameOf(i)], want[nameOf(i)]
			if diff := cmp.Diff(tr.expected(want), got); diff != "" {
				t.Errorf("Foo %s in %s is not like that in %s (-want +got):\n%s", nameOf(i), changed.namespace,
					made.namespace, diff)
			}
		})
	}
}

// An ending is the final state of a Foo without times, uids and other values that always differ.
type ending struct {
	Name        string
	Status      v1alpha1.FooStatus
	Deployments map[string]*appsv1.Deployment
}

// endings returns the final state of each Foo of the namespace.
func (e *env) endings(t *testing.T) map[string]ending {
	t.Helper()
	list, err := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployments := e.deployments(t)
	ends := map[string]ending{}
	for i := range list.Items {
		foo := &list.Items[i]
		end := ending{Name: foo.Name, Status: foo.Status, Deployments: map[string]*appsv1.Deployment{}}
		end.Status.ObservedGeneration -= foo.Generation
		for i := range end.Status.Conditions {
			end.Status.Conditions[i].ObservedGeneration -= foo.Generation
			end.Status.Conditions[i].LastTransitionTime = metav1.Time{}
			end.Status.Conditions[i].Message = strings.ReplaceAll(end.Status.Conditions[i].Message, "-n "+e.namespace+" ",
				"-n NAMESPACE ")
		}
		for name, dep := range deployments {
			if plan.Owns(foo, dep) {
				end.Deployments[name] = stripped(foo, dep)
			}
		}
		ends[foo.Name] = end
	}
	return ends
}

// stripped returns a Deployment of foo without the values that would differ in another namespace. For two fields it
// keeps only whether they are correct.
func stripped(foo *v1alpha1.Foo, dep *appsv1.Deployment) *appsv1.Deployment {
	dep = dep.DeepCopy()
	dep.Namespace, dep.UID, dep.ResourceVersion, dep.Generation = "", "", "", 0
	dep.CreationTimestamp, dep.ManagedFields, dep.Status = metav1.Time{}, nil, appsv1.DeploymentStatus{}
	delete(dep.Annotations, "deployment.kubernetes.io/revision")
	delete(dep.Labels, v1alpha1.LabelFooGeneration)
	dep.OwnerReferences[0].UID = "the Foo's"

	foo = foo.DeepCopy()
	foo.Spec.DeploymentName = dep.Name
	if dep.Labels[v1alpha1.LabelMadeFor] == plan.Deployment(foo).Labels[v1alpha1.LabelMadeFor] {
		dep.Labels[v1alpha1.LabelMadeFor] = "the Foo under this name"
	}
	return dep
}
