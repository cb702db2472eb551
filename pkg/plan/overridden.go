package plan

import (
	"fmt"
	"strings"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file is about other clients that work against a Foo: they set fields that the Foo sets, or delete its
// Deployment.

// overridden returns what the status reports while another client keeps changing the Deployment, or nil.
func (r *reporter) overridden() *reconcile.Problem {
	dep := r.Deployment
	if dep == nil || !Owns(r.Foo, dep) || dep.DeletionTimestamp != nil {
		return nil
	}
	return r.sync.Undone(r.deploymentOp(reconcile.Patch, dep.Name))
}

// keepsBeingDeleted returns what the status reports while another client keeps deleting the Deployment, or nil.
func (r *reporter) keepsBeingDeleted() *reconcile.Problem {
	if dep := r.Deployment; dep != nil && (!Owns(r.Foo, dep) || dep.Status.ObservedGeneration != 0) {
		return nil // The last one lived long enough for a report of the Deployment controller.
	}
	return r.sync.Undone(r.deploymentOp(reconcile.Create, r.Foo.Spec.DeploymentName))
}

// changedByAdmission returns what the status reports after a write if the stored Deployment has other values than were
// sent, or nil.
func (in *Input) changedByAdmission() *reconcile.Problem {
	drift := Drift(in.Deployment, in.Foo)
	if drift == nil {
		return nil
	}
	return fieldsOverriddenProblem(drift.Fields,
		fmt.Sprintf("An admission webhook or policy changes Deployment %q when the controller writes it: %s. %s",
			in.Deployment.Name, describeFields(drift.Fields), reconcile.TriesAgain),
		"Change that webhook or policy", "See: kubectl get mutatingwebhookconfigurations -o yaml")
}

// changedByOthers returns what the status reports after fields were patched again and again.
func (in *Input) changedByOthers(patched []reconcile.Field) *reconcile.Problem {
	name := in.Foo.Spec.DeploymentName
	return fieldsOverriddenProblem(patched,
		fmt.Sprintf("Another client keeps changing Deployment %q: %s. The controller corrects it at least once a minute",
			name, describeFields(patched)),
		"Stop that client, for example an autoscaler or a GitOps tool",
		"To find it: "+in.kubectl("get deployment %s -o yaml --show-managed-fields", name))
}

// fieldsOverriddenProblem reports that something else sets fields. The advice is to stop it, or to remove from the Foo
// those that it sets.
func fieldsOverriddenProblem(fields []reconcile.Field, message, stop, find string) *reconcile.Problem {
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
	return &reconcile.Problem{Reason: v1alpha1.ReasonFieldsOverridden, Message: message, Advice: stop + ". " + find}
}

// describeFields describes fields that others have changed, with both values of each.
func describeFields(fields []reconcile.Field) string {
	var texts []string
	for _, field := range fields {
		texts = append(texts, describeField(field))
	}
	return strings.Join(texts, "; ")
}

// describeField describes a field that another client has changed, with both values.
func describeField(f reconcile.Field) string {
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

// recreatedProblem returns what the status reports about a Deployment that is deleted again and again.
func recreatedProblem(deployment string) *reconcile.Problem {
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonCreating,
		Message: fmt.Sprintf("Another client keeps deleting Deployment %q. "+
			"The controller creates it again at least once a minute", deployment),
		Advice: "Stop that client. The audit log of the API server names the user who deletes deployments/" + deployment,
	}
}
