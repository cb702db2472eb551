package plan_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A change is reported once: the life of a Foo, with every sync repeated.
func TestAChangeIsOneEvent(t *testing.T) {
	foo := newFoo(withReplicas(3))
	api, leaving := named("api", "web-1"), named("api", "api-2")
	apis := earlier(api, "web-1")
	refused := fails(createDeployment, tooMany) // So that nothing changes by itself.
	var got []string
	for _, state := range []world{
		{},
		{Deployment: newDeployment(foo, available(1))},
		{Deployment: newDeployment(foo)},
		{Deployment: newDeployment(foo, ownedBy())},
		{Deployment: newDeployment(foo)},
		{Deployment: newDeployment(foo, deleted)},
		{Deployment: apis, Owner: api},
		{Deployment: apis, Owner: leaving},
		{Deployment: apis, Owner: leaving, Previous: all(earlier(foo, "api-2"))},
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
			if reported := c.reported(); reported != nil {
				foo = reported
			}
		}
	}
	checkLines(t, []string{
		"Warning " + strings.TrimPrefix(failedCreate, reconciling) + "the API server has too many requests: slow down" + passes,
		"Normal Synced: 3 of 3 replicas available",
		"Warning ErrResourceExists: " + notOwned("web-1", "it has no controller"),
		"Normal Synced: 3 of 3 replicas available",
		"Warning ErrResourceExists: " + nameTaken,
		"Warning ErrResourceExists: " + nameCycle +
			`. Previous Deployment "api-2" (3 available) is kept until its replacement is available` + endCycle,
		"Warning FieldsOverridden: " + overriddenMessage,
		"Normal Synced: 3 of 3 replicas available",
	}, got)
}

// An event is about what has happened, so it is sent after the write, and only when that had its effect.
func TestTheEventsOfAWrite(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"), observed)
	drift := func(with ...deploymentOption) world {
		return world{Foo: foo, Deployment: newDeployment(foo, with...)}
	}
	moving := renamed()
	const (
		correct = `Normal Corrected (Correct replicas): Corrected Deployment "web-1": ` + replicas5
		image   = inImage + " was \"nginx:1\", must be \"nginx:1.29\""
		noLabel = inGeneration + " was missing, must be \"2\""
		moved   = `Normal Moved (Delete web-1): Moved to Deployment "web-3" (3 of 3 replicas available) and deleted ` +
			`previous Deployment "web-1"`
	)
	for _, tc := range []struct {
		name    string
		state   world
		replies []reply
		want    []string
	}{
		{name: "a Deployment is created", state: world{Foo: newFoo()}},
		{
			name: "somebody changes all that the Foo sets", state: drift(scaled(5), running("nginx:1"), withFence("x"),
				owned(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = nil })),
			want: []string{`Normal Corrected (Correct labels,ownerReferences,replicas,image): Corrected Deployment ` +
				`"web-1": ` + inGeneration + ` was "x", must be "2"; ` + inReference +
				" lacked Foo web; " + replicas5 + "; " + image},
		},
		{
			name:  "somebody removes the generation",
			state: drift(func(dep *appsv1.Deployment) { delete(dep.Labels, v1alpha1.LabelFooGeneration) }),
			want:  []string{`Normal Corrected (Correct labels): Corrected Deployment "web-1": ` + noLabel},
		},
		{name: "the Foo has a new generation", state: drift(scaled(5), withFence("1"))},
		{name: "a Deployment is taken over that has no labels of ours", state: drift(scaled(5), withoutLabels)},
		{
			name: "a correction that is changed on its way in", state: drift(scaled(5)),
			replies: []reply{returns(patchDeployment, newDeployment(foo, scaled(4)))},
		},

		{
			name:  "the new Deployment can replace the previous one",
			state: world{Foo: moving, Deployment: newDeployment(moving), Previous: all(earlier(moving, "web-1"))},
			want:  []string{moved},
		},
		{
			name:    "the previous one must not be deleted",
			state:   world{Foo: moving, Deployment: newDeployment(moving), Previous: all(earlier(moving, "web-1"))},
			replies: []reply{fails(deleteDeployment, forbidden)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state, tc.replies...)
			var got []string
			for _, event := range c.events {
				if event.Reason != v1alpha1.EventSynced && event.Type != "Warning" {
					got = append(got, fmt.Sprintf("%s %s (%s): %s", event.Type, event.Reason, event.Action, event.Note))
				}
			}
			checkLines(t, tc.want, got)
		})
	}
}

// The rename is complete, but somebody must act.
func TestADeletionThatFailsIsAWarning(t *testing.T) {
	foo := renamed()
	state := world{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-2"), earlier(foo, "web-1"))}
	c := play(t, state, fails(deleteDeployment, forbidden))
	if event := c.event(); event.Type != "Warning" || event.Reason != "Refused" {
		t.Errorf("the event is %+v", event)
	}
	checkLines(t, []string{"[availableReplicas 3 reason Available]"}, []string{fmt.Sprint(c.step(updateStatus).Log)})
}
