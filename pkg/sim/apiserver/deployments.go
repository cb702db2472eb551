package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

// Rollouts configures RunDeployments. The zero value completes every rollout at once.
type Rollouts struct {
	// Lag is how long the controller takes to see a change.
	Lag time.Duration
	// Available returns how long new replicas take to become available after a change of the pod template or after a
	// scale-up. A negative duration means never. minReadySeconds are added. Default: at once.
	Available func(dep *appsv1.Deployment) time.Duration
	// Failure returns why pods cannot be created, for example the message of a quota, or "". Default: "". The
	// controller calls it only when the Deployment changes or a time of its rollout is due.
	Failure func(dep *appsv1.Deployment) string
}

// RunDeployments is a Deployment controller. It maintains the status of every Deployment as a real one does:
// observedGeneration, the numbers of replicas, the conditions Available, Progressing and ReplicaFailure. It also sets
// the annotation with the revision. There are no ReplicaSets, no Pods and no surge: old replicas serve until all new
// ones are available. It returns when ctx ends, or at once if Deployments are not registered.
func RunDeployments(ctx context.Context, s *Server, behavior Rollouts) {
	kind := s.byPath[appsv1.SchemeGroupVersion.WithResource("deployments")]
	if kind == nil {
		return
	}
	c := &deploymentController{
		actor:    actor{server: s, user: "deployment-controller", lag: behavior.Lag},
		kind:     kind,
		behavior: behavior,
		rollouts: map[types.UID]*rollout{},
	}
	for {
		revisions, err := c.changes(ctx, c.next(), kind)
		if err != nil {
			return
		}
		c.sync(ctx, revisions)
	}
}

// A deploymentController is the controller that RunDeployments runs.
type deploymentController struct {
	actor
	kind     *resource
	behavior Rollouts
	rollouts map[types.UID]*rollout
}

// A rollout is the state that the controller keeps for a Deployment.
type rollout struct {
	namespace, name string
	template        string    // The hash of the pod template that was rolled out last.
	revision        int       // The number of pod templates so far.
	replicas        int32     // The number of replicas that were created.
	startTime       time.Time // When the last creation of replicas began.
	due             time.Time // The time of the next sync that no change triggers. Zero for none.
}

// next returns the time of the next sync that no change triggers, zero for none.
func (c *deploymentController) next() time.Time {
	var next time.Time
	for _, r := range c.rollouts {
		if !r.due.IsZero() && (next.IsZero() || r.due.Before(next)) {
			next = r.due
		}
	}
	return next
}

// sync updates the status of the Deployments that have changed or are due.
func (c *deploymentController) sync(ctx context.Context, revisions []*Revision) {
	var todo []types.UID
	for _, rev := range revisions {
		uid := accessor(rev.Object).GetUID()
		if rev.Type == watch.Deleted {
			delete(c.rollouts, uid)
			continue
		}
		if c.rollouts[uid] == nil {
			c.rollouts[uid] = &rollout{namespace: rev.Namespace, name: rev.Name}
		}
		todo = append(todo, uid)
	}
	now := time.Now()
	for uid, r := range c.rollouts {
		if !r.due.IsZero() && !now.Before(r.due) {
			todo = append(todo, uid)
		}
	}
	slices.Sort(todo)
	for _, uid := range slices.Compact(todo) {
		r := c.rollouts[uid]
		if r == nil {
			continue // Deleted by a later revision.
		}
		dep, ok := c.get(c.kind, r.namespace, r.name).(*appsv1.Deployment)
		if !ok || dep.UID != uid || dep.DeletionTimestamp != nil {
			r.due = time.Time{}
			continue
		}
		if err := c.updateStatus(ctx, dep, r); err != nil {
			r.due = now.Add(retryAfter)
		}
	}
}

// revisionKey is the annotation that counts the pod templates that were rolled out.
const revisionKey = "deployment.kubernetes.io/revision"

// updateStatus writes the status of a Deployment if it changes. The same write sets the annotation with the revision,
// so that the annotation does not start a new generation.
func (c *deploymentController) updateStatus(ctx context.Context, dep *appsv1.Deployment, r *rollout) error {
	updated := *r // A copy, because a rollout whose status cannot be written has not started.
	status := c.status(dep, &updated, time.Now())
	revision := strconv.Itoa(updated.revision)
	hasRevision := updated.template == "" || dep.Annotations[revisionKey] == revision
	if hasRevision && equality.Semantic.DeepEqual(&dep.Status, status) {
		*r = updated
		return nil
	}
	dep = dep.DeepCopy()
	dep.Status = *status
	if updated.template != "" {
		metav1.SetMetaDataAnnotation(&dep.ObjectMeta, revisionKey, revision)
	}
	err := c.do(ctx, http.MethodPut, c.kind.path(dep.Namespace, dep.Name, "status"), string(mediaJSON), dep)
	if err == nil {
		*r = updated
	}
	return err
}

// status returns the status that a Deployment should have, and updates its rollout.
func (c *deploymentController) status(dep *appsv1.Deployment, r *rollout, now time.Time) *appsv1.DeploymentStatus {
	status := dep.Status.DeepCopy()
	desired := int32(1)
	if dep.Spec.Replicas != nil {
		desired = *dep.Spec.Replicas
	}
	hash := templateHash(&dep.Spec.Template)
	rolledOut := status.UpdatedReplicas == desired || dep.Annotations[revisionKey] != ""
	if r.template == "" && status.ObservedGeneration == dep.Generation && rolledOut {
		r.template, r.replicas, r.startTime = hash, status.Replicas, now // Another controller has rolled it out before.
	}
	if n, err := strconv.Atoi(dep.Annotations[revisionKey]); err == nil {
		r.revision = max(r.revision, n)
	}
	status.ObservedGeneration = dep.Generation
	failure := ""
	if c.behavior.Failure != nil {
		failure = c.behavior.Failure(dep)
	}
	setFailure(status, failure, now)
	if dep.Spec.Paused && r.template != hash {
		hash = r.template // A paused Deployment can still be scaled.
	}
	if r.template != hash || r.replicas < desired {
		r.startTime = now
	}
	if r.template != hash {
		r.revision++
	}
	fresh := r.template == hash && hash != ""
	r.template, r.replicas = hash, desired
	if hash == "" { // The Deployment was created paused.
		r.replicas, desired = 0, 0
	}
	c.count(status, dep, r, desired, fresh, failure, now)
	c.conditions(status, dep, r, desired, now)
	return status
}

