// Command controller-runtime keeps one Deployment for each Foo. It is step 6 of the tutorial: step 4 again, with a
// framework.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// byDeployment is a field index: from the name of a Deployment to the Foos that name it.
const byDeployment = "spec.deploymentName"

func main() {
	apply := flag.Bool("apply", false, "write Deployments with server-side apply, without a comparison")
	flag.Parse()
	config, err := ctrl.GetConfig() // It has defined the flag --kubeconfig, and reads $KUBECONFIG without it.
	exitOn(err)
	ctrl.SetLogger(logr.Discard()) // This program prints what it does. A real one logs.

	// A scheme has the Go types of all kinds: ours, and those of Kubernetes.
	scheme := runtime.NewScheme()
	exitOn(kubescheme.AddToScheme(scheme))
	exitOn(v1alpha1.Install(scheme))
	// The manager has one client and one cache for all kinds. It starts an informer for each kind that is read.
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	exitOn(err)
	ctx := ctrl.SetupSignalHandler()
	exitOn(manager.GetFieldIndexer().IndexField(ctx, &v1alpha1.Foo{}, byDeployment,
		func(foo client.Object) []string { return []string{foo.(*v1alpha1.Foo).Spec.DeploymentName} }))
	// Informers, handlers, a queue, workers and retries: all of steps 2 and 3, and enqueueOwner of step 4.
	exitOn(ctrl.NewControllerManagedBy(manager).
		For(&v1alpha1.Foo{}).       // A Foo is its own key.
		Owns(&appsv1.Deployment{}). // The key of a Deployment is that of the Foo that controls it.
		Complete(&reconciler{manager.GetClient(), *apply}))
	exitOn(manager.Start(ctx)) // Until Ctrl-C.
	fmt.Println("stopped")
}

type reconciler struct {
	client.Client // Reads come from the cache, writes are requests.
	apply         bool
}

// Reconcile is sync of step 4. An error means a retry with backoff.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	foo := &v1alpha1.Foo{}
	if err := r.Get(ctx, request.NamespacedName, foo); err != nil || foo.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.apply {
		return ctrl.Result{}, r.applyDeployment(ctx, foo)
	}
	have := &appsv1.Deployment{}
	err := r.Get(ctx, client.ObjectKey{Namespace: foo.Namespace, Name: foo.Spec.DeploymentName}, have)
	if apierrors.IsNotFound(err) {
		want := deploymentFor(foo)
		if err := ctrl.SetControllerReference(foo, want, r.Scheme()); err != nil { // The owner reference.
			return ctrl.Result{}, err
		}
		if err := r.Create(ctx, want); err != nil {
			return ctrl.Result{}, err
		}
		fmt.Printf("created Deployment %s/%s\n", want.Namespace, want.Name)
		return ctrl.Result{RequeueAfter: time.Minute}, nil // The key comes back then, even without an event.
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !metav1.IsControlledBy(have, foo) {
		foos := &v1alpha1.FooList{}
		err := r.List(ctx, foos, client.InNamespace(foo.Namespace), client.MatchingFields{byDeployment: have.Name})
		fmt.Printf("not our own: Deployment %s; Foos that name it: %d\n", have.Name, len(foos.Items))
		return ctrl.Result{}, err
	}
	if want := foo.Spec.Replicas; want != nil && *have.Spec.Replicas != *want {
		before := *have.Spec.Replicas
		have.Spec.Replicas = want // Get has returned a copy, so it may be changed.
		if err := r.Update(ctx, have); err != nil {
			return ctrl.Result{}, err
		}
		fmt.Printf("corrected Deployment %s/%s: replicas %d, not %d\n", have.Namespace, have.Name, *want, before)
		return ctrl.Result{}, nil
	}
	before := foo.Status.DeepCopy()
	foo.Status.ObservedGeneration, foo.Status.AvailableReplicas = foo.Generation, have.Status.AvailableReplicas
	if equality.Semantic.DeepEqual(before, &foo.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Status().Update(ctx, foo); err != nil {
		return ctrl.Result{}, err
	}
	fmt.Printf("reported on Foo %v: available %d\n", request, foo.Status.AvailableReplicas)
	return ctrl.Result{}, nil
}

// applyDeployment sends what should be, each time, and the API server compares. An apply configuration has only the
// fields that are set: all others are left to others.
func (r *reconciler) applyDeployment(ctx context.Context, foo *v1alpha1.Foo) error {
	want := deploymentFor(foo)
	if err := ctrl.SetControllerReference(foo, want, r.Scheme()); err != nil {
		return err
	}
	owner := want.OwnerReferences[0]
	deployment := appsapply.Deployment(want.Name, want.Namespace).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).
			WithName(owner.Name).WithUID(owner.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(appsapply.DeploymentSpec().
			WithSelector(metaapply.LabelSelector().WithMatchLabels(want.Spec.Selector.MatchLabels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(want.Spec.Template.Labels).
				WithSpec(coreapply.PodSpec().WithContainers(coreapply.Container().WithName("nginx").WithImage("nginx")))))
	if foo.Spec.Replicas != nil {
		deployment.Spec.WithReplicas(*foo.Spec.Replicas)
	}
	if err := r.Apply(ctx, deployment, client.FieldOwner("learner"), client.ForceOwnership); err != nil {
		return err
	}
	fmt.Printf("applied Deployment %s/%s\n", want.Namespace, want.Name)
	return nil
}

// deploymentFor returns what should be, as in step 4.
func deploymentFor(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: foo.Spec.DeploymentName, Namespace: foo.Namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
			},
		},
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
