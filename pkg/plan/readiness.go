package plan

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A ConditionError is why a Foo is not Ready, as its conditions say it. When Stalled is set a person must act;
// otherwise the Foo is Reconciling.
type ConditionError struct {
	Reason, Message string
	Stalled         bool
}

func (e *ConditionError) Error() string { return e.Reason + ": " + e.Message }

func (e *ConditionError) readiness() *readiness {
	if e.Stalled {
		return stalled(e.Reason, e.Message)
	}
	return reconciling(e.Reason, e.Message)
}

// readiness is what the conditions of a Foo say.
type readiness struct {
	ready bool
	// secondary is the type of the condition that goes with an unready Foo: Reconciling, Stalled, or "".
	secondary       string
	reason, message string
}

func reconciling(reason, message string) *readiness {
	return &readiness{secondary: v1alpha1.ConditionReconciling, reason: reason, message: message}
}

func stalled(reason, message string) *readiness {
	return &readiness{secondary: v1alpha1.ConditionStalled, reason: reason, message: message}
}

// A readyRule returns what the conditions say, nil when it does not apply.
type readyRule func(*State) *readiness

// readyRules are read from top to bottom; the first that applies counts. Messages repeat byte for byte as long as
// nothing changes: no times, no names of pods, nothing in the order of a map.
var readyRules = []readyRule{
	readyPaused, readyInvalid,
	readyConflict, readyReserved, // The name is not the Foo's.
	readyOverridden, readyRefused,
	readyBeingDeleted, readyKeepsBeingDeleted, readyCreating,
	rollout,
}