// count sets the numbers of replicas, and the time of their next change.
func (c *deploymentController) count(status *appsv1.DeploymentStatus, dep *appsv1.Deployment, r *rollout,
	desired int32, fresh bool, failure string, now time.Time) {
	takes := time.Duration(0)
	if c.behavior.Available != nil {
		takes = c.behavior.Available(dep)
	}
	minReady := time.Duration(dep.Spec.MinReadySeconds) * time.Second
	ready := r.startTime.Add(takes + minReady)
	status.Replicas, status.UpdatedReplicas = desired, desired
	r.due = time.Time{}
	switch {
	case failure != "":
		status.Replicas = min(dep.Status.Replicas, desired)
		status.UpdatedReplicas = min(dep.Status.UpdatedReplicas, status.Replicas)
		if !fresh {
			status.UpdatedReplicas = 0
		}
		status.AvailableReplicas = min(dep.Status.AvailableReplicas, status.Replicas)
	case takes >= 0 && !now.Before(ready):
		status.AvailableReplicas = desired
	default:
		status.AvailableReplicas = min(dep.Status.AvailableReplicas, desired)
		if takes >= 0 {
			r.due = ready
		}
	}
	status.ReadyReplicas = status.AvailableReplicas
	status.UnavailableReplicas = desired - status.AvailableReplicas
}

// conditions sets Available and Progressing.
func (c *deploymentController) conditions(s *appsv1.DeploymentStatus, dep *appsv1.Deployment, r *rollout, desired int32,
	now time.Time) {
	available := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable",
		Message: "Deployment has minimum availability.",
	}
	if s.AvailableReplicas < desired-maxUnavailable(dep, desired) {
		available.Status, available.Reason = corev1.ConditionFalse, "MinimumReplicasUnavailable"
		available.Message = "Deployment does not have minimum availability."
	}
	setCondition(s, available, now)

	replicaSet := fmt.Sprintf("ReplicaSet %q", dep.Name+"-"+r.template)
	progressing := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue}
	deadline := deadlineOf(dep, r)
	switch complete := s.AvailableReplicas == desired && s.UpdatedReplicas == desired; {
	case dep.Spec.Paused:
		progressing.Status, progressing.Reason = corev1.ConditionUnknown, "DeploymentPaused"
		progressing.Message = "Deployment is paused"
	case complete:
		progressing.Reason, progressing.Message = "NewReplicaSetAvailable", replicaSet+" has successfully progressed."
	case !deadline.IsZero() && !now.Before(deadline):
		progressing.Status, progressing.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
		progressing.Message = replicaSet + " has timed out progressing."
	default:
		progressing.Reason, progressing.Message = "ReplicaSetUpdated", replicaSet+" is progressing."
		if !deadline.IsZero() && (r.due.IsZero() || deadline.Before(r.due)) {
			r.due = deadline
		}
	}
	setCondition(s, progressing, now)
}

// deadlineOf returns when the progress deadline of a rollout is exceeded.
func deadlineOf(dep *appsv1.Deployment, r *rollout) time.Time {
	if dep.Spec.ProgressDeadlineSeconds == nil {
		return r.startTime.Add(10 * time.Minute)
	}
	return r.startTime.Add(time.Duration(*dep.Spec.ProgressDeadlineSeconds) * time.Second)
}

// setFailure sets the condition ReplicaFailure, or removes it if failure is empty.
func setFailure(status *appsv1.DeploymentStatus, failure string, now time.Time) {
	if failure == "" {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentReplicaFailure
		})
		return
	}
	setCondition(status, appsv1.DeploymentCondition{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: failure,
	}, now)
}

// setCondition replaces a condition if its status, reason or message changes.
func setCondition(status *appsv1.DeploymentStatus, cond appsv1.DeploymentCondition, now time.Time) {
	stamp := metav1.NewTime(now).Rfc3339Copy()
	cond.LastUpdateTime, cond.LastTransitionTime = stamp, stamp
	i := slices.IndexFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == cond.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, cond)
		return
	}
	have := status.Conditions[i]
	if have.Status == cond.Status && have.Reason == cond.Reason && have.Message == cond.Message {
		return
	}
	if have.Status == cond.Status {
		cond.LastTransitionTime = have.LastTransitionTime
	}
	status.Conditions[i] = cond
}

// maxUnavailable returns how many replicas of an available Deployment may be unavailable.
func maxUnavailable(dep *appsv1.Deployment, desired int32) int32 {
	if dep.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return 0
	}
	value := intstr.FromString("25%")
	if rolling := dep.Spec.Strategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		value = *rolling.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(desired), false)
	if err != nil {
		return 0
	}
	return min(int32(n), desired)
}

func templateHash(template *corev1.PodTemplateSpec) string {
	encoded, err := json.Marshal(template)
	if err != nil {
		panic("apiserver: " + err.Error()) // Impossible: it was encoded before.
	}
	h := fnv.New32a()
	h.Write(encoded)
	return fmt.Sprintf("%08x", h.Sum32())
}
