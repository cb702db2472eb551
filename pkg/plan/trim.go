package plan

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/trim"
)

const (
	// maxImage is how many characters an image of a Foo may have.
	maxImage = 1024
	// maxSelector is how many bytes a selector may have. That of a Deployment that we made has less than 250.
	maxSelector = 4096
)

// A TrimmedDeployment is what this package reads of a Deployment that exists. It is a type of its own because the cache
// has one for each Deployment, and an appsv1.Deployment takes three times the memory and more, mostly for empty fields.
type TrimmedDeployment struct {
	// ObjectMeta has the names, versions and times, and of the owners only the controller.
	metav1.ObjectMeta

	// What follows is empty unless a Foo is the controller.

	// ManagedBy, MadeFor and FooGeneration are the labels that a Foo owns. WrittenFor is the last one as a number: the
	// generation of the Foo that the Deployment was last written for, 0 if the label is missing or no number.
	ManagedBy, MadeFor, FooGeneration string
	WrittenFor                        int64

	// Image is that of the container that we made, "" if somebody has removed that container.
	Image string
	// OtherSelector is nil if the selector is that of a Deployment that we make, which follows from names: see selector.
	// Else it is the selector as a label query, or "" if that is too long.
	OtherSelector *string
	// Replicas is the number that the Deployment is set to, Status.Replicas the number that exist.
	Replicas int32
	Paused   bool
	// DeadlineExceeded means that a rollout has exceeded its progress deadline.
	DeadlineExceeded bool
	// ReplicaSetRefused and PodsRefused are why the Deployment controller cannot create a ReplicaSet, or pods; nil if it
	// does not report that. The text may be "", and repeats as long as nothing changes.
	ReplicaSetRefused, PodsRefused *string

	Status struct {
		ObservedGeneration                           int64
		Replicas, UpdatedReplicas, AvailableReplicas int32
	}
}

// storedLabels are the labels of dep that a Foo owns.
func (dep *TrimmedDeployment) storedLabels() map[string]string {
	return map[string]string{
		labelManagedBy: dep.ManagedBy, v1alpha1.LabelMadeFor: dep.MadeFor, v1alpha1.LabelFooGeneration: dep.FooGeneration,
	}
}

// Trim keeps only the fields of a Foo or a Deployment that this package reads, of a Deployment as a TrimmedDeployment.
// It is the transform of both informers, and every answer of the API server passes it too, so that a decision does not
// depend on where an object comes from. What a tenant can put into an object and nobody reads costs no memory, and what
// is read has a limit.
//
// All Deployments in scope are watched, so that the cache has every name in use. Of a Deployment that no Foo controls
// only its name, uid, version and controller remain. Trim is a cache.TransformFunc: it returns any other object
// unchanged.
//
// A trimmed Foo must not be written back, except for its status: the API server keeps everything else.
func Trim(obj any) (any, error) {
	switch obj := obj.(type) {
	case *v1alpha1.Foo:
		return TrimFoo(obj), nil
	case *appsv1.Deployment:
		return TrimDeployment(obj), nil
	}
	return obj, nil
}

// TrimFoo is Trim of a Foo, which may be nil.
func TrimFoo(foo *v1alpha1.Foo) *v1alpha1.Foo {
	if foo == nil {
		return nil
	}
	trimmed := &v1alpha1.Foo{ObjectMeta: trim.Identity(foo), Spec: foo.Spec, Status: foo.Status, Unread: foo.Unread}
	trimmed.Spec.Image = trim.Shared(foo.Spec.Image)
	trimmed.Status.Conditions = trim.Conditions(foo.Status.Conditions)
	return trimmed
}

// TrimDeployment is Trim of a Deployment, which may be nil.
func TrimDeployment(dep *appsv1.Deployment) *TrimmedDeployment {
	if dep == nil {
		return nil
	}
	trimmed := &TrimmedDeployment{ObjectMeta: trim.Child(dep)}
	if FooReference(trimmed) == nil {
		trimmed.Generation, trimmed.CreationTimestamp, trimmed.DeletionTimestamp = 0, metav1.Time{}, nil
		return trimmed
	}

	trimmed.ManagedBy = trim.Shared(dep.Labels[labelManagedBy])
	trimmed.MadeFor = dep.Labels[v1alpha1.LabelMadeFor]
	trimmed.FooGeneration = trim.Shared(dep.Labels[v1alpha1.LabelFooGeneration])
	if generation, err := strconv.ParseInt(trimmed.FooGeneration, 10, 64); err == nil {
		trimmed.WrittenFor = generation
	}
	trimmed.Replicas = 1 // The API server's default.
	if dep.Spec.Replicas != nil {
		trimmed.Replicas = *dep.Spec.Replicas
	}
	trimmed.Paused = dep.Spec.Paused
	trimmed.Image = trim.Shared(trimImage(imageOf(dep)))
	trimmed.OtherSelector = trimmed.otherSelector(dep.Spec.Selector)
	trimmed.setStatus(&dep.Status)
	return trimmed
}

