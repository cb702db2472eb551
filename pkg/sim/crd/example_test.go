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

func TestAGreetingGetsItsConfigMapAfterALostRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Time is virtual: a minute takes none.
		server := apiserver.New(apiserver.ConfigMaps(), crd.MustLoad("testdata/greetings.yaml"))
		lost := false
		server.Intercept(func(r *apiserver.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if r.User == "greeter" && r.Verb == "create" && !lost {
				lost = true
				return nil, errors.New("connection reset by peer")
			}
			return next()
		})
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
	})
}
