package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	clientset "acme.example.com/widget-controller/pkg/generated/clientset/versioned"
	"acme.example.com/widget-controller/pkg/generated/clientset/versioned/scheme"
	widgetinformers "acme.example.com/widget-controller/pkg/generated/informers/externalversions"
	informers "acme.example.com/widget-controller/pkg/generated/informers/externalversions/acme/v1alpha1"
	"acme.example.com/widget-controller/pkg/plan"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/decode"
)

// newController returns a Controller for all namespaces or one. Its informers have a connection of their own, so that a
// burst of writes does not delay watches. For --explain, both are the same one, which refuses writes.
func newController(ctx context.Context, reads, writes kit.Connection, options *kit.Options,
	recorder events.EventRecorder) (*Controller, error) {
	from, readErr := newClients(reads)
	to, writeErr := newClients(writes)
	name, nameErr := cache.NewInformerName(controllerName) // For metrics.
	if err := errors.Join(readErr, writeErr, nameErr); err != nil {
		return nil, err
	}
	return New(ctx, to, newCaches(from, name, options), recorder, options.Workers), nil
}

// clients are what a Controller reads live and writes through.
type clients struct {
	kube    kubernetes.Interface
	widgets clientset.Interface
}

func newClients(c kit.Connection) (clients, error) {
	kube, kubeErr := kubernetes.NewForConfigAndClient(c.Config, c.HTTP)
	widgets, widgetsErr := decode.NewClient(c.Config, c.HTTP, scheme.Scheme, plan.WidgetKind.GroupVersion())
	if err := errors.Join(kubeErr, widgetsErr); err != nil {
		return clients{}, fmt.Errorf("make client: %w", err)
	}
	return clients{kube: kube, widgets: clientset.New(widgets)}, nil
}

// caches are what a Controller reads from.
type caches struct {
	widgets     informers.TypedWidgetInformer
	configMaps  coreinformers.TypedConfigMapInformer
	deployments appsinformers.TypedDeploymentInformer
}

// newCaches returns the caches of all namespaces or one. The process starts their informers.
func newCaches(clients clients, name *cache.InformerName, options *kit.Options) caches {
	widgets := widgetinformers.NewSharedInformerFactoryWithOptions(clients.widgets, options.Resync,
		widgetinformers.WithTransform(plan.Trim), widgetinformers.WithNamespace(options.Namespace),
		widgetinformers.WithInformerName(name))
	kube := kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, 0, kubeinformers.WithTransform(plan.Trim),
		kubeinformers.WithNamespace(options.Namespace), kubeinformers.WithInformerName(name))
	return caches{
		widgets:     widgets.Acme().V1alpha1().Widgets(),
		configMaps:  kube.Core().V1().ConfigMaps(),
		deployments: kube.Apps().V1().Deployments(),
	}
}

// needs returns what the controller needs of a cluster. artifacts/deploy/rbac.yaml grants the permissions.
func needs(namespace string) kit.Needs {
	return kit.Needs{
		Served: []kit.Served{{
			Kind: plan.WidgetKind.GroupVersionKind, Resource: "widgets",
			StatusFields: []string{"conditions", "observedGeneration"},
		}},
		Permissions: slices.Concat(
			kit.Allow(namespace, v1alpha1.GroupName, "widgets", "get", "list", "watch"),
			kit.Allow(namespace, v1alpha1.GroupName, "widgets/status", "patch"),
			kit.Allow(namespace, v1alpha1.GroupName, "widgets/finalizers", "update"),
			kit.Allow(namespace, "", "configmaps", "get", "list", "watch", "create", "patch"),
			kit.Allow(namespace, "apps", "deployments", "get", "list", "watch", "create", "patch"),
			kit.Allow(namespace, "events.k8s.io", "events", "create", "patch"),
		),
	}
}