// trimImage returns image, or a text instead of a long one. It has spaces, so it differs from every image of a Foo.
func trimImage(image string) string {
	if length := utf8.RuneCountInString(image); length > maxImage {
		return fmt.Sprintf("an image of %d characters", length)
	}
	return image
}

// imageOf returns the image of the container that we made, or "" when somebody has removed that container.
func imageOf(dep *appsv1.Deployment) string {
	for i := range dep.Spec.Template.Spec.Containers {
		if c := &dep.Spec.Template.Spec.Containers[i]; c.Name == ContainerName {
			return c.Image
		}
	}
	return ""
}

// otherSelector returns OtherSelector for a Deployment with this selector. The text is "" if it would be too long.
func (dep *TrimmedDeployment) otherSelector(have *metav1.LabelSelector) *string {
	switch {
	case have.Size() > maxSelector:
		return new("")
	case have != nil && len(have.MatchExpressions) == 0 && maps.Equal(have.MatchLabels, dep.ownSelector()):
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(have)
	if err != nil {
		return new("") // The API server stores no such selector.
	}
	return new(selector.String())
}

// ownSelector returns the selector of a Deployment of this name that we make for the Foo that controls dep. That Foo is
// the only owner which is kept.
func (dep *TrimmedDeployment) ownSelector() labels.Set {
	return podLabels(dep.OwnerReferences[0].Name, dep.Name)
}

// selector returns the selector in the form of a label query.
func (dep *TrimmedDeployment) selector() string {
	if dep.OtherSelector != nil {
		return *dep.OtherSelector
	}
	return dep.ownSelector().String()
}

// setStatus sets what is read of a status: the numbers, and the conditions that report a failure.
func (dep *TrimmedDeployment) setStatus(have *appsv1.DeploymentStatus) {
	dep.Status.ObservedGeneration, dep.Status.Replicas = have.ObservedGeneration, have.Replicas
	dep.Status.UpdatedReplicas, dep.Status.AvailableReplicas = have.UpdatedReplicas, have.AvailableReplicas
	for i := range have.Conditions {
		c := &have.Conditions[i]
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			dep.PodsRefused = stableCause(c.Message, dep.Name)
		}
		if c.Type != appsv1.DeploymentProgressing || c.Status != corev1.ConditionFalse {
			continue
		}
		switch c.Reason {
		case "ReplicaSetCreateError":
			dep.ReplicaSetRefused = stableCause(c.Message, dep.Name)
		case "ProgressDeadlineExceeded":
			dep.DeadlineExceeded = true
		}
	}
}

// What follows is about why a Deployment cannot create pods: the message of its own condition, made stable. The names
// of pods that it may have differ from try to try, and each would cost a write.

// causeLimit is how many bytes of a Deployment's message are reported.
const causeLimit = 1024

var (
	quotedPod  = regexp.MustCompile(`\b([Pp]ods?) "[^"]*"`)
	objectName = regexp.MustCompile(`[a-z0-9][-.a-z0-9]*[a-z0-9]`)
)

// stableCause returns the message of a condition of the Deployment as it is reported.
func stableCause(message, deployment string) *string {
	return new(strings.TrimRight(reconcile.Clip(withoutPodNames(message, deployment), causeLimit), ". "))
}

// withoutPodNames returns message without the names of pods of the Deployment.
func withoutPodNames(message, deployment string) string {
	message = quotedPod.ReplaceAllString(message, "$1")
	return objectName.ReplaceAllStringFunc(message, func(name string) string {
		if isPodName(name, deployment) {
			return deployment + "-*"
		}
		return name
	})
}

// isPodName reports whether name can be that of a pod of the Deployment, such as web-6d4cf56db6-x8k2p. The API server
// cuts what is longer than 58 characters, and appends five random ones. These and the hash have no vowels.
func isPodName(name, deployment string) bool {
	prefix := deployment + "-"
	end, found := strings.CutPrefix(name, prefix[:min(len(prefix), 58)])
	return found && len(end) >= 5 && strings.Trim(end, "-bcdfghjklmnpqrstvwxz2456789") == ""
}
