package plan_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
		{name: "the Foo has a new generation", state: drift(scaled(5), withFence("1"))},
		{name: "a Deployment is taken over that has no labels of ours", state: drift(scaled(5), withoutLabels)},
		{
			name: "a correction that is changed on its way in", state: drift(scaled(5)),
			replies: []reply{returns(patchDeployment, newDeployment(foo, scaled(4)))},
		},
		{
			name:  "the new Deployment can replace the previous one",
			state: world{Foo: moving, Deployment: newDeployment(moving), Others: all(earlier(moving, "web-1"))},
			want:  []string{moved},
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
	state := world{Foo: foo, Deployment: newDeployment(foo), Others: all(earlier(foo, "web-2"), earlier(foo, "web-1"))}
	c := play(t, state, fails(deleteDeployment, forbidden))
	if event := c.event(); event.Type != "Warning" || event.Reason != "Refused" {
		t.Errorf("the event is %+v", event)
	}
	checkLines(t, []string{"[availableReplicas 3 reason Available]"}, []string{fmt.Sprint(c.step(updateStatus).Log)})
}
