package footest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// notConverged returns the violations of the final state: each Foo owns exactly one Deployment, which has the fields
// that the Foo sets, and each Foo is Available.
func notConverged(s *scenario.Simulation) []string {
	var wrong []string
	deployments := map[types.UID][]*appsv1.Deployment{}
	for _, obj := range s.Server.Objects(deploymentResource) {
		dep := obj.(*appsv1.Deployment)
		owner := metav1.GetControllerOf(dep)
		if owner == nil {
			wrong = append(wrong, "Deployment "+dep.Name+" has no owner")
			continue
		}
		deployments[owner.UID] = append(deployments[owner.UID], dep)
	}
	for _, obj := range s.Server.Objects(fooResource) {
		foo := obj.(*v1alpha1.Foo)
		owned := deployments[foo.UID]
		delete(deployments, foo.UID)
		if problem := difference(foo, owned); problem != "" {
			wrong = append(wrong, "Foo "+foo.Name+": "+problem)
		}
	}
	for _, orphans := range deployments {
		wrong = append(wrong, "Deployment "+orphans[0].Name+" has an owner that does not exist")
	}
	return wrong
}

// difference returns the first difference between a Foo and the Deployments that it owns, or "".
func difference(foo *v1alpha1.Foo, owned []*appsv1.Deployment) string {
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case len(owned) != 1 || owned[0].Name != foo.Spec.DeploymentName:
		return fmt.Sprintf("it has %d Deployments", len(owned))
	case ready.Status != metav1.ConditionTrue || ready.Reason != v1alpha1.ReasonAvailable:
		return fmt.Sprintf("Ready=%s %s: %s", ready.Status, ready.Reason, ready.Message)
	}
	dep := owned[0]
	image := dep.Spec.Template.Spec.Containers[0].Image
	switch {
	case foo.Spec.Replicas != nil && *foo.Spec.Replicas != *dep.Spec.Replicas:
		return fmt.Sprintf("%d replicas, want %d", *dep.Spec.Replicas, *foo.Spec.Replicas)
	case foo.Spec.Image != "" && foo.Spec.Image != image:
		return fmt.Sprintf("image %s, want %s", image, foo.Spec.Image)
	case foo.Status.AvailableReplicas != dep.Status.AvailableReplicas:
		return fmt.Sprintf("it reports %d available of %d", foo.Status.AvailableReplicas, dep.Status.AvailableReplicas)
	}
	return ""
}

// violations checks all writes of the controller and returns the writes that it should not have made. It ignores a
// change that happened just before a write, because the controller could not know it yet.
func violations(s *scenario.Simulation) []string {
	i := &invariants{
		lag:  s.Lag,
		foos: map[types.UID][]*apiserver.Revision{}, generations: map[types.UID]int64{},
	}
	var wrong []string
	for _, rev := range s.Server.History(fooResource, deploymentResource) {
		if rev.Resource == fooResource {
			i.foo(rev)
			continue
		}
		if problem := i.deployment(rev); problem != "" {
			wrong = append(wrong, fmt.Sprintf("version %d, %s %s: %s", rev.Version, rev.Resource.Resource, rev.Name, problem))
		}
	}
	return wrong
}

// invariants check the history of a simulation, revision by revision.
type invariants struct {
	lag         time.Duration
	foos        map[types.UID][]*apiserver.Revision
	generations map[types.UID]int64 // The generations that Deployments were written for.
}

// foo remembers a change of a Foo.
func (i *invariants) foo(rev *apiserver.Revision) {
	uid := rev.Object.(*v1alpha1.Foo).UID
	i.foos[uid] = append(i.foos[uid], rev)
}

// deployment returns the invariant that a change of a Deployment violates, or "".
func (i *invariants) deployment(rev *apiserver.Revision) string {
	dep := rev.Object.(*appsv1.Deployment)
	if rev.User != controllerName {
		if dep.Labels[v1alpha1.LabelFooGeneration] == "" {
			delete(i.generations, dep.UID) // Without the label, a controller with a stale list cannot know it.
		}
		return ""
	}
	owner := metav1.GetControllerOf(dep)
	if owner == nil || len(i.foos[owner.UID]) == 0 {
		return "" // Package scenario reports it.
	}
	generation, _ := strconv.ParseInt(dep.Labels[v1alpha1.LabelFooGeneration], 10, 64)
	before := i.generations[dep.UID]
	i.generations[dep.UID] = generation
	if rev.Type != watch.Deleted && generation < before {
		return fmt.Sprintf("written for generation %d after %d", generation, before)
	}
	return i.unwanted(rev, dep, i.foos[owner.UID])
}

// unwanted returns why a Foo did not ask for a change of its Deployment. changes are the revisions of the Foo. It
// returns "" if the Foo asked for the change, or if the Foo changed just before.
func (i *invariants) unwanted(rev *apiserver.Revision, dep *appsv1.Deployment, changes []*apiserver.Revision) string {
	// A deletion follows a live read, but may be retried a few times after that read.
	const sinceRead = 10 * time.Second
	known, deleted := i.lag, rev.Type == watch.Deleted
	if deleted {
		known = min(known, sinceRead)
	}
	last := changes[len(changes)-1]
	foo := last.Object.(*v1alpha1.Foo)
	named := dep.Name == foo.Spec.DeploymentName
	switch {
	case rev.Time.Sub(specSince(changes)) < known:
		return ""
	case last.Type == watch.Deleted:
		return "its Foo is deleted"
	case foo.Spec.Paused:
		return "its Foo is paused"
	case deleted && named:
		return "it is deleted although its Foo names it"
	case !deleted && !named:
		return "its Foo does not name it"
	}
	return ""
}

// specSince returns when a Foo got its current spec, or was deleted. changes are the revisions of the Foo.
func specSince(changes []*apiserver.Revision) time.Time {
	last := changes[len(changes)-1]
	if last.Type == watch.Deleted {
		return last.Time
	}
	generation, since := last.Object.(*v1alpha1.Foo).Generation, last.Time
	for _, rev := range slices.Backward(changes) {
		if rev.Object.(*v1alpha1.Foo).Generation != generation {
			break
		}
		since = rev.Time
	}
	return since
}
