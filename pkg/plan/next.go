package plan

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Seen is all that a decision about one Foo depends on. The objects are shared with caches.
type Seen struct {
	// Foo as the cache has it, without a deletionTimestamp.
	Foo *v1alpha1.Foo
	// Named is the Deployment that Foo's spec names; nil when there is none.
	Named *appsv1.Deployment
	// Wrote says that this process has written for this very Foo before, whatever the cache says.
	Wrote bool
	// Live is the API server's answer about the Foo; nil until a Step asks for it.
	Live *Live
}

// Live is what the API server says of a Foo when asked directly.
type Live struct {
	// Foo is nil when there is no Foo of that name.
	Foo *v1alpha1.Foo
}

// Step is what to do next about one Foo. At most one field is set. When none is, the Deployment needs
// nothing and only the status is left to report.
type Step struct {
	// Create is the Deployment to create.
	Create *appsv1.Deployment
	// Patch corrects Seen.Named.
	Patch *Patch
	// LookAtFoo asks for a live look at the Foo: set Seen.Live and call Next again.
	LookAtFoo bool
	// Leave says that what the cache has of the Foo is outdated: write nothing, its next watch event
	// brings the Foo back.
	Leave bool
	// Err says why nothing may be written to the Deployment.
	Err error
}

// Next decides what to do about a Foo. The cases are read from top to bottom, the first that fits counts.
func Next(seen Seen) Step {
	foo, dep, mistake := seen.Foo, seen.Named, invalid(seen.Foo)
	switch {
	case foo.Spec.Paused:
		return Step{}
	case mistake != "":
		return Step{Err: &TerminalError{Reason: v1alpha1.ReasonInvalid, Message: mistake}}

	// The cached Foo may be dead already, and a child for a dead owner makes a loop with the garbage
	// collector: it deletes, we create. Only a Foo that never had a Deployment needs no second look.
	case dep == nil && seen.hadDeployment() && seen.Live == nil:
		return Step{LookAtFoo: true}
	case dep == nil && seen.hadDeployment() && !seen.Live.confirms(foo):
		return Step{Leave: true}
	case dep == nil:
		return Step{Create: Deployment(foo)}

	case !Owns(foo, dep):
		return Step{Err: notOwned(foo, dep)}
	case dep.DeletionTimestamp != nil:
		return Step{} // Its name is free only when it is gone; that wakes us.

	// Somebody has acted on a newer spec than the cache has: putting back the older one would undo it.
	// If there is no newer one, the label itself is wrong, and Drift overwrites it.
	case generationOf(dep) > foo.Generation && seen.Live == nil:
		return Step{LookAtFoo: true}
	case generationOf(dep) > foo.Generation && !seen.Live.confirms(foo):
		return Step{Leave: true}
	}
	patch, err := Drift(dep, foo)
	return Step{Patch: patch, Err: err}
}

// hadDeployment reports whether a Deployment may have been created for the Foo before.
func (s *Seen) hadDeployment() bool {
	return s.Wrote || s.Foo.Status.ObservedGeneration != 0
}

// confirms reports whether the live Foo is the cached one, as it is in the cache, and not being deleted.
func (l *Live) confirms(cached *v1alpha1.Foo) bool {
	return l.Foo != nil && l.Foo.UID == cached.UID && l.Foo.DeletionTimestamp == nil && l.Foo.Generation == cached.Generation
}

// Found decides about foo after a refused create and a live look that found dep under the name.
func Found(foo *v1alpha1.Foo, dep *appsv1.Deployment) error {
	if Owns(foo, dep) {
		return &WaitError{After: 5 * time.Millisecond, For: "the cache to show the Deployment"}
	}
	terminal := notOwned(foo, dep)
	terminal.Unseen = true
	return terminal
}

// notOwned says whose dep is, when foo is not its controller.
func notOwned(foo *v1alpha1.Foo, dep *appsv1.Deployment) *TerminalError {
	if ref := FooReference(dep); ref != nil && ref.Name == foo.Name {
		return &TerminalError{
			Reason:  v1alpha1.ReasonWaitingForName,
			Message: fmt.Sprintf("Deployment %q belongs to an earlier Foo of this name, and will be created again when the garbage collector has removed it", dep.Name),
			Passing: true,
		}
	}
	holder := "it was not made for a Foo"
	if ref := metav1.GetControllerOfNoCopy(dep); ref != nil {
		holder = fmt.Sprintf("it belongs to %s %s %q", ref.APIVersion, ref.Kind, ref.Name)
	}
	return &TerminalError{
		Reason: v1alpha1.ReasonNotOwned,
		Message: fmt.Sprintf("Deployment %q is not this Foo's and is left alone: %s. Delete that Deployment, or set another spec.deploymentName",
			dep.Name, holder),
	}
}

// invalid returns what is wrong with the spec of foo, or "". The API server checks the same rules; this
// is for objects that were stored before it did.
func invalid(foo *v1alpha1.Foo) string {
	switch spec := &foo.Spec; {
	case spec.DeploymentName == "":
		return "spec.deploymentName is missing: set the name of the Deployment to create"
	case len(validation.IsDNS1123Subdomain(spec.DeploymentName)) > 0:
		return "spec.deploymentName is not a name that a Deployment can have: use up to 253 lowercase letters, digits, '-' and '.', beginning and ending with a letter or digit"
	case spec.Replicas != nil && *spec.Replicas < 0:
		return "spec.replicas is negative: set 0 or more, or remove it"
	case utf8.RuneCountInString(spec.Image) > 1024:
		return "spec.image is longer than 1024 characters: set a shorter one, or remove it"
	case strings.ContainsFunc(spec.Image, unicode.IsSpace):
		return "spec.image contains spaces: remove them"
	}
	return ""
}
