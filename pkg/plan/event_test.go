package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/pkg/plan"
)

// A change is reported once: the life of a Foo, with every sync repeated.
func TestAChangeIsOneEvent(t *testing.T) {
	foo := newFoo(withReplicas(3))
	api, leaving := named("api", "web-1"), named("api", "api-2")
	apis := earlier(api, "web-1")
	refused := fails(plan.CreateDeployment, tooMany) // So that nothing changes by itself.
	var got []string
	for _, state := range []plan.State{
		{},
		{Deployment: newDeployment(foo, available(1))},
		{Deployment: newDeployment(foo)},
		{Deployment: newDeployment(foo, ownedBy())},
		{Deployment: newDeployment(foo)},
		{Deployment: newDeployment(foo, deleted)},
		{Claimants: foos(named("a", "web-1"))},
		{Deployment: apis, OwnerChain: foos(api)}, // An even older one has created it.
		{Deployment: apis, OwnerChain: foos(leaving)},
		{Deployment: apis, OwnerChain: foos(leaving, foo)},
		{Deployment: apis},
		{Deployment: newDeployment(foo), Memory: overriddenMemory(foo)},
		{Deployment: newDeployment(foo)},
	} {
		for range 3 {
			state.Foo = foo
			c := play(t, state, refused)
			if event := c.event(); event != nil {
				got = append(got, event.Type+" "+event.Reason+": "+c.message())
				if !strings.HasSuffix(c.message(), event.Note) {
					t.Errorf("note %q is not the condition's message", event.Note)
				}
			}
			if step := c.step(plan.UpdateStatus); step != nil {
				foo = step.Foo
			}
		}
	}
	checkLines(t, []string{
		"Normal Synced: 3 of 3 replicas available",
		"Warning ErrResourceExists: " + notOwned("web-1", "it has no controller"),
		"Normal Synced: 3 of 3 replicas available",
		`Warning ErrResourceExists: Deployment "web-1" is left to Foo "a", which also names it and is older` +
			strings.ReplaceAll(yields, "foo api", "foo a"),
		"Warning ErrResourceExists: " + cycleBegins + `Foo "web" waits for Deployment "web-1" of Foo "api"; ` +
			`Foo "api" waits for Deployment "api-2" of Foo "web"` + cycleEnd + "web",
		"Warning FieldsOverridden: " + overriddenMessage,
		"Normal Synced: 3 of 3 replicas available",
	}, got)
}

// The event belongs to the status that it is about, and with no other request.
func TestOnlyAStatusHasAnEvent(t *testing.T) {
	foo := renamed()
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))})
	for _, step := range c.steps {
		if (step.Event != nil) != (step.Verb == plan.UpdateStatus) {
			t.Errorf("%s has the event %+v", wordsOf(step), step.Event)
		}
	}
	want := &plan.Event{Type: "Normal", Reason: "Synced", Action: "Sync", Note: "3 of 3 replicas available"}
	if diff := cmp.Diff(want, c.event()); diff != "" {
		t.Errorf("wrong event (-want +got):\n%s", diff)
	}
}
