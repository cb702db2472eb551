package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/hack/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
)

const (
	// tenant is the namespace with the problem, nextDoor the one of the users who wait.
	tenant   = "tenant"
	nextDoor = "next-door"
	// spares is the number of Foos next door whose Deployments are edited. Each is edited once, because the controller
	// waits before it corrects one Deployment again and again.
	spares = 40
	// clients is how many requests the load sends at the same time.
	clients = 8
)

// A place is a local control plane with a controller.
type place struct {
	plane   *controlplane.ControlPlane
	config  *rest.Config
	kube    kubernetes.Interface
	samples clientset.Interface
	binary  string
	// began is when the controller of a cold start was started. remark is what is added to the name of the problem.
	began      time.Time
	remark     string
	controller *process
}

// newPlace starts a control plane with both namespaces, and with the CRD as it is or as it was before it had a rule for
// times.
func newPlace(ctx context.Context, binary string, olderCRD bool) (_ *place, err error) {
	plane, err := controlplane.Start(".", "--components=api", "--audit")
	if err != nil {
		return nil, err
	}
	p := &place{plane: plane, binary: binary}
	if err := p.setUp(ctx, olderCRD); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *place) setUp(ctx context.Context, olderCRD bool) (err error) {
	if p.config, err = clientcmd.BuildConfigFromFlags("", p.plane.Kubeconfig()); err != nil {
		return err
	}
	p.config.QPS = -1
	p.config.UserAgent = "neighbours"
	p.config.WarningHandler = rest.NoWarnings{}
	if p.kube, err = kubernetes.NewForConfig(p.config); err != nil {
		return err
	}
	if p.samples, err = clientset.NewForConfig(p.config); err != nil {
		return err
	}
	if err := p.installCRD(olderCRD); err != nil {
		return err
	}
	for _, name := range []string{tenant, nextDoor} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := p.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

const crdFile = "artifacts/crd/samplecontroller.k8s.io_foos.yaml"

func (p *place) installCRD(older bool) error {
	if !older {
		return p.plane.Install(crdFile)
	}
	crd, err := controlplane.OlderCRD(crdFile)
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(p.plane.Kubeconfig()), "older-crd.yaml") // It is removed with the control plane.
	if err := os.WriteFile(file, []byte(crd), 0o600); err != nil {
		return err
	}
	return p.plane.Install(file)
}

// close stops the controller and the control plane.
func (p *place) close() {
	p.stopController()
	p.plane.Stop()
}

// startController starts the controller, and waits until its caches are filled, or for half a minute.
func (p *place) startController(ctx context.Context) (err error) {
	p.controller, err = startProcess(p.binary, "--kubeconfig", p.plane.Kubeconfig())
	if err != nil {
		return err
	}
	_ = poll(ctx, 30*time.Second, func() (bool, error) { return p.controller.hasLogged(`"Started"`), nil })
	return ctx.Err()
}

func (p *place) stopController() {
	if p.controller != nil {
		p.controller.stop()
	}
}

// createFoos creates n Foos in the namespace of the problem. deployment returns the name of the Deployment that a Foo
// names.
func (p *place) createFoos(ctx context.Context, n int, deployment func(name string) string) error {
	progress("creating %d Foos", n)
	return inParallel(ctx, n, func(i int) error {
		name := fmt.Sprintf("foo-%d", i)
		return p.createFoo(ctx, tenant, name, deployment(name))
	})
}

func (p *place) createFoo(ctx context.Context, namespace, name, deployment string) error {
	_, err := p.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: new(int32(1))},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// createSpares creates the Foos whose Deployments are edited, and waits for the Deployments.
func (p *place) createSpares(ctx context.Context) error {
	err := inParallel(ctx, spares, func(i int) error { return p.createFoo(ctx, nextDoor, spare(i), spare(i)) })
	if err != nil {
		return err
	}
	return p.waitForDeployments(ctx, nextDoor, spares, time.Minute)
}

func spare(i int) string { return fmt.Sprintf("spare-%d", i) }

// waitForDeployments waits until a namespace has n Deployments.
func (p *place) waitForDeployments(ctx context.Context, namespace string, n int, limit time.Duration) error {
	return poll(ctx, limit, func() (bool, error) {
		have, err := p.countDeployments(ctx, namespace)
		return have >= n, err
	})
}

// countDeployments reads one Deployment, and how many more there are.
func (p *place) countDeployments(ctx context.Context, namespace string) (int, error) {
	list, err := p.kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	n := len(list.Items)
	if list.RemainingItemCount != nil {
		n += int(*list.RemainingItemCount)
	}
	return n, nil
}

// waitForReports waits until every Foo of the tenant has a status of the controller.
func (p *place) waitForReports(ctx context.Context, limit time.Duration) error {
	return poll(ctx, limit, func() (bool, error) {
		time.Sleep(time.Second) // The list is long.
		list, err := p.samples.SamplecontrollerV1alpha1().Foos(tenant).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, foo := range list.Items {
			if foo.Status.ObservedGeneration == 0 {
				return false, nil
			}
		}
		return true, nil
	})
}

// poll waits until done returns true.
func poll(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, limit, true,
		func(context.Context) (bool, error) { return done() })
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("nothing after %s: %w", limit, err)
	}
	return err
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// inParallel calls do with the numbers from 0 to n-1, and returns the first error.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	numbers := make(chan int)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for i := range numbers {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		numbers <- i
	}
	close(numbers)
	running.Wait()
	return context.Cause(ctx)
}
