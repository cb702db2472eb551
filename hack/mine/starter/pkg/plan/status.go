package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit/conditions"
)

// A Problem is why a child is not as the Widget asks, in the words of the status.
type Problem struct{ Reason, Message string }

func (p *Problem) Error() string { return p.Message }

// Taken returns why have, which has the name of a child of w, cannot be that child; nil if it is.
func Taken(w *v1alpha1.Widget, kind string, have metav1.Object) error {
	holder, ref := "nobody", metav1.GetControllerOfNoCopy(have)
	if ref != nil {
		holder = fmt.Sprintf("%s %q", ref.Kind, ref.Name)
	}
	isOurs := metav1.IsControlledBy(have, w)
	isOrphan := isChild(have) && ref.Name == w.Name && !isOurs // Of a deleted Widget of this name.
	switch {
	case have.GetDeletionTimestamp() != nil, isOrphan:
		return &Problem{v1alpha1.ReasonWaiting,
			fmt.Sprintf("%s %q is being deleted, and is created again after that", kind, have.GetName())}
	case !isOurs:
		return &Problem{v1alpha1.ReasonNotOwned, fmt.Sprintf(
			"%s %q exists and is controlled by %s: delete it, or give the Widget another name", kind, have.GetName(), holder)}
	}
	return nil
}

// Overridden returns why a child still differs after its correction.
func Overridden(kind, name string, fields []string) error {
	return &Problem{v1alpha1.ReasonOverridden, fmt.Sprintf("%s %q: a webhook or a policy of this cluster changes %s: "+
		"set what it accepts in the Widget", kind, name, strings.Join(fields, ", "))}
}

// Retriable returns those failures of a sync that a retry may solve. For the others, an event about the object that has
// the name brings the Widget back.
func Retriable(failures ...error) error {
	var list []error
	for _, err := range failures {
		var p *Problem
		if !errors.As(err, &p) || p.Reason == v1alpha1.ReasonOverridden {
			list = append(list, err)
		}
	}
	return errors.Join(list...)
}

// Status returns the status of w after a sync. configMap and dep are its children, nil if there are none. failures are
// why the sync could not do everything; nil ones do not count.
func Status(w *v1alpha1.Widget, configMap *corev1.ConfigMap, dep *appsv1.Deployment, now time.Time,
	failures ...error) v1alpha1.WidgetStatus {
	r := failure(failures)
	if errors.Join(failures...) == nil {
		r = rollout(dep)
	}
	if r.Reason == "" {
		return w.Status // After a conflict: the sync is retried soon.
	}
	if configMap == nil {
		r.Message += ". The Deployment waits for its ConfigMap"
	}
	had := meta.FindStatusCondition(w.Status.Conditions, conditions.Ready)
	isSame := had != nil && had.Reason == r.Reason && had.ObservedGeneration == w.Generation
	isOfRequest := r.Reason == v1alpha1.ReasonRefused || r.Reason == v1alpha1.ReasonRequestFailed
	if isSame && isOfRequest && requestOf(had.Message) == requestOf(r.Message) {
		r.Message = had.Message // Its text may differ each time: each write would bring the key back at once.
	}
	status := v1alpha1.WidgetStatus{
		ObservedGeneration: w.Generation,
		Selector:           labels.Set{labelWidget: w.Name}.String(),
		Conditions:         conditions.Set(w.Status.Conditions, r, w.Generation, now),
	}
	if dep != nil {
		status.Replicas, status.AvailableReplicas = dep.Status.Replicas, dep.Status.AvailableReplicas
	}
	return status
}

// failure reports the first failure that does not pass by itself, or one that may, but no conflict.
func failure(failures []error) (passing conditions.Report) {
	for _, err := range failures {
		var p *Problem
		switch {
		case errors.As(err, &p) && p.Reason == v1alpha1.ReasonNotOwned: // No retry can end it.
			return conditions.Report{True: conditions.Stalled, Reason: p.Reason, Message: p.Message}
		case p != nil:
			return conditions.Report{True: conditions.Reconciling, Reason: p.Reason, Message: p.Message}
		case isRefusal(err):
			return conditions.Report{True: conditions.Reconciling, Reason: v1alpha1.ReasonRefused, Message: causeOf(err)}
		case err != nil && !isConflict(err):
			passing = conditions.Report{
				True: conditions.Reconciling, Reason: v1alpha1.ReasonRequestFailed, Message: causeOf(err),
			}
		}
	}
	return passing
}

// causeOf returns what the status reports about a request that failed: the request and the answer of the API server.
// Without one, err has addresses, which are for the log.
func causeOf(err error) string {
	if !isAnswer(err) {
		return requestOf(err.Error()) + ": the API server fails or does not answer. The log of the controller has the error"
	}
	return fmt.Sprintf("%.4096s", err)
}

// requestOf returns the request in a message of causeOf.
func requestOf(message string) string {
	request, _, _ := strings.Cut(message, ": ")
	return request
}

// isAnswer reports whether err is an answer of the API server itself. The page of a proxy is not: client-go marks it.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isRefusal reports whether err is one of a quota, a policy, a webhook or a missing permission.
func isRefusal(err error) bool {
	return isAnswer(err) && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err))
}

// isConflict reports whether err means that a cache lags.
func isConflict(err error) bool {
	var status apierrors.APIStatus // A webhook that refuses with such a code names no object.
	named := errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
	return named && isAnswer(err) &&
		(apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
}

// rollout reports on a Deployment that is as wanted, with the rules of `kubectl rollout status`.
func rollout(dep *appsv1.Deployment) conditions.Report {
	wanted, status := int32(1), dep.Status
	if dep.Spec.Replicas != nil {
		wanted = *dep.Spec.Replicas
	}
	text := fmt.Sprintf("%d of %d replicas available", min(status.AvailableReplicas, wanted), wanted)
	isObserved := status.ObservedGeneration >= dep.Generation
	if isObserved && status.UpdatedReplicas == wanted && status.Replicas == wanted && status.AvailableReplicas == wanted {
		return conditions.Report{True: conditions.Ready, Reason: v1alpha1.ReasonAvailable, Message: text}
	}
	for _, c := range status.Conditions {
		isStuck := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse ||
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		if isObserved && isStuck {
			// Not the message: it may have the name of a pod, which changes with each attempt.
			return conditions.Report{True: conditions.Stalled, Reason: v1alpha1.ReasonFailed, Message: fmt.Sprintf(
				"Deployment reports %s: see kubectl describe deployment %s", c.Reason, dep.Name)}
		}
	}
	return conditions.Report{True: conditions.Reconciling, Reason: v1alpha1.ReasonProgressing, Message: text}
}
