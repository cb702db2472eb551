package crd_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

var greetings = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "greetings"}

// runGreeter is the controller of the example: each Greeting gets a ConfigMap with its text.
func runGreeter(ctx context.Context, config *rest.Config) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	informer := factory.ForResource(greetings)
	add := func(obj any) { queue.Add(cache.MetaObjectToName(obj.(*unstructured.Unstructured))) }
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add})
	if err != nil {
		panic(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, queue.ShutDown)
	client := kubernetes.NewForConfigOrDie(config)
	for {
		key, stopped := queue.Get()
		if stopped {
			factory.Shutdown()
			return
		}
		if err := greet(ctx, client, informer.Lister(), key); err != nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func greet(ctx context.Context, client kubernetes.Interface, lister cache.GenericLister, key cache.ObjectName) error {
	obj, err := lister.ByNamespace(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	text, _, err := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", "text")
	if err != nil {
		return err
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, Data: map[string]string{"text": text}}
	_, err = client.CoreV1().ConfigMaps(key.Namespace).Create(ctx, cm, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // The answer to an earlier request was lost.
	}
	return err
}
