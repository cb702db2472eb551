package main

import (
	"context"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

// runLean is step 7 of the tutorial, with controller-runtime, as somebody would write it who knows the framework and
// cares for requests and memory: it has no limit of requests, as many workers as foo-controller, only its own
// Deployments in its cache, no managed fields, no syncs after its own reports, no write without a difference, and no
// log. What it writes, it has from package plan.
func runLean(ctx context.Context, config *rest.Config) error {
	ctrl.SetLogger(logr.Discard())
	made := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": "foo-controller"})
	return runFramework(ctx, config, cache.ByObject{Label: made}, predicate.GenerationChangedPredicate{})
}

// runFull has more of what foo-controller promises: it logs each write of a Deployment, puts right a status that
// somebody else has overwritten, and knows all Deployments, those that no Foo controls as stubs.
func runFull(ctx context.Context, config *rest.Config) error {
	ctrl.SetLogger(klog.Background()) // That of zap drops lines when there are many.
	return runFramework(ctx, config, cache.ByObject{Transform: stub})
}

// stub removes the managed fields of a Deployment. If no Foo controls it, only its identity is left.
func stub(obj any) (any, error) {
	dep, ok := obj.(*appsv1.Deployment)
	if !ok {
		return obj, nil
	}
	dep.ManagedFields = nil
	if plan.FooReference(dep) != nil {
		return dep, nil
	}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: dep.Namespace, Name: dep.Name, UID: dep.UID, ResourceVersion: dep.ResourceVersion,
	}}, nil
}

func runFramework(
	ctx context.Context, config *rest.Config, deployments cache.ByObject, predicates ...predicate.Predicate,
) error {
	config.QPS = -1
	if err := v1alpha1.Install(scheme.Scheme); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&appsv1.Deployment{}: deployments},
		},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&v1alpha1.Foo{}, builder.WithPredicates(predicates...)).
		Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

type reconciler struct{ client.Client }

// Reconcile creates or corrects the Deployment of a Foo, or reports on it. The event of its own write brings the Foo
// back, with a cache that shows the write.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (done ctrl.Result, err error) {
	foo, have := &v1alpha1.Foo{}, &appsv1.Deployment{}
	if err := r.Get(ctx, request.NamespacedName, foo); err != nil || foo.DeletionTimestamp != nil {
		return done, client.IgnoreNotFound(err)
	}
	err = r.Get(ctx, client.ObjectKey{Namespace: foo.Namespace, Name: foo.Spec.DeploymentName}, have)
	if apierrors.IsNotFound(err) {
		if err = r.Create(ctx, plan.Deployment(foo)); err == nil {
			log.FromContext(ctx).Info("Created Deployment", "deployment", foo.Spec.DeploymentName)
			return done, nil
		}
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // If it exists, the selector hides it, or the cache lags.
		return done, err
	}
	if patch := plan.Drift(plan.TrimDeployment(have), foo); patch != nil && metav1.IsControlledBy(have, foo) {
		log.FromContext(ctx).Info("Correcting Deployment", "deployment", have.Name, "fields", patch.Fields)
		return done, r.Patch(ctx, have, client.RawPatch(types.StrategicMergePatchType, patch.Body))
	}
	if step := nextStep(foo, have); step != nil && step.Verb == reconcile.UpdateStatus {
		return done, r.Status().Update(ctx, step.Body.(*v1alpha1.Foo))
	}
	return done, nil
}
