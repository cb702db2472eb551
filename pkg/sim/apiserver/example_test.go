package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// configMapServer returns a server for the examples.
func configMapServer() *apiserver.Server {
	return apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// A controller that labels ConfigMaps, with a real informer. A test would run it in a bubble of testing/synctest, where
// it takes no time.
func Example() {
	s := configMapServer()
	client := kubernetes.NewForConfigOrDie(s.Config("labeler"))
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(client, 0)
	labeled := make(chan struct{})
	label := func(cm *corev1.ConfigMap) {
		if cm.Labels["seen"] != "" {
			close(labeled)
			return
		}
		cm = cm.DeepCopy()
		cm.Labels = map[string]string{"seen": "yes"}
		if _, err := client.CoreV1().ConfigMaps(cm.Namespace).Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			fmt.Println(err)
		}
	}
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { label(obj.(*corev1.ConfigMap)) },
		UpdateFunc: func(_, obj any) { label(obj.(*corev1.ConfigMap)) },
	})
	if err != nil {
		fmt.Println(err)
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)

	user := kubernetes.NewForConfigOrDie(s.Config("alice")).CoreV1().ConfigMaps("default")
	if _, err := user.Create(ctx, configMap("a"), metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
	<-labeled
	cancel()
	factory.Shutdown()
	for _, rev := range s.History(configMaps) {
		fmt.Println(rev.Version, rev.Type, rev.Name, "by", rev.User)
	}
	// Output:
	// 3 ADDED a by alice
	// 4 MODIFIED a by labeler
}

// The server executes a request, but its response is lost. A client that retries finds the name taken.
func ExampleServer_Intercept() {
	s := configMapServer()
	lost := false
	s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		response, err := next()
		if r.Verb == "create" && !lost {
			lost = true
			return nil, errors.New("connection reset by peer")
		}
		return response, err
	})
	api := kubernetes.NewForConfigOrDie(s.Config("alice")).CoreV1().ConfigMaps("default")
	for range 2 {
		_, err := api.Create(context.Background(), configMap("a"), metav1.CreateOptions{})
		fmt.Println(apierrors.IsAlreadyExists(err), err)
	}
	// Output:
	// false Post "http://apiserver/api/v1/namespaces/default/configmaps": connection reset by peer
	// true configmaps "a" already exists
}

// After a compaction, clients cannot continue at older versions.
func ExampleServer_Compact() {
	s := configMapServer()
	ctx := context.Background()
	api := kubernetes.NewForConfigOrDie(s.Config("alice")).CoreV1().ConfigMaps("default")
	for _, name := range []string{"a", "b"} {
		if _, err := api.Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
			fmt.Println(err)
		}
	}
	page, err := api.List(ctx, metav1.ListOptions{Limit: 1})
	fmt.Println(len(page.Items), err)
	if _, err := api.Create(ctx, configMap("c"), metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
	s.Compact()
	_, err = api.List(ctx, metav1.ListOptions{Limit: 1, Continue: page.Continue})
	fmt.Println(apierrors.IsResourceExpired(err))
	// A watch reports it with its first event.
	w, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: page.ResourceVersion})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Stop()
	event := <-w.ResultChan()
	fmt.Println(event.Type, apierrors.FromObject(event.Object))
	// Output:
	// 1 <nil>
	// true
	// ERROR too old resource version: 4 (5)
}

// A quota returns the message of a real server.
func ExampleServer_Review() {
	s := configMapServer()
	s.Review(apiserver.Quota(s, "small", configMaps, 1))
	api := kubernetes.NewForConfigOrDie(s.Config("alice")).CoreV1().ConfigMaps("default")
	for _, name := range []string{"a", "b"} {
		_, err := api.Create(context.Background(), configMap(name), metav1.CreateOptions{})
		fmt.Println(strings.ReplaceAll(fmt.Sprint(err), ", requested", ",\nrequested"))
	}
	// Output:
	// <nil>
	// configmaps "b" is forbidden: exceeded quota: small,
	// requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1
}
