package apiserver

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	orElse(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		orDefault(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		orDefault(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orDefault(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	pod := &spec.Template.Spec
	orElse(&pod.RestartPolicy, corev1.RestartPolicyAlways)
	orElse(&pod.DNSPolicy, corev1.DNSClusterFirst)
	orElse(&pod.SchedulerName, corev1.DefaultSchedulerName)
	orDefault(&pod.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	orDefault(&pod.SecurityContext, corev1.PodSecurityContext{})
	for i := range pod.Containers {
		c := &pod.Containers[i]
		orElse(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
		orElse(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
		orElse(&c.ImagePullPolicy, pullPolicy(c.Image))
		for j := range c.Ports {
			orElse(&c.Ports[j].Protocol, corev1.ProtocolTCP)
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
	type rollingUpdate struct{ MaxUnavailable, MaxSurge intstr.IntOrString }
	var rolling *rollingUpdate
	if have := strategy.RollingUpdate; have != nil {
		rolling = &rollingUpdate{}
		if have.MaxUnavailable != nil {
			rolling.MaxUnavailable = *have.MaxUnavailable
		}
		if have.MaxSurge != nil {
			rolling.MaxSurge = *have.MaxSurge
		}
	}
	return struct {
		Type          appsv1.DeploymentStrategyType
		RollingUpdate *rollingUpdate
	}{strategy.Type, rolling}
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
