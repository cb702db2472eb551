package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// Deployments returns the kind of Deployments of apps/v1, with the defaults and the validation of a real server. In the
// pod template it validates only labels, annotations, restartPolicy, and the names and images of containers, and has no
// defaults for probes, environment variables and volumes.
func Deployments() Kind {
	return Kind{
		Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Kind: "Deployment",
		Object: &appsv1.Deployment{},
		Status: true, ShortNames: []string{"deploy"}, Categories: []string{"all"},
		Scale: &Scale{
			SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".spec.selector",
		},
		Default: func(obj runtime.Object) { defaultDeployment(&obj.(*appsv1.Deployment).Spec) },
		NewGeneration: func(obj, old runtime.Object) bool {
			d, o := obj.(*appsv1.Deployment), old.(*appsv1.Deployment)
			return !equality.Semantic.DeepEqual(d.Spec, o.Spec) ||
				!equality.Semantic.DeepEqual(d.Annotations, o.Annotations)
		},
		PrepareStatus: func(obj, old runtime.Object) {
			obj.(*appsv1.Deployment).Labels = old.(*appsv1.Deployment).Labels
		},
		Validate: func(obj, old runtime.Object) field.ErrorList {
			dep := obj.(*appsv1.Deployment)
			errs := append(finalizerNames(&dep.ObjectMeta), validateDeployment(&dep.Spec, field.NewPath("spec"))...)
			if old != nil {
				path := field.NewPath("spec", "selector")
				selector := old.(*appsv1.Deployment).Spec.Selector
				errs = append(errs, validation.ValidateImmutableField(dep.Spec.Selector, selector, path)...)
			}
			return errs
		},
		ValidateStatus: func(obj, old runtime.Object) field.ErrorList {
			dep := obj.(*appsv1.Deployment)
			return append(finalizerNames(&dep.ObjectMeta),
				validateDeploymentStatus(&dep.Status, field.NewPath("status"))...)
		},
	}
}

