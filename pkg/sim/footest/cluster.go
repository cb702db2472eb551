package footest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A cluster is the simulated API server of a scenario, with the Foos and Deployments of one namespace. It serves the
// requests of users unchanged. It describes the requests of a controller for the output, and may refuse or lose them.
type cluster struct {
	*apiserver.Server
	// users are the clients of everybody except the controllers, by resource.
	users map[string]rest.Interface
	// refusals answer requests of controllers in place of the API server.
	refusals []*refusal
	// terminating is true while the namespace is being deleted.
	terminating bool
	// overrides change each Deployment that a controller writes, as a mutating admission policy does.
	overrides []func(*appsv1.Deployment)
}

// A refusal answers requests of one verb for one resource, or one object.
type refusal struct {
	verb, resource string
	name           string // Empty for all objects.
	answer         func(name string) error
	done           bool // The API server executes the request nevertheless.
	once           bool // Only the next such request is answered.
}

func newCluster() *cluster {
	foos := FooKind()
	// Foos may have been stored before there were rules. A scale has rules of its own.
	foos.Validate, foos.ValidateStatus, foos.Scale = nil, nil, nil
	c := &cluster{Server: apiserver.New(foos, apiserver.Deployments())}
	const user = "user"
	c.users = map[string]rest.Interface{
		foosResource:        clientset.NewForConfigOrDie(c.Config(user)).SamplecontrollerV1alpha1().RESTClient(),
		deploymentsResource: kubernetes.NewForConfigOrDie(c.Config(user)).AppsV1().RESTClient(),
	}
	c.Admit(func(a *apiserver.Admission) error {
		dep, ok := a.Object.(*appsv1.Deployment)
		if !ok || a.User == user {
			return nil
		}
		for _, override := range c.overrides {
			override(dep)
		}
		return nil
	})
	return c
}

func (c *cluster) foo(name string) *v1alpha1.Foo {
	foo, _ := c.Object(fooResource, namespace, name).(*v1alpha1.Foo)
	return foo
}

func (c *cluster) deployment(name string) *appsv1.Deployment {
	dep, _ := c.Object(deploymentResource, namespace, name).(*appsv1.Deployment)
	return dep
}

// changes returns the changes that a watch sends, in order.
func (c *cluster) changes() []*apiserver.Revision { return c.History(fooResource, deploymentResource) }

// add creates an object as a user does.
func (c *cluster) add(resource string, obj object) error {
	obj.SetResourceVersion("")
	request := c.users[resource].Post().Namespace(namespace).Resource(resource).Body(obj)
	return request.Do(context.Background()).Error()
}

// edit updates an object or its subresource as a user does.
func (c *cluster) edit(resource, subresource, name string, edit func(object)) error {
	have, ok := c.Object(resourceOf(resource), namespace, name).(object)
	if !ok {
		return apierrors.NewNotFound(resourceOf(resource).GroupResource(), name)
	}
	changed := have.DeepCopyObject().(object)
	edit(changed)
	request := c.users[resource].Put().Namespace(namespace).Resource(resource).Name(name).SubResource(subresource)
	return request.Body(changed).Do(context.Background()).Error()
}

// delete deletes an object as a user does.
func (c *cluster) delete(resource, name string, foreground bool) error {
	policy := metav1.DeletePropagationBackground
	if foreground {
		policy = metav1.DeletePropagationForeground
	}
	return c.users[resource].Delete().Namespace(namespace).Resource(resource).Name(name).
		Body(&metav1.DeleteOptions{PropagationPolicy: &policy}).Do(context.Background()).Error()
}

// collectGarbage lets the garbage collector work until it has nothing left to do.
func (c *cluster) collectGarbage() {
	ctx, stop := context.WithCancel(context.Background())
	go apiserver.RunGarbageCollector(ctx, c.Server, 0)
	synctest.Wait()
	stop()
	synctest.Wait()
}

// serve answers r, and adds the error of the answer to its line.
func (c *cluster) serve(from *apiserver.Request, r *request) (*http.Response, error) {
	refused := c.refused(r)
	if refused == nil {
		return c.execute(r)
	}
	if refused.done {
		answer, err := c.execute(r)
		if err != nil || answer.StatusCode >= http.StatusBadRequest {
			return answer, err
		}
		answer.Body.Close()
	}
	err := refused.answer(r.name)
	if errors.Is(err, errNoAnswer) {
		r.line += " -> no answer"
		return nil, err
	}
	answer, err := from.Refuse(err)
	r.line += " -> " + reasonOf(answer)
	return answer, err
}

// execute passes r on to the API server.
func (c *cluster) execute(r *request) (*http.Response, error) {
	answer, err := r.do()
	if err != nil {
		return nil, err
	}
	if reason := reasonOf(answer); reason != "" {
		r.line += " -> " + reason
	}
	return answer, nil
}

// refused returns the refusal that answers such a request, or nil if the API server answers it.
func (c *cluster) refused(r *request) *refusal {
	i := slices.IndexFunc(c.refusals, func(f *refusal) bool {
		return f.verb == r.verb && f.resource == r.resource && (f.name == "" || f.name == r.name)
	})
	if i < 0 {
		return nil
	}
	found := c.refusals[i]
	if found.once {
		c.refusals = slices.Delete(c.refusals, i, i+1)
	}
	return found
}

func resourceOf(resource string) schema.GroupVersionResource {
	if resource == foosResource {
		return fooResource
	}
	return deploymentResource
}

// newDeployment returns a Deployment as a user creates it, with the two labels that the upstream sample sets.
func newDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: plan.ContainerName, Image: plan.DefaultImage}}},
			},
		},
	}
}
