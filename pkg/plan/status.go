package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// messageLimit is how many bytes a condition's message has at most; its field would take eight times as many.
const messageLimit = 4096

// Status returns what the status of seen.Foo shall be. seen is what is known after the last step: Named and
// Owned as they are then. err is why that step failed or was not taken, nil when it went well; now is used
// for conditions that change.
func Status(seen Seen, err error, now time.Time) v1alpha1.FooStatus {
	foo, dep := seen.Foo, seen.Named
	status := *foo.Status.DeepCopy()
	status.Conditions = slices.DeleteFunc(status.Conditions, malformed(map[string]bool{}))
	status.ObservedGeneration = foo.Generation
	status.Replicas, status.AvailableReplicas, status.Selector = 0, 0, ""
	if dep != nil && Owns(foo, dep) {
		status.Replicas = dep.Status.Replicas
		status.AvailableReplicas = dep.Status.AvailableReplicas
		status.Selector = selectorOf(dep)
	}

	v := judge(&seen, err)
	v.message = clip(v.message+seen.others(), messageLimit) // The API server's words, and others' names, may be of any length.
	set := func(conditionType string, value metav1.ConditionStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: value, Reason: v.reason, Message: v.message,
			ObservedGeneration: foo.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	ready := metav1.ConditionFalse
	if v.ready {
		ready = metav1.ConditionTrue
	}
	set(v1alpha1.ConditionReady, ready)
	for _, more := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if more == v.more {
			set(more, metav1.ConditionTrue)
			continue
		}
		meta.RemoveStatusCondition(&status.Conditions, more)
	}
	return status
}

// malformed reports of each condition in turn whether the API server would refuse a status that has it. There
// may be some that were stored before there were rules, and they would keep us from ever reporting.
func malformed(seen map[string]bool) func(metav1.Condition) bool {
	return func(c metav1.Condition) bool {
		known := c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown
		bad := seen[c.Type] || !known || c.Reason == "" || c.LastTransitionTime.IsZero()
		seen[c.Type] = true
		return bad
	}
}

// verdict is what the conditions say.
type verdict struct {
	ready bool
	// more is the type of the condition that goes with an unready Foo: Reconciling, Stalled, or "".
	more            string
	reason, message string
}

func ready(reason, message string) verdict {
	return verdict{ready: true, reason: reason, message: message}
}

func reconciling(reason, message string) verdict {
	return verdict{more: v1alpha1.ConditionReconciling, reason: reason, message: message}
}

func stalled(reason, message string) verdict {
	return verdict{more: v1alpha1.ConditionStalled, reason: reason, message: message}
}

// judge is read from top to bottom, the first case that fits counts. Messages repeat byte for byte as
// long as nothing changes: no times, no names of pods, nothing in the order of a map.
func judge(seen *Seen, err error) verdict {
	var overridden *OverriddenError
	var terminal *TerminalError
	var write *WriteError
	foo, dep := seen.Foo, seen.Named
	if errors.As(err, &write) && write.Verb == "delete" {
		err = nil // Told behind the message: the named Deployment is as it is.
	}
	if err == nil && dep != nil && !Owns(foo, dep) {
		err = taken(seen)
	}
	switch name := foo.Spec.DeploymentName; {
	case foo.Spec.Paused:
		return paused(seen)
	case errors.As(err, &overridden):
		v := rollout(seen)
		v.reason, v.message = v1alpha1.ReasonFieldsOverridden, overridden.Error()
		return v
	case errors.As(err, &terminal) && terminal.Passing:
		return reconciling(terminal.Reason, terminal.Message)
	case errors.As(err, &terminal):
		return stalled(terminal.Reason, terminal.Message)
	case errors.As(err, &write):
		return reconciling(v1alpha1.ReasonRefused, fmt.Sprintf("Cannot %s Deployment %q, trying again: %s", write.Verb, write.Deployment, words(err)))
	case err != nil:
		return reconciling(v1alpha1.ReasonRefused, "Trying again: "+words(err))
	case dep != nil && dep.DeletionTimestamp != nil:
		return reconciling(v1alpha1.ReasonWaitingForDeletion, fmt.Sprintf("Deployment %q is being deleted and will be created again when it is gone", name))
	case (dep == nil || dep.Status.ObservedGeneration == 0) && errors.As(seen.Recreated, &terminal):
		return reconciling(terminal.Reason, terminal.Message)
	case dep == nil || dep.Status.ObservedGeneration == 0 && !refusedReplicaSet(dep):
		return reconciling(v1alpha1.ReasonCreating, fmt.Sprintf("Creating Deployment %q", name))
	default:
		return rollout(seen)
	}
}