// defaultDeployment sets the defaults of a real server.
func defaultDeployment(spec *appsv1.DeploymentSpec) {
	orDefault(&spec.Replicas, 1)
	orDefault(&spec.RevisionHistoryLimit, 10)
	orDefault(&spec.ProgressDeadlineSeconds, 600)
	spec.Strategy.Type = cmp.Or(spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		orDefault(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		orDefault(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orDefault(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	pod := &spec.Template.Spec
	pod.RestartPolicy = cmp.Or(pod.RestartPolicy, corev1.RestartPolicyAlways)
	pod.DNSPolicy = cmp.Or(pod.DNSPolicy, corev1.DNSClusterFirst)
	pod.SchedulerName = cmp.Or(pod.SchedulerName, corev1.DefaultSchedulerName)
	orDefault(&pod.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	orDefault(&pod.SecurityContext, corev1.PodSecurityContext{})
	for i := range pod.Containers {
		c := &pod.Containers[i]
		c.TerminationMessagePath = cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
		c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
		c.ImagePullPolicy = cmp.Or(c.ImagePullPolicy, pullPolicy(c.Image))
		for j := range c.Ports {
			c.Ports[j].Protocol = cmp.Or(c.Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// pullPolicy returns the default pull policy of an image. The image "latest" is always pulled.
func pullPolicy(image string) corev1.PullPolicy {
	name := image[strings.LastIndex(image, "/")+1:]
	if tagged := strings.ContainsAny(name, ":@"); tagged && !strings.HasSuffix(name, ":latest") {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

func validateDeployment(spec *appsv1.DeploymentSpec, path *field.Path) field.ErrorList {
	errs := notNegative(int64(*spec.Replicas), path.Child("replicas"))
	if spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		options := metav1validation.LabelSelectorValidationOptions{}
		errs = append(errs, metav1validation.ValidateLabelSelector(spec.Selector, options, path.Child("selector"))...)
		if len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
			errs = append(errs,
				field.Invalid(path.Child("selector"), spec.Selector, "empty selector is invalid for deployment"))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, "invalid label selector"))
	} else {
		errs = append(errs, validateTemplate(&spec.Template, selector, path.Child("template"))...)
	}
	errs = append(errs, validateDeploymentStrategy(&spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, notNegative(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, notNegative(int64(*spec.RevisionHistoryLimit), path.Child("revisionHistoryLimit"))...)
	errs = append(errs, notNegative(int64(*spec.ProgressDeadlineSeconds), path.Child("progressDeadlineSeconds"))...)
	if *spec.ProgressDeadlineSeconds <= spec.MinReadySeconds {
		errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *spec.ProgressDeadlineSeconds,
			"must be greater than minReadySeconds"))
	}
	return errs
}

func validateDeploymentStrategy(strategy *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if strategy.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		return validateRollingUpdate(strategy.RollingUpdate, rolling)
	}
	known := []appsv1.DeploymentStrategyType{
		appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType,
	}
	return field.ErrorList{field.NotSupported(path, internalStrategy(strategy), known)}
}

// internalStrategy returns a strategy as a real server shows it in an error: with the names of its internal type.
func internalStrategy(strategy *appsv1.DeploymentStrategy) any {
	type rollingUpdate struct{ MaxUnavailable, MaxSurge *intstr.IntOrString }
	return struct {
		Type          appsv1.DeploymentStrategyType
		RollingUpdate *rollingUpdate
	}{strategy.Type, (*rollingUpdate)(strategy.RollingUpdate)}
}

func validateRollingUpdate(update *appsv1.RollingUpdateDeployment, path *field.Path) field.ErrorList {
	unavailable, at := *update.MaxUnavailable, path.Child("maxUnavailable")
	errs := validateIntOrPercent(unavailable, at)
	errs = append(errs, validateIntOrPercent(*update.MaxSurge, path.Child("maxSurge"))...)
	if intOrPercent(unavailable) == 0 && intOrPercent(*update.MaxSurge) == 0 {
		errs = append(errs, field.Invalid(at, unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	if unavailable.Type == intstr.String && intOrPercent(unavailable) > 100 {
		errs = append(errs, field.Invalid(at, unavailable, "must not be greater than 100%"))
	}
	return errs
}

func validateIntOrPercent(value intstr.IntOrString, path *field.Path) field.ErrorList {
	if value.Type == intstr.Int {
		return notNegative(int64(value.IntVal), path)
	}
	var errs field.ErrorList
	for _, message := range utilvalidation.IsValidPercent(value.StrVal) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// intOrPercent returns a number, or a percentage without its sign. It is 0 if the value is neither.
func intOrPercent(value intstr.IntOrString) int {
	if value.Type == intstr.String && len(utilvalidation.IsValidPercent(value.StrVal)) == 0 {
		n, _ := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%")) // A valid percentage is a number.
		return n
	}
	return value.IntValue()
}

func validateTemplate(template *corev1.PodTemplateSpec, selector labels.Selector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), template.Labels,
			"`selector` does not match template `labels`"))
	}
	errs = append(errs, metav1validation.ValidateLabels(template.Labels, path.Child("labels"))...)
	errs = append(errs, validation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	pod, containers := &template.Spec, path.Child("spec", "containers")
	if len(pod.Containers) == 0 {
		errs = append(errs, field.Required(containers, ""))
	}
	names := map[string]bool{}
	for i, c := range pod.Containers {
		if names[c.Name] {
			errs = append(errs, field.Duplicate(containers.Index(i).Child("name"), c.Name))
		}
		names[c.Name] = true
		for _, message := range utilvalidation.IsDNS1123Label(c.Name) {
			errs = append(errs, field.Invalid(containers.Index(i).Child("name"), c.Name, message))
		}
		if c.Image == "" {
			errs = append(errs, field.Required(containers.Index(i).Child("image"), ""))
		}
	}
	if pod.RestartPolicy != corev1.RestartPolicyAlways {
		always := []corev1.RestartPolicy{corev1.RestartPolicyAlways}
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), pod.RestartPolicy, always))
	}
	return errs
}

func validateDeploymentStatus(s *appsv1.DeploymentStatus, path *field.Path) field.ErrorList {
	errs := notNegative(s.ObservedGeneration, path.Child("observedGeneration"))
	errs = append(errs, notNegative(int64(s.Replicas), path.Child("replicas"))...)
	errs = append(errs, notNegative(int64(s.UpdatedReplicas), path.Child("updatedReplicas"))...)
	errs = append(errs, notNegative(int64(s.ReadyReplicas), path.Child("readyReplicas"))...)
	errs = append(errs, notNegative(int64(s.AvailableReplicas), path.Child("availableReplicas"))...)
	errs = append(errs, notNegative(int64(s.UnavailableReplicas), path.Child("unavailableReplicas"))...)
	for _, number := range []struct {
		name         string
		value, limit int32
		message      string
	}{
		{"updatedReplicas", s.UpdatedReplicas, s.Replicas, "cannot be greater than status.replicas"},
		{"readyReplicas", s.ReadyReplicas, s.Replicas, "cannot be greater than status.replicas"},
		{"availableReplicas", s.AvailableReplicas, s.Replicas, "cannot be greater than status.replicas"},
		{"availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas"},
	} {
		if number.value > number.limit {
			errs = append(errs, field.Invalid(path.Child(number.name), number.value, number.message))
		}
	}
	return errs
}

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
		dep, ok := c.server.get(c.kind, r.namespace, r.name).(*appsv1.Deployment)
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
	dep = dep.DeepCopy()
	defaultDeployment(&dep.Spec) // For one that was loaded.
	updated := *r                // A copy, because a rollout whose status cannot be written has not started.
	status := c.status(dep, &updated, time.Now())
	revision := strconv.Itoa(updated.revision)
	hasRevision := updated.template == "" || dep.Annotations[revisionKey] == revision
	if hasRevision && equality.Semantic.DeepEqual(&dep.Status, status) {
		*r = updated
		return nil
	}
	dep.Status = *status
	if updated.template != "" {
		metav1.SetMetaDataAnnotation(&dep.ObjectMeta, revisionKey, revision)
	}
	err := c.do(ctx, http.MethodPut, c.kind.path(dep.Namespace, dep.Name, "status"), dep)
	if err == nil {
		*r = updated
	}
	return err
}

// status returns the status that a Deployment should have, and updates its rollout.
func (c *deploymentController) status(dep *appsv1.Deployment, r *rollout, now time.Time) *appsv1.DeploymentStatus {
	status := dep.Status.DeepCopy()
	desired := *dep.Spec.Replicas
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
	deadline := r.startTime.Add(time.Duration(*dep.Spec.ProgressDeadlineSeconds) * time.Second)
	switch complete := s.AvailableReplicas == desired && s.UpdatedReplicas == desired; {
	case dep.Spec.Paused:
		progressing.Status, progressing.Reason = corev1.ConditionUnknown, "DeploymentPaused"
		progressing.Message = "Deployment is paused"
	case complete:
		progressing.Reason, progressing.Message = "NewReplicaSetAvailable", replicaSet+" has successfully progressed."
	case !now.Before(deadline):
		progressing.Status, progressing.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
		progressing.Message = replicaSet + " has timed out progressing."
	default:
		progressing.Reason, progressing.Message = "ReplicaSetUpdated", replicaSet+" is progressing."
		if r.due.IsZero() || deadline.Before(r.due) {
			r.due = deadline
		}
	}
	setCondition(s, progressing, now)
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
	rolling := dep.Spec.Strategy.RollingUpdate
	if rolling == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, int(desired), false)
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
