package crd_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/crd"
)

func TestAGreetingGetsItsConfigMapAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Time is virtual: the backoff of the queue takes none.
		server := apiserver.New(apiserver.ConfigMaps(), crd.MustLoad("testdata/greetings.yaml"))
		refused := false
		server.Intercept(func(r *apiserver.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if r.User == "greeter" && r.Verb == "create" && !refused {
				refused = true
				return nil, errors.New("connection reset by peer")
			}
			return next()
		})
		go runGreeter(t.Context(), server.Config("greeter")) // The controller, with its informers and its queue.

		user := dynamic.NewForConfigOrDie(server.Config("alice")).Resource(greetings).Namespace("default")
		_, err := user.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": map[string]any{"name": "a"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()

		for _, obj := range server.Objects(corev1.SchemeGroupVersion.WithResource("configmaps")) {
			if text := obj.(*corev1.ConfigMap).Data["text"]; refused && text == "hello" { // The default in the definition.
				return
			}
		}
		t.Errorf("no ConfigMap has the text; the requests were\n%s", server.Trace())
	})
}
