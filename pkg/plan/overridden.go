package plan

import (
	"fmt"
	"strings"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about somebody else who works against a Foo: who sets fields that the Foo sets, or deletes its
// Deployment.

// overriddenFields returns the fields about which something else decides: those of the Deployment, just written, that
// are not as written, and, when there was no end of patching, those of patch. A create has no patch.
func (s *State) overriddenFields(patch *Patch) []Field {
	if drift := Drift(s.Deployment, s.Foo); drift != nil {
		return drift.Fields
	}
	if patch != nil && s.repeats(Op{Verb: PatchDeployment, Name: s.Deployment.Name}) >= freeRepeats {
		return patch.Fields
	}
	return nil
}

// overriddenReport returns what the status says about fields that are overridden; nothing when there are none.
func (s *State) overriddenReport(overridden []Field) ConditionError {
	if len(overridden) == 0 {
		return ConditionError{}
	}
	var fields []string
	for _, field := range overridden {
		fields = append(fields, fmt.Sprintf("%s to %s where this Foo says %s", field.Path, field.Have, field.Want))
	}
	return ConditionError{
		Reason: v1alpha1.ReasonFieldsOverridden,
		Message: fmt.Sprintf("Something else keeps changing Deployment %q: %s. Remove what it sets from this Foo, "+
			"or stop it: an autoscaler, an admission policy or another controller",
			s.Deployment.Name, strings.Join(fields, ", ")),
	}
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

// recreatedReport returns what the status says about a Deployment that is deleted again and again.
func recreatedReport(deployment string, limited bool) ConditionError {
	if !limited {
		return ConditionError{}
	}
	return ConditionError{
		Reason: v1alpha1.ReasonCreating,
		Message: fmt.Sprintf("Something else keeps deleting Deployment %q: it is created again after a pause of "+
			"up to a minute. Stop that, or delete this Foo", deployment),
	}
}

// refusedReport returns what the ledger keeps of an operation that failed. The status adds which operation it was.
func refusedReport(message string) ConditionError {
	return ConditionError{Reason: v1alpha1.ReasonRefused, Message: message}
}
