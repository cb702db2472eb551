package plan

import (
	"fmt"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// A reporter is what the conditions of a Foo depend on: what was observed, and what the sync has found.
type reporter struct {
	*Input
	*reconcile.Sync
}

// readiness is what the conditions of a Foo report. A report on previous Deployments follows its message, and then the
// advice.
type readiness struct {
	ready bool
	reconcile.Problem
	// Cause is the message of a condition of the Deployment. Since it may be long, only the condition Ready has it, after
	// Message.
	Cause string
}

// condition returns the type of the condition that is True, or "".
func (r *readiness) condition() string {
	switch {
	case r.ready:
		return v1alpha1.ConditionReady
	case r.Reason == v1alpha1.ReasonPaused:
		return ""
	case r.Stalled:
		return v1alpha1.ConditionStalled
	}
	return v1alpha1.ConditionReconciling
}

func reconciling(reason, message, advice string) *readiness {
	return &readiness{Problem: reconcile.Problem{Reason: reason, Message: message, Advice: advice}}
}

func stalled(reason, message, advice string) *readiness {
	r := reconciling(reason, message, advice)
	r.Stalled = true
	return r
}

// kubectl returns a command about objects in the namespace of the Foo.
func (in *Input) kubectl(format string, args ...any) string {
	return "kubectl -n " + in.Foo.Namespace + " " + fmt.Sprintf(format, args...)
}

// A readyRule returns what the conditions report, nil when it does not apply.
type readyRule func(*reporter) *readiness

// readyRules are read from top to bottom; the first that applies counts. Messages repeat byte for byte as long as
// nothing changes: no times, no names of pods, nothing in the order of a map.
var readyRules = []readyRule{
	readyPaused, readyInvalid,
	readyNameConflict, // The name is not the Foo's.
	readyOverridden, readyRefused,
	readyBeingDeleted, readyKeepsBeingDeleted, readyCreating,
	rollout,
}

// rolloutRules follow readyRules. They are about a Deployment that is the Foo's and is not being deleted.
var rolloutRules = []readyRule{
	readyReplicaSetRefused, readyNotObserved, readyDeploymentPaused, readyReplicaFailure, readyDeadlineExceeded,
	readyUpdating, readySurplus, readyTooSmall, readyAvailable,
}

// firstReady returns the answer of the first rule that applies. The last one always does.
func firstReady(r *reporter, rules []readyRule) *readiness {
	for _, rule := range rules {
		if out := rule(r); out != nil {
			return out
		}
	}
	return nil
}

func rollout(r *reporter) *readiness { return firstReady(r, rolloutRules) }

// readyPaused: the controller reports the state of the Deployment and does not change it.
func readyPaused(r *reporter) *readiness {
	if !r.Foo.Spec.Paused {
		return nil
	}
	name, dep := r.Foo.Spec.DeploymentName, r.Deployment
	isReady := false
	var observed string
	switch {
	case dep == nil:
		observed = fmt.Sprintf("Deployment %q does not exist", name)
	case !Owns(r.Foo, dep):
		observed = fmt.Sprintf("Deployment %q is not controlled by this Foo", name)
	default:
		observed = fmt.Sprintf("Deployment %q has %s", name, available(dep))
		isReady = dep.DeletionTimestamp == nil && rollout(r).ready
	}
	out := reconciling(v1alpha1.ReasonPaused,
		"No Deployment is created, changed or deleted for this Foo while spec.paused is true. "+observed,
		"To resume: "+r.kubectl(`patch foo %s --type=merge -p '{"spec":{"paused":false}}'`, r.Foo.Name))
	out.ready = isReady
	return out
}

func readyInvalid(r *reporter) *readiness {
	if reason := invalidReason(r.Foo); reason != "" {
		return stalled(v1alpha1.ReasonInvalid, reason, "To change it: "+r.kubectl("edit foo %s", r.Foo.Name))
	}
	return nil
}

// readyNameConflict: the Deployment belongs to somebody else.
func readyNameConflict(r *reporter) *readiness {
	if r.Deployment == nil || Owns(r.Foo, r.Deployment) {
		return nil
	}
	return &readiness{Problem: *r.nameConflictProblem()}
}

// readyOverridden: another client keeps changing fields that the Foo sets. Ready follows the rollout all the same.
func readyOverridden(r *reporter) *readiness {
	problem := r.overridden()
	if problem == nil {
		return nil
	}
	out := rollout(r)
	out.Reason, out.Message, out.Advice = problem.Reason, problem.Message, problem.Advice
	return out
}

// readyRefused: the API server refused to create or patch the Deployment, or failed.
func readyRefused(r *reporter) *readiness {
	for op, problem := range r.Blocked {
		switch {
		case op.Verb != reconcile.Create && op.Verb != reconcile.Patch:
			continue
		case !problem.Failed:
			return &readiness{Problem: *problem}
		}
		target := fmt.Sprintf("create Deployment %q", op.Name)
		if op.Verb == reconcile.Patch {
			target = fmt.Sprintf("patch Deployment %q (%s)", op.Name, available(r.Deployment))
		}
		return reconciling(problem.Reason, fmt.Sprintf("Cannot %s: %s", target, problem.Message), problem.Advice)
	}
	return nil
}

func readyBeingDeleted(r *reporter) *readiness {
	if r.Deployment == nil || r.Deployment.DeletionTimestamp == nil {
		return nil
	}
	return reconciling(v1alpha1.ReasonWaitingForDeletion,
		fmt.Sprintf("Deployment %q is being deleted. It is created again afterwards", r.Deployment.Name),
		r.checkFinalizers("Deployment", r.Deployment.Name))
}

// readyKeepsBeingDeleted: the Deployment was deleted so often that it is created again only after a delay.
func readyKeepsBeingDeleted(r *reporter) *readiness {
	if problem := r.keepsBeingDeleted(); problem != nil {
		return &readiness{Problem: *problem}
	}
	return nil
}

// readyCreating: the Deployment controller has not reported on the Deployment yet. There is one: a create that was not
// sent, or failed, is reported by the rules before.
func readyCreating(r *reporter) *readiness {
	dep := r.Deployment
	if dep.Status.ObservedGeneration != 0 || dep.ReplicaSetRefused != nil {
		return nil
	}
	return r.comingUp(v1alpha1.ReasonCreating,
		fmt.Sprintf("Created Deployment %q. Waiting for the Deployment controller to create its pods", dep.Name))
}

// readyReplicaSetRefused: the Deployment controller then leaves observedGeneration behind.
func readyReplicaSetRefused(r *reporter) *readiness {
	if r.Deployment.ReplicaSetRefused == nil {
		return nil
	}
	return r.cannotCreate("its ReplicaSet", *r.Deployment.ReplicaSetRefused)
}

// cannotCreate returns that the Deployment cannot create objects, for a cause that may be "".
func (r *reporter) cannotCreate(objects, cause string) *readiness {
	dep := r.Deployment
	out := stalled(v1alpha1.ReasonReplicaFailure,
		fmt.Sprintf("Deployment %q cannot create %s (%s)", dep.Name, objects, available(dep)),
		"See its conditions: "+r.kubectl("get deployment %s -o yaml", dep.Name))
	if cause != "" {
		out.Cause = ": " + cause
		out.Advice = "Change the quota or the policy that refuses it, or ask an administrator of the cluster to do it. " +
			"For Pod Security, see artifacts/examples/restricted and docs/policies.md"
	}
	return out
}

func readyNotObserved(r *reporter) *readiness {
	dep := r.Deployment
	if dep.Status.ObservedGeneration >= dep.Generation {
		return nil
	}
	return r.comingUp(v1alpha1.ReasonProgressing,
		fmt.Sprintf("Waiting for the Deployment controller to apply the last change (%s)", available(dep)))
}

func readyDeploymentPaused(r *reporter) *readiness {
	dep := r.Deployment
	if !dep.Paused {
		return nil
	}
	return stalled(v1alpha1.ReasonDeploymentPaused,
		fmt.Sprintf("spec.paused of Deployment %q is true, so changes are not rolled out (%s)", dep.Name, available(dep)),
		"To resume: "+r.kubectl("rollout resume deployment %s", dep.Name))
}

// readyReplicaFailure: pods are refused. During a rename the quota may be too small for both Deployments. A person may
// raise it, so the Foo is Reconciling until the progress deadline.
func readyReplicaFailure(r *reporter) *readiness {
	dep := r.Deployment
	if dep.PodsRefused == nil {
		return nil
	}
	out := r.cannotCreate("pods", *dep.PodsRefused)
	if r.servingPrevious() != nil && !dep.DeadlineExceeded {
		out.Stalled = false
	}
	return out
}

func readyDeadlineExceeded(r *reporter) *readiness {
	dep := r.Deployment
	if !dep.DeadlineExceeded {
		return nil
	}
	return stalled(v1alpha1.ReasonProgressDeadlineExceeded,
		fmt.Sprintf("Deployment %q has exceeded its progress deadline: %s", dep.Name, progress(dep)),
		"To see why its pods do not become available: "+r.describePods())
}

// describePods returns the command that shows why pods of the Deployment do not become available. Without the flag,
// kubectl prints no events if the selector matches several pods.
func (r *reporter) describePods() string {
	return r.kubectl("describe pods --show-events -l '%s'", r.Deployment.selector())
}

func readyUpdating(r *reporter) *readiness {
	wanted, status := r.Deployment.Replicas, &r.Deployment.Status
	if status.UpdatedReplicas >= wanted && status.AvailableReplicas >= wanted {
		return nil
	}
	out := r.comingUp(v1alpha1.ReasonProgressing, progress(r.Deployment))
	out.Advice = "If this lasts: " + r.describePods()
	return out
}

// readySurplus: replicas of an earlier spec have not ended yet.
func readySurplus(r *reporter) *readiness {
	surplus := r.Deployment.Status.Replicas - r.Deployment.Replicas
	if surplus <= 0 {
		return nil
	}
	message := "Waiting for 1 old replica to terminate"
	if surplus > 1 {
		message = fmt.Sprintf("Waiting for %d old replicas to terminate", surplus)
	}
	return reconciling(v1alpha1.ReasonProgressing, message, "")
}

// readyTooSmall: the Deployment is complete, but a previous one is set to more replicas than it has, and the Foo sets
// no number. Only a person knows how many are needed.
func readyTooSmall(r *reporter) *readiness {
	largest := r.largestPrevious()
	if largest == nil || r.Deployment.Status.AvailableReplicas >= r.neededReplicas() {
		return nil
	}
	name, needed := r.Deployment.Name, r.neededReplicas()
	return stalled(v1alpha1.ReasonRenaming,
		fmt.Sprintf("Moving to Deployment %q when it has %d replicas available, because previous Deployment %q is set to "+
			"%d. It is complete with %s", name, needed, largest.Name, largest.Replicas, available(r.Deployment)),
		fmt.Sprintf("To have %d: %s. To go on with another number N: %s", needed,
			r.kubectl("scale deployment %s --replicas=%d", name, needed),
			r.kubectl("scale foo %s --replicas=N", r.Foo.Name)))
}

func readyAvailable(r *reporter) *readiness {
	out := reconciling(v1alpha1.ReasonAvailable, available(r.Deployment), "")
	out.ready = true
	return out
}

// comingUp returns that the Deployment comes up. After a change of the name the message names it. While a previous one
// serves, that is no outage, and has a reason of its own.
func (r *reporter) comingUp(reason, message string) *readiness {
	serving := r.servingPrevious()
	if serving == nil || r.canReplace() {
		return reconciling(reason, message, "")
	}
	if serving.Status.AvailableReplicas > 0 {
		reason = v1alpha1.ReasonRenaming
	}
	dep, state := r.Deployment, available(r.Deployment)
	if availableOfCurrentTemplate(dep) < dep.Status.AvailableReplicas {
		state = progress(dep) // The available ones are about to end.
	}
	return reconciling(reason, fmt.Sprintf("Moving to Deployment %q: %s", dep.Name, state), "")
}

// progress returns how far a rollout is.
func progress(dep *Observed) string {
	if wanted := dep.Replicas; dep.Status.UpdatedReplicas < wanted {
		return fmt.Sprintf("%d of %d replicas updated", dep.Status.UpdatedReplicas, wanted)
	}
	return available(dep)
}

func available(dep *Observed) string {
	return fmt.Sprintf("%d of %d replicas available", dep.Status.AvailableReplicas, dep.Replicas)
}
