package plan

import (
	"fmt"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// A reporter is what the conditions of a Foo depend on: what was observed, and what the sync has found.
type reporter struct {
	*Input
	sync *reconcile.Sync
}

// A report is what the conditions of a Foo say.
type report struct {
	// condition is the type of the condition that is True, "" for none.
	condition string
	// The message is the state in words. In the status, a text about other Deployments follows it, and then the advice.
	reason, message, advice string
	// cause is the message of a condition of the Deployment. Since it may be long, only the condition Ready has it, after
	// message.
	cause string
}

func ready(reason, message string) *report {
	return &report{condition: v1alpha1.ConditionReady, reason: reason, message: message}
}

func reconciling(reason, message, advice string) *report {
	return &report{condition: v1alpha1.ConditionReconciling, reason: reason, message: message, advice: advice}
}

func stalled(reason, message, advice string) *report {
	return &report{condition: v1alpha1.ConditionStalled, reason: reason, message: message, advice: advice}
}

// reportOf returns the report of a problem.
func reportOf(p *reconcile.Problem) *report {
	if p.Stalled {
		return stalled(p.Reason, p.Message, p.Advice)
	}
	return reconciling(p.Reason, p.Message, p.Advice)
}

// kubectl returns a command about objects in the namespace of the Foo.
func (in *Input) kubectl(format string, args ...any) string {
	return "kubectl -n " + in.Foo.Namespace + " " + fmt.Sprintf(format, args...)
}

// A reportRule returns what the conditions report, nil if it does not apply.
type reportRule func(*reporter) *report

// reportRules are read from top to bottom, and the first that applies counts. Messages repeat byte for byte as long as
// nothing changes: no times, no names of pods, nothing in the order of a map.
var reportRules = []reportRule{
	reportPaused, reportInvalid,
	reportNameConflict, // The name is not the Foo's.
	reportOverridden, reportRefused,
	reportBeingDeleted, reportKeepsBeingDeleted, reportCreating,
	reportRollout,
}

// rolloutRules are the last of reportRules, and some rules before ask them too. They are about a Deployment that is the
// Foo's and is not being deleted.
var rolloutRules = []reportRule{
	reportReplicaSetRefused, // Before the next: observedGeneration stays behind while no ReplicaSet can be made.
	reportNotObserved, reportDeploymentPaused, reportReplicaFailure, reportDeadlineExceeded,
	reportUpdating, reportSurplus, reportTooSmall, reportAvailable,
}

// firstReport returns the report of the first rule that applies. The last rule always does.
func firstReport(r *reporter, rules []reportRule) *report {
	for _, rule := range rules {
		if out := rule(r); out != nil {
			return out
		}
	}
	return nil
}

func reportRollout(r *reporter) *report { return firstReport(r, rolloutRules) }

// reportPaused: the controller reports the state of the Deployment and does not change it.
func reportPaused(r *reporter) *report {
	if !r.Foo.Spec.Paused {
		return nil
	}
	name, dep := r.Foo.Spec.DeploymentName, r.Deployment
	var condition, observed string
	switch {
	case dep == nil:
		observed = fmt.Sprintf("Deployment %q does not exist", name)
	case !Owns(r.Foo, dep):
		observed = fmt.Sprintf("Deployment %q is not controlled by this Foo", name)
	default:
		observed = fmt.Sprintf("Deployment %q has %s", name, availableText(dep))
		if dep.DeletionTimestamp == nil && reportRollout(r).condition == v1alpha1.ConditionReady {
			condition = v1alpha1.ConditionReady
		}
	}
	return &report{
		condition: condition, reason: v1alpha1.ReasonPaused,
		message: "No Deployment is created, changed or deleted for this Foo while spec.paused is true. " + observed,
		advice:  "To resume: " + r.kubectl(`patch foo %s --type=merge -p '{"spec":{"paused":false}}'`, r.Foo.Name),
	}
}

func reportInvalid(r *reporter) *report {
	if message := invalidMessage(r.Foo); message != "" {
		return stalled(v1alpha1.ReasonInvalid, message, "To change it: "+r.kubectl("edit foo %s", r.Foo.Name))
	}
	return nil
}

// reportNameConflict: the Deployment belongs to somebody else.
func reportNameConflict(r *reporter) *report {
	if r.Deployment == nil || Owns(r.Foo, r.Deployment) {
		return nil
	}
	return reportOf(r.nameConflictProblem())
}

// reportOverridden: another client keeps changing fields that the Foo sets. The rollout decides which condition is
// True.
func reportOverridden(r *reporter) *report {
	problem := r.overridden()
	if problem == nil {
		return nil
	}
	return &report{
		condition: reportRollout(r).condition, reason: problem.Reason, message: problem.Message, advice: problem.Advice,
	}
}

// reportRefused: the API server refused to create or patch the Deployment, or failed.
func reportRefused(r *reporter) *report {
	for op, problem := range r.sync.Blocked {
		if op.Verb != reconcile.Create && op.Verb != reconcile.Patch {
			continue
		}
		if !problem.Failed {
			return reportOf(problem) // The write succeeded, and what it stored is the problem.
		}
		target := fmt.Sprintf("create Deployment %q", op.Name)
		if op.Verb == reconcile.Patch {
			target = fmt.Sprintf("patch Deployment %q (%s)", op.Name, availableText(r.Deployment))
		}
		return reconciling(problem.Reason, fmt.Sprintf("Cannot %s: %s", target, problem.Message), problem.Advice)
	}
	return nil
}

func reportBeingDeleted(r *reporter) *report {
	if r.Deployment == nil || r.Deployment.DeletionTimestamp == nil {
		return nil
	}
	return reconciling(v1alpha1.ReasonWaitingForDeletion,
		fmt.Sprintf("Deployment %q is being deleted. It is created again afterwards", r.Deployment.Name),
		r.checkFinalizers("Deployment", r.Deployment.Name))
}

// reportKeepsBeingDeleted: the Deployment was deleted so often that it is created again only after a delay.
func reportKeepsBeingDeleted(r *reporter) *report {
	if problem := r.keepsBeingDeleted(); problem != nil {
		return reportOf(problem)
	}
	return nil
}

// reportCreating: the Deployment controller has not reported on the Deployment yet. There is one: a create that was not
// sent, or failed, is reported by the rules before.
func reportCreating(r *reporter) *report {
	dep := r.Deployment
	if dep.Status.ObservedGeneration != 0 || dep.ReplicaSetRefused != nil {
		return nil
	}
	return r.comingUp(v1alpha1.ReasonCreating,
		fmt.Sprintf("Created Deployment %q. Waiting for the Deployment controller to create its pods", dep.Name))
}

func reportReplicaSetRefused(r *reporter) *report {
	if r.Deployment.ReplicaSetRefused == nil {
		return nil
	}
	return r.cannotCreate("its ReplicaSet", *r.Deployment.ReplicaSetRefused)
}

// cannotCreate reports that the Deployment cannot create objects, for a cause that may be "".
func (r *reporter) cannotCreate(objects, cause string) *report {
	dep := r.Deployment
	out := stalled(v1alpha1.ReasonReplicaFailure,
		fmt.Sprintf("Deployment %q cannot create %s (%s)", dep.Name, objects, availableText(dep)),
		"See its conditions: "+r.kubectl("get deployment %s -o yaml", dep.Name))
	if cause != "" {
		out.cause = ": " + cause
		out.advice = "Change the quota or the policy that refuses it, or ask an administrator of the cluster to do it. " +
			"For Pod Security, see artifacts/examples/restricted and docs/policies.md"
	}
	return out
}

func reportNotObserved(r *reporter) *report {
	dep := r.Deployment
	if dep.Status.ObservedGeneration >= dep.Generation {
		return nil
	}
	return r.comingUp(v1alpha1.ReasonProgressing,
		fmt.Sprintf("Waiting for the Deployment controller to apply the last change (%s)", availableText(dep)))
}

func reportDeploymentPaused(r *reporter) *report {
	dep := r.Deployment
	if !dep.Paused {
		return nil
	}
	return stalled(v1alpha1.ReasonDeploymentPaused,
		fmt.Sprintf("spec.paused of Deployment %q is true, so changes are not rolled out (%s)", dep.Name, availableText(dep)),
		"To resume: "+r.kubectl("rollout resume deployment %s", dep.Name))
}

// reportReplicaFailure: pods are refused. During a rename the quota may be too small for both Deployments. The previous
// one still serves, so the Foo is Reconciling until the progress deadline.
func reportReplicaFailure(r *reporter) *report {
	dep := r.Deployment
	if dep.PodsRefused == nil {
		return nil
	}
	out := r.cannotCreate("pods", *dep.PodsRefused)
	if len(r.previous()) > 0 && !dep.DeadlineExceeded {
		out.condition = v1alpha1.ConditionReconciling
	}
	return out
}

func reportDeadlineExceeded(r *reporter) *report {
	dep := r.Deployment
	if !dep.DeadlineExceeded {
		return nil
	}
	return stalled(v1alpha1.ReasonProgressDeadlineExceeded,
		fmt.Sprintf("Deployment %q has exceeded its progress deadline: %s", dep.Name, progressText(dep)),
		"To see why its pods do not become available: "+r.describePods())
}

// describePods returns the command that shows why pods of the Deployment do not become available. Without the flag,
// kubectl prints no events if the selector matches several pods.
func (r *reporter) describePods() string {
	return r.kubectl("describe pods --show-events -l '%s'", r.Deployment.selector())
}

func reportUpdating(r *reporter) *report {
	wanted, status := r.Deployment.Replicas, &r.Deployment.Status
	if status.UpdatedReplicas >= wanted && status.AvailableReplicas >= wanted {
		return nil
	}
	out := r.comingUp(v1alpha1.ReasonProgressing, progressText(r.Deployment))
	out.advice = "If this lasts: " + r.describePods()
	return out
}

// reportSurplus: replicas of an earlier spec have not ended yet. If pods of the new spec do not become available, the
// old ones may be all that serve.
func reportSurplus(r *reporter) *report {
	surplus := r.Deployment.Status.Replicas - r.Deployment.Replicas
	if surplus <= 0 {
		return nil
	}
	message := "Waiting for 1 old replica to terminate"
	if surplus > 1 {
		message = fmt.Sprintf("Waiting for %d old replicas to terminate", surplus)
	}
	return reconciling(v1alpha1.ReasonProgressing, message, "If this lasts: "+r.describePods())
}

// reportTooSmall: the Deployment is complete, but a previous one is set to more replicas than it has. As a rule the Foo
// sets no number, else reportUpdating would apply. Only a person knows how many are needed.
func reportTooSmall(r *reporter) *report {
	largest := r.largestPrevious()
	if largest == nil {
		return nil
	}
	name, needed := r.Deployment.Name, r.neededReplicas()
	if r.Deployment.Status.AvailableReplicas >= needed {
		return nil
	}
	return stalled(v1alpha1.ReasonRenaming,
		fmt.Sprintf("Moving to Deployment %q when it has %d replicas available, because previous Deployment %q is set to "+
			"%d. It is complete with %s", name, needed, largest.Name, largest.Replicas, availableText(r.Deployment)),
		fmt.Sprintf("To have %d: %s. To go on with another number N: %s", needed,
			r.kubectl("scale deployment %s --replicas=%d", name, needed),
			r.kubectl("scale foo %s --replicas=N", r.Foo.Name)))
}

func reportAvailable(r *reporter) *report {
	return ready(v1alpha1.ReasonAvailable, availableText(r.Deployment))
}

// comingUp reports that the Deployment comes up. After a change of the name, the message names it. While a previous one
// serves, the reason is Renaming instead, because that is no outage.
func (r *reporter) comingUp(reason, message string) *report {
	previous := r.mostAvailablePrevious()
	if previous == nil || r.canReplace() {
		return reconciling(reason, message, "")
	}
	if previous.Status.AvailableReplicas > 0 {
		reason = v1alpha1.ReasonRenaming
	}
	dep, state := r.Deployment, availableText(r.Deployment)
	if availableOfCurrentTemplate(dep) < dep.Status.AvailableReplicas {
		state = progressText(dep) // The available ones are about to end.
	}
	return reconciling(reason, fmt.Sprintf("Moving to Deployment %q: %s", dep.Name, state), "")
}

// progressText says how far a rollout is.
func progressText(dep *TrimmedDeployment) string {
	if wanted := dep.Replicas; dep.Status.UpdatedReplicas < wanted {
		return fmt.Sprintf("%d of %d replicas updated", dep.Status.UpdatedReplicas, wanted)
	}
	return availableText(dep)
}

func availableText(dep *TrimmedDeployment) string {
	return fmt.Sprintf("%d of %d replicas available", dep.Status.AvailableReplicas, dep.Replicas)
}
