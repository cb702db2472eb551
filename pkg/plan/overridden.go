package plan

import (
	"fmt"
	"strings"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about somebody else who works against a Foo: who sets fields that the Foo sets, or deletes its
// Deployment.

// overriddenReport returns what the status reports after the Deployment was written with patch, nil for a create, when
// something else decides about fields of the Foo; nothing otherwise.
func (s *State) overriddenReport(patch *Patch) ConditionError {
	switch drift := Drift(s.Deployment, s.Foo); {
	case drift != nil:
		return s.changedOnTheWay(drift.Fields)
	case patch != nil && s.repeats(Op{Verb: PatchDeployment, Name: s.Deployment.Name}) >= freeRepeats:
		return s.changedRepeatedly(patch.Fields)
	}
	return ConditionError{}
}

// changedOnTheWay: the answer to the write shows other values than were sent. Only admission does that.
func (s *State) changedOnTheWay(fields []Field) ConditionError {
	return ConditionError{
		Reason: v1alpha1.ReasonFieldsOverridden,
		Message: fmt.Sprintf("Deployment %q is changed on its way in by an admission policy or webhook: %s. "+
			"The controller tries again at least once a minute", s.Deployment.Name, describeFields(fields)),
		Advice: orRemove("Change that policy", fields) +
			". See: kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies",
	}
}

// changedRepeatedly: each time after a patch, something has set other values.
func (s *State) changedRepeatedly(fields []Field) ConditionError {
	return ConditionError{
		Reason: v1alpha1.ReasonFieldsOverridden,
		Message: fmt.Sprintf("Another client keeps changing Deployment %q: %s. "+
			"The controller corrects it at least once a minute", s.Deployment.Name, describeFields(fields)),
		Advice: orRemove("Stop that client", fields) + ". To see which: " +
			s.kubectl("get deployment %s -o yaml --show-managed-fields", s.Deployment.Name),
	}
}

// describeFields returns what has been done to fields, with both values of each.
func describeFields(fields []Field) string {
	var texts []string
	for _, field := range fields {
		have := "was set to " + field.Have
		if field.Have == noValue {
			have = "was removed"
		}
		texts = append(texts, fmt.Sprintf("%s %s, wanted %s", field.Path, have, field.Want))
	}
	return strings.Join(texts, "; ")
}

// orRemove returns the advice, and that the user may leave fields to others, as far as the Foo has them.
func orRemove(advice string, fields []Field) string {
	var removable []string
	for _, field := range fields {
		switch field.Path {
		case pathReplicas:
			removable = append(removable, "spec.replicas")
		case pathImage:
			removable = append(removable, "spec.image")
		}
	}
	if len(removable) == 0 {
		return advice
	}
	return fmt.Sprintf("%s, or remove %s from this Foo", advice, strings.Join(removable, " and "))
}

// overridden returns the attempt because of which drift is not patched, while something else decides about fields of
// the Foo's Deployment; nil otherwise.
func (s *State) overridden() *Attempt {
	dep := s.Deployment
	if s.Foo.Spec.Paused || dep == nil || !Owns(s.Foo, dep) || dep.DeletionTimestamp != nil {
		return nil
	}
	return s.limited(Op{Verb: PatchDeployment, Name: dep.Name})
}

// keepsBeingDeleted returns the attempt because of which the Deployment would not be created again, while that is all
// that is known of it; nil otherwise.
func (s *State) keepsBeingDeleted() *Attempt {
	dep := s.Deployment
	switch {
	case s.Foo.Spec.Paused:
		return nil
	case dep == nil && s.firstClaimant() != nil:
		return nil
	case dep != nil && (!Owns(s.Foo, dep) || dep.Status.ObservedGeneration != 0):
		return nil
	}
	return s.limited(Op{Verb: CreateDeployment, Name: s.Foo.Spec.DeploymentName})
}

// limited returns the attempt because of which op is not repeated yet; nil when it may be.
func (s *State) limited(op Op) *Attempt {
	attempt := s.attempt(op.again())
	if attempt.Report.Reason == "" || !attempt.Until.After(s.Now) {
		return nil
	}
	return &attempt
}

// recreatedReport returns what the status reports about a Deployment that is deleted again and again.
func (s *State) recreatedReport(deployment string, limited bool) ConditionError {
	if !limited {
		return ConditionError{}
	}
	return ConditionError{
		Reason: v1alpha1.ReasonCreating,
		Message: fmt.Sprintf("Another client keeps deleting Deployment %q. "+
			"The controller creates it again at least once a minute", deployment),
		Advice: "Stop that client, which the audit log of the API server names, or delete this Foo: " +
			s.kubectl("delete foo %s", s.Foo.Name),
	}
}
