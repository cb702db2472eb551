package apisim

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

// Rollouts says how RunDeployments behaves. The zero value rolls out everything at once.
type Rollouts struct {
	// Lag is how long the controller takes to see a change.
	Lag time.Duration
	// Available returns how long after a change of the pod template, or of the number of replicas to more, the new
	// replicas take to be available; negative for never. Default: at once. minReadySeconds come on top.
	Available func(dep *appsv1.Deployment) time.Duration
	// Failure returns why pods cannot be created, as the quota's message, or nothing. Default: nothing. When it says
	// something else, the controller sees it only at the next change of the Deployment.
	Failure func(dep *appsv1.Deployment) string
}

// RunDeployments is a Deployment controller: it keeps the status of every Deployment as a real one does, with
// observedGeneration, the numbers of replicas and the conditions Available, Progressing and ReplicaFailure; and the
// annotation with the revision. There are no ReplicaSets and no Pods; old replicas serve until all new ones are
// available, and there is no surge. It returns when ctx ends, at once when Deployments are not registered.
func RunDeployments(ctx context.Context, s *Server, how Rollouts) {
	kind := s.byPath[appsv1.SchemeGroupVersion.WithResource("deployments")]
	if kind == nil {
		return
	}
	c := &deployer{
		actor:    actor{server: s, user: "deployment-controller", lag: how.Lag},
		kind:     kind,
		how:      how,
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

// A deployer is the Deployment controller.
type deployer struct {
	actor
	kind     *resource
	how      Rollouts
	rollouts map[types.UID]*rollout
}

// A rollout is what the controller remembers of a Deployment.
type rollout struct {
	namespace, name string
	template        string    // The hash of the template that it has made pods of.
	revision        int       // How many templates there were.
	replicas        int32     // How many it has made.
	began           time.Time // When it last began to make some.
	due             time.Time // When to look again without a change. Zero for never.
}

// next returns when there is something to do without a change.
func (c *deployer) next() time.Time {
	var next time.Time
	for _, r := range c.rollouts {
		if !r.due.IsZero() && (next.IsZero() || r.due.Before(next)) {
			next = r.due
		}
	}
	return next
}

// sync brings the status of the Deployments that have changed, or are due, up to date.
func (c *deployer) sync(ctx context.Context, revisions []*Revision) {
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
			continue // Gone since.
		}
		dep, ok := c.get(c.kind, r.namespace, r.name).(*appsv1.Deployment)
		if !ok || dep.UID != uid || dep.DeletionTimestamp != nil {
			r.due = time.Time{}
			continue
		}
		if err := c.report(ctx, dep, r); err != nil {
			r.due = now.Add(retryAfter)
		}
	}
}

// revisionKey is the annotation that counts the pod templates which were rolled out.
const revisionKey = "deployment.kubernetes.io/revision"

// report writes the status of a Deployment when it is not what it should be. With it goes the one annotation that
// the controller owns, which is why that is no new generation.
func (c *deployer) report(ctx context.Context, dep *appsv1.Deployment, r *rollout) error {
	began := *r // What begins with a report that fails has not begun.
	status := c.status(dep, &began, time.Now())
	revision := strconv.Itoa(began.revision)
	counted := began.template == "" || dep.Annotations[revisionKey] == revision
	if counted && equality.Semantic.DeepEqual(&dep.Status, status) {
		*r = began
		return nil
	}
	dep = dep.DeepCopy()
	dep.Status = *status
	if began.template != "" {
		metav1.SetMetaDataAnnotation(&dep.ObjectMeta, revisionKey, revision)
	}
	err := c.do(ctx, http.MethodPut, c.kind.path(dep.Namespace, dep.Name, "status"), string(mediaJSON), dep)
	if err == nil {
		*r = began
	}
	return err
}

// status returns what the status of a Deployment should be, and takes note of what begins.
func (c *deployer) status(dep *appsv1.Deployment, r *rollout, now time.Time) *appsv1.DeploymentStatus {
	status := dep.Status.DeepCopy()
	desired := int32(1)
	if dep.Spec.Replicas != nil {
		desired = *dep.Spec.Replicas
	}
	hash := templateHash(&dep.Spec.Template)
	begun := status.UpdatedReplicas == desired || dep.Annotations[revisionKey] != ""
	if r.template == "" && status.ObservedGeneration == dep.Generation && begun {
		r.template, r.replicas, r.began = hash, status.Replicas, now // By another controller, before this one.
	}
	if n, err := strconv.Atoi(dep.Annotations[revisionKey]); err == nil {
		r.revision = max(r.revision, n)
	}
	status.ObservedGeneration = dep.Generation
	failure := ""
	if c.how.Failure != nil {
		failure = c.how.Failure(dep)
	}
	setFailure(status, failure, now)
	if dep.Spec.Paused && r.template != hash {
		hash = r.template // What is paused may still be scaled.
	}
	if r.template != hash || r.replicas < desired {
		r.began = now
	}
	if r.template != hash {
		r.revision++
	}
	fresh := r.template == hash && hash != ""
	r.template, r.replicas = hash, desired
	if hash == "" { // Paused from the beginning.
		r.replicas, desired = 0, 0
	}
	c.count(status, dep, r, desired, fresh, failure, now)
	c.conditions(status, dep, r, desired, now)
	return status
}

// count sets the numbers of replicas, and when they change next.
func (c *deployer) count(status *appsv1.DeploymentStatus, dep *appsv1.Deployment, r *rollout, desired int32, fresh bool,
	failure string, now time.Time) {
	takes := time.Duration(0)
	if c.how.Available != nil {
		takes = c.how.Available(dep)
	}
	minReady := time.Duration(dep.Spec.MinReadySeconds) * time.Second
	ready := r.began.Add(takes + minReady)
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
func (c *deployer) conditions(s *appsv1.DeploymentStatus, dep *appsv1.Deployment, r *rollout, desired int32,
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

// deadlineOf returns when a rollout has taken too long, zero for never.
func deadlineOf(dep *appsv1.Deployment, r *rollout) time.Time {
	if dep.Spec.ProgressDeadlineSeconds == nil {
		return r.began.Add(10 * time.Minute)
	}
	return r.began.Add(time.Duration(*dep.Spec.ProgressDeadlineSeconds) * time.Second)
}

// setFailure says that pods cannot be created, or no longer does.
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

// setCondition replaces a condition when it says something else than before.
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

// maxUnavailable returns how many replicas may be missing of a Deployment that counts as available.
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
		panic("apisim: " + err.Error()) // It has been encoded before.
	}
	h := fnv.New32a()
	h.Write(encoded)
	return fmt.Sprintf("%08x", h.Sum32())
}
