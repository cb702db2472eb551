package plan

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
)

// status returns the step that writes the status, nil if it is as it must be.
func (in *Input) status(s *reconcile.Sync) *reconcile.Step {
	w, dep := in.Widget.DeepCopy(), in.Deployment
	w.Status = v1alpha1.WidgetStatus{
		ObservedGeneration: w.Generation,
		Selector:           labels.Set{labelWidget: w.Name}.String(),
		Conditions:         state.Conditions(w.Status.Conditions, in.report(s), w.Generation, s.Now()),
	}
	if dep != nil && reconcile.Owns(w, dep) {
		w.Status.Replicas, w.Status.AvailableReplicas = dep.Status.Replicas, dep.Status.AvailableReplicas
	}
	if equality.Semantic.DeepEqual(in.Widget.Status, w.Status) {
		return nil
	}
	return reconcile.StatusStep(WidgetKind, &in.Widget, w, in.Widget.Status.Conditions, w.Status.Conditions)
}

// report returns the first problem of the sync, or how far the rollout is.
func (in *Input) report(s *reconcile.Sync) state.Report {
	problem := s.First()
	if problem == nil { // Both children exist, and are as wanted.
		return rollout(in.Deployment)
	}
	report := problem.Report()
	if !in.mayMount() {
		report.Message += ". The Deployment waits for its ConfigMap"
	}
	return report
}

// rollout reports on a Deployment that is as wanted, as `kubectl rollout status` does, and also that pods are refused.
func rollout(dep *appsv1.Deployment) state.Report {
	wanted, status := int32(1), dep.Status
	if dep.Spec.Replicas != nil {
		wanted = *dep.Spec.Replicas
	}
	text := fmt.Sprintf("%d of %d replicas available", min(status.AvailableReplicas, wanted), wanted)
	isObserved := status.ObservedGeneration >= dep.Generation
	if isObserved && status.UpdatedReplicas == wanted && status.Replicas == wanted && status.AvailableReplicas == wanted {
		return state.Report{True: state.Ready, Reason: v1alpha1.ReasonAvailable, Message: text}
	}
	for _, c := range status.Conditions {
		isStuck := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse ||
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		// While no ReplicaSet can be made, observedGeneration stays behind.
		if isStuck && (isObserved || c.Reason == "ReplicaSetCreateError") {
			// Not the message: it may have the name of a pod, which changes with each attempt.
			return state.Report{True: state.Stalled, Reason: v1alpha1.ReasonFailed, Message: fmt.Sprintf(
				"Deployment reports %s: see kubectl describe deployment %s", c.Reason, dep.Name)}
		}
	}
	return state.Report{True: state.Reconciling, Reason: v1alpha1.ReasonProgressing, Message: text}
}
