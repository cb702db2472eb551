package plan

import (
	"fmt"
	"strings"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about other clients that work against a Foo: they set fields that the Foo sets, or delete its
// Deployment.

// undone returns the attempt that delays the next repetition of verb, a patch or creation of the Deployment, because
// something else keeps undoing it. It returns nil when verb may be repeated now, or nothing needs to be repeated.
func (s *State) undone(verb Verb) *Attempt {
	dep, attempt := s.Deployment, s.attempt(Op{Verb: verb, Name: s.Foo.Spec.DeploymentName}.again())
	switch {
	case attempt.Report.Reason == "", !attempt.Until.After(s.Now):
		return nil
	case s.Foo.Spec.Paused, dep != nil && !Owns(s.Foo, dep):
		return nil
	case verb == PatchDeployment && (dep == nil || dep.DeletionTimestamp != nil):
		return nil
	case verb == CreateDeployment && dep != nil && dep.Status.ObservedGeneration != 0:
		return nil // The Deployment controller has reported on the last one: it was not deleted at once.
	}
	return &attempt
}

// overriddenReport returns what the status reports after a write to the Deployment when something else decides about
// fields of the Foo; nothing otherwise. patched are the fields that the write corrected; a create has none.
func (s *State) overriddenReport(patched []Field) ConditionError {
	name := s.Deployment.Name
	// If the answer has other values than were sent, admission has changed them.
	if drift := Drift(s.Deployment, s.Foo); drift != nil {
		return fieldsOverridden(drift.Fields,
			fmt.Sprintf("An admission webhook or policy changes Deployment %q when the controller writes it: %s. %s",
				name, describeFields(drift.Fields), triesAgain),
			"Change that webhook or policy", "See: kubectl get mutatingwebhookconfigurations -o yaml")
	}
	if len(patched) == 0 || s.repeats(Op{Verb: PatchDeployment, Name: name}) < freeRepeats {
		return ConditionError{}
	}
	return fieldsOverridden(patched,
		fmt.Sprintf("Another client keeps changing Deployment %q: %s. The controller corrects it at least once a minute",
			name, describeFields(patched)),
		"Stop that client, for example an autoscaler or a GitOps tool",
		"To find it: "+s.kubectl("get deployment %s -o yaml --show-managed-fields", name))
}

// fieldsOverridden returns the report that something else sets fields. The user may stop that, or remove from the Foo
// those of fields that it sets.
func fieldsOverridden(fields []Field, message, stop, find string) ConditionError {
	var removable []string
	for _, field := range fields {
		switch field.Path {
		case pathReplicas:
			removable = append(removable, "spec.replicas")
		case pathImage:
			removable = append(removable, "spec.image")
		}
	}
	if len(removable) > 0 {
		stop = fmt.Sprintf("%s, or remove %s from this Foo", stop, strings.Join(removable, " and "))
	}
	return ConditionError{Reason: v1alpha1.ReasonFieldsOverridden, Message: message, Advice: stop + ". " + find}
}

// describeFields describes fields that others have changed, with both values of each.
func describeFields(fields []Field) string {
	var texts []string
	for _, field := range fields {
		texts = append(texts, field.describe())
	}
	return strings.Join(texts, "; ")
}

// describe describes a field that another client has changed, with both values.
func (f Field) describe() string {
	switch {
	case f.Path == pathOwner:
		return fmt.Sprintf("%s lacked %s", f.Path, f.Want)
	case f.Path == pathReplicas:
		return fmt.Sprintf("%s was %s, must be %s", f.Path, f.Have, f.Want)
	case f.Have == noValue:
		return fmt.Sprintf("%s was missing, must be %q", f.Path, f.Want)
	}
	return fmt.Sprintf("%s was %q, must be %q", f.Path, f.Have, f.Want)
}

// recreatedReport returns what the status reports about a Deployment that is deleted again and again.
func recreatedReport(deployment string) ConditionError {
	return ConditionError{
		Reason: v1alpha1.ReasonCreating,
		Message: fmt.Sprintf("Another client keeps deleting Deployment %q. "+
			"The controller creates it again at least once a minute", deployment),
		Advice: "Stop that client. The audit log of the API server names the user who deletes deployments/" + deployment,
	}
}
