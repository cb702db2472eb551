package footest

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

const (
	// tenant is the namespace with a problem, nextDoor one without.
	tenant   = "tenant"
	nextDoor = "next-door"
	// answerTime is how long the API server takes to answer the controller.
	answerTime = 5 * time.Millisecond
	// atOnce is the longest time until a key that waits for nothing is synced. It is the time of a few requests.
	atOnce = 30 * time.Millisecond
	// workers is the default of the controller's flag.
	workers = 32
)

// A neighbourhood is a simulation of namespaces, some of which have a problem. No Deployment controller runs, so that
// the controller is the only one that writes.
type neighbourhood struct {
	*scenario.Simulation
	t       *testing.T
	kube    kubernetes.Interface
	samples clientset.Interface
	// probes counts the probes.
	probes int

	mu sync.Mutex
	// meanwhile has functions that are called once, during the next request of the controller that is described so.
	meanwhile map[string]func() error
	// requests counts the requests of the controller in each namespace, except watches and events.
	requests map[string]int
	// creates counts the attempts to create a Deployment in each namespace.
	creates map[string]int
	// syncs counts the syncs of each Foo.
	syncs map[cache.ObjectName]int
}

// inNeighbourhood runs a test in a bubble. The controller is not running.
func inNeighbourhood(t *testing.T, newController New, test func(n *neighbourhood)) {
	synctest.Test(t, func(t *testing.T) {
		s := scenario.NewSimulation(Kind(newController), workers)
		config := s.Server.Config(scenario.UserName)
		n := &neighbourhood{
			Simulation: s, t: t,
			kube: kubernetes.NewForConfigOrDie(config), samples: clientset.NewForConfigOrDie(config),
			meanwhile: map[string]func() error{}, requests: map[string]int{}, creates: map[string]int{},
			syncs: map[cache.ObjectName]int{},
		}
		s.OnSynced = func(key cache.ObjectName) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.syncs[key]++
		}
		s.Server.Intercept(n.serve)
		defer func() {
			if s.StopController != nil {
				s.Stop(t)
			}
		}()
		n.createNamespaces(tenant, nextDoor)
		test(n)
	})
}

// serve counts and delays a request of the controller. Events are not delayed: client-go holds a mutex while it updates
// a series of them, and virtual time stands still while a goroutine waits for a mutex.
func (n *neighbourhood) serve(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	if r.User != controllerName || r.Verb == "watch" || r.Resource.Resource == "events" {
		return next()
	}
	n.mu.Lock()
	n.requests[r.Namespace]++
	if r.Verb == "create" && r.Resource == deploymentResource {
		n.creates[r.Namespace]++
	}
	meanwhile := n.meanwhile[r.String()]
	delete(n.meanwhile, r.String())
	n.mu.Unlock()
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return r.Refuse(err)
		}
	}
	if err := r.Sleep(answerTime); err != nil {
		return nil, err
	}
	return next()
}

// during calls f once, during the next request of the controller that is described so, before it is served. If f
// returns an error, this is the answer.
func (n *neighbourhood) during(request string, f func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meanwhile[request] = f
}

// count returns a counter of a namespace.
func (n *neighbourhood) count(counter map[string]int, namespace string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return counter[namespace]
}

// must fails the test if a user's request fails.
func (n *neighbourhood) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *neighbourhood) createNamespaces(names ...string) {
	for _, name := range names {
		_, err := n.kube.CoreV1().Namespaces().Create(n.Ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		n.must(err)
	}
}

func (n *neighbourhood) createFoo(namespace, name, deployment string) {
	n.t.Helper()
	_, err := n.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(n.Ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: new(int32(1))},
	}, metav1.CreateOptions{})
	n.must(err)
}

// createFoos creates Foos that name Deployments of their own.
func (n *neighbourhood) createFoos(namespace string, count int) {
	for i := range count {
		n.createFoo(namespace, fooName(i), fooName(i))
	}
}

func (n *neighbourhood) editFoo(namespace, name, patch string) error {
	_, err := n.samples.SamplecontrollerV1alpha1().Foos(namespace).Patch(n.Ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

func (n *neighbourhood) editDeployment(namespace, name, patch string) {
	n.t.Helper()
	_, err := n.kube.AppsV1().Deployments(namespace).Patch(n.Ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	n.must(err)
}

// replicas returns the number in a Deployment, or -1 if it does not exist.
func (n *neighbourhood) replicas(namespace, name string) int {
	dep, found := n.Server.Object(deploymentResource, namespace, name).(*appsv1.Deployment)
	if !found {
		return -1
	}
	return int(*dep.Spec.Replicas)
}

// expect waits until a Deployment next door has this number of replicas. The test fails if that takes longer than most.
func (n *neighbourhood) expect(what, name string, replicas int, most time.Duration) {
	n.t.Helper()
	began := time.Now()
	for n.replicas(nextDoor, name) != replicas {
		if time.Since(began) > 10*time.Minute {
			n.t.Fatalf("probe %d: %s: not within 10 minutes, want within %s", n.probes, what, most)
		}
		time.Sleep(time.Millisecond)
	}
	if delay := time.Since(began); delay > most {
		n.t.Errorf("probe %d: %s: after %s, want within %s", n.probes, what, delay, most)
	}
}

// probe does next door what happens there every day, and checks that the controller does its part in time.
func (n *neighbourhood) probe(most time.Duration) {
	n.t.Helper()
	n.probes++
	name, other := fmt.Sprintf("new-%d", n.probes), fmt.Sprintf("edited-%d", n.probes)
	n.createFoo(nextDoor, name, name)
	n.expect("a new Foo has its Deployment", name, 1, most)
	time.Sleep(time.Second) // The rest of the sync.

	n.editDeployment(nextDoor, name, `{"spec":{"replicas":5}}`)
	n.expect("drift is corrected", name, 1, most)
	time.Sleep(time.Second)

	n.during(fmt.Sprintf("patch deployments %s/%s", nextDoor, name), func() error {
		return scenario.Modified(deploymentResource.GroupResource(), name)
	})
	n.editDeployment(nextDoor, name, `{"spec":{"replicas":5}}`)
	n.expect("drift is corrected after a conflict", name, 1, most)

	n.during(fmt.Sprintf("patch foos/status %s/%s", nextDoor, other), func() error {
		return n.editFoo(nextDoor, other, `{"spec":{"replicas":3}}`)
	})
	n.createFoo(nextDoor, other, other)
	n.expect("an edit during a status write is acted on", other, 3, 2*most)
}

// probeFor lets time pass and probes meanwhile.
func (n *neighbourhood) probeFor(d, interval, most time.Duration) {
	n.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end) && !n.t.Failed(); {
		time.Sleep(interval)
		n.probe(most)
	}
}
