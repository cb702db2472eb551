package scenario

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// rollout writes the status of a Deployment as the Deployment controller does. All replicas are available unless args
// give other numbers.
func (e *Env) rollout(args Arguments) error {
	return e.Edit("deployments", "status", args.Word(0), func(obj Object) {
		dep := obj.(*appsv1.Deployment)
		dep.Status = rolloutStatus(dep, args)
	})
}

func rolloutStatus(dep *appsv1.Deployment, args Arguments) appsv1.DeploymentStatus {
	n := *dep.Spec.Replicas
	status := appsv1.DeploymentStatus{
		ObservedGeneration: dep.Generation,
		UpdatedReplicas:    args.Number("updated", n),
		AvailableReplicas:  args.Number("available", n),
	}
	status.ReadyReplicas = status.AvailableReplicas
	status.Replicas = args.Number("replicas", max(status.UpdatedReplicas, status.AvailableReplicas))
	progressing := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated",
	}
	// A rollout that was complete once stays complete until the pod template changes.
	wasComplete := slices.ContainsFunc(dep.Status.Conditions, func(cond appsv1.DeploymentCondition) bool {
		return cond.Reason == "NewReplicaSetAvailable"
	})
	if status.UpdatedReplicas >= n && (status.AvailableReplicas >= n || wasComplete) {
		progressing.Reason = "NewReplicaSetAvailable"
	}
	if args.Has("stuck") {
		progressing.Status, progressing.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
	}
	status.Conditions = []appsv1.DeploymentCondition{progressing}
	if args.Has("failing") {
		status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		})
	}
	return status
}
