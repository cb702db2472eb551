package crd_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/crd"
	"example.com/foo-controller/pkg/sim/faults"
	"example.com/foo-controller/pkg/sim/simtest"
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

func TestAGreetingGetsItsConfigMapThoughAnAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Time is virtual: a minute takes none.
		server := apiserver.New(apiserver.ConfigMaps(), crd.MustLoad("testdata/greetings.yaml"))
		lost := faults.Fault{Kind: faults.LostAfter, Verb: "create", Nth: 1} // The server executes the first create.
		faults.Schedule{Faults: []faults.Fault{lost}}.Inject(server, "greeter")
		writes := simtest.RecordWrites(server, "greeter", nil)
		go runGreeter(t.Context(), server.Config("greeter"))

		user := dynamic.NewForConfigOrDie(server.Config("alice")).Resource(greetings).Namespace("default")
		greeting := &unstructured.Unstructured{}
		greeting.SetGroupVersionKind(greetings.GroupVersion().WithKind("Greeting"))
		greeting.SetName("a")
		if _, err := user.Create(t.Context(), greeting, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // The queue of the controller backs off before it tries again.

		stored := server.Objects(corev1.SchemeGroupVersion.WithResource("configmaps"))
		if len(stored) != 1 || stored[0].(*corev1.ConfigMap).Data["text"] != "hello" { // The default of the schema.
			t.Errorf("the ConfigMaps are %v after the requests\n%s", stored, server.Trace())
		}
		if diff := cmp.Diff([]string{"create configmaps a", "create configmaps a"}, writes.Take()); diff != "" {
			t.Errorf("the controller creates the ConfigMap, and tries once more (-want +got):\n%s", diff)
		}
	})
}
