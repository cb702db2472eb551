package plan

import (
	"fmt"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A ConditionError is why a Foo is not Ready, in the terms of its conditions. When Stalled is set a person must act;
// otherwise the Foo is Reconciling.
type ConditionError struct {
	Reason string
	// Message is the present state and its cause. Advice is what to do, with commands that name the namespace.
	Message, Advice string
	// Cause is the message of a condition of the Deployment. Since it may be long, only the condition Ready has it, after
	// Message.
	Cause   string
	Stalled bool
}

func (e *ConditionError) Error() string { return e.Reason + ": " + e.Message }

func (e *ConditionError) readiness() *readiness { return &readiness{ConditionError: *e} }

// readiness is what the conditions of a Foo report. A report on previous Deployments follows its message, and then the
// advice.
type readiness struct {
	ready bool
	ConditionError
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
	return &readiness{ConditionError: ConditionError{Reason: reason, Message: message, Advice: advice}}
}

func stalled(reason, message, advice string) *readiness {
	r := reconciling(reason, message, advice)
	r.Stalled = true
	return r
}

// kubectl returns a command about objects in the namespace of the Foo.
func (s *State) kubectl(format string, args ...any) string {
	return "kubectl -n " + s.Foo.Namespace + " " + fmt.Sprintf(format, args...)
}

// triesAgain is the end of messages about what the controller retries. The longest backoff is a minute. When
// thousands of Foos fail, it takes longer.
const triesAgain = "The controller tries again at least once a minute"

// A readyRule returns what the conditions report, nil when it does not apply.
type readyRule func(*State) *readiness

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
func firstReady(s *State, rules []readyRule) *readiness {
	for _, rule := range rules {
		if r := rule(s); r != nil {
			return r
		}
	}
	return nil
}

func rollout(s *State) *readiness { return firstReady(s, rolloutRules) }

// readyPaused: the controller reports the state of the Deployment and does not change it.
func readyPaused(s *State) *readiness {
	if !s.Foo.Spec.Paused {
		return nil
	}
	name, dep := s.Foo.Spec.DeploymentName, s.Deployment
	isReady := false
	var observed string
	switch {
	case dep == nil:
		observed = fmt.Sprintf("Deployment %q does not exist", name)
	case !Owns(s.Foo, dep):
		observed = fmt.Sprintf("Deployment %q is not controlled by this Foo", name)
	default:
		observed = fmt.Sprintf("Deployment %q has %s", name, available(dep))
		isReady = dep.DeletionTimestamp == nil && rollout(s).ready
	}
	r := reconciling(v1alpha1.ReasonPaused,
		"No Deployment is created, changed or deleted for this Foo while spec.paused is true. "+observed,
		"To resume: "+s.kubectl(`patch foo %s --type=merge -p '{"spec":{"paused":false}}'`, s.Foo.Name))
	r.ready = isReady
	return r
}

func readyInvalid(s *State) *readiness {
	if reason := invalidReason(s.Foo); reason != "" {
		return stalled(v1alpha1.ReasonInvalid, reason, "To change it: "+s.kubectl("edit foo %s", s.Foo.Name))
	}
	return nil
}

// readyNameConflict: the Deployment belongs to somebody else.
func readyNameConflict(s *State) *readiness {
	if s.Deployment == nil || Owns(s.Foo, s.Deployment) {
		return nil
	}
	return s.nameConflictReport().readiness()
}

// readyOverridden: another client keeps changing fields that the Foo sets. Ready follows the rollout all the same.
func readyOverridden(s *State) *readiness {
	attempt := s.undone(PatchDeployment)
	if attempt == nil {
		return nil
	}
	r := rollout(s)
	r.Reason, r.Message, r.Advice = attempt.Report.Reason, attempt.Report.Message, attempt.Report.Advice
	return r
}

// readyRefused: the API server refused to create or patch the Deployment, or failed.
func readyRefused(s *State) *readiness {
	for _, op := range s.blocked {
		attempt := s.attempt(op)
		switch {
		case op.Verb != CreateDeployment && op.Verb != PatchDeployment, attempt.Report.Reason == "":
			continue
		case attempt.Report.Reason != v1alpha1.ReasonRefused && attempt.Report.Reason != v1alpha1.ReasonRequestFailed:
			return attempt.Report.readiness()
		}
		target := fmt.Sprintf("create Deployment %q", op.Name)
		if op.Verb == PatchDeployment {
			target = fmt.Sprintf("patch Deployment %q (%s)", op.Name, available(s.Deployment))
		}
		return reconciling(attempt.Report.Reason,
			fmt.Sprintf("Cannot %s: %s", target, attempt.Report.Message), attempt.Report.Advice)
	}
	return nil
}

func readyBeingDeleted(s *State) *readiness {
	if s.Deployment == nil || s.Deployment.DeletionTimestamp == nil {
		return nil
	}
	return reconciling(v1alpha1.ReasonWaitingForDeletion,
		fmt.Sprintf("Deployment %q is being deleted. It is created again afterwards", s.Deployment.Name),
		s.checkFinalizers("Deployment", s.Deployment.Name))
}

// readyKeepsBeingDeleted: the Deployment was deleted so often that it is created again only after a delay.
func readyKeepsBeingDeleted(s *State) *readiness {
	if attempt := s.undone(CreateDeployment); attempt != nil {
		return attempt.Report.readiness()
	}
	return nil
}

// readyCreating: the Deployment controller has not reported on the Deployment yet. There is one: a create that was not
// sent, or failed, is reported by the rules before.
func readyCreating(s *State) *readiness {
	dep := s.Deployment
	if dep.Status.ObservedGeneration != 0 || dep.ReplicaSetRefused != nil {
		return nil
	}
	return s.comingUp(v1alpha1.ReasonCreating,
		fmt.Sprintf("Created Deployment %q. Waiting for the Deployment controller to create its pods", dep.Name))
}

// readyReplicaSetRefused: the Deployment controller then leaves observedGeneration behind.
func readyReplicaSetRefused(s *State) *readiness {
	if s.Deployment.ReplicaSetRefused == nil {
		return nil
	}
	return s.cannotCreate("its ReplicaSet", *s.Deployment.ReplicaSetRefused)
}

// cannotCreate returns that the Deployment cannot create objects, for a cause that may be "".
func (s *State) cannotCreate(objects, cause string) *readiness {
	dep := s.Deployment
	r := stalled(v1alpha1.ReasonReplicaFailure,
		fmt.Sprintf("Deployment %q cannot create %s (%s)", dep.Name, objects, available(dep)),
		"See its conditions: "+s.kubectl("get deployment %s -o yaml", dep.Name))
	if cause != "" {
		r.Cause = ": " + cause
		r.Advice = "Change the quota or the policy that refuses it, or ask an administrator of the cluster to do it. " +
			"For Pod Security, see artifacts/examples/restricted and docs/policies.md"
	}
	return r
}

func readyNotObserved(s *State) *readiness {
	dep := s.Deployment
	if dep.Status.ObservedGeneration >= dep.Generation {
		return nil
	}
	return s.comingUp(v1alpha1.ReasonProgressing,
		fmt.Sprintf("Waiting for the Deployment controller to apply the last change (%s)", available(dep)))
}

func readyDeploymentPaused(s *State) *readiness {
	dep := s.Deployment
	if !dep.Paused {
		return nil
	}
	return stalled(v1alpha1.ReasonDeploymentPaused,
		fmt.Sprintf("spec.paused of Deployment %q is true, so changes are not rolled out (%s)", dep.Name, available(dep)),
		"To resume: "+s.kubectl("rollout resume deployment %s", dep.Name))
}

// readyReplicaFailure: pods are refused. During a rename the quota may be too small for both Deployments. A person may
// raise it, so the Foo is Reconciling until the progress deadline.
func readyReplicaFailure(s *State) *readiness {
	dep := s.Deployment
	if dep.PodsRefused == nil {
		return nil
	}
	r := s.cannotCreate("pods", *dep.PodsRefused)
	if s.servingPrevious() != nil && !dep.DeadlineExceeded {
		r.Stalled = false
	}
	return r
}

func readyDeadlineExceeded(s *State) *readiness {
	dep := s.Deployment
	if !dep.DeadlineExceeded {
		return nil
	}
	return stalled(v1alpha1.ReasonProgressDeadlineExceeded,
		fmt.Sprintf("Deployment %q has exceeded its progress deadline: %s", dep.Name, progress(dep)),
		"To see why its pods do not become available: "+s.describePods())
}

// describePods returns the command that shows why pods of the Deployment do not become available.
func (s *State) describePods() string {
	return s.kubectl("describe pods -l '%s'", s.Deployment.Selector)
}

func readyUpdating(s *State) *readiness {
	wanted, status := s.Deployment.Replicas, &s.Deployment.Status
	if status.UpdatedReplicas >= wanted && status.AvailableReplicas >= wanted {
		return nil
	}
	r := s.comingUp(v1alpha1.ReasonProgressing, progress(s.Deployment))
	r.Advice = "If this lasts: " + s.describePods()
	return r
}

// readySurplus: replicas of an earlier spec have not ended yet.
func readySurplus(s *State) *readiness {
	surplus := s.Deployment.Status.Replicas - s.Deployment.Replicas
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
func readyTooSmall(s *State) *readiness {
	largest := s.largestPrevious()
	if largest == nil || s.Deployment.Status.AvailableReplicas >= s.neededReplicas() {
		return nil
	}
	name, needed := s.Deployment.Name, s.neededReplicas()
	return stalled(v1alpha1.ReasonRenaming,
		fmt.Sprintf("Moving to Deployment %q when it has %d replicas available, because previous Deployment %q is set to "+
			"%d. It is complete with %s", name, needed, largest.Name, largest.Replicas, available(s.Deployment)),
		fmt.Sprintf("To have %d: %s. To go on with another number N: %s", needed,
			s.kubectl("scale deployment %s --replicas=%d", name, needed),
			s.kubectl("scale foo %s --replicas=N", s.Foo.Name)))
}

func readyAvailable(s *State) *readiness {
	r := reconciling(v1alpha1.ReasonAvailable, available(s.Deployment), "")
	r.ready = true
	return r
}

// comingUp returns that the Deployment comes up. After a change of the name the message names it. While a previous one
// serves, that is no outage, and has a reason of its own.
func (s *State) comingUp(reason, message string) *readiness {
	serving := s.servingPrevious()
	if serving == nil || s.canReplace() {
		return reconciling(reason, message, "")
	}
	if serving.Status.AvailableReplicas > 0 {
		reason = v1alpha1.ReasonRenaming
	}
	dep, state := s.Deployment, available(s.Deployment)
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
