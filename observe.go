package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file is what the Controller sees: the caches by way of their indexes, and now and then the API server
// itself. It only reads.

const (
	// byDeployment indexes Foos by the namespace/name of the Deployment that they name.
	byDeployment = "deployment"
	// byFoo indexes Deployments by their namespace and the uid of the Foo that controls them.
	byFoo = "foo"
)

// observe gathers what the caches know about a Foo. Foo stays nil when there is none, or one that is going: the
// garbage collector removes its Deployment, and a write now would race it.
func (c *Controller) observe(key cache.ObjectName) (plan.Seen, error) {
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.writes.Forget(key)
		c.pauses.forget(key)
		return plan.Seen{}, nil
	}
	if err != nil || foo.DeletionTimestamp != nil {
		return plan.Seen{}, err
	}
	dep, err := c.deployments.Deployments(key.Namespace).Get(foo.Spec.DeploymentName)
	if apierrors.IsNotFound(err) {
		return c.around(foo, nil), nil
	}
	if err != nil {
		return plan.Seen{}, err
	}
	return c.around(foo, dep), nil
}

// look is observe for caches that cannot be relied upon: it asks the API server itself for what a decision rests on
// most, the Foo and the Deployment that it names.
func (c *Controller) look(ctx context.Context, key cache.ObjectName) (plan.Seen, error) {
	live, err := c.lookAtFoo(ctx, key)
	if err != nil {
		return plan.Seen{}, err
	}
	if live.Foo == nil || live.Foo.DeletionTimestamp != nil {
		c.trust(key)
		return plan.Seen{}, nil
	}
	dep, err := c.lookAtDeployment(ctx, key.Namespace, live.Foo.Spec.DeploymentName)
	if err != nil {
		return plan.Seen{}, err
	}
	if dep != nil {
		c.writes.Met(key, live.Foo.UID, deploymentsResource, dep.ResourceVersion)
	}
	c.trust(key)
	seen := c.around(live.Foo, dep)
	seen.Live = live
	return seen, nil
}

// trust ends the doubts about what the caches have of the Foo and its Deployments.
func (c *Controller) trust(key cache.ObjectName) {
	c.writes.Trust(key, foosResource)
	c.writes.Trust(key, deploymentsResource)
}

// around adds to foo, and to the Deployment that it names, what else a decision depends on.
func (c *Controller) around(foo *v1alpha1.Foo, dep *appsv1.Deployment) plan.Seen {
	key, name := cache.MetaObjectToName(foo), foo.Spec.DeploymentName
	seen := plan.Seen{
		Foo: foo, Named: dep, Holders: c.holders(foo, dep), Claimants: c.claimants(foo.Namespace, name), Wrote: c.writes.Known(key, foo.UID),
	}
	for _, owned := range c.controlledBy(foo) {
		if owned.Name != name {
			seen.Owned = append(seen.Owned, owned)
		}
	}
	c.pauses.tell(&seen)
	return seen
}

// holders follows from dep who has it, what that Foo wants instead, who has that, and so on; see plan.Seen.
func (c *Controller) holders(foo *v1alpha1.Foo, dep *appsv1.Deployment) []*v1alpha1.Foo {
	var holders []*v1alpha1.Foo
	for dep != nil && !plan.Owns(foo, dep) {
		holder := c.holder(dep)
		if holder == nil || slices.Contains(holders, holder) {
			return holders
		}
		holders = append(holders, holder)
		if holder.DeletionTimestamp != nil || holder.Spec.DeploymentName == dep.Name {
			return holders
		}
		dep, _ = c.deployments.Deployments(holder.Namespace).Get(holder.Spec.DeploymentName) // Nil when there is none.
		if dep != nil && plan.Owns(foo, dep) {
			return append(holders, foo)
		}
	}
	return holders
}

// lookAtFoo asks the API server itself about a Foo.
func (c *Controller) lookAtFoo(ctx context.Context, key cache.ObjectName) (*plan.Live, error) {
	foo, err := c.samples.SamplecontrollerV1alpha1().Foos(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &plan.Live{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at Foo %s: %w", key, err)
	}
	return &plan.Live{Foo: foo}, nil
}

// lookAtDeployment asks the API server itself about a Deployment, and returns nil when there is none.
func (c *Controller) lookAtDeployment(ctx context.Context, namespace, name string) (*appsv1.Deployment, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil // None can have that name, and it may not even be possible to ask.
	}
	dep, err := c.kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at Deployment %s/%s: %w", namespace, name, err)
	}
	return dep, nil
}

// holder returns the cached Foo that controls dep, nil when there is none.
func (c *Controller) holder(dep *appsv1.Deployment) *v1alpha1.Foo {
	ref := plan.FooReference(dep)
	if ref == nil {
		return nil
	}
	foo, err := c.foos.Foos(dep.Namespace).Get(ref.Name)
	if err != nil || foo.UID != ref.UID {
		return nil
	}
	return foo
}

// claimants returns the cached Foos that name the Deployment.
func (c *Controller) claimants(namespace, deployment string) []*v1alpha1.Foo {
	foos, _ := c.fooIndexer.ByTypedIndex(byDeployment, cache.NewObjectName(namespace, deployment).String()) // Fails only without the index.
	return foos
}

// controlledBy returns the cached Deployments that foo controls.
func (c *Controller) controlledBy(foo *v1alpha1.Foo) []*appsv1.Deployment {
	deps, _ := c.deploymentIndexer.ByTypedIndex(byFoo, foo.Namespace+"/"+string(foo.UID)) // Fails only without the index.
	return deps
}

// deploymentKeys is the index function of byDeployment.
func deploymentKeys(foo *v1alpha1.Foo) ([]string, error) {
	return []string{cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName).String()}, nil
}

// fooUIDs is the index function of byFoo.
func fooUIDs(dep *appsv1.Deployment) ([]string, error) {
	if ref := plan.FooReference(dep); ref != nil {
		return []string{dep.Namespace + "/" + string(ref.UID)}, nil // Who writes a uid into another namespace has no say here.
	}
	return nil, nil
}