// rolloutRules follow readyRules. They are about a Deployment that is the Foo's and is not being deleted.
var rolloutRules = []readyRule{
	readyReplicaSetRefused, readyNotObserved, readyDeploymentPaused, readyReplicaFailure, readyDeadlineExceeded,
	readyUpdating, readySurplus, readyAvailable,
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

// readyPaused reports on a paused Foo: how things are, while nothing is done about them.
func readyPaused(s *State) *readiness {
	if !s.Foo.Spec.Paused {
		return nil
	}
	const because = "Nothing is written while spec.paused is true; "
	dep := s.Deployment
	switch {
	case dep == nil:
		return &readiness{reason: v1alpha1.ReasonPaused, message: because + "there is no Deployment"}
	case !Owns(s.Foo, dep):
		return &readiness{reason: v1alpha1.ReasonPaused, message: because + "the Deployment is not this Foo's"}
	}
	complete := dep.DeletionTimestamp == nil && rollout(s).ready
	return &readiness{ready: complete, reason: v1alpha1.ReasonPaused, message: because + available(dep)}
}

func readyInvalid(s *State) *readiness {
	if reason := invalidReason(s.Foo); reason != "" {
		return stalled(v1alpha1.ReasonInvalid, reason)
	}
	return nil
}

// readyConflict: the Deployment belongs to somebody else.
func readyConflict(s *State) *readiness {
	if s.Deployment == nil || Owns(s.Foo, s.Deployment) {
		return nil
	}
	return s.conflict().readiness()
}

// readyReserved: the free name goes to an older Foo.
func readyReserved(s *State) *readiness {
	if s.Deployment != nil {
		return nil
	}
	first := s.firstClaimant()
	if first == nil {
		return nil
	}
	return reservedFor(s.Foo, first).readiness()
}

// readyOverridden: something else keeps changing fields that the Foo sets. Whether the Foo is Ready is as observed.
func readyOverridden(s *State) *readiness {
	attempt := s.overridden()
	if attempt == nil {
		return nil
	}
	r := *rollout(s)
	r.reason, r.message = attempt.Report.Reason, attempt.Report.Message
	return &r
}

// readyRefused: the Deployment is not as it should be, since the API server refused to create or patch it.
func readyRefused(s *State) *readiness {
	for _, op := range s.blocked {
		attempt := s.attempt(op)
		switch {
		case op.Verb != CreateDeployment && op.Verb != PatchDeployment, attempt.Report.Reason == "":
			continue
		case attempt.Report.Reason != v1alpha1.ReasonRefused:
			return attempt.Report.readiness()
		}
		verb := "create"
		if op.Verb == PatchDeployment {
			verb = "patch"
		}
		return reconciling(v1alpha1.ReasonRefused,
			fmt.Sprintf("Cannot %s Deployment %q, trying again: %s", verb, op.Name, attempt.Report.Message))
	}
	return nil
}

func readyBeingDeleted(s *State) *readiness {
	if s.Deployment == nil || s.Deployment.DeletionTimestamp == nil {
		return nil
	}
	return reconciling(v1alpha1.ReasonWaitingForDeletion,
		fmt.Sprintf("Deployment %q is being deleted and will be created again when it is gone", s.Deployment.Name))
}

// readyKeepsBeingDeleted: the Deployment was deleted so often that it is created again only after a delay.
func readyKeepsBeingDeleted(s *State) *readiness {
	if attempt := s.keepsBeingDeleted(); attempt != nil {
		return attempt.Report.readiness()
	}
	return nil
}

// readyCreating: there is no Deployment yet, or nothing is known of it yet.
func readyCreating(s *State) *readiness {
	if dep := s.Deployment; dep != nil && (dep.Status.ObservedGeneration != 0 || replicaSetRefused(dep)) {
		return nil
	}
	return reconciling(v1alpha1.ReasonCreating, fmt.Sprintf("Creating Deployment %q", s.Foo.Spec.DeploymentName))
}

func readyReplicaSetRefused(s *State) *readiness {
	dep := s.Deployment
	if !replicaSetRefused(dep) {
		return nil
	}
	return stalled(v1alpha1.ReasonReplicaFailure,
		fmt.Sprintf("Deployment %q cannot create its ReplicaSet: %s. \"kubectl describe deployment %s\" says why",
			dep.Name, available(dep), dep.Name))
}

func readyNotObserved(s *State) *readiness {
	status := &s.Deployment.Status
	if status.ObservedGeneration >= s.Deployment.Generation {
		return nil
	}
	return reconciling(v1alpha1.ReasonProgressing,
		fmt.Sprintf("Waiting for the Deployment controller to see the last change; %d replicas available",
			status.AvailableReplicas))
}

func readyDeploymentPaused(s *State) *readiness {
	dep := s.Deployment
	if !dep.Spec.Paused {
		return nil
	}
	return stalled(v1alpha1.ReasonDeploymentPaused,
		fmt.Sprintf("Deployment %q is paused: %s. \"kubectl rollout resume deployment %s\" lets it go on",
			dep.Name, available(dep), dep.Name))
}

// readyReplicaFailure: pods are refused. During a rename there may be no room for both Deployments, and somebody may
// make some; the progress deadline says when that takes too long.
func readyReplicaFailure(s *State) *readiness {
	dep := s.Deployment
	if !replicaFailure(dep) {
		return nil
	}
	r := stalled(v1alpha1.ReasonReplicaFailure,
		fmt.Sprintf("Deployment %q cannot create its pods: %s. \"kubectl describe replicaset\" says why",
			dep.Name, available(dep)))
	if s.servingPrevious() != nil && !deadlineExceeded(dep) {
		r.secondary = v1alpha1.ConditionReconciling
	}
	return r
}

func readyDeadlineExceeded(s *State) *readiness {
	dep := s.Deployment
	if !deadlineExceeded(dep) {
		return nil
	}
	return stalled(v1alpha1.ReasonProgressDeadlineExceeded,
		fmt.Sprintf("Deployment %q makes no progress: %s. \"kubectl describe pod\" says why", dep.Name, progress(dep)))
}

func readyUpdating(s *State) *readiness {
	wanted, status := replicasOf(s.Deployment), &s.Deployment.Status
	if status.UpdatedReplicas >= wanted && status.AvailableReplicas >= wanted {
		return nil
	}
	return reconciling(v1alpha1.ReasonProgressing, progress(s.Deployment))
}

// readySurplus: replicas of an earlier spec have not ended yet.
func readySurplus(s *State) *readiness {
	wanted, have := replicasOf(s.Deployment), s.Deployment.Status.Replicas
	if have <= wanted {
		return nil
	}
	return reconciling(v1alpha1.ReasonProgressing, fmt.Sprintf("%d replicas where %d are wanted", have, wanted))
}

func readyAvailable(s *State) *readiness {
	return &readiness{ready: true, reason: v1alpha1.ReasonAvailable, message: available(s.Deployment)}
}

// progress returns how far a rollout is.
func progress(dep *appsv1.Deployment) string {
	if wanted := replicasOf(dep); dep.Status.UpdatedReplicas < wanted {
		return fmt.Sprintf("%d of %d replicas updated", dep.Status.UpdatedReplicas, wanted)
	}
	return available(dep)
}

func available(dep *appsv1.Deployment) string {
	return fmt.Sprintf("%d of %d replicas available", dep.Status.AvailableReplicas, replicasOf(dep))
}

// replicaSetRefused reports whether the Deployment controller could not create the ReplicaSet. It then leaves
// observedGeneration behind.
func replicaSetRefused(dep *appsv1.Deployment) bool {
	return hasCondition(dep, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError")
}

// replicaFailure reports whether pods of dep are refused.
func replicaFailure(dep *appsv1.Deployment) bool {
	return hasCondition(dep, appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "")
}

func deadlineExceeded(dep *appsv1.Deployment) bool {
	return hasCondition(dep, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")
}

// wasComplete reports whether all replicas of dep were available once, of its present pod template.
func wasComplete(dep *appsv1.Deployment) bool {
	return hasCondition(dep, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
}

// hasCondition reports whether dep has the condition; an empty reason stands for any.
func hasCondition(dep *appsv1.Deployment, conditionType appsv1.DeploymentConditionType,
	value corev1.ConditionStatus, reason string) bool {
	for _, cond := range dep.Status.Conditions {
		if cond.Type == conditionType && cond.Status == value && (reason == "" || cond.Reason == reason) {
			return true
		}
	}
	return false
}
