package footest

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooclient "example.com/foo-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// foos are those of a schedule, and fooName names them.
var foos = []string{fooName(0), fooName(1), fooName(2)}

func fooName(i int) string { return fmt.Sprintf("foo-%d", i) }

// users edit Foos, and the Deployments that belong to them, at random.
type users struct {
	samples     fooclient.FooInterface
	deployments appsclient.DeploymentInterface
	names       int // The number of Deployment names that were chosen so far.
}

// Schedule returns the users of a schedule. An edit that is listed more than once is more likely.
func Schedule() scenario.Users {
	u, kind := &users{}, Kind(nil)
	spec := func(patch string) scenario.Edit { return kind.Patch(fooResource, foos, `{"spec":`+patch+`}`) }
	scale, setImage, deleteDeployment := spec(`{"replicas":N}`), spec(`{"image":"nginx:1.N"}`), edit(u.deleteDeployment)
	return scenario.Users{
		Setup: u.setup,
		Edits: []scenario.Edit{
			scale, scale, scale, setImage, setImage, spec(`{"paused":true}`), spec(`{"paused":false}`),
			spec(`{"replicas":null}`), // From then on, an autoscaler may set the replicas of the Deployment.
			edit(u.rename), edit(u.recreate), deleteDeployment, edit(u.editDeployment),
		},
		Dense:  slices.Repeat([]scenario.Edit{deleteDeployment}, 3),
		Resume: u.resumeAll, Check: u.check,
	}
}

// edit returns an edit of one of the Foos.
func edit(do func(ctx context.Context, foo string, random *rand.Rand) error) scenario.Edit {
	return func(ctx context.Context, _ *rest.Config, random *rand.Rand) error {
		return do(ctx, foos[random.Intn(len(foos))], random)
	}
}

// setup creates the Foos.
func (u *users) setup(ctx context.Context, config *rest.Config) error {
	u.samples = clientset.NewForConfigOrDie(config).SamplecontrollerV1alpha1().Foos(namespace)
	u.deployments = kubernetes.NewForConfigOrDie(config).AppsV1().Deployments(namespace)
	var errs []error
	for _, foo := range foos {
		errs = append(errs, u.create(ctx, foo))
	}
	return errors.Join(errs...)
}

func (u *users) create(ctx context.Context, foo string) error {
	_, err := u.samples.Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: foo}, Spec: v1alpha1.FooSpec{DeploymentName: foo, Replicas: new(int32(2))},
	}, metav1.CreateOptions{})
	return err
}

// recreate deletes a Foo and creates it again at once, while its Deployment still exists.
func (u *users) recreate(ctx context.Context, foo string, _ *rand.Rand) error {
	if err := u.samples.Delete(ctx, foo, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return u.create(ctx, foo)
}

func (u *users) rename(ctx context.Context, foo string, _ *rand.Rand) error {
	u.names++
	return u.patchFoo(ctx, foo, fmt.Sprintf(`{"deploymentName":"name-%d"}`, u.names))
}

func (u *users) patchFoo(ctx context.Context, foo, spec string) error {
	_, err := u.samples.Patch(ctx, foo, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	return err
}

func (u *users) deleteDeployment(ctx context.Context, foo string, _ *rand.Rand) error {
	have, err := u.samples.Get(ctx, foo, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return u.deployments.Delete(ctx, have.Spec.DeploymentName, metav1.DeleteOptions{})
}

func (u *users) editDeployment(ctx context.Context, foo string, random *rand.Rand) error {
	have, err := u.samples.Get(ctx, foo, metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}},"spec":{"replicas":%d}}`,
		v1alpha1.LabelFooGeneration, random.Intn(5))
	_, err = u.deployments.Patch(ctx, have.Spec.DeploymentName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (u *users) resumeAll(ctx context.Context, _ *rest.Config) error {
	var errs []error
	for _, foo := range foos {
		errs = append(errs, u.patchFoo(ctx, foo, `{"paused":false}`))
	}
	return errors.Join(errs...)
}

// check returns what is wrong in the final state, and the writes that the controller should not have made.
func (u *users) check(s *scenario.Simulation) []string {
	if err := u.followAdvice(s); err != nil {
		return []string{err.Error()}
	}
	return append(notConverged(s), violations(s)...)
}

// followAdvice does what a person must do when a new Deployment was scaled below the previous one, and its Foo sets no
// number of replicas.
func (u *users) followAdvice(s *scenario.Simulation) error {
	for _, obj := range s.Server.Objects(fooResource) {
		foo := obj.(*v1alpha1.Foo)
		stalled := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionStalled)
		if stalled == nil || stalled.Reason != v1alpha1.ReasonRenaming {
			continue
		}
		if err := u.patchFoo(s.Ctx, foo.Name, `{"replicas":1}`); err != nil {
			return err
		}
	}
	time.Sleep(15 * time.Minute)
	return nil
}

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
