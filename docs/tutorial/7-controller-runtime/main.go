// Command controller-runtime keeps one Deployment for each Foo. It is step 7 of the tutorial: step 4 again, with a
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// byDeployment is a field index: from the name of a Deployment to the Foos that name it.
const byDeployment = "spec.deploymentName"

func main() {
	apply := flag.Bool("apply", false, "write Deployments with server-side apply, without a comparison")
	flag.Parse()
	config, err := ctrl.GetConfig() // The import has defined the flag --kubeconfig. Without it, this reads $KUBECONFIG.
	exitOn(err)
	ctrl.SetLogger(logr.Discard()) // This program prints what it does, and its errors. A real one logs.

	// A scheme has the Go types of all kinds: ours, and those of Kubernetes.
	scheme := runtime.NewScheme()
	exitOn(kubescheme.AddToScheme(scheme))
	exitOn(v1alpha1.Install(scheme))
	// The manager has one client and one cache for all kinds. It starts an informer for each kind that is read.
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"}, // No metrics. Otherwise they are served at port 8080.
		Cache: cache.Options{DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			fmt.Println("reflector:", err)
		}},
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

// Reconcile is sync of step 4. Its caller retries after an error, with backoff.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	defer func() {
		if err != nil {
			fmt.Printf("failed %v: %v\n", request, err)
		}
	}()
	foo := &v1alpha1.Foo{}
	if err := r.Get(ctx, request.NamespacedName, foo); err != nil || foo.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	have := &appsv1.Deployment{}
	err = r.Get(ctx, client.ObjectKey{Namespace: foo.Namespace, Name: foo.Spec.DeploymentName}, have)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	exists := err == nil
	want, replicas := deploymentFor(foo), foo.Spec.Replicas
	// The reference needs the kind of foo, which a Go object does not have. The scheme finds it by the Go type.
	if err := ctrl.SetControllerReference(foo, want, r.Scheme()); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case exists && !metav1.IsControlledBy(have, foo):
		foos := &v1alpha1.FooList{}
		naming := client.MatchingFields{byDeployment: have.Name}
		if err := r.List(ctx, foos, client.InNamespace(foo.Namespace), naming); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, fmt.Errorf("not our own: Deployment %s; Foos that name it: %d", have.Name, len(foos.Items))
	case r.apply: // Without a comparison. If it was there already, the status follows.
		if err := r.applyDeployment(ctx, want); err != nil || !exists {
			return ctrl.Result{RequeueAfter: time.Minute}, err
		}
	case !exists:
		if err := r.Create(ctx, want); err != nil {
			return ctrl.Result{}, err
		}
		fmt.Printf("created Deployment %s/%s\n", want.Namespace, want.Name)
		return ctrl.Result{RequeueAfter: time.Minute}, nil // The key comes back then, even without an event.
	case replicas != nil && *have.Spec.Replicas != *replicas:
		before := *have.Spec.Replicas
		have.Spec.Replicas = replicas // Get has returned a copy, so it may be changed.
		if err := r.Update(ctx, have); err != nil {
			return ctrl.Result{}, err
		}
		fmt.Printf("corrected Deployment %s/%s: replicas %d, not %d\n", have.Namespace, have.Name, *replicas, before)
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
// fields that are set. A field that was never set here is left to others. One that was set in an earlier apply, and is
// absent now, is removed, unless another manager has it, too.
func (r *reconciler) applyDeployment(ctx context.Context, want *appsv1.Deployment) error {
	owner := want.OwnerReferences[0]
	deployment := appsapply.Deployment(want.Name, want.Namespace).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).
			WithName(owner.Name).WithUID(owner.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(appsapply.DeploymentSpec().
			WithSelector(metaapply.LabelSelector().WithMatchLabels(want.Spec.Selector.MatchLabels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(want.Spec.Template.Labels).
				WithSpec(coreapply.PodSpec().WithContainers(coreapply.Container().WithName("nginx").WithImage("nginx")))))
	deployment.Spec.Replicas = want.Spec.Replicas // Absent if the Foo has none.
	// Forced: a field that another manager has set, such as the replicas of kubectl scale, is taken over.
	if err := r.Apply(ctx, deployment, client.FieldOwner("learner"), client.ForceOwnership); err != nil {
		return err
	}
	fmt.Printf("applied Deployment %s/%s\n", want.Namespace, want.Name)
	return nil
}

// deploymentFor returns what should be, as in step 4, without the owner reference.
func deploymentFor(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: foo.Spec.DeploymentName, Namespace: foo.Namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
