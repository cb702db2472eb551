package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

func TestEventOf(t *testing.T) {
	status := func(reason string, generation int64) *v1alpha1.FooStatus {
		return &v1alpha1.FooStatus{Conditions: []metav1.Condition{{Type: "Ready", Reason: reason, Message: "2 of 2", ObservedGeneration: generation}}}
	}
	nothing := &v1alpha1.FooStatus{}
	synced := &plan.Event{Type: "Normal", Reason: "Synced", Action: "Sync", Note: "2 of 2"}
	exists := &plan.Event{Type: "Warning", Reason: "ErrResourceExists", Action: "Create", Note: "2 of 2"}
	overridden := &plan.Event{Type: "Warning", Reason: "FieldsOverridden", Action: "Patch", Note: "2 of 2"}
	for _, tc := range []struct {
		name          string
		before, after *v1alpha1.FooStatus
		want          *plan.Event
	}{
		{"a Foo becomes ready", status("Progressing", 1), status("Available", 1), synced},
		{"a Foo is ready at the first look", nothing, status("Available", 1), synced},
		{"a Foo is ready again for a new generation", status("Available", 1), status("Available", 2), synced},
		{"a Foo is still ready", status("Available", 1), status("Available", 1), nil},
		{"a Foo is paused while ready", status("Available", 1), status("Paused", 2), nil},
		{"a name turns out to be taken", status("Creating", 1), status("NotOwned", 1), exists},
		{"a name is taken at the first look", nothing, status("NotOwned", 1), exists},
		{"another name is taken too", status("NotOwned", 1), status("NotOwned", 2), exists},
		{"a name is still taken", status("NotOwned", 1), status("NotOwned", 1), nil},
		{"a name turns out to be another Foo's", status("Creating", 1), status("NameTaken", 1), exists},
		{"a name is still another Foo's", status("NameTaken", 1), status("NameTaken", 1), nil},
		{"Foos turn out to stand in each other's way", status("WaitingForName", 1), status("NameCycle", 1), exists},
		{"Foos still stand in each other's way", status("NameCycle", 1), status("NameCycle", 1), nil},
		{"a Foo with the name turns out to stay", status("WaitingForName", 1), status("NameTaken", 1), exists},
		{"a name is about to be free", status("NameTaken", 1), status("WaitingForName", 1), nil},
		{"a name is about to be free at the first look", nothing, status("WaitingForName", 1), nil},
		{"a Deployment is about to be gone", status("Available", 1), status("WaitingForDeletion", 1), nil},
		{"something else turns out to decide about a field", status("Available", 1), status("FieldsOverridden", 1), overridden},
		{"something else decides about a field at the first look", nothing, status("FieldsOverridden", 1), overridden},
		{"something else decides about a field of the next generation too", status("FieldsOverridden", 1), status("FieldsOverridden", 2), overridden},
		{"something else still decides about a field", status("FieldsOverridden", 1), status("FieldsOverridden", 1), nil},
		{"nothing else decides any more", status("FieldsOverridden", 1), status("Available", 1), synced},
		{"a Foo is no longer ready", status("Available", 1), status("Progressing", 1), nil},
		{"a write is refused", status("Creating", 1), status("Refused", 1), nil},
		{"there is nothing to say", status("Available", 1), nothing, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plan.EventOf(tc.before, tc.after)); diff != "" {
				t.Errorf("wrong event (-want +got):\n%s", diff)
			}
		})
	}
}

// The API server takes notes of at most 1 kB.
func TestEventOfShortensItsNote(t *testing.T) {
	for _, tc := range []struct{ name, message, want string }{
		{"1024 characters are kept", strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		{"1025 characters are cut", strings.Repeat("a", 1025), strings.Repeat("a", 1021) + "..."},
	} {
		for _, reason := range []string{v1alpha1.ReasonAvailable, v1alpha1.ReasonNotOwned, v1alpha1.ReasonNameTaken, v1alpha1.ReasonNameCycle, v1alpha1.ReasonFieldsOverridden} {
			t.Run(tc.name+" of "+reason, func(t *testing.T) {
				after := &v1alpha1.FooStatus{Conditions: []metav1.Condition{{Type: "Ready", Reason: reason, Message: tc.message}}}
				if diff := cmp.Diff(tc.want, plan.EventOf(&v1alpha1.FooStatus{}, after).Note); diff != "" {
					t.Errorf("wrong note (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// What is told is told once: the life of a Foo, with every look at it repeated.
func TestEventOfTellsAChangeOnce(t *testing.T) {
	foo := newFoo(withReplicas(3))
	api, leaving := named("api", "web-1"), named("api", "api-2")
	apis := earlier(api, "web-1")
	var got []string
	for _, seen := range []plan.Seen{
		{},
		{Named: newDeployment(foo, rollout(3, 3, 1))},
		{Named: newDeployment(foo)},
		{Named: newDeployment(foo, ownedBy())},
		{Named: newDeployment(foo)},
		{Named: newDeployment(foo, deleted)},
		{Claimants: foos(named("a", "web-1"))},
		{Named: apis, Holders: foos(api)}, // The older one has taken it, or what was older.
		{Named: apis, Holders: foos(leaving)},
		{Named: apis, Holders: foos(leaving, foo)},
		{Named: apis},
		{Named: newDeployment(foo), Overridden: overriddenReplicas()},
		{Named: newDeployment(foo)},
	} {
		for range 3 {
			seen.Foo = foo
			after := plan.Status(seen, plan.Next(seen).Err, now)
			if event := plan.EventOf(&foo.Status, &after); event != nil {
				got = append(got, event.Type+" "+event.Reason+": "+meta.FindStatusCondition(after.Conditions, "Ready").Message)
				if !strings.HasSuffix(got[len(got)-1], event.Note) {
					t.Errorf("note %q is not the condition's message", event.Note)
				}
			}
			foo.Status = after
		}
	}
	want := []string{
		"Normal Synced: 3 of 3 replicas available",
		`Warning ErrResourceExists: Deployment "web-1" is not this Foo's and is left alone: it has no controller. Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true`,
		"Normal Synced: 3 of 3 replicas available",
		`Warning ErrResourceExists: Deployment "web-1" goes to Foo "a", which names it too and is older. Set another spec.deploymentName here, or change or delete that Foo`,
		`Warning ErrResourceExists: None of these can move: Foo "web" wants Deployment "web-1" of Foo "api"; Foo "api" wants Deployment "api-2" of Foo "web"; ` +
			"give one of them a spec.deploymentName that nobody has, and when it has moved the others can follow",
		"Warning FieldsOverridden: " + overriddenWords,
		"Normal Synced: 3 of 3 replicas available",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong events (-want +got):\n%s", diff)
	}
}
