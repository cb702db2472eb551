package explain

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/syncs"
	"example.com/foo-controller/pkg/plan"
)

// The functions of this file pass to /debug/syncs what a running sync does. While that is off, they do nothing.

// Gone shows that a sync does nothing for a Foo.
func Gone(ctx context.Context) {
	syncs.From(ctx).Observed("the Foo is gone or being deleted, so nothing is written", "")
}

// Observed shows what a sync has read from the caches.
func Observed(ctx context.Context, state *plan.State) {
	shown := syncs.From(ctx)
	if shown == nil {
		return
	}
	text := fmt.Sprintf("Foo at generation %d; ", state.Foo.Generation)
	switch dep := state.Deployment; {
	case dep == nil:
		text += "no Deployment " + state.Foo.Spec.DeploymentName
	case !plan.Owns(state.Foo, dep):
		text += fmt.Sprintf("Deployment %s, which is not the Foo's", dep.Name)
	default:
		text += fmt.Sprintf("its Deployment %s, written for generation %s, with %d replicas available",
			dep.Name, dep.FooGeneration, dep.Status.AvailableReplicas)
	}
	if others := len(state.Previous); others > 0 { // Their names may be many.
		text += fmt.Sprintf("; other Deployments of the Foo: %d", others)
	}
	shown.Observed(text, summary(&state.Foo.Status))
}

// Sent shows a request that was sent at a time and has been answered now. state does not have the answer yet.
func Sent(ctx context.Context, state *plan.State, step *plan.Step, answer plan.Answer, sent time.Time) {
	shown := syncs.From(ctx)
	if shown == nil {
		return
	}
	request := syncs.Request{At: sent, Rule: step.Rule, Why: state.Why(step), Request: string(step.Verb), Name: step.Name}
	if step.Verb == plan.ReadFoo && answer.Foo == nil || step.Verb == plan.ReadDeployment && answer.Deployment == nil {
		request.Answer = "not found"
	}
	for _, field := range changes(state, step) {
		request.Fields = append(request.Fields, syncs.Field(field))
	}
	shown.Sent(request, answer.Err)
	if step.Verb == plan.UpdateStatus && answer.Err == nil {
		shown.Reported(summary(&answer.Foo.Status))
	}
}

// changes returns what a write changes.
func changes(state *plan.State, step *plan.Step) []plan.Field {
	const none = "none"
	switch step.Verb {
	case plan.PatchDeployment:
		return step.Patch.Fields
	case plan.CreateDeployment:
		spec := &step.Create.Spec
		return []plan.Field{
			{Path: "spec.replicas", Have: none, Want: strconv.Itoa(int(*spec.Replicas))},
			{Path: "image", Have: none, Want: spec.Template.Spec.Containers[0].Image},
		}
	case plan.UpdateStatus:
		return []plan.Field{{Path: "status", Have: summary(&state.Foo.Status), Want: summary(&step.Foo.Status)}}
	}
	return nil
}

// Concluded shows what the rules answer when nothing is left to send.
func Concluded(ctx context.Context, state *plan.State) {
	shown := syncs.From(ctx)
	if shown == nil {
		return
	}
	var answers []syncs.Rule
	for _, answer := range state.Explain() {
		answers = append(answers, syncs.Rule(answer))
	}
	shown.Concluded(answers)
}

// summary returns the conditions of the controller in one line. All of them have the same message.
func summary(status *v1alpha1.FooStatus) string {
	ready, other := "no conditions", ""
	for i := range status.Conditions {
		switch c := &status.Conditions[i]; c.Type {
		case v1alpha1.ConditionReady:
			ready = fmt.Sprintf("Ready=%s %s: %s", c.Status, c.Reason, c.Message)
		case v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled:
			other = c.Type + ", "
		}
	}
	return other + ready
}
