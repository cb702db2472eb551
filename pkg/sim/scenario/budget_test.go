package scenario

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// The controller of these tests keeps a ConfigMap for each PodDisruptionBudget. This kind comes with Kubernetes, and has
// observedGeneration and state.
type budgetInput struct {
	Budget    *policyv1.PodDisruptionBudget
	ConfigMap *corev1.ConfigMap
}

var (
	budgetKind = reconcile.KindOf[*policyv1.PodDisruptionBudget](
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"))
	configMapKind = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	budgetGVR     = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	configMapGVR  = corev1.SchemeGroupVersion.WithResource("configmaps")
)

var budgetPlan = reconcile.New(reconcile.Plan[budgetInput]{
	Object:             func(in *budgetInput) reconcile.Ref { return reconcile.RefTo(budgetKind, &in.Budget) },
	ObservedGeneration: func(in *budgetInput) int64 { return in.Budget.Status.ObservedGeneration },
	Rules: []reconcile.Rule[budgetInput]{{Name: "keep ConfigMap", Ask: func(in *budgetInput) reconcile.Answer {
		return reconcile.Keep(configMapKind, &in.ConfigMap, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: in.Budget.Namespace, Name: in.Budget.Name,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.Budget, budgetKind.GroupVersionKind)},
			},
			Data: map[string]string{"max": in.Budget.Spec.MaxUnavailable.String()},
		})
	}}},
	Status: func(in *budgetInput, s *reconcile.Sync) *reconcile.Step {
		report := state.Report{True: state.Ready, Reason: "Kept", Message: "All is kept"}
		if problem := s.First(); problem != nil {
			report = problem.Report()
		}
		b := in.Budget.DeepCopy()
		b.Status.ObservedGeneration = b.Generation
		b.Status.Conditions = state.Conditions(b.Status.Conditions, report, b.Generation, s.Now())
		if reconcile.Summary(b.Status.Conditions) == reconcile.Summary(in.Budget.Status.Conditions) &&
			b.Status.ObservedGeneration == in.Budget.Status.ObservedGeneration {
			return nil
		}
		return reconcile.StatusStep(budgetKind, &in.Budget, b, in.Budget.Status.Conditions, b.Status.Conditions)
	},
})

func newBudgets(ctx context.Context, w Wiring) (*Controller, error) {
	client := kubernetes.NewForConfigOrDie(w.Config)
	factory := informers.NewSharedInformerFactory(client, 0)
	budgets, configMaps := factory.Policy().V1().PodDisruptionBudgets(), factory.Core().V1().ConfigMaps()
	r := &kit.Reconciler{
		Name: "budgeteer", Recorder: w.Recorder, Trim: func(obj any) (any, error) { return obj, nil },
		Kinds: []kit.Kind{
			kit.KindOf(budgetKind, budgetGVR.Resource, budgets.Informer(), client.PolicyV1().PodDisruptionBudgets),
			kit.KindOf(configMapKind, configMapGVR.Resource, configMaps.Informer(), client.CoreV1().ConfigMaps),
		},
	}
	r.Queue = kit.NewQueue(ctx, kit.QueueConfig{
		Kind: "budget", Workers: w.Workers,
		Sync: func(ctx context.Context, key cache.ObjectName) kit.Outcome {
			budget, err := budgets.Lister().PodDisruptionBudgets(key.Namespace).Get(key.Name)
			if err != nil || budget.DeletionTimestamp != nil {
				return r.Gone(ctx, key)
			}
			in := &budgetInput{Budget: budget}
			in.ConfigMap, _ = configMaps.Lister().ConfigMaps(key.Namespace).Get(key.Name)
			return r.Reconcile(ctx, budgetPlan.Sync(in))
		},
	})
	watch := func(klog.Logger) ([]cache.DoneChecker, error) {
		own, ownErr := budgets.TypedInformer().AddTypedEventHandler(kit.Objects[*policyv1.PodDisruptionBudget](r.Queue))
		children, childErr := configMaps.TypedInformer().AddTypedEventHandler(
			kit.Children[*corev1.ConfigMap](budgetKind.GroupKind(), r.Queue.Add))
		if err := errors.Join(ownErr, childErr); err != nil {
			return nil, err
		}
		return []cache.DoneChecker{own.HasSyncedChecker(), children.HasSyncedChecker()}, nil
	}
	run := func(ctx context.Context) {
		if handled, err := watch(klog.Logger{}); err == nil && cache.WaitFor(ctx, "", handled...) {
			r.Queue.Run(ctx)
		}
		r.Queue.ShutDown()
	}
	return &Controller{Reconciler: r, Watch: watch, Run: run}, nil
}

func budgets() Kind {
	kind := apiserver.KindOf(&policyv1.PodDisruptionBudget{}, kubescheme.Scheme)
	return Kind{
		Controller: "budgeteer", New: newBudgets, Served: []apiserver.Kind{kind, apiserver.ConfigMaps()},
	}
}

func budgetUsers() Users {
	kind, names := budgets(), []string{"a", "b"}
	return Users{
		Setup: func(ctx context.Context, user *rest.Config) error {
			for _, name := range names {
				budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
				_, err := kubernetes.NewForConfigOrDie(user).PolicyV1().PodDisruptionBudgets("default").
					Create(ctx, budget, metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		},
		Edits: []Edit{
			kind.Patch(budgetGVR, names, `{"spec":{"maxUnavailable":N}}`),
			kind.Patch(configMapGVR, names, `{"data":{"max":"x"}}`),
		},
		Dense: []Edit{kind.Delete(configMapGVR, names)},
	}
}
