package plan

import (
	"cmp"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Seen is all that a decision about one Foo depends on. The objects are shared with caches.
type Seen struct {
	// Foo as the cache has it, without a deletionTimestamp.
	Foo *v1alpha1.Foo
	// Named is the Deployment that Foo's spec names; nil when there is none.
	Named *appsv1.Deployment
	// Owned are the other Deployments that Foo controls, in any order. Foo had an earlier name, or somebody
	// has copied its Deployment.
	Owned []*appsv1.Deployment
	// Holders tells who stands in the way when another Foo controls Named: that Foo first, then the Foo that
	// controls the Deployment which the first one names, and so on, as far as the caches know. When this
	// comes back to Foo, Foo is the last of them. Empty when the Foo that controls Named is gone.
	Holders []*v1alpha1.Foo
	// Claimants are the Foos that name the same Deployment, in any order; Foo may be among them.
	Claimants []*v1alpha1.Foo
	// Wrote says that this process has written for this very Foo before, whatever the cache says.
	Wrote bool
	// Live is the API server's answer about the Foo; nil until a Step asks for it.
	Live *Live
	// Held is why the last try failed, as a WaitError, while it is too early for another one; else nil.
	Held error
	// Overridden is the OverriddenError that the last correction met, as a WaitError, while it is too early
	// for another one; else nil.
	Overridden error
	// Recreated is why a Deployment that went is not created again at once, as a WaitError, while it is too early
	// for that; else nil.
	Recreated error
	// Undeleted has, by name, the Deployments of earlier names that could not be deleted, with the WriteError, while
	// it is too early for another try. They keep nothing else from being done.
	Undeleted map[string]*WaitError
}

// Live is what the API server says of a Foo when asked directly.
type Live struct {
	// Foo is nil when there is no Foo of that name.
	Foo *v1alpha1.Foo
}

// Step is what to do next about one Foo. At most one field but Err is set. When none is, the Deployment
// needs nothing and only the status is left to report.
type Step struct {
	// Create is the Deployment to create.
	Create *appsv1.Deployment
	// Patch corrects Seen.Named.
	Patch *Patch
	// Delete is one of Seen.Owned, of an earlier name, that is no longer needed.
	Delete *appsv1.Deployment
	// LookAtFoo asks for a live look at the Foo: set Seen.Live and call Next again. It is in preparation of
	// a write, with the verb then, of the Deployment of.
	LookAtFoo bool
	then, of  string
	// Leave says that what the cache has of the Foo is outdated: write nothing, its next watch event
	// brings the Foo back.
	Leave bool
	// Err says why nothing, or nothing else, may be written, or not yet.
	Err error
}

// Asks reports whether step takes a request to the API server.
func (s Step) Asks() bool {
	return s.LookAtFoo || s.Create != nil || s.Patch != nil || s.Delete != nil
}

// Verb returns what step does, or leads to, as in a WriteError; "" when it is to write nothing.
func (s Step) Verb() string {
	switch {
	case s.Create != nil:
		return "create"
	case s.Patch != nil:
		return "patch"
	case s.Delete != nil:
		return "delete"
	}
	return s.then
}

// Target returns the name of the Deployment that Verb is about.
func (s Step) Target(foo *v1alpha1.Foo) string {
	if s.Delete != nil {
		return s.Delete.Name
	}
	return cmp.Or(s.of, foo.Spec.DeploymentName)
}

// Next decides what to do about a Foo.
func Next(seen Seen) Step {
	step, undeleted := next(&seen), seen.undeleted()
	var failed *WriteError
	var wait *WaitError
	switch {
	// A refused patch, for instance, is no matter when the Deployment is gone.
	case seen.Held != nil && step.Asks() && !(errors.As(seen.Held, &failed) && failed.Verb != step.Verb()):
		return Step{Err: seen.Held}
	case undeleted == nil || errors.As(step.Err, &wait):
		return step // It comes back in any case.
	}
	step.Err = &WaitError{After: undeleted.After, For: undeleted.For, Err: cmp.Or(step.Err, undeleted.Err)}
	return step
}

// next is Next without pauses. The cases are read from top to bottom, the first that fits counts.
func next(seen *Seen) Step {
	foo, dep := seen.Foo, seen.Named
	mistake, abandoned, first := invalid(foo), seen.abandoned(), seen.firstClaimant()
	switch {
	case foo.Spec.Paused:
		return Step{}
	case mistake != "":
		return Step{Err: &TerminalError{Reason: v1alpha1.ReasonInvalid, Message: mistake}}

	case abandoned != nil:
		return seen.confirmed(Step{Delete: abandoned})

	case dep == nil && first != nil:
		return Step{Err: goesTo(foo, first)}
	case dep == nil && seen.Recreated != nil:
		return Step{Err: seen.Recreated}
	// The cached Foo may be dead already, and a child for a dead owner makes a loop with the garbage
	// collector: it deletes, we create. Only a Foo that never had a Deployment needs no second look.
	case dep == nil && seen.HadDeployment():
		return seen.confirmed(Step{Create: seen.deployment()})
	case dep == nil:
		return Step{Create: seen.deployment()}

	case !Owns(foo, dep):
		return Step{Err: taken(seen)}
	case dep.DeletionTimestamp != nil:
		return Step{} // Its name is free only when it is gone; that wakes us.

	// Somebody has acted on a newer spec than the cache has: putting back the older one would undo it.
	// If there is no newer one, the label itself is wrong, and Drift overwrites it.
	case generationOf(dep) > foo.Generation && !seen.Live.confirms(foo):
		return seen.confirmed(Step{then: "patch"})
	}

	patch, err := Drift(dep, foo)
	old := seen.replaced()
	switch {
	case err != nil:
		return Step{Err: err}
	case patch != nil && seen.Overridden == nil && seen.fence() > foo.Generation:
		return seen.confirmed(Step{Patch: patch}) // The newer spec may have another name, and this Deployment be the one to leave alone.
	case patch != nil && seen.Overridden == nil:
		return Step{Patch: patch}
	case old != nil:
		step := seen.confirmed(Step{Delete: old})
		step.Err = seen.Overridden
		return step
	}
	return Step{Err: seen.Overridden}
}

// confirmed returns step if the API server says that the Foo is still as the cache has it. It asks for that
// look first, and leaves a Foo alone of which the cache is behind.
func (s *Seen) confirmed(step Step) Step {
	switch {
	case s.Live == nil:
		return Step{LookAtFoo: true, then: step.Verb(), of: step.Target(s.Foo)}
	case !s.Live.confirms(s.Foo):
		return Step{Leave: true}
	}
	return step
}

// confirms reports whether the live Foo is the cached one, as it is in the cache, and not being deleted.
func (l *Live) confirms(cached *v1alpha1.Foo) bool {
	return l != nil && l.Foo != nil && l.Foo.UID == cached.UID && l.Foo.DeletionTimestamp == nil && l.Foo.Generation == cached.Generation
}

// HadDeployment reports whether a Deployment may have been created for the Foo before.
func (s *Seen) HadDeployment() bool {
	return s.Wrote || s.Foo.Status.ObservedGeneration != 0 || s.kept() != nil
}

// deployment returns what to create: after a rename, with as many replicas as the old one when the Foo does
// not say how many.
func (s *Seen) deployment() *appsv1.Deployment {
	want := Deployment(s.Foo)
	if old := s.kept(); old != nil && s.Foo.Spec.Replicas == nil {
		want.Spec.Replicas = new(replicasOf(old))
	}
	return want
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
