package plan

import (
	"fmt"
	"strings"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about other clients that work against a Foo: they set fields that the Foo sets, or delete its
// Deployment.

// overriddenReport returns what the status reports after a write to the Deployment when something else decides about
// fields of the Foo; nothing otherwise. patched are the fields that the write corrected; a create has none.
func (s *State) overriddenReport(patched []Field) ConditionError {
	switch drift := Drift(s.Deployment, s.Foo); {
	case drift != nil:
		return s.changedOnTheWay(drift.Fields)
	case len(patched) > 0 && s.repeats(Op{Verb: PatchDeployment, Name: s.Deployment.Name}) >= freeRepeats:
		return s.changedRepeatedly(patched)
	}
	return ConditionError{}
}

// changedOnTheWay: the answer to the write shows other values than were sent. Only admission does that.
func (s *State) changedOnTheWay(fields []Field) ConditionError {
	return ConditionError{
		Reason: v1alpha1.ReasonFieldsOverridden,
		Message: fmt.Sprintf("An admission webhook or policy changes Deployment %q when the controller writes it: %s. %s",
			s.Deployment.Name, describeFields(fields), triesAgain),
		Advice: orRemove("Change that webhook or policy", fields) +
			". See: kubectl get mutatingwebhookconfigurations -o yaml",
	}
}

// changedRepeatedly: each time after a patch, something has set other values.
func (s *State) changedRepeatedly(fields []Field) ConditionError {
	return ConditionError{
		Reason: v1alpha1.ReasonFieldsOverridden,
		Message: fmt.Sprintf("Another client keeps changing Deployment %q: %s. "+
			"The controller corrects it at least once a minute", s.Deployment.Name, describeFields(fields)),
		Advice: orRemove(stopClient(fields), fields) + ". To find it: " +
			s.kubectl("get deployment %s -o yaml --show-managed-fields", s.Deployment.Name),
	}
}

// describeFields describes fields that others have changed, with both values of each.
func describeFields(fields []Field) string {
	var texts []string
	for _, field := range fields {
		texts = append(texts, field.describe())
	}
	return strings.Join(texts, "; ")
}

// stopClient returns the advice about a client that changes fields.
func stopClient(fields []Field) string {
	if len(fields) == 1 && fields[0].Path == pathReplicas {
		return "Stop that client, for example an autoscaler"
	}
	return "Stop that client"
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

// orRemove adds to advice that the user may remove from the Foo those of fields that it sets.
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

// overridden returns the attempt that delays the next patch of the Deployment, while something else decides about
// fields of the Foo; nil otherwise.
func (s *State) overridden() *Attempt {
	dep := s.Deployment
	if s.Foo.Spec.Paused || dep == nil || !Owns(s.Foo, dep) || dep.DeletionTimestamp != nil {
		return nil
	}
	return s.limited(Op{Verb: PatchDeployment, Name: dep.Name})
}

// keepsBeingDeleted returns the attempt that delays the next creation of the Deployment, as long as the Deployment
// controller has not reported on the last one; nil otherwise.
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

// limited returns the attempt that delays the next repetition of op; nil when op may be repeated now.
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
		Advice: "Stop that client. The audit log of the API server names the user who deletes deployments/" + deployment,
	}
}
