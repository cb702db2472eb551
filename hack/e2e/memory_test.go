package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// createDeployment creates a Deployment with an owner reference to a Foo that does not exist.
func (c *cluster) createDeployment(t *testing.T, namespace, name string, edit func(*appsv1.Deployment)) {
	t.Helper()
	labels := map[string]string{"app": name}
	dep := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Foo", Name: "gone", UID: "gone", Controller: new(true),
		}}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
			},
		},
	}
	edit(dep)
	if _, err := c.kube.AppsV1().Deployments(namespace).Create(t.Context(), dep, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The caches do not have the metadata that users write, so the controller writes statuses without it. The API server
// keeps it.
func TestStatusWritesKeepTheMetadata(t *testing.T) {
	e := newEnv(t, apiCluster)
	foos := e.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
	foo, err := foos.Create(t.Context(), &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Labels: map[string]string{"team": "blue"}, Annotations: map[string]string{"note": "keep"},
			Finalizers: []string{"example.com/keep"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "parent", UID: "00000000-0000-0000-0000-000000000001"},
			},
		},
		Spec: v1alpha1.FooSpec{DeploymentName: "web"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.controller(t)
	deployments := e.kube.AppsV1().Deployments(e.namespace)
	for available := range int32(100) { // Each number is a status.
		until(t, fmt.Sprintf("the status has %d", available), func(ctx context.Context) (bool, error) {
			dep, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			if err == nil && dep.Status.AvailableReplicas != available+1 {
				dep.Status.ObservedGeneration, dep.Status.Replicas = dep.Generation, available+1
				dep.Status.AvailableReplicas, dep.Status.ReadyReplicas = available+1, available+1
				_, err = deployments.UpdateStatus(ctx, dep, metav1.UpdateOptions{})
			}
			if err != nil {
				return false, err
			}
			foo, err := foos.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && foo.Status.AvailableReplicas == available+1, err
		})
	}
	after, err := foos.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range []*v1alpha1.Foo{foo, after} { // These change, or are about the status.
		obj.ResourceVersion, obj.ManagedFields = "", nil
	}
	if diff := cmp.Diff(foo.ObjectMeta, after.ObjectMeta); diff != "" {
		t.Errorf("metadata (-before +after 100 writes of the status):\n%s", diff)
	}
	if _, err := foos.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
