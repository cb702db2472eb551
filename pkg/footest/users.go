package footest

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooclient "example.com/foo-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// A userEdit is a kind of edit.
type userEdit string

const (
	scale            userEdit = "scale"
	setImage         userEdit = "image"
	pause            userEdit = "pause"
	resume           userEdit = "resume"
	unsetReplicas    userEdit = "unset replicas" // From then on, an autoscaler may set the replicas of the Deployment.
	rename           userEdit = "rename"
	recreate         userEdit = "recreate"
	deleteDeployment userEdit = "delete the Deployment"
	editDeployment   userEdit = "edit the Deployment"
)

// weightedEdits are the edits that users choose from. An edit that is listed more than once is more likely.
var weightedEdits = []userEdit{
	scale, scale, scale, setImage, setImage, pause, resume, unsetReplicas, rename, recreate, deleteDeployment,
	editDeployment,
}

// users edit Foos, and the Deployments that belong to them, at random.
type users struct {
	foos        int
	samples     fooclient.FooInterface
	deployments appsclient.DeploymentInterface
	// edits counts the edits that changed something.
	edits   map[userEdit]int
	changed bool // The current edit changed an object.
	names   int  // The number of Deployment names that were chosen so far.
}

func fooName(i int) string { return fmt.Sprintf("foo-%d", i) }

// newUsers returns users that edit this number of Foos in a simulation.
func newUsers(foos int) *users { return &users{foos: foos, edits: map[userEdit]int{}} }

// setup creates the Foos.
func (u *users) setup(ctx context.Context, config *rest.Config) error {
	u.samples = clientset.NewForConfigOrDie(config).SamplecontrollerV1alpha1().Foos(namespace)
	u.deployments = kubernetes.NewForConfigOrDie(config).AppsV1().Deployments(namespace)
	for i := range u.foos {
		if err := u.create(ctx, fooName(i)); err != nil {
			return err
		}
	}
	return nil
}

// countEdits notes which edits change something.
func (u *users) countEdits(s *apiserver.Server) {
	s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		answer, err := next()
		if r.User == scenario.UserName {
			u.changed = u.changed || len(r.Committed()) > 0
		}
		return answer, err
	})
}

// Schedule returns the users of a schedule with three Foos.
func Schedule() scenario.Users {
	u := newUsers(3)
	return scenario.Users{
		Setup: u.setup, Edits: u.choices(weightedEdits),
		Dense:  u.choices(slices.Repeat([]userEdit{deleteDeployment}, 3)),
		Resume: u.resumeAll, Check: u.check,
	}
}

// resumeAll resumes all Foos.
func (u *users) resumeAll(ctx context.Context, _ *rest.Config) error {
	for i := range u.foos {
		if err := u.patchFoo(ctx, fooName(i), `{"paused":false}`); err != nil {
			return err
		}
		u.edits[resume]++
	}
	return nil
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
		u.edits[scale]++
	}
	time.Sleep(15 * time.Minute)
	return nil
}

// choices returns edits for package scenario.
func (u *users) choices(edits []userEdit) []scenario.Edit {
	var choices []scenario.Edit
	for _, what := range edits {
		choices = append(choices, func(ctx context.Context, _ *rest.Config, random *rand.Rand) error {
			u.changed = false
			err := u.do(ctx, what, fooName(random.Intn(u.foos)), random)
			if err == nil && u.changed {
				u.edits[what]++
			}
			return err
		})
	}
	return choices
}

// do does one edit of a Foo, or of its Deployment.
func (u *users) do(ctx context.Context, what userEdit, foo string, random *rand.Rand) error {
	switch what {
	case scale:
		return u.patchFoo(ctx, foo, fmt.Sprintf(`{"replicas":%d}`, random.Intn(5)))
	case setImage:
		return u.patchFoo(ctx, foo, fmt.Sprintf(`{"image":"nginx:1.%d"}`, random.Intn(30)))
	case pause:
		return u.patchFoo(ctx, foo, `{"paused":true}`)
	case resume:
		return u.patchFoo(ctx, foo, `{"paused":false}`)
	case unsetReplicas:
		return u.patchFoo(ctx, foo, `{"replicas":null}`)
	case rename:
		u.names++
		return u.patchFoo(ctx, foo, fmt.Sprintf(`{"deploymentName":"name-%d"}`, u.names))
	case recreate:
		return u.recreate(ctx, foo)
	}
	return u.touchDeployment(ctx, what, foo, random)
}

// touchDeployment deletes or edits the Deployment of a Foo.
func (u *users) touchDeployment(ctx context.Context, what userEdit, foo string, random *rand.Rand) error {
	have, err := u.samples.Get(ctx, foo, metav1.GetOptions{})
	if err != nil {
		return err
	}
	name := have.Spec.DeploymentName
	if what == deleteDeployment {
		return u.deployments.Delete(ctx, name, metav1.DeleteOptions{})
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}},"spec":{"replicas":%d}}`,
		v1alpha1.LabelFooGeneration, random.Intn(5))
	_, err = u.deployments.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (u *users) create(ctx context.Context, foo string) error {
	_, err := u.samples.Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: foo}, Spec: v1alpha1.FooSpec{DeploymentName: foo, Replicas: new(int32(2))},
	}, metav1.CreateOptions{})
	return err
}

// recreate deletes a Foo and creates it again at once, while its Deployment still exists.
func (u *users) recreate(ctx context.Context, foo string) error {
	if err := u.samples.Delete(ctx, foo, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return u.create(ctx, foo)
}

func (u *users) patchFoo(ctx context.Context, foo, spec string) error {
	_, err := u.samples.Patch(ctx, foo, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	return err
}