// paused is what a paused Foo says: how things are, while nothing is done about them.
func paused(seen *Seen) verdict {
	dep := seen.Named
	const because = "Nothing is written while spec.paused is true; "
	switch {
	case dep == nil:
		return verdict{reason: v1alpha1.ReasonPaused, message: because + "there is no Deployment"}
	case !Owns(seen.Foo, dep):
		return verdict{reason: v1alpha1.ReasonPaused, message: because + "the Deployment is not this Foo's"}
	}
	complete := dep.DeletionTimestamp == nil && rollout(seen).ready
	return verdict{ready: complete, reason: v1alpha1.ReasonPaused, message: because + available(dep)}
}

// rollout judges a named Deployment that is the Foo's and is not being deleted.
func rollout(seen *Seen) verdict {
	dep := seen.Named
	wanted, status := replicasOf(dep), &dep.Status
	late := hasCondition(dep, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	switch {
	case refusedReplicaSet(dep):
		return stalled(v1alpha1.ReasonReplicaFailure, fmt.Sprintf("Deployment %q cannot create its ReplicaSet: %s. \"kubectl describe deployment %s\" says why",
			dep.Name, available(dep), dep.Name))
	case status.ObservedGeneration < dep.Generation:
		return reconciling(v1alpha1.ReasonProgressing, fmt.Sprintf("Waiting for the Deployment controller to see the last change; %d replicas available", status.AvailableReplicas))
	case dep.Spec.Paused:
		return stalled(v1alpha1.ReasonDeploymentPaused, fmt.Sprintf("Deployment %q is paused: %s. \"kubectl rollout resume deployment %s\" lets it go on",
			dep.Name, available(dep), dep.Name))
	case noRoom(dep):
		v := stalled(v1alpha1.ReasonReplicaFailure, fmt.Sprintf("Deployment %q cannot create its pods: %s. \"kubectl describe replicaset\" says why",
			dep.Name, available(dep)))
		if seen.kept() != nil && !late { // Perhaps there is no room for both of them, and somebody makes it.
			v.more = v1alpha1.ConditionReconciling
		}
		return v
	case late:
		return stalled(v1alpha1.ReasonProgressDeadlineExceeded, fmt.Sprintf("Deployment %q makes no progress: %s. \"kubectl describe pod\" says why",
			dep.Name, progress(dep)))
	case status.UpdatedReplicas < wanted || status.AvailableReplicas < wanted:
		return reconciling(v1alpha1.ReasonProgressing, progress(dep))
	case status.Replicas > wanted:
		return reconciling(v1alpha1.ReasonProgressing, fmt.Sprintf("%d replicas where %d are wanted", status.Replicas, wanted))
	default:
		return ready(v1alpha1.ReasonAvailable, available(dep))
	}
}

// progress says how far a rollout is.
func progress(dep *appsv1.Deployment) string {
	if wanted := replicasOf(dep); dep.Status.UpdatedReplicas < wanted {
		return fmt.Sprintf("%d of %d replicas updated", dep.Status.UpdatedReplicas, wanted)
	}
	return available(dep)
}

func available(dep *appsv1.Deployment) string {
	return fmt.Sprintf("%d of %d replicas available", dep.Status.AvailableReplicas, replicasOf(dep))
}

// refusedReplicaSet reports whether the Deployment controller could not create the ReplicaSet. It then leaves
// observedGeneration behind.
func refusedReplicaSet(dep *appsv1.Deployment) bool {
	return hasCondition(dep, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError")
}

// noRoom reports whether pods of dep are refused.
func noRoom(dep *appsv1.Deployment) bool {
	return hasCondition(dep, appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "")
}

// complete reports whether all replicas of dep were available once, of its present pod template.
func complete(dep *appsv1.Deployment) bool {
	return hasCondition(dep, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
}

// hasCondition reports whether dep has the condition; an empty reason is any.
func hasCondition(dep *appsv1.Deployment, conditionType appsv1.DeploymentConditionType, value corev1.ConditionStatus, reason string) bool {
	for _, cond := range dep.Status.Conditions {
		if cond.Type == conditionType && cond.Status == value && (reason == "" || cond.Reason == reason) {
			return true
		}
	}
	return false
}

// selectorOf returns dep's selector in the form of a label query.
func selectorOf(dep *appsv1.Deployment) string {
	selector, err := metav1.LabelSelectorAsSelector(dep.Spec.Selector)
	if err != nil {
		return "" // The API server lets no such selector in.
	}
	return selector.String()
}

// Stuck reports whether foo says of its present spec that it cannot be met.
func Stuck(foo *v1alpha1.Foo) bool {
	return foo.Status.ObservedGeneration == foo.Generation && meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled)
}

// Said returns the reason and the message that foo's status gives; both are empty when it has none.
func Said(foo *v1alpha1.Foo) (reason, message string) {
	if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason, ready.Message
	}
	return "", ""
}
